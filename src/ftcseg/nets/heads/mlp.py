"""SegFormer's MLP head: every level to one width and one size, mixed by one linear layer. Made for MiT encoders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.nets.heads.base import Head, conv_norm_relu

EMBEDDING = 256  # Dual Teacher's, for MiT-B0 and B1 in SegFormer
DROPOUT = 0.1


class MLPHead(Head):
    """Linear per level, enlarge, concatenate, linear + BatchNorm + ReLU, dropout of whole channels, classifier."""

    mixes_batch = True

    def __init__(
        self, channels: Sequence[int], num_classes: int, *, features: int | None = None, wide: int | None = None
    ) -> None:
        super().__init__(channels, num_classes)
        features = features or EMBEDDING
        self.embed = nn.ModuleList(nn.Conv2d(c, features, 1) for c in channels)
        self.mix = conv_norm_relu(len(channels) * features, wide or features, 1)
        self.dropout = nn.Dropout2d(DROPOUT)
        self.classifier = nn.Conv2d(wide or features, num_classes, 1)

    def embedding(self, features: list[Tensor]) -> Tensor:
        """At the shallowest map's size."""
        size = features[0].shape[-2:]
        maps = [embed(x) for embed, x in zip(self.embed, features, strict=True)]
        # SegFormer enlarges without aligned corners; the other heads align them.
        maps = [F.interpolate(x, size=size, mode="bilinear", align_corners=False) for x in maps]
        mixed: Tensor = self.dropout(self.mix(torch.cat(maps, dim=1)))
        return mixed
