"""Trials of whole runs share what tests of whole runs have: small ones, and a process that starts them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
