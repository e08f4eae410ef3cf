"""What a threshold for objects and another one for background would keep of a teacher's pseudo-labels.

    .venv/bin/python scripts/trials/two_thresholds.py RUN DATASET --checkpoint step-600

Looked at are unlabelled training frames, evenly taken, whose masks were hidden from the run. The first table is about
pixels that the teacher calls an object, the second about those it calls background.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import Tensor

from ftcseg.evaluate.confusion import pair_counts
from ftcseg.evaluate.predictor import Predictor
from ftcseg.evaluate.run import Shown, Tour, visit
from ftcseg.studies.finished import FinishedRun, open_run

LEVELS = (0.0, 0.5, 0.7, 0.85, 0.9, 0.95, 0.98, 0.99)
HUNDRED = 100


def counted(run: FinishedRun, checkpoint: str, images: int) -> Tensor:
    """Pixels per level, true class and given name, (levels, classes, classes + 1); the last name is none."""
    classes = len(run.spec.classes)
    predictor = Predictor(run.labeler(checkpoint), run.spec)
    found = torch.zeros(len(LEVELS), classes + 1, classes + 1, dtype=torch.int64)

    def look(shown: list[Shown]) -> None:
        for scores, one in zip(predictor.scores([s.prepared for s in shown]), shown, strict=True):
            sure, names = scores.softmax(0).max(0)
            for place, level in enumerate(LEVELS):
                found[place] += pair_counts(names.masked_fill(sure < level, classes), one.labels, classes + 1)

    visit(run.unlabeled(), run.spec, look, Tour(max_images=images))
    return found[:, :classes]


def percent(part: Tensor, whole: Tensor) -> str:
    """A share, 0 of nothing."""
    return f"{HUNDRED * float(part / whole.clamp(min=1)):.1f}"


def main() -> None:
    """Look, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--images", type=int, default=200, help="unlabelled frames to look at")
    asked = parser.parse_args()
    root = os.environ.get("FTCSEG_DATA")
    run = open_run(asked.run, asked.dataset, Path(root) if root else None)
    counts = counted(run, asked.checkpoint, asked.images)
    objects = torch.tensor([c.id for c in run.spec.classes if not c.background])
    empty = torch.tensor([c.id for c in run.spec.classes if c.background])
    true_objects, true_empty = counts[0][objects].sum(), counts[0][empty].sum()
    print("objects from  of all objects kept right  mean over classes  wrong among kept")
    for level, found in zip(LEVELS, counts, strict=True):
        right, called = found.diagonal()[objects], found[:, objects].sum()
        by_class = (right / found[objects].sum(1).clamp(min=1)).mean()
        wrong = percent(called - right.sum(), called)
        print(f"{level:<12}  {percent(right.sum(), true_objects):>25}  {HUNDRED * by_class:17.1f}  {wrong:>16}")
    print("background from  of all objects taught as background  of all background kept")
    for level, found in zip(LEVELS, counts, strict=True):
        taught, kept = found[objects][:, empty].sum(), found[empty][:, empty].sum()
        print(f"{level:<15}  {percent(taught, true_objects):>35}  {percent(kept, true_empty):>22}")


if __name__ == "__main__":
    main()
