"""ResNet-18, -50 and -101, with torchvision's parameter names.

Two ResNets share these names and shapes: v1 steps in the first 1x1 convolution of a bottleneck, torchvision's in the
3x3. Weights of one do badly in the other, and nothing in a file's tensors tells which it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Step:
    """How a block walks over its map. Where a stride became a dilation, `before` and `after` it differ."""

    stride: int = 1
    before: int = 1
    after: int = 1


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, step: Step, stride_in: StrideIn) -> None:  # noqa: ARG002 - has no 1x1
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, step.stride, step.before, step.before, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, step.after, step.after, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(before, width, step.stride)

    def forward(self, x: Tensor) -> Tensor:
        """The map after one block."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x), inplace=True)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones that narrow and widen, and a shortcut."""

    expansion = 4

    def __init__(self, before: int, width: int, step: Step, stride_in: StrideIn) -> None:
        super().__init__()
        first = stride_in == "1x1"
        dilation = step.after if first else step.before
        self.conv1 = nn.Conv2d(before, width, 1, step.stride if first else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if first else step.stride, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = _shortcut(before, width * self.expansion, step.stride)

    def forward(self, x: Tensor) -> Tensor:
        """The map after one block."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x), inplace=True)


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


class ResNet(Encoder):
    """A ResNet without its classifier: maps at strides 4, 8, 16 and 32, or 16 for the last if it is dilated."""

    input_weight = "conv1.weight"

    def __init__(self, depths: Sequence[int], block: type[Basic | Bottleneck], options: Options) -> None:
        super().__init__()
        self.channels = tuple(width * block.expansion for width in WIDTHS)
        self.mean = fit_stats(IMAGENET_MEAN, options.in_channels)
        self.std = fit_stats(IMAGENET_STD, options.in_channels)
        self.conv1 = nn.Conv2d(options.in_channels, STEM_WIDTH, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_WIDTH)
        # A dilated stage looks at the same places as a strided one, and at those between: Step(1, before=1, after=2).
        steps = [Step(), Step(2), Step(2), Step(1, 1, 2) if options.dilate_last else Step(2)]
        befores = (STEM_WIDTH, *self.channels)
        stride_in = options.resnet_stride or "3x3"
        stages = []
        for before, width, depth, step in zip(befores, WIDTHS, depths, steps, strict=False):
            later = Step(1, step.after, step.after)
            first = block(before, width, step, stride_in)
            rest = [block(width * block.expansion, width, later, stride_in) for _ in range(depth - 1)]
            stages.append(nn.Sequential(first, *rest))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        start_convolutions(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at strides 4, 8, 16 and 32, sides rounded up."""
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        c1 = self.layer1(F.max_pool2d(x, 3, 2, 1))
        c2 = self.layer2(c1)
        c3 = self.layer3(c2)
        return [c1, c2, c3, self.layer4(c3)]

    def blocks(self) -> list[nn.Module]:
        """The stem, then every residual block."""
        return [together(self.conv1, self.bn1), *self.layer1, *self.layer2, *self.layer3, *self.layer4]


SHAPES: Mapping[str, tuple[tuple[int, ...], type[Basic | Bottleneck]]] = {
    "resnet-18": ((2, 2, 2, 2), Basic),
    "resnet-50": ((3, 4, 6, 3), Bottleneck),
    "resnet-101": ((3, 4, 23, 3), Bottleneck),
}
"""Residual blocks per stage, and their kind."""


def build(name: str, options: Options) -> ResNet:
    """One of the models in SHAPES, with random weights."""
    return ResNet(*SHAPES[name], options)
