"""How far the difference of two rows of a study would move had other scenes been judged.

    .venv/bin/python scripts/trials/drawn_gaps.py STUDIES/ablation "M5 FTC-Seg > M1 labels only" "M5 FTC-Seg > M2 EMA"

Whole sequences of the validation frames are drawn again, the same for both rows and all seeds; each draw gives the mean
over seeds of the difference in mIoU, last checkpoint. The interval holds 95 % of the draws. It tells of the frames
alone: other labels or another start of the network move the difference as well, and that is the spread over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ftcseg.evaluate.bootstrap import Interval, bootstrap_difference
from ftcseg.evaluate.per_image import COUNTS, PerImage, read_counts
from ftcseg.files import read_json

HUNDRED = 100


def judged(study: Path, row: str, labels: str) -> dict[int, PerImage]:
    """A row's counts by seed."""
    results: list[dict[str, Any]] = read_json(study / "study.json")["results"]
    own = [r for r in results if (r["row"], r["labels"]) == (row, labels)]
    runs = {r["seed"]: study.parent / "runs" / f"{r['method']}-{r['key']}" for r in own}
    return {seed: read_counts(run / COUNTS) for seed, run in runs.items()}


def gap(ours: dict[int, PerImage], theirs: dict[int, PerImage]) -> Interval | None:
    """The mean over common seeds of the difference, and its interval over sequences."""
    seeds = sorted(ours.keys() & theirs.keys())
    mine, other = ([side[seed] for seed in seeds] for side in (ours, theirs))
    return bootstrap_difference(mine, other, mine[0].clusters).miou


def main() -> None:
    """One line for every pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="'ROW > ROW'")
    parser.add_argument("--labels", default="2%", help="which amount, where the study has several")
    asked = parser.parse_args()
    for pair in asked.pairs:
        ours, theirs = (judged(asked.study, row, asked.labels) for row in pair.split(" > "))
        found = gap(ours, theirs)
        if found is not None:
            value, low, high = (f"{HUNDRED * number:+.1f}" for number in (found.value, found.low, found.high))
            sequences = len(set(next(iter(ours.values())).clusters or ()))
            print(f"{pair}: {value} ({low} to {high}, {sequences} sequences)")


if __name__ == "__main__":
    main()
