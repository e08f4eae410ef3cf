"""From counts to scores: shares between 0 and 1, and None where there is nothing to judge, never 0 or nan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from torch import Tensor

from ftcseg.evaluate.boundary import Boundaries
from ftcseg.evaluate.calibration import Calibration
from ftcseg.evaluate.confusion import Confusion
from ftcseg.evaluate.per_image import PerImage
from ftcseg.types import GROUPS, ClassTable, Group


@dataclass(frozen=True, slots=True)
class ClassScore:
    """How one class was segmented; `pixels` counts those that truly are of it."""

    id: int
    name: str
    iou: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    boundary_f1: float | None
    pixels: int


@dataclass(frozen=True, slots=True)
class Scores:
    """How a set was segmented."""

    miou: float | None
    pixel_accuracy: float | None
    ece: float | None
    groups: Mapping[Group, float | None]
    """Mean IoU of the classes of each group."""
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...] = ()
    """Pixels by truth (rows) and prediction (columns); not part of `as_json`."""
    per_image: PerImage | None = field(default=None, compare=False)
    """The same image by image, where it was asked for; not part of `as_json`."""

    def as_json(self) -> dict[str, object]:
        """Plain dicts, lists and numbers, ready to be written."""
        return {
            "miou": self.miou,
            "pixel_accuracy": self.pixel_accuracy,
            "ece": self.ece,
            "groups": dict(self.groups),
            "classes": [asdict(score) for score in self.classes],
        }


def scores(
    confusion: Confusion,
    classes: ClassTable,
    groups: Mapping[int, Group],
    boundaries: Boundaries | None = None,
    calibration: Calibration | None = None,
) -> Scores:
    """All scores of one set; what was not counted is None. Under several ranks, hand in the `summed()` counts."""
    counts = confusion.counts
    truth, said, hit = (side.tolist() for side in (counts.sum(1), counts.sum(0), counts.diagonal()))
    outlines: list[float | None] = [None] * len(classes) if boundaries is None else boundaries.f1()
    ious = iou(counts)
    return Scores(
        miou=mean(ious),
        pixel_accuracy=share(sum(hit), sum(truth)),
        ece=None if calibration is None else calibration.error(),
        groups=group_means(ious, groups),
        classes=tuple(
            ClassScore(
                id=c.id,
                name=c.name,
                iou=ious[c.id],
                precision=share(hit[c.id], said[c.id]),
                recall=share(hit[c.id], truth[c.id]),
                f1=share(2 * hit[c.id], truth[c.id] + said[c.id]),
                boundary_f1=outlines[c.id],
                pixels=truth[c.id],
            )
            for c in classes
        ),
        confusion=tuple(tuple(row) for row in counts.tolist()),
    )


def iou(counts: Tensor) -> list[float | None]:
    """Intersection over union by class id, from a confusion matrix; None for a class in neither truth nor prediction.

    A class that is predicted but nowhere true has an IoU of 0, and counts in the mean.
    """
    hit, union = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
    return [share(h, u) for h, u in zip(hit.tolist(), union.tolist(), strict=True)]


def group_means(values: list[float | None], groups: Mapping[int, Group]) -> dict[Group, float | None]:
    """The mean of each group's classes, given the group of each class id; a class in no group counts in none."""
    return {group: mean(values[c] for c, own in groups.items() if own == group) for group in GROUPS}


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what there is; None of nothing."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def share(part: int, whole: int) -> float | None:
    """Part of whole; None when there is no whole."""
    return part / whole if whole else None
