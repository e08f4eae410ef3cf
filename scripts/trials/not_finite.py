"""Every method of the table with a loss and a weight that are none in one run: python scripts/trials/not_finite.py."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "reliability")]

import torch  # noqa: E402
from test_not_finite import survives  # noqa: E402

from tiny_methods import WHOLE  # noqa: E402


def main() -> None:
    """One line per method."""
    torch.set_num_threads(1)
    os.fsync = lambda _handle: None  # type: ignore[assignment]
    for variant in WHOLE:
        with tempfile.TemporaryDirectory() as folder:
            survives(variant, Path(folder))
        print(f"{variant.name}: the loss was skipped, the weight rolled back, all files hold numbers")


if __name__ == "__main__":
    main()
