"""What a threshold for objects and another one for background would keep of a teacher's pseudo-labels.

    .venv/bin/python scripts/trials/two_thresholds.py RUN DATASET --checkpoint step-600

Looked at are unlabelled training frames, evenly taken, whose masks were hidden from the run. The first table is about
pixels that the teacher calls an object, the second about those it calls background.
"""

from __future__ import annotations

from functools import partial

import torch
from lost_objects import HUNDRED, asker, counted, named, opened
from torch import Tensor

LEVELS = (0.0, 0.5, 0.7, 0.85, 0.9, 0.95, 0.98, 0.99)


def percent(part: Tensor, whole: Tensor) -> str:
    """A share, 0 of nothing."""
    return f"{HUNDRED * float(part / whole.clamp(min=1)):.1f}"


def main() -> None:
    """Look, count, print."""
    asked = asker(__doc__).parse_args()
    run = opened(asked)
    namings = [partial(named, kept=level) for level in LEVELS]
    counts = counted(run, asked.checkpoint, namings, judged=False, images=asked.images)
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
