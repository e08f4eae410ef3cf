"""DPT head for ViT maps, as in UniMatch V2 and FTC-Seg: 2,738,411 parameters for DINOv2-S and 11 classes.

A ViT's four maps all have one width and one size. They are first given the sizes of a pyramid (x4, x2, x1, x1/2; that
is 148, 74, 37, 19 for a 518 crop) and then fused from deep to shallow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.nets.heads.base import Head
from ftcseg.nets.heads.fusion import Fusion


class DPTSize(NamedTuple):
    """Working width, and the width of each level before fusion."""

    features: int
    levels: tuple[int, int, int, int]


DPT_SIZES: Mapping[int, DPTSize] = {
    384: DPTSize(64, (48, 96, 192, 384)),  # small
    768: DPTSize(128, (96, 192, 384, 768)),  # base
    1024: DPTSize(256, (256, 512, 1024, 1024)),  # large
}
"""By the encoder's width. Others follow the rule behind small and base: width / 6; width / 8, / 4, / 2, / 1."""


def dpt_size(width: int) -> DPTSize:
    """The head's sizes for an encoder of this width."""
    levels = (max(8, width // 8), max(8, width // 4), max(8, width // 2), width)
    return DPT_SIZES.get(width) or DPTSize(max(8, width // 48 * 8), levels)


class DPTHead(Head):
    """Project each level, give it its pyramid size, fuse, 3x3, ReLU, classifier. No BatchNorm, no dropout."""

    def __init__(
        self, channels: Sequence[int], num_classes: int, *, features: int | None = None, wide: int | None = None
    ) -> None:
        super().__init__(channels, num_classes)
        if len(set(channels)) != 1 or len(channels) != 4:
            raise UsageError(
                f"The dpt head wants four maps of one width and size; these have {tuple(channels)} channels. "
                "For convolutional encoders use the fusion head."
            )
        size = dpt_size(channels[-1])
        features = features or size.features
        a, b, c, d = size.levels
        self.project = nn.ModuleList(nn.Conv2d(channels[-1], width, 1) for width in size.levels)
        self.pyramid = nn.ModuleList(
            [
                nn.ConvTranspose2d(a, a, 4, stride=4),
                nn.ConvTranspose2d(b, b, 2, stride=2),
                nn.Identity(),
                nn.Conv2d(d, d, 3, stride=2, padding=1),
            ]
        )
        self.fusion = Fusion((a, b, c, d), features)
        self.hidden = nn.Sequential(nn.Conv2d(features, wide or features, 3, padding=1), nn.ReLU())
        self.classifier = nn.Conv2d(wide or features, num_classes, 1)

    def embedding(self, features: list[Tensor]) -> Tensor:
        """At eight times the maps' size (296 for a 518 crop)."""
        maps = [resized(project(x)) for x, project, resized in zip(features, self.project, self.pyramid, strict=True)]
        hidden: Tensor = self.hidden(self.fusion(maps))
        return hidden
