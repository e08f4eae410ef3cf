"""Refuse files above 250 kB: data and weights do not belong into the repository.

.venv/bin/python scripts/large_files.py FILE...
"""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 250_000  # bytes


def main() -> int:
    """Name each file that is too large; 1 if there is one."""
    large = [path for path in map(Path, sys.argv[1:]) if path.is_file() and path.stat().st_size > LIMIT]
    for path in large:
        print(f"{path} has {path.stat().st_size:,} bytes; at most {LIMIT:,} are committed.")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
