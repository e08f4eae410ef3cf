"""AEL's confidence bank: how well the student does on each class, and what follows for chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from ftcseg.distributed import sum_over_ranks
from ftcseg.teaching.pseudo import class_counts, sum_by_class
from ftcseg.types import IGNORE

Absent: TypeAlias = Literal["keep", "zero"]
"""What a batch without a class says about it: nothing, or that nobody knows it."""


class ConfidenceBank(nn.Module):
    """The running mean probability that the student gives to the true class, for each class."""

    level: Tensor  # (num_classes,) float, from 0 to 1

    def __init__(self, num_classes: int, momentum: float, absent: Absent = "keep") -> None:
        super().__init__()
        self.momentum, self.absent = momentum, absent
        self.register_buffer("level", torch.full((num_classes,), 1 / num_classes))  # of a student that knows nothing

    @torch.no_grad()
    def observe(self, logits: Tensor, target: Tensor) -> None:
        """Learn from the student's logits (B, C, H, W) of labelled images and their labels (B, H, W)."""
        known, labels = target != IGNORE, target.clamp(min=0)
        true = logits.float().softmax(1).gather(1, labels[:, None])[:, 0] * known
        mine = [sum_by_class(true, labels, len(self.level)), class_counts(target[known], len(self.level)).to(true)]
        given, pixels = sum_over_ranks(torch.stack(mine))
        absent = self.level if self.absent == "keep" else torch.zeros_like(self.level)
        now = torch.where(pixels > 0, given / pixels.clamp(min=1), absent)
        self.level.lerp_(now, 1 - self.momentum)

    def chances(self, classes: Sequence[int] | None = None, power: float = 1.0) -> list[float]:
        """How often each of these classes, or each of all, is drawn: softmax((1 - level) ** power)."""
        lacking = self._lacking() if classes is None else self._lacking()[list(classes)]
        chosen: list[float] = lacking.pow(power).double().softmax(0).tolist()
        return chosen

    def keep_rates(self) -> Tensor:
        """The share of a class's pixels to learn from: all of the least known class, fewer the better it is known."""
        lacking = self._lacking()
        return torch.where(lacking.max() > 0, lacking / lacking.max().clamp(min=torch.finfo(lacking.dtype).tiny), 1.0)

    def draw_pixels(self, logits: Tensor, seed: int) -> Tensor:
        """(B, H, W) bool, True with the keep rate of the class that the student takes a pixel for."""
        rates = self.keep_rates()[logits.detach().max(1).indices]
        # Drawn on the CPU, so that every device draws the same.
        return torch.rand(rates.shape, generator=torch.Generator().manual_seed(seed)).to(rates) < rates

    def _lacking(self) -> Tensor:
        return (1 - self.level).clamp(min=0)
