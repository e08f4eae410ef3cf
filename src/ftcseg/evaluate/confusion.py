"""The confusion matrix: what every pixel is against what it was called, counted over a whole set."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.errors import UsageError
from ftcseg.types import IGNORE


def pair_counts(pred: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Pixels per (true class, predicted class), (num_classes, num_classes) int64; pixels nobody knows are skipped."""
    known = target != IGNORE
    truth, said = target[known].long(), pred[known].long()
    for name, ids in {"The truth": truth, "The prediction": said}.items():
        # An id beyond the table would not fail: it would be counted in the next class's row.
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < num_classes:
            raise UsageError(f"{name} holds ids {int(ids.min())} to {int(ids.max())}; there are {num_classes} classes.")
    return torch.bincount(truth * num_classes + said, minlength=num_classes**2).reshape(num_classes, num_classes)


class Confusion:
    """Counts of (true class, predicted class) over everything added.

    >>> confusion = Confusion(num_classes=3)
    >>> _ = confusion.add(torch.tensor([0, 0, 2]), torch.tensor([0, 1, IGNORE]))
    >>> confusion.counts.tolist()
    [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    """

    counts: Tensor  # (num_classes, num_classes) int64 on the CPU; rows are truth, columns predictions

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(num_classes, num_classes, dtype=torch.int64)

    def add(self, pred: Tensor, target: Tensor) -> Tensor:
        """Count these pixels; both hold class ids in one shape, and IGNORE in the target is skipped.

        Returns what was counted this time, shaped like `counts`.
        """
        found = pair_counts(pred, target, len(self.counts)).cpu()
        self.counts += found
        return found

    def summed(self) -> Confusion:
        """The same counts over all ranks."""
        total = Confusion(len(self.counts))
        total.counts = sum_over_ranks(self.counts)
        return total
