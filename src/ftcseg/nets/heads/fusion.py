"""Fusion head over convolutional stages: DPT's fusion without its resizing, since the stages have their own sizes.

Levels run shallow to deep with strides 4, 8, 16, 32 (or 4, 8, 16, 16). This is FTC-Seg's decoder for ResNet-101
(features 256, reading C10); with features 64 it is light enough for a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ftcseg.nets.heads.base import Head, resize

RESNET_FEATURES = 256  # FTC-Seg's width for ResNet-101
LIGHT_FEATURES = 64  # ours, for encoders that run on a CPU


class ResidualUnit(nn.Module):
    """ReLU, 3x3, ReLU, 3x3, add the input. No BatchNorm: train and eval are the same function."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The map plus what the unit adds to it."""
        added: Tensor = self.convs(x)
        return x + added


class FusionBlock(nn.Module):
    """Adds a level's own map to what came from below, refines, enlarges, mixes channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.skip = ResidualUnit(width)
        self.refine = ResidualUnit(width)
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, level: Tensor, below: Tensor | None, size: Sequence[int]) -> Tensor:
        """The fused map at `size`."""
        x = level if below is None else below + self.skip(level)
        mixed: Tensor = self.mix(resize(self.refine(x), size))
        return mixed


class Fusion(nn.Module):
    """Four maps of any width, shallow to deep, fused from deep to shallow; twice the size of the shallowest.

    The deepest block has nothing from below, so its `skip` unit is never used. It is kept because the paper's parameter
    count includes it, and frozen because distributed training would wait for its gradients.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Conv2d(c, width, 3, padding=1, bias=False) for c in channels)
        blocks = [FusionBlock(width) for _ in channels]
        blocks[-1].skip.requires_grad_(False)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, maps: list[Tensor]) -> Tensor:
        """(B, width, 2h, 2w)."""
        levels = [narrow(x) for narrow, x in zip(self.narrow, maps, strict=True)]
        height, width = levels[0].shape[-2:]
        sizes = [(2 * height, 2 * width), *(x.shape[-2:] for x in levels[:-1])]
        fused: Tensor | None = None
        for level, block, size in reversed(list(zip(levels, self.blocks, sizes, strict=True))):
            fused = block(level, fused, size)
        assert fused is not None
        return fused


class FusionHead(Head):
    """1x1 on each stage, fusion, 3x3, ReLU, classifier."""

    def __init__(
        self, channels: Sequence[int], num_classes: int, *, features: int | None = None, wide: int | None = None
    ) -> None:
        super().__init__(channels, num_classes)
        features = features or LIGHT_FEATURES
        self.project = nn.ModuleList(nn.Conv2d(c, c, 1) for c in channels)
        self.fusion = Fusion(channels, features)
        self.hidden = nn.Sequential(nn.Conv2d(features, wide or features, 3, padding=1), nn.ReLU())
        self.classifier = nn.Conv2d(wide or features, num_classes, 1)

    def embedding(self, features: list[Tensor]) -> Tensor:
        """At half the image's size (twice the shallowest stage's)."""
        maps = [project(x) for project, x in zip(self.project, features, strict=True)]
        hidden: Tensor = self.hidden(self.fusion(maps))
        return hidden
