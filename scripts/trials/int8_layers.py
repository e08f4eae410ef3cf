"""How many of the first layers must stay exact in int8? Exports a run with several shares and scores each.

    .venv/bin/python scripts/trials/int8_layers.py RUN DATASET --size 240x160

Scored are training frames, evenly taken: what is chosen by them may be confirmed on the part that is reported. A run
that learnt from few labels has not seen the masks of the others. Each line is the share of layers that stays exact, and
the mIoU before and after. Nothing is written but exports in a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
from fractions import Fraction
from pathlib import Path

from ftcseg import api
from ftcseg.export import int8

SHARES = (Fraction(0), Fraction(1, 40), Fraction(1, 20), Fraction(1, 10), Fraction(1, 6), Fraction(1, 4))


def main() -> None:
    """Export, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("dataset")
    parser.add_argument("--size", default="240x160", help="height x width that the graphs are made for")
    parser.add_argument("--images", type=int, default=180, help="training frames to score by")
    asked = parser.parse_args()
    height, width = map(int, asked.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        for number, share in enumerate(SHARES):
            int8.EXACT = share
            out = Path(folder) / str(number)
            judged = {"dataset": asked.dataset, "part": "train", "max_images": asked.images}
            told = api.export(asked.run, out, int8=True, size=(height, width), **judged)
            assert told.before is not None, "the set has masks"
            assert told.after is not None, "the set has masks"
            print(f"{share!s:5} mIoU {100 * told.before:.2f} -> {100 * told.after:.2f}", flush=True)


if __name__ == "__main__":
    main()
