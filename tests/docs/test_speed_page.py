"""The page on speed says what its records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_those_of_the_records() -> None:
    script = ROOT / "scripts" / "speed_tables.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"Run scripts/speed_tables.py. {done.stderr}"
