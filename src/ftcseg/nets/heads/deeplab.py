"""DeepLabV3+ head, as UniMatch V1 uses it: ASPP on the deepest map, sharpened by the shallowest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ftcseg.nets.heads.base import Head, conv_norm_relu, resize

WIDTH = 256  # DeepLabV3+
LOW_LEVEL = 48  # DeepLabV3+: the shallow map must not drown the deep one
RATES = (6, 12, 18)  # for an encoder of output stride 16


class ASPP(nn.Module):
    """The deepest map through windows of growing reach, the last one the whole image."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.windows = nn.ModuleList(
            [conv_norm_relu(channels, width, 1), *(conv_norm_relu(channels, width, 3, rate) for rate in RATES)]
        )
        self.image = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_norm_relu(channels, width, 1))
        self.join = conv_norm_relu((len(RATES) + 2) * width, width, 1)

    def forward(self, deep: Tensor) -> Tensor:
        """(B, width, h, w) at the deep map's size."""
        whole = self.image(deep).expand(-1, -1, *deep.shape[-2:])
        joined: Tensor = self.join(torch.cat([*(window(deep) for window in self.windows), whole], dim=1))
        return joined


class DeepLabHead(Head):
    """ASPP, enlarge, join with 48 low-level channels, two 3x3, classifier.

    A batch of one image trains: its pooled map has one value per channel, which our BatchNorm normalises by running
    statistics (see `BatchNorm`).
    """

    mixes_batch = True

    def __init__(
        self, channels: Sequence[int], num_classes: int, *, features: int | None = None, wide: int | None = None
    ) -> None:
        super().__init__(channels, num_classes)
        features = features or WIDTH
        self.aspp = ASPP(channels[-1], features)
        self.low = conv_norm_relu(channels[0], LOW_LEVEL, 1)
        self.fuse = nn.Sequential(
            conv_norm_relu(features + LOW_LEVEL, features, 3), conv_norm_relu(features, wide or features, 3)
        )
        self.classifier = nn.Conv2d(wide or features, num_classes, 1)

    def embedding(self, features: list[Tensor]) -> Tensor:
        """At the shallowest map's size."""
        shallow, deep = features[0], features[-1]
        wide = resize(self.aspp(deep), shallow.shape[-2:])
        fused: Tensor = self.fuse(torch.cat([wide, self.low(shallow)], dim=1))
        return fused
