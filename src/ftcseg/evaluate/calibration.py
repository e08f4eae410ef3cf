"""Expected calibration error: how far confidence is from being right, counted over a whole set."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.errors import UsageError
from ftcseg.types import IGNORE

BINS = 15
"""Equal bins of confidence, [0, 1/15) to [14/15, 1] (Guo et al. 2017)."""

UNIT = 2**20
"""Confidences are added up as whole multiples of 1 / UNIT: exact, whatever the order and the number of ranks."""

ROUNDING = 1e-5
"""How far above 1 a sum of probabilities may come out."""


class Calibration:
    """Pixels, right pixels and confidence per bin, over everything added."""

    counts: Tensor  # (3, BINS) int64 on the CPU: pixels, right ones, sum of confidences in units

    def __init__(self) -> None:
        self.counts = torch.zeros(3, BINS, dtype=torch.int64)

    def add(self, conf: Tensor, pred: Tensor, target: Tensor) -> None:
        """Count these pixels: the confidence in the predicted class, that class, and the truth, all in one shape."""
        known = target != IGNORE
        conf, right = conf[known].float(), (pred == target)[known]
        if not bool(((conf >= 0) & (conf <= 1 + ROUNDING)).all()):
            raise UsageError("Confidences must lie between 0 and 1; these do not, or are nan.")
        bins = (conf * BINS).long().clamp(max=BINS - 1)
        votes = torch.stack([torch.ones_like(bins), right.long(), (conf * UNIT).round().long()])
        self.counts += bins.new_zeros(3, BINS).index_add_(1, bins, votes).cpu()

    def summed(self) -> Calibration:
        """The same counts over all ranks."""
        total = Calibration()
        total.counts = sum_over_ranks(self.counts)
        return total

    def error(self) -> float | None:
        """Mean over pixels of |accuracy - confidence| of their bin; None before any pixel."""
        pixels, right, conf = self.counts.double()
        if not pixels.sum():
            return None
        return float((right - conf / UNIT).abs().sum() / pixels.sum())
