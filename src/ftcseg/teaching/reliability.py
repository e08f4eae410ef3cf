"""How steadily two teachers speak about a place, cell by cell (CTFS).

    g     the general teacher about the image, and about it mirrored and at another size
    s     the sonar teacher about the image, and about it with more grain and with things in the way
    both  the one about the image, and the other

Each is a mean cosine of class probabilities, averaged over a cell first. Every image is judged for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ftcseg.nets.heads.base import resize
from ftcseg.nets.segmenter import Segmenter


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How the three are weighed, and from where on they count."""

    own: float = 0.4
    """Weight of each teacher's own steadiness."""
    both: float = 0.2
    """Weight of their agreement."""
    least: float = 0.3
    """A cell below this teaches nothing."""
    cell: int = 32
    """Side of a cell in pixels."""


@torch.no_grad()
def read(net: Segmenter, views: Sequence[Tensor]) -> list[Tensor]:
    """The logits of each view, (B, C, H, W), all asked at once."""
    logits: Tensor = net(torch.cat(list(views)))
    return list(logits.chunk(len(views)))


def read_mirrored_and_resized(net: Segmenter, images: Tensor, factor: float) -> list[Tensor]:
    """The logits of the images, of their mirror and at `factor` times their size, all laid back in place."""
    size = images.shape[-2:]
    whole, mirrored = read(net, [images, images.flip(-1)])
    (resized,) = read(net, [resize(images, [max(1, round(side * factor)) for side in size])])
    return [whole, mirrored.flip(-1), resize(resized, size)]


@torch.no_grad()
def reliability(general: Sequence[Tensor], sonar: Sequence[Tensor], valid: Tensor, trust: Trust) -> Tensor:
    """How far to trust each pixel, (B, H, W) from 0 to 1, and 0 below the least.

    Each sequence holds one teacher's logits of the image first, then of its other views.
    """
    first, steady_first = _opinion(general, valid, trust.cell)
    second, steady_second = _opinion(sonar, valid, trust.cell)
    trusted = trust.own * (steady_first + steady_second) + trust.both * F.cosine_similarity(first, second, dim=1)
    trusted = trusted.masked_fill(trusted < trust.least, 0.0)
    return spread(trusted, trust.cell)[..., : valid.shape[-2], : valid.shape[-1]]


def cell_means(probs: Tensor, valid: Tensor, cell: int) -> Tensor:
    """(B, C, h, w) means over cells, those at the right and the bottom perhaps smaller; padding does not count."""
    share = valid[:, None].to(probs)

    def pooled(values: Tensor) -> Tensor:
        return F.avg_pool2d(values, cell, ceil_mode=True)

    return pooled(probs * share) / pooled(share).clamp(min=torch.finfo(probs.dtype).tiny)


def spread(cells: Tensor, cell: int) -> Tensor:
    """Each cell's value at all of its pixels: (B, h, w) to (B, h * cell, w * cell)."""
    return cells.repeat_interleave(cell, -2).repeat_interleave(cell, -1)


def _opinion(said: Sequence[Tensor], valid: Tensor, cell: int) -> tuple[Tensor, Tensor]:
    """What a teacher thinks of each cell, (B, C, h, w), and how well its other views agree with that, (B, h, w)."""
    first, *others = (cell_means(logits.float().softmax(1), valid, cell) for logits in said)
    return first, torch.stack([F.cosine_similarity(first, other, dim=1) for other in others]).mean(0)
