"""Boundary F1: whether outlines lie where they should, per class, counted over a whole set.

A pixel of class c lies on the boundary of c when one of its four neighbours is known to be of another class; the edge
of the image and pixels nobody knows make no boundary. A boundary pixel matches when a boundary pixel of the same class
in the other map lies within d = max(1, round(0.0075 * diagonal)) pixels, straight-line distance.

    precision  matched share of the predicted boundary        F1 = 2 precision recall / (precision + recall)
    recall     matched share of the true boundary

All counts are summed over the set before anything is divided.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.types import IGNORE, Labels

TOLERANCE = 0.0075
"""Share of the image's diagonal that an outline may be off (Csurka et al. 2013; the default of the usual tools)."""

_NOWHERE: NDArray[np.intp] = np.empty((0, 2), np.intp)


class Boundaries:
    """Boundary pixels per class and how many of them match, over everything added."""

    counts: Tensor  # (num_classes, 4) int64 on the CPU: predicted, predicted and matched, true, true and matched

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(num_classes, 4, dtype=torch.int64)

    def add(self, pred: Tensor, target: Tensor) -> None:
        """Count one image; both maps are (H, W) class ids."""
        truth = target.cpu().numpy().astype(np.int16)
        said = np.where(truth == IGNORE, np.int16(IGNORE), pred.cpu().numpy().astype(np.int16))
        reach = tolerance(*truth.shape)
        said_edges, true_edges = boundary_pixels(said), boundary_pixels(truth)
        for class_id in said_edges.keys() | true_edges.keys():
            a, b = said_edges.get(class_id, _NOWHERE), true_edges.get(class_id, _NOWHERE)
            self.counts[class_id] += torch.tensor([len(a), _near(a, b, reach), len(b), _near(b, a, reach)])

    def summed(self) -> Boundaries:
        """The same counts over all ranks."""
        total = Boundaries(len(self.counts))
        total.counts = sum_over_ranks(self.counts)
        return total

    def f1(self) -> list[float | None]:
        """F1 by class id; None where neither truth nor prediction has a boundary."""
        return [_f1(*row) for row in self.counts.tolist()]


def tolerance(height: int, width: int) -> int:
    """Pixels an outline may be off: 4 in an image of 320 x 480."""
    return max(1, int(TOLERANCE * math.hypot(height, width) + 0.5))


def boundary_pixels(labels: Labels) -> dict[int, NDArray[np.intp]]:
    """Class id -> (n, 2) rows and columns of its boundary, for the classes that have one."""
    edge = np.zeros(labels.shape, bool)
    down = _differ(labels[:-1], labels[1:])
    edge[:-1] |= down
    edge[1:] |= down
    across = _differ(labels[:, :-1], labels[:, 1:])
    edge[:, :-1] |= across
    edge[:, 1:] |= across
    places, owners = np.argwhere(edge), labels[edge]
    return {int(class_id): places[owners == class_id] for class_id in np.unique(owners)}


def _differ(a: Labels, b: Labels) -> NDArray[np.bool_]:
    differ: NDArray[np.bool_] = (a != b) & (a != IGNORE) & (b != IGNORE)
    return differ


def _near(these: NDArray[np.intp], those: NDArray[np.intp], reach: int) -> int:
    """How many of these pixels have one of those within reach."""
    if not (len(these) and len(those)):
        return 0
    # The tree's bound is exclusive, and a distance of exactly `reach` is a match.
    distance, _ = cKDTree(those).query(these, distance_upper_bound=reach + 1e-6)
    return int(np.isfinite(distance).sum())


def _f1(said: int, said_matched: int, true: int, true_matched: int) -> float | None:
    if not said and not true:
        return None
    if not said_matched or not true_matched:
        return 0.0
    precision, recall = said_matched / said, true_matched / true
    return 2 * precision * recall / (precision + recall)
