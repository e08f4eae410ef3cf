"""Which classes does a patch of the image show? A small network that asks this of every place (Beyond Pixels).

It reads the encoder's first map, F, and looks at three scales: each cell by itself, and the mean of F around it, near
and far. The paper's encoder has cells of 4 pixels, and windows of 7 and 19 cells. With cells of another size, such as a
ViT's 14 pixels, a window is the odd number of cells that comes nearest to the same reach in pixels.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.nets.drop import Perturb
from ftcseg.nets.heads.base import conv_norm_relu

PATCH = 39
"""Side in pixels of the patch that a cell of the paper's first map sees: the reach of its convolutions."""
NEAR, FAR = 7 * 4, 19 * 4
"""Sides in pixels of the windows that F is averaged over; 7 and 19 cells of 4 pixels."""
WIDEST = 256
"""The paper's width, that of its first map."""
NARROWEST = 64
"""Ours: first maps of light encoders have 16 to 40 channels, too few to be halved twice."""


class PatchClassifier(nn.Module):
    """Nine convolutions, their width twice halved, and a small classifier at every cell.

    The widths are the paper's, 256, 128, 64 and at last 32, in proportion to that of the first map. Convolutions are
    3x3, and 1x1 where the width changes.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        full = min(max(channels, NARROWEST), WIDEST)
        half, quarter = full // 2, full // 4
        widths = [3 * channels, *[full] * 4, *[half] * 3, *[quarter] * 2]
        self.stack = nn.Sequential(*(conv_norm_relu(a, b, 3 if a == b else 1) for a, b in pairwise(widths)))
        self.hidden = nn.Conv2d(quarter, quarter // 2, 1)
        self.classifier = nn.Conv2d(quarter // 2, num_classes, 1)

    def forward(self, first: Tensor, cell: float, drop: Perturb | None = None) -> Tensor:
        """Logits (B, num_classes, h, w) that a class is in the patch around each cell; not exclusive.

        `first` is the encoder's first map, whose cells have a side of `cell` pixels. `drop` silences hidden channels.
        """
        scales = [first, *(mean_around(first, odd_cells(reach, cell)) for reach in (NEAR, FAR))]
        hidden = F.relu(self.hidden(self.stack(torch.cat(scales, dim=1))))
        if drop is not None:
            (hidden,) = drop([hidden])
        logits: Tensor = self.classifier(hidden)
        return logits


def odd_cells(pixels: float, cell: float) -> int:
    """The odd number of cells whose length is nearest to so many pixels: 39 are 9 cells of 4, or 3 cells of 14."""
    return 2 * max(0, math.floor((pixels / cell - 1) / 2 + 0.5)) + 1


def mean_around(maps: Tensor, side: int) -> Tensor:
    """The mean over a window of side x side cells around each, (B, C, h, w); at the edges, over what lies inside."""
    # One direction after the other gives the same means for a fraction of the work.
    maps = F.avg_pool2d(maps, (side, 1), 1, (side // 2, 0), count_include_pad=False)
    return F.avg_pool2d(maps, (1, side), 1, (0, side // 2), count_include_pad=False)
