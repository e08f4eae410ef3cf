"""ResNet-18, -50 and -101, with torchvision's parameter names.

Two ResNets share these names and shapes: v1 steps in the first 1x1 convolution of a bottleneck, torchvision's in the 3x3.
Weights of one do badly in the other, and nothing in a file's tensors tells which it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from ftcseg.nets.encoders.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Encoder,
    Options,
    StrideIn,
    fit_stats,
    start_convolutions,
    together,
)
from ftcseg.nets.weights import KeyMap

STEM_WIDTH = 64
WIDTHS = (64, 128, 256, 512)
EXPANSION = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """How many residual blocks each stage has, and of which kind."""

    depths: tuple[int, int, int, int]
    bottleneck: bool


SHAPES: Mapping[str, Shape] = {
    "resnet-18": Shape((2, 2, 2, 2), bottleneck=False),
    "resnet-50": Shape((3, 4, 6, 3), bottleneck=True),
    "resnet-101": Shape((3, 4, 23, 3), bottleneck=True),
}


def _hub_block(match: re.Match[str]) -> str:
    stage, block, conv, part = match.groups()
    return f"layer{int(stage) + 1}.{block}.{'conv' if part == 'convolution' else 'bn'}{int(conv) + 1}."


def _hub_shortcut(match: re.Match[str]) -> str:
    stage, block, part = match.groups()
    return f"layer{int(stage) + 1}.{block}.downsample.{'0' if part == 'convolution' else '1'}."


KEYS = KeyMap(
    renames=(  # torchvision's names are ours; these are transformers'
        (r"^embedder\.embedder\.convolution\.", "conv1."),
        (r"^embedder\.embedder\.normalization\.", "bn1."),
        (r"^encoder\.stages\.(\d)\.layers\.(\d+)\.layer\.(\d)\.(convolution|normalization)\.", _hub_block),
        (r"^encoder\.stages\.(\d)\.layers\.(\d+)\.shortcut\.(convolution|normalization)\.", _hub_shortcut),
    ),
    ignored=(r"^fc\.", r"^classifier\."),
)


def stride_named(file: str) -> StrideIn:
    """Where the strides are, told from a file's name: `v1` means in the 1x1 convolution, anything else in the 3x3.

    `resnet50-v1-imagenet.safetensors` is v1; `resnet50_v1.5.pth` is not, nor is torchvision's `IMAGENET1K_V1`, which
    counts training recipes.
    """
    v1 = re.search(r"(?<![a-z0-9])v1(?![a-z0-9]|[._-]5)", file.lower())
    recipe = re.search(r"imagenet1k[._-]v1", file.lower())
    return "1x1" if v1 and not recipe else "3x3"


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, before: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(before, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The map after one block."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x), inplace=True)
