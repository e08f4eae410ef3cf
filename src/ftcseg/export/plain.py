"""The network as it is written to a file: images from 0 to 1 in, logits out, nothing that only training needs.

Normalisation moves inside and OPR is folded. What of an encoder depends on the size of its image in a way that no graph
can hold is said in another way, with the same result:

    DINOv2                 positions for any grid are two matrix products instead of a bicubic resize by a scale
    EfficientNet-Lite      TensorFlow's padding puts the odd pixel at the end, where even sides differ from odd ones;
                           in the mirror image it is plain padding for both, so image and kernels are mirrored
    class attention (vlg)  attention over five axes becomes attention over four
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ftcseg.export.folding import Folded
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.encoders.dinov2 import OFFSET, DinoV2, Embed, grid_positions
from ftcseg.nets.encoders.efficientnet_lite import ConvNorm, EfficientNetLite
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.heads.base import resize
from ftcseg.nets.segmenter import Segmenter

CUBIC = -0.75  # torch's bicubic kernel
ATTENTION_AXES = 4


class PlainNet(nn.Module):
    """A copy of a Segmenter for writing: (B, C, H, W) from 0 to 1 in, logits (B, num_classes, H, W) out.

    `size` is the one (H, W) it will be asked about; None is any, both sides being multiples of the encoder's.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: Segmenter, spec: ModelSpec, size: tuple[int, int] | None) -> None:
        super().__init__()
        net = copy.deepcopy(net).cpu().eval().requires_grad_(False)
        self.register_buffer("mean", torch.tensor(spec.mean, dtype=_dtype(net)).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(spec.std, dtype=_dtype(net)).view(1, -1, 1, 1))
        self.levels: tuple[int, ...] = () if net.opr is None else net.opr.levels
        stages = [] if net.opr is None else [Folded(stage, net.opr.judge(net.head, i)) for i, stage in net.opr]
        self.opr = nn.ModuleList(stages)
        self.encoder = _writable(net.encoder, size)
        self.head = net.head

    def forward(self, image: Tensor) -> Tensor:
        """Logits at the image's size."""
        with _FourAxes():
            maps: list[Tensor] = self.encoder((image - self.mean) / self.std)
            for level, stage in zip(self.levels, self.opr, strict=True):
                maps[level] = stage(maps[level])
            return resize(self.head(maps), image.shape[-2:])


def _writable(encoder: Encoder, size: tuple[int, int] | None) -> nn.Module:
    if isinstance(encoder, EfficientNetLite):
        return Mirrored(encoder)
    if isinstance(encoder, DinoV2):
        grid = None if size is None else (size[0] // encoder.multiple, size[1] // encoder.multiple)
        encoder.embed = GridEmbed(encoder.embed, grid)  # type: ignore[assignment]
    return encoder


class GridEmbed(nn.Module):
    """DINOv2's patches and positions for one grid, or for any."""

    table: Tensor  # (1, h * w, dim) of one grid; or (dim, side, side) of the published one, columns before rows

    def __init__(self, embed: Embed, grid: tuple[int, int] | None) -> None:
        super().__init__()
        positions = embed.pos_embed.detach()
        self.proj, self.is_fixed = embed.proj, grid is not None
        self.register_buffer("first", embed.cls_token.detach() + positions[:, :1])
        if grid is not None:
            self.register_buffer("table", grid_positions(positions, *grid)[:, 1:].clone())
        else:
            side = math.isqrt(positions.shape[1] - 1)
            self.register_buffer("table", positions[0, 1:].reshape(side, side, -1).permute(2, 1, 0).contiguous())

    def forward(self, images: Tensor) -> Tensor:
        """Tokens (B, 1 + h * w, dim)."""
        patches: Tensor = self.proj(images)
        places = self.table if self.is_fixed else self._places(patches.shape[-2], patches.shape[-1])
        tokens = patches.flatten(2).transpose(1, 2) + places
        return torch.cat((self.first.expand(tokens.shape[0], -1, -1), tokens), dim=1)  # type: ignore[operator]

    def _places(self, height: int, width: int) -> Tensor:
        """`grid_positions` for a grid whose sides are known only when the graph runs.

        The table stands left of both products: weights on the right are what int8 would round.
        """
        side = self.table.shape[-1]
        ys, xs = (torch.ones(count, dtype=self.table.dtype) for count in (height, width))
        both = (ys.sum() == side) & (xs.sum() == side)  # the published grid itself is taken as it is
        offset = torch.where(both, 0.0, OFFSET)
        rows, columns = (_cubic_weights(ones.cumsum(0) - 1, side / (ones.sum() + offset), side) for ones in (ys, xs))
        drawn = (self.table @ rows.T).transpose(1, 2) @ columns.T  # (dim, x, h) -> (dim, h, w)
        return drawn.flatten(1).T[None]


def _cubic_weights(places: Tensor, step: Tensor, side: int) -> Tensor:
    """(count, side): how much of each of `side` samples bicubic interpolation takes, borders repeated."""
    centres = (places + 0.5) * step - 0.5
    first = centres.floor()
    samples = torch.arange(side, dtype=places.dtype)
    total = places.new_zeros(1, side)
    for tap in (-1, 0, 1, 2):
        away = (centres - first - tap).abs()
        near = ((CUBIC + 2) * away - (CUBIC + 3)) * away * away + 1
        far = ((CUBIC * away - 5 * CUBIC) * away + 8 * CUBIC) * away - 4 * CUBIC
        weight = near if tap in (0, 1) else far
        hits = (first + tap).clamp(0, side - 1)[:, None] == samples
        total = total + weight[:, None] * hits.to(places.dtype)
    return total


class Mirrored(nn.Module):
    """EfficientNet-Lite that sees the image turned by 180 degrees, with kernels turned alike; its maps are turned back.

    TensorFlow's padding of an even side starts one pixel later than half a kernel and ends at half a kernel. Seen from
    the end it is half a kernel for odd and even sides alike, and no side need be known.
    """

    def __init__(self, encoder: EfficientNetLite) -> None:
        super().__init__()
        self.encoder = encoder
        _turn(encoder)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at strides 4, 8, 16 and 32, sides rounded up."""
        return [x.flip(2, 3) for x in self.encoder(images.flip(2, 3))]


class _Turned(nn.Module):
    """A ConvNorm with its kernel turned and padding of half a kernel all around."""

    def __init__(self, part: ConvNorm) -> None:
        super().__init__()
        self.conv, self.norm, self.act = part.conv, part.norm, part.act
        self.conv.weight.data = self.conv.weight.data.flip(2, 3).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return F.relu6(y) if self.act else y


def _turn(module: nn.Module) -> None:
    for name, part in module.named_children():
        if isinstance(part, ConvNorm):
            setattr(module, name, _Turned(part))
        else:
            _turn(part)


class _FourAxes(TorchFunctionMode):
    """Attention over more than four axes, which ONNX has not, as attention over four."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention or args[0].ndim <= ATTENTION_AXES:
            return func(*args, **(kwargs or {}))
        flat = [x.flatten(0, -ATTENTION_AXES) for x in args[:3]]
        return func(*flat, *args[3:], **(kwargs or {})).reshape(args[0].shape)


def _dtype(net: nn.Module) -> torch.dtype:
    return next(net.parameters()).dtype
