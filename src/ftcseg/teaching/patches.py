"""Patch labels, and which of them to doubt (Beyond Pixels).

A patch is a square of cells of the encoder's first map, about 39 pixels wide. Its label says of every class whether the
patch shows it. Pixels are counted cell by cell, and cells are then pooled: the largest count for presence, the sum for
area.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.distributed import sum_over_ranks
from ftcseg.nets.patches import PATCH, odd_cells
from ftcseg.types import IGNORE, PseudoLabels

POWER = 1.5
"""How a loss of probability becomes a growth of the doubted share; the paper's."""


@dataclass(frozen=True, slots=True, eq=False)
class PatchLabels:
    """What the patches around the cells of a (h, w) grid show."""

    present: Tensor  # (B, num_classes, h, w) bool
    share: Tensor  # (B, num_classes, h, w) float, of the known pixels of the patch
    known: Tensor  # (B, 1, h, w) bool, False where no pixel of the patch is known
    side: int  # of a patch, in cells


@torch.no_grad()
def patch_labels(labels: Tensor, num_classes: int, size: Sequence[int]) -> PatchLabels:
    """Patch labels at a grid of this size, of (B, H, W) labels."""
    side = odd_cells(PATCH, labels.shape[-2] / size[0])
    counts = cell_counts(labels, num_classes, size)
    area = F.avg_pool2d(counts, side, 1, side // 2) * side**2
    total = area.sum(1, keepdim=True)
    return PatchLabels(_around(counts, side), area / total.clamp(min=1), total > 0, side)


def cell_counts(labels: Tensor, num_classes: int, size: Sequence[int]) -> Tensor:
    """Known pixels of each class in each cell of a grid of this size, (B, num_classes, h, w) float."""
    slots = len(labels) * size[0] * size[1] * num_classes
    slot = _cells(labels, size) * num_classes + labels
    counts = torch.bincount(slot[labels != IGNORE], minlength=slots)
    return counts.view(len(labels), *size, num_classes).movedim(-1, 1).float()


@torch.no_grad()
def doubtful(logits: Tensor, patches: PatchLabels, rates: Tensor) -> Tensor:
    """Positives to doubt, (B, num_classes, h, w) bool: of each class the share `rates`, rounded up, least believed in.

    `logits` are the patch classifier's. A label of 1 costs the more, the lower its logit.
    """
    present = patches.present.movedim(1, 0).flatten(1)
    beliefs = logits.float().movedim(1, 0).flatten(1).masked_fill(~present, torch.inf)
    ranks = beliefs.argsort(dim=1).argsort(dim=1)
    doubted = present & (ranks < (present.sum(1) * rates).ceil()[:, None])
    return doubted.reshape(len(rates), len(logits), *logits.shape[2:]).movedim(1, 0)


def without_doubt(pseudo: PseudoLabels, doubted: Tensor, patches: PatchLabels) -> PseudoLabels:
    """Pseudo-labels of which a pixel is not valid whose class is doubted in any patch that it is in."""
    near = _around(doubted.float(), patches.side).movedim(1, -1)
    slot = _cells(pseudo.labels, near.shape[1:3]) * near.shape[-1] + pseudo.labels
    return replace(pseudo, valid=pseudo.valid & ~near.flatten()[slot])


class DoubtRates(nn.Module):
    """delta: the share of each class's positive patches that is doubted.

    It starts next to nothing. At the end of a period, a class of whose true positives the classifier has become less
    sure than it was at its best has begun to learn noise: delta grows by ((best - now) / best) ** 1.5, times
    `base ** (periods since the best / periods of the run)`.
    """

    delta: Tensor  # (num_classes,) float
    best: Tensor  # (num_classes,) highest mean probability of true positives in a period
    best_period: Tensor  # (num_classes,) int64
    period: Tensor  # () int64, periods that are over
    sums: Tensor  # (2, num_classes) of the period that runs: probabilities, and how many

    def __init__(self, num_classes: int, start: float, base: float, most: float) -> None:
        super().__init__()
        self.base, self.most = base, most
        self.register_buffer("delta", torch.full((num_classes,), start))
        self.register_buffer("best", torch.zeros(num_classes))
        self.register_buffer("best_period", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("period", torch.zeros((), dtype=torch.int64))
        self.register_buffer("sums", torch.zeros(2, num_classes))

    @torch.no_grad()
    def observe(self, logits: Tensor, patches: PatchLabels) -> None:
        """Take note of the patches that hold a class and are told so, of labelled images."""
        hit = patches.present & (logits > 0)
        mine = torch.stack([(logits.float().sigmoid() * hit).sum((2, 3)).sum(0), hit.sum((0, 2, 3)).float()])
        self.sums += sum_over_ranks(mine)

    @torch.no_grad()
    def turn(self, periods: int) -> None:
        """A period is over, one of so many in the run. A class without a true positive in it stays as it is."""
        total, count = self.sums
        now, seen = total / count.clamp(min=1), count > 0
        better = seen & (now > self.best)
        late = self.base ** ((self.period - self.best_period) / max(1, periods))
        growth = ((self.best - now).clamp(min=0) / self.best.clamp(min=torch.finfo(now.dtype).tiny)) ** POWER * late
        self.delta.copy_(torch.where(seen, (self.delta + growth).clamp(max=self.most), self.delta))
        self.best.copy_(torch.where(better, now, self.best))
        self.best_period.copy_(torch.where(better, self.period, self.best_period))
        self.period += 1
        self.sums.zero_()

    def facts(self) -> dict[str, Tensor]:
        """The rates, and the best that was ever reached."""
        return {"doubt": self.delta.clone(), "best": self.best.clone()}


def _around(maps: Tensor, side: int) -> Tensor:
    """Whether anything is above 0 within the window around each cell."""
    return F.max_pool2d(F.max_pool2d(maps, (side, 1), 1, (side // 2, 0)), (1, side), 1, (0, side // 2)) > 0


def _cells(labels: Tensor, size: Sequence[int]) -> Tensor:
    """The number of the cell that each pixel of (B, H, W) is in, counted through the batch, row after row."""
    batch, height, width = labels.shape
    rows = torch.arange(height, device=labels.device) * size[0] // height
    columns = torch.arange(width, device=labels.device) * size[1] // width
    images = torch.arange(batch, device=labels.device)
    return (images[:, None, None] * size[0] + rows[:, None]) * size[1] + columns
