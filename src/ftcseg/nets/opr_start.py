"""Where prototypes start when they start from data: class means, main directions, the features' length (A8, A11).

One pass over the labelled images with the initial model:

    start_prototypes(model.opr, ((model.features(images), labels) for images, labels in batches))
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.nets.opr import OPR, OPRParams, OPRStack, labels_at, length, unit
from ftcseg.types import IGNORE


def needs_data(params: OPRParams) -> bool:
    """Whether this reading's prototypes want `start_prototypes` before training."""
    return params.prototypes == "class_mean" or params.init == "features" or params.init_scale > 0


@torch.no_grad()
def start_prototypes(opr: OPRStack, batches: Iterable[tuple[list[Tensor], Tensor]]) -> None:
    """Set every stage's prototypes from (encoder maps, labels) pairs; the labels at image size."""
    seen = [_Seen(stage) for _, stage in opr]
    for features, labels in batches:
        for (level, _), stage_seen in zip(opr, seen, strict=True):
            stage_seen.add(features[level], labels)
    for (_, stage), stage_seen in zip(opr, seen, strict=True):
        stage.prototypes.copy_(_starting_rows(stage, stage_seen))


class _Seen:
    """Sums over the labelled pixels of one stage."""

    def __init__(self, stage: OPR) -> None:
        num_classes, channels = len(stage.is_foreground), stage.prototypes.shape[1]
        new_zeros = stage.prototypes.double().new_zeros
        self.foreground = stage.is_foreground
        self.count = new_zeros(num_classes)
        self.total = new_zeros(num_classes, channels)
        self.moment = new_zeros(channels, channels) if stage.params.init == "features" else None
        self.lengths = new_zeros(())

    def add(self, features: Tensor, labels: Tensor) -> None:
        ids = labels_at(labels, features.shape[-2:]).flatten()
        known = ids != IGNORE
        ids, pixels = ids[known], features.movedim(1, -1).flatten(0, -2)[known].double()
        self.count += torch.bincount(ids, minlength=len(self.count))
        self.total.index_add_(0, ids, pixels)
        self.lengths += length(pixels).sum()
        if self.moment is not None:
            front = unit(pixels[self.foreground[ids]])
            self.moment += front.T @ front


def _starting_rows(stage: OPR, seen: _Seen) -> Tensor:
    if not seen.count.sum():
        raise UsageError("Prototypes cannot start from data: no labelled pixel was shown to them.")
    rows = stage.prototypes.double()
    if stage.params.prototypes == "class_mean":
        rows = _class_means(rows, seen)
    elif seen.moment is not None:
        rows = _main_directions(rows, seen.moment, towards=seen.total[seen.foreground].sum(dim=0))
    if stage.params.init_scale > 0:
        rows = unit(rows) * stage.params.init_scale * seen.lengths / seen.count.sum()
    return rows


def _class_means(rows: Tensor, seen: _Seen) -> Tensor:
    """Each class's mean feature; a class without a labelled pixel keeps its random direction at the others' length."""
    means = seen.total / seen.count.clamp(min=1)[:, None]
    met = seen.count > 0
    return torch.where(met[:, None], means, unit(rows) * length(means[met]).mean())


def _main_directions(rows: Tensor, moment: Tensor, towards: Tensor) -> Tensor:
    """The strongest eigenvectors, pointing where the features point; orthonormal, so that L_O still starts at 0.

    Rows beyond the number of channels keep their random start.
    """
    strongest = torch.linalg.eigh(moment).eigenvectors.flip(1).T[: len(rows)]
    sides = torch.where(strongest @ towards < 0, -1.0, 1.0)[:, None]
    return torch.cat([strongest * sides, rows[len(strongest) :]])
