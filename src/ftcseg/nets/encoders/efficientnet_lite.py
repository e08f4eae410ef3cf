"""EfficientNet-Lite 0, 1 and 2: EfficientNets without squeeze-and-excitation and with ReLU6, made for small processors.

The published weights were trained in TensorFlow, and three of its habits are part of the model: padding that puts the
odd pixel at the bottom right, batch normalisation with eps 1e-3 and momentum 0.01, and pixels scaled as
(value - 127) / 128.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import functional as F

from ftcseg.nets import relu6
from ftcseg.nets.encoders.base import RGB, Encoder, Options, fit_stats, start_convolutions
from ftcseg.nets.encoders.drop_path import DropPath, rising_rates
from ftcseg.nets.norms import folded, is_constant
from ftcseg.nets.weights import KeyMap

MEAN = (127 / 255,) * RGB
STD = (128 / 255,) * RGB
BN_EPS = 1e-3
BN_MOMENTUM = 0.01
STEM_WIDTH = 32  # Lite models scale neither the stem nor the head
EXPANSION = 6


@dataclass(frozen=True, slots=True)
class Stage:
    """A row of the architecture table, before scaling."""

    width: int
    repeats: int
    kernel: int
    stride: int
    expansion: int = EXPANSION


STAGES = (
    Stage(16, 1, 3, 1, expansion=1),
    Stage(24, 2, 3, 2),
    Stage(40, 2, 5, 2),
    Stage(80, 3, 3, 2),
    Stage(112, 3, 5, 1),
    Stage(192, 4, 5, 2),
    Stage(320, 1, 3, 1),
)
TAPS = (1, 2, 4, 6)
"""Stages whose outputs are the four maps: the last ones at strides 4, 8, 16 and 32."""

SCALES: Mapping[str, tuple[float, float]] = {
    "efficientnet-lite0": (1.0, 1.0),
    "efficientnet-lite1": (1.0, 1.1),
    "efficientnet-lite2": (1.1, 1.2),
}
"""Width and depth factors of each model."""

KEYS = KeyMap(
    renames=(
        (r"^_conv_stem\.", "stem.conv."),
        (r"^_bn0\.", "stem.norm."),
        (r"^_blocks\.(\d+)\.", r"layers.\1."),
        (r"\._expand_conv\.", ".expand.conv."),
        (r"\._bn0\.", ".expand.norm."),
        (r"\._depthwise_conv\.", ".depthwise.conv."),
        (r"\._bn1\.", ".depthwise.norm."),
        (r"\._project_conv\.", ".project.conv."),
        (r"\._bn2\.", ".project.norm."),
    ),
    ignored=(r"^_conv_head\.", r"^_bn1\.", r"^_fc\."),
)


class ConvNorm(nn.Module):
    """Convolution, batch normalisation and, unless it ends a block, ReLU6."""

    def __init__(
        self, widths: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(*widths, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(widths[1], eps=BN_EPS, momentum=BN_MOMENTUM)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        """The map (B, C, H / stride, W / stride), sides rounded up."""
        if is_constant(self.norm):
            x = _same_conv(x, self.conv, *folded(self.conv, self.norm))
        else:
            x = self.norm(_same_conv(x, self.conv, self.conv.weight))
        return relu6.relu6_(x) if self.act else x


def _same_conv(x: Tensor, conv: nn.Conv2d, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution with TensorFlow's padding."""
    if conv.stride == (1, 1):
        return F.conv2d(x, weight, bias, 1, conv.padding, 1, conv.groups)
    # For an odd side half a kernel of padding is what TensorFlow does. For an even side it starts one pixel later: pad
    # one more, which makes one output too early, and drop that. Padding the larger input instead is slower.
    shift = [1 - side % 2 for side in x.shape[-2:]]
    padding = [kernel // 2 + extra for kernel, extra in zip(conv.kernel_size, shift, strict=True)]
    y = F.conv2d(x, weight, bias, conv.stride, padding, 1, conv.groups)
    return y[..., shift[0] :, shift[1] :].clone() if any(shift) else y  # a view would slow down all that follows


class Bottleneck(nn.Module):
    """Widen, look around in every channel by itself, narrow; added to its input where shapes allow."""

    def __init__(self, before: int, stage: Stage, stride: int, drop: float) -> None:
        super().__init__()
        wide = before * stage.expansion
        self.expand = ConvNorm((before, wide), 1) if stage.expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm((wide, wide), stage.kernel, stride, groups=wide)
        self.project = ConvNorm((wide, stage.width), 1, act=False)
        self.residual = stride == 1 and before == stage.width
        self.drop = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        """The map after one block."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + self.drop(y) if self.residual else y


class EfficientNetLite(Encoder):
    """EfficientNet-Lite without its classifier: maps at strides 4, 8, 16 and 32."""

    input_weight = "stem.conv.weight"

    def __init__(self, width: float, depth: float, in_channels: int = RGB, drop_path: float = 0.0) -> None:
        super().__init__()
        stages = scaled(width, depth)
        drops = iter(rising_rates(drop_path, sum(stage.repeats for stage in stages)))
        self.stem = ConvNorm((in_channels, STEM_WIDTH), 3, 2)
        self.layers = nn.ModuleList()
        before = STEM_WIDTH
        taps = []
        for index, stage in enumerate(stages):
            for repeat in range(stage.repeats):
                self.layers.append(Bottleneck(before, stage, 1 if repeat else stage.stride, next(drops)))
                before = stage.width
            if index in TAPS:
                taps.append(len(self.layers) - 1)
        self.taps = tuple(taps)
        self.channels = tuple(stages[tap].width for tap in TAPS)
        self.mean, self.std = fit_stats(MEAN, in_channels), fit_stats(STD, in_channels)
        start_convolutions(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at strides 4, 8, 16 and 32, sides rounded up."""
        x = self.stem(images)
        maps = []
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index in self.taps:
                maps.append(x)
        return maps

    def blocks(self) -> list[nn.Module]:
        """The stem, then every bottleneck."""
        return [self.stem, *self.layers]


def scaled(width: float, depth: float) -> list[Stage]:
    """The table for one model: widths to multiples of 8, repeats up; Lite models keep the depth of first and last."""
    ends = (STAGES[0], STAGES[-1])
    return [
        replace(
            stage,
            width=_multiple_of_8(stage.width * width),
            repeats=stage.repeats if stage in ends else math.ceil(stage.repeats * depth),
        )
        for stage in STAGES
    ]


def _multiple_of_8(width: float) -> int:
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * width else rounded + 8  # the published rule: never lose more than a tenth


def build(name: str, options: Options) -> EfficientNetLite:
    """One of the models in SCALES, with random weights."""
    return EfficientNetLite(*SCALES[name], in_channels=options.in_channels, drop_path=options.drop_path)
