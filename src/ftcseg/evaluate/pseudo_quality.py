"""What pseudo-labels are worth, counted against a truth that training never saw (reading D2).

Of the pixels of a class, by their truth or by what they were called:

    filtered       share that was dropped
    accuracy       share that is right, of those kept
    correct_kept   share that was kept and is right, of all        = accuracy * (1 - filtered)
    raw_accuracy   share that is right, of all, before any filter

"micro" adds up the pixels of a group before dividing; "macro" divides class by class and takes the mean. The product
holds for every class and every micro group; it does not hold for means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.evaluate.confusion import pair_counts
from ftcseg.evaluate.metrics import iou, mean, share
from ftcseg.types import GROUPS, IGNORE, ClassTable, Group, PseudoLabels

By: TypeAlias = Literal["truth", "prediction"]
GLOBAL = "global"
"""The group of all classes, background included."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Pixels of one class or group."""

    pixels: int
    kept: int
    correct: int
    correct_kept: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def rates(self) -> Rates:
        """The tally as shares."""
        return Rates(
            filtered=share(self.pixels - self.kept, self.pixels),
            accuracy=share(self.correct_kept, self.kept),
            correct_kept=share(self.correct_kept, self.pixels),
            raw_accuracy=share(self.correct, self.pixels),
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares between 0 and 1, None where there is nothing to divide by."""

    filtered: float | None
    accuracy: float | None
    correct_kept: float | None
    raw_accuracy: float | None


class PseudoQuality:
    """Pseudo-labels against the truth, over everything added."""

    counts: Tensor  # (2, num_classes, num_classes) int64 on the CPU: all and kept, each (truth, prediction)

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(2, num_classes, num_classes, dtype=torch.int64)

    def add(self, pseudo: PseudoLabels, keep: Tensor, truth: Tensor) -> None:
        """Count valid pixels whose truth is known; `keep` and `truth` are (B, H, W)."""
        seen = truth.masked_fill(~pseudo.valid, IGNORE)
        kept = seen.masked_fill(~keep, IGNORE)
        for place, target in enumerate((seen, kept)):
            self.counts[place] += pair_counts(pseudo.labels, target, self.counts.shape[-1]).cpu()

    def summed(self) -> PseudoQuality:
        """The same counts over all ranks."""
        total = PseudoQuality(self.counts.shape[-1])
        total.counts = sum_over_ranks(self.counts)
        return total

    def tallies(self, by: By) -> list[Tally]:
        """The tally of each class id, by truth or by prediction."""
        everything, kept = self.counts
        side = 1 if by == "truth" else 0
        columns = (everything.sum(side), kept.sum(side), everything.diagonal(), kept.diagonal())
        return [Tally(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def kept_miou(self) -> float | None:
        """Mean IoU of the accepted pseudo-labels, over accepted pixels only: a dropped pixel is no mistake here."""
        return mean(iou(self.counts[1]))

    def raw_miou(self) -> float | None:
        """Mean IoU of all pseudo-labels, before any filter."""
        return mean(iou(self.counts[0]))

    def as_json(self, classes: ClassTable, groups: Mapping[int, Group]) -> dict[str, object]:
        """Everything, ready to be written: by truth and by prediction, per class and per group."""
        return {
            "kept_miou": self.kept_miou(),
            "raw_miou": self.raw_miou(),
            "by_truth": _as_json(self.tallies("truth"), classes, groups),
            "by_prediction": _as_json(self.tallies("prediction"), classes, groups),
        }


def micro(tallies: Sequence[Tally]) -> Rates:
    """The rates of all these pixels together."""
    return sum(tallies, Tally(0, 0, 0, 0)).rates()


def macro(tallies: Sequence[Tally]) -> Rates:
    """The mean of the classes' rates; a class without pixels counts in none."""
    rates = [tally.rates() for tally in tallies]
    return Rates(*(mean(getattr(rate, f.name) for rate in rates) for f in fields(Rates)))


def grouped(tallies: Sequence[Tally], groups: Mapping[int, Group]) -> dict[str, list[Tally]]:
    """The tallies of each group's classes, and of all classes under "global"."""
    members: dict[str, list[Tally]] = {GLOBAL: list(tallies)}
    return members | {group: [tallies[c] for c, own in groups.items() if own == group] for group in GROUPS}


def _as_json(tallies: Sequence[Tally], classes: ClassTable, groups: Mapping[int, Group]) -> dict[str, object]:
    return {
        "classes": [
            {"id": c.id, "name": c.name, "counts": asdict(tallies[c.id]), **asdict(tallies[c.id].rates())}
            for c in classes
        ],
        "micro": {name: asdict(micro(members)) for name, members in grouped(tallies, groups).items()},
        "macro": {name: asdict(macro(members)) for name, members in grouped(tallies, groups).items()},
    }
