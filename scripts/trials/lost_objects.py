"""What becomes of objects: called right, called background, called another object; and what dividing out shares does.

    .venv/bin/python scripts/trials/lost_objects.py RUN DATASET
    .venv/bin/python scripts/trials/lost_objects.py RUN DATASET --judged
    .venv/bin/python scripts/trials/lost_objects.py RUN DATASET --checkpoint step-600 --kept 0.95

Looked at are unlabelled training frames, evenly taken, or with --judged all frames that the run is evaluated on. Each
line divides another power of the labels' class shares out of the network's probabilities before a pixel is named (as
`atc.adjust` does for pseudo-labels): 0 is the network's own word. With --kept only pixels at least so sure count as
named; what is less sure stays unnamed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ftcseg.evaluate.confusion import pair_counts
from ftcseg.evaluate.metrics import mean
from ftcseg.evaluate.predictor import Predictor
from ftcseg.evaluate.run import Shown, Tour, visit
from ftcseg.studies.finished import FinishedRun, open_run

POWERS = (0.0, 0.1, 0.25, 0.5, 1.0)
LEAST = 1e-6  # share of a class without labelled pixels
HUNDRED = 100


Naming = Callable[[Tensor], Tensor]
"""From a network's scores of an image, (classes, H, W), to the name of each pixel; `classes` stands for no name."""


def counted(run: FinishedRun, checkpoint: str, namings: Sequence[Naming], *, judged: bool, images: int) -> Tensor:
    """Pixels per way of naming, true class and given name, (namings, classes, classes + 1); the last name is none."""
    names = len(run.spec.classes) + 1
    predictor = Predictor(run.predictor(checkpoint) if judged else run.labeler(checkpoint), run.spec)
    found = torch.zeros(len(namings), names, names, dtype=torch.int64)

    def look(shown: list[Shown]) -> None:
        for scores, one in zip(predictor.scores([s.prepared for s in shown]), shown, strict=True):
            for place, naming in enumerate(namings):
                found[place] += pair_counts(naming(scores), one.labels, names)

    visit(run.judged() if judged else run.unlabeled(), run.spec, look, Tour(max_images=None if judged else images))
    return found[:, :-1]


def named(scores: Tensor, kept: float) -> Tensor:
    """The best class of each pixel that is at least so sure."""
    sure, names = scores.softmax(0).max(0)
    return names.masked_fill(sure < kept, len(scores))


def powers_out(run: FinishedRun, kept: float) -> list[Naming]:
    """Names after each power of the labels' class shares is divided out."""
    pixels = torch.tensor([run.split.counts[c.id].pixels for c in run.spec.classes], dtype=torch.float32)
    shares = (pixels / pixels.sum()).clamp(min=LEAST).log()[:, None, None]
    return [lambda scores, power=power: named(scores - power * shares, kept) for power in POWERS]


def asker(about: str | None) -> argparse.ArgumentParser:
    """Asks for a finished run and how many of its unlabelled frames to look at."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--images", type=int, default=200, help="unlabelled frames to look at")
    return parser


def opened(asked: argparse.Namespace) -> FinishedRun:
    """The run that was asked for."""
    root = os.environ.get("FTCSEG_DATA")
    return open_run(asked.run, asked.dataset, Path(root) if root else None)


def main() -> None:
    """Look, count, print."""
    parser = asker(__doc__)
    parser.add_argument("--judged", action="store_true", help="all frames the run is evaluated on")
    parser.add_argument("--kept", type=float, default=0.0, help="probability below which a pixel is not named")
    asked = parser.parse_args()
    run = opened(asked)
    empty = [c.id for c in run.spec.classes if c.background]
    objects = torch.tensor([c.id for c in run.spec.classes if not c.background])
    print("power   mIoU  objects right  called background  called another")
    found = counted(run, asked.checkpoint, powers_out(run, asked.kept), judged=asked.judged, images=asked.images)
    for power, counts in zip(POWERS, found, strict=True):
        called, of_objects = counts[:, :-1], counts[objects]
        right, all_of_them = called.diagonal()[objects].sum(), of_objects.sum()
        lost = of_objects[:, empty].sum()
        other = of_objects[:, :-1].sum() - right - lost
        union = counts.sum(1) + called.sum(0) - called.diagonal()
        score = mean([None if u == 0 else float(h / u) for h, u in zip(called.diagonal(), union, strict=True)])
        told = [f"{HUNDRED * float(part / all_of_them):.1f}" for part in (right, lost, other)]
        print(f"{power:<6} {HUNDRED * (score or 0):5.2f}  {told[0]:>13}  {told[1]:>17}  {told[2]:>14}", flush=True)


if __name__ == "__main__":
    main()
