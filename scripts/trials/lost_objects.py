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


def counted(run: FinishedRun, checkpoint: str, *, judged: bool, images: int, kept: float) -> Tensor:
    """Pixels per power, true class and given name, (powers, classes, classes + 1); the last name is none."""
    classes = len(run.spec.classes)
    pixels = torch.tensor([run.split.counts[c.id].pixels for c in run.spec.classes], dtype=torch.float32)
    shares = (pixels / pixels.sum()).clamp(min=LEAST).log()[:, None, None]
    network = run.predictor(checkpoint) if judged else run.labeler(checkpoint)
    predictor = Predictor(network, run.spec)
    found = torch.zeros(len(POWERS), classes + 1, classes + 1, dtype=torch.int64)

    def look(shown: list[Shown]) -> None:
        for scores, one in zip(predictor.scores([s.prepared for s in shown]), shown, strict=True):
            for place, power in enumerate(POWERS):
                sure, names = (scores - power * shares).softmax(0).max(0)
                found[place] += pair_counts(names.masked_fill(sure < kept, classes), one.labels, classes + 1)

    visit(run.judged() if judged else run.unlabeled(), run.spec, look, Tour(max_images=None if judged else images))
    return found[:, :classes]


def main() -> None:
    """Look, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--judged", action="store_true", help="all frames the run is evaluated on")
    parser.add_argument("--images", type=int, default=200, help="unlabelled frames to look at")
    parser.add_argument("--kept", type=float, default=0.0, help="probability below which a pixel is not named")
    asked = parser.parse_args()
    root = os.environ.get("FTCSEG_DATA")
    run = open_run(asked.run, asked.dataset, Path(root) if root else None)
    empty = [c.id for c in run.spec.classes if c.background]
    objects = torch.tensor([c.id for c in run.spec.classes if not c.background])
    print("power   mIoU  objects right  called background  called another")
    for power, counts in zip(
        POWERS,
        counted(run, asked.checkpoint, judged=asked.judged, images=asked.images, kept=asked.kept),
        strict=True,
    ):
        named, of_objects = counts[:, :-1], counts[objects]
        right, all_of_them = named.diagonal()[objects].sum(), of_objects.sum()
        lost = of_objects[:, empty].sum()
        other = of_objects[:, :-1].sum() - right - lost
        union = counts.sum(1) + named.sum(0) - named.diagonal()
        score = mean([None if u == 0 else float(h / u) for h, u in zip(named.diagonal(), union, strict=True)])
        told = [f"{HUNDRED * float(part / all_of_them):.1f}" for part in (right, lost, other)]
        print(f"{power:<6} {HUNDRED * (score or 0):5.2f}  {told[0]:>13}  {told[1]:>17}  {told[2]:>14}", flush=True)


if __name__ == "__main__":
    main()
