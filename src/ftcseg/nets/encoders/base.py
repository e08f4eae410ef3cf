"""What every encoder promises: four maps, shallow to deep, made of blocks that can be frozen.

Images come in normalised: scaled to 0..1, then (value - mean) / std with the encoder's own numbers per channel.

Other channel counts than RGB follow one rule. The first convolution spreads its RGB weights evenly: each of the n
channels gets their mean times 3/n, so that a picture repeated into n channels is answered as its RGB repetition is (for
one channel this is the sum of the RGB weights, the answer to grey). Mean and std are averaged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError, unknown_name

Trainable: TypeAlias = Literal["full", "frozen"] | int
"""What of an encoder learns: all of it, nothing, or its last N blocks."""

StrideIn: TypeAlias = Literal["1x1", "3x3"]
"""The convolution of a ResNet bottleneck that steps: the first 1x1 (v1) or the 3x3 (v1.5, torchvision)."""

RGB = 3
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may change about an encoder; a family refuses those it cannot follow."""

    in_channels: int = RGB
    dilate_last: bool = False
    drop_path: float = 0.0
    resnet_stride: StrideIn | None = None


class Encoder(nn.Module):
    """An image goes in, four maps come out."""

    channels: tuple[int, ...]
    """Of the four maps, shallow to deep."""
    multiple: int = 1
    """Sides of the images must be multiples of this; 1 means any size, and maps are rounded up."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_weight: str
    """Name of the parameter that first touches the image."""
    unused: frozenset[str] = frozenset()
    """Parameters kept because published weights have them; no output depends on them and they are never trained."""
    text_width: int | None = None
    """Width of the text embeddings that its deepest map can be compared with; None where it knows no language."""
    frozen_blocks: int = 0
    """How many of the first blocks are frozen; set by `set_trainable`."""

    def forward(self, images: Tensor) -> list[Tensor]:
        """Four maps (B, C_i, H_i, W_i), shallow to deep, of normalised images (B, in_channels, H, W)."""
        raise NotImplementedError

    def blocks(self) -> list[nn.Module]:
        """The trainable units, shallow to deep and the stem first; each parameter belongs to exactly one."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        """Switch to training, except for frozen blocks: their batch statistics must not move."""
        super().train(mode)
        # Asked by number and not by requires_grad: a teacher has no gradients at all and yet may own its statistics.
        for block in self.blocks()[: self.frozen_blocks]:
            block.eval()
        return self


def set_trainable(encoder: Encoder, mode: Trainable) -> None:
    """Train all of the encoder ("full"), nothing ("frozen") or its last N blocks (N)."""
    blocks = encoder.blocks()
    named = {"full": len(blocks), "frozen": 0}
    if isinstance(mode, str) and mode not in named:
        raise unknown_name("way to train an encoder", mode, named)
    trained = named[mode] if isinstance(mode, str) else mode
    if not 0 <= trained <= len(blocks):
        raise UsageError(f"The last {trained} blocks cannot be trained: this encoder has {len(blocks)}.")
    encoder.frozen_blocks = len(blocks) - trained
    for index, block in enumerate(blocks):
        block.requires_grad_(index >= encoder.frozen_blocks)
    park_unused(encoder)
    encoder.train(encoder.training)


def park_unused(encoder: Encoder) -> None:
    """Take unused parameters out of training: with gradients asked for, distributed training would wait for them."""
    for name in encoder.unused:
        encoder.get_parameter(name).requires_grad_(False)


def together(*modules: nn.Module) -> nn.Module:
    """Several modules as one block."""
    return nn.ModuleList(modules)


def start_convolutions(module: nn.Module) -> None:
    """Random convolutions that keep the variance of what comes back through them; norms start as identities."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def fit_input(weight: Tensor, shape: torch.Size) -> Tensor | None:
    """RGB weights (out, 3, h, w) of a first convolution spread over other channels by the rule above."""
    out, in_channels, *kernel = shape
    if tuple(weight.shape) != (out, RGB, *kernel):
        return None
    return weight.mean(dim=1, keepdim=True).repeat(1, in_channels, 1, 1) * (RGB / in_channels)


def fit_stats(values: Sequence[float], in_channels: int) -> tuple[float, ...]:
    """Mean or std per channel for another number of channels: their average for each."""
    if len(values) == in_channels:
        return tuple(values)
    return (sum(values) / len(values),) * in_channels


def require_multiple(images: Tensor, multiple: int) -> None:
    """Refuse sides that do not fit, naming the size that would."""
    height, width = images.shape[-2:]
    if height % multiple or width % multiple:
        fit = [max(multiple, round(side / multiple) * multiple) for side in (height, width)]
        raise UsageError(
            f"Images of {height}×{width} do not fit: both sides must be multiples of {multiple}. "
            f"Resize them to {fit[0]}×{fit[1]}."
        )
