"""A very small convolutional encoder, for tests and for trying things out in seconds."""

from __future__ import annotations

from torch import Tensor, nn

from ftcseg.nets.encoders.base import IMAGENET_MEAN, IMAGENET_STD, RGB, Encoder, Options, fit_stats, start_convolutions

STEM_WIDTH = 16
CHANNELS = (16, 24, 32, 40)


class Tiny(Encoder):
    """A stem and four stages of one or two convolutions each: strides 4, 8, 16 and 32."""

    input_weight = "stem.0.weight"

    def __init__(self, in_channels: int = RGB) -> None:
        super().__init__()
        self.channels = CHANNELS
        self.mean, self.std = fit_stats(IMAGENET_MEAN, in_channels), fit_stats(IMAGENET_STD, in_channels)
        self.stem = _conv(in_channels, STEM_WIDTH, stride=2)
        befores = (STEM_WIDTH, *CHANNELS[:-1])
        self.stages = nn.ModuleList(_stage(*widths) for widths in zip(befores, CHANNELS, strict=True))
        start_convolutions(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at strides 4, 8, 16 and 32, sides rounded up."""
        x = self.stem(images)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps

    def blocks(self) -> list[nn.Module]:
        """The stem and the four stages."""
        return [self.stem, *self.stages]


def _conv(before: int, after: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU(inplace=True))


def _stage(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(_conv(before, after, stride=2), _conv(after, after, stride=1))


def build(name: str, options: Options) -> Tiny:  # noqa: ARG001 - there is only one
    """The tiny encoder, with random weights."""
    return Tiny(options.in_channels)
