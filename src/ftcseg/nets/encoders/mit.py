"""MiT-B0 and -B2, the encoders of SegFormer: four stages of attention over a shrinking grid, without positions.

Attention looks at the grid reduced by a strided convolution, and a depthwise convolution in each feed-forward part lets
tokens know where they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from ftcseg.nets.encoders.base import IMAGENET_MEAN, IMAGENET_STD, Encoder, Options, fit_stats, together
from ftcseg.nets.encoders.drop_path import DropPath, rising_rates
from ftcseg.nets.weights import KeyMap

HEADS = (1, 2, 5, 8)
REDUCTIONS = (8, 4, 2, 1)
MLP_RATIO = 4
LN_EPS = 1e-6
START_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and numbers of blocks of the four stages."""

    widths: tuple[int, int, int, int]
    depths: tuple[int, int, int, int]


SHAPES: Mapping[str, Shape] = {
    "mit-b0": Shape((32, 64, 160, 256), (2, 2, 2, 2)),
    "mit-b2": Shape((64, 128, 320, 512), (3, 4, 6, 3)),
}


def _from_one(match: re.Match[str]) -> str:
    part, stage, *_ = match.groups()
    ours = {"patch_embed": "embed", "block": "blocks", "norm": "norm"}[part]
    return f"stages.{int(stage) - 1}.{ours}."


KEYS = KeyMap(
    renames=(
        # The authors' names, which count stages from one,
        (r"^(patch_embed|block|norm)([1-4])\.", _from_one),
        (r"\.dwconv\.dwconv\.", ".dwconv."),
        # and transformers', which count from zero.
        (r"^encoder\.patch_embeddings\.(\d)\.layer_norm\.", r"stages.\1.embed.norm."),
        (r"^encoder\.patch_embeddings\.(\d)\.", r"stages.\1.embed."),
        (r"^encoder\.layer_norm\.(\d)\.", r"stages.\1.norm."),
        (r"^encoder\.block\.(\d)\.", r"stages.\1.blocks."),
        (r"\.layer_norm_([12])\.", r".norm\1."),
        (r"\.attention\.self\.query\.", ".attn.q."),
        (r"\.attention\.self\.key\.", ".attn.k."),
        (r"\.attention\.self\.value\.", ".attn.v."),
        (r"\.attention\.self\.sr\.", ".attn.sr."),
        (r"\.attention\.self\.layer_norm\.", ".attn.norm."),
        (r"\.attention\.output\.dense\.", ".attn.proj."),
        (r"\.mlp\.dense([12])\.", r".mlp.fc\1."),
    ),
    joins={"kv": ("k", "v")},
    ignored=(r"^head\.", r"^classifier\.", r"^decode_head\."),
)


class Embed(nn.Module):
    """Overlapping patches become tokens."""

    def __init__(self, before: int, width: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(before, width, kernel, stride, kernel // 2)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens on their grid, (B, h, w, C)."""
        tokens: Tensor = self.norm(self.proj(x).permute(0, 2, 3, 1))
        return tokens


class Attention(nn.Module):
    """Every token asks a reduced grid."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.sr: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        if reduction > 1:
            self.sr = nn.Conv2d(width, width, reduction, reduction)
            self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens on their grid, (B, h, w, C)."""
        reduced = self.norm(self.sr(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        q = self.q(x).flatten(1, 2).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(reduced).flatten(1, 2).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        tokens: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return tokens.view(x.shape)


class MixFeedForward(nn.Module):
    """A feed-forward layer with a depthwise convolution inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = width * MLP_RATIO
        self.fc1 = nn.Linear(width, wide)
        self.dwconv = nn.Conv2d(wide, wide, 3, 1, 1, groups=wide)
        self.fc2 = nn.Linear(wide, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens on their grid, (B, h, w, C)."""
        mixed = self.dwconv(self.fc1(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        tokens: Tensor = self.fc2(F.gelu(mixed))
        return tokens


class Block(nn.Module):
    """Attention and feed-forward, each added to its input."""

    def __init__(self, width: int, heads: int, reduction: int, drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=LN_EPS)
        self.attn = Attention(width, heads, reduction)
        self.norm2 = nn.LayerNorm(width, eps=LN_EPS)
        self.mlp = MixFeedForward(width)
        self.drop = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens on their grid, (B, h, w, C)."""
        x = x + self.drop(self.attn(self.norm1(x)))
        branch: Tensor = self.drop(self.mlp(self.norm2(x)))
        return x + branch


class Stage(nn.Module):
    """Patches, blocks and a last norm."""

    def __init__(self, embed: Embed, blocks: list[Block], width: int) -> None:
        super().__init__()
        self.embed = embed
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=LN_EPS)

    def forward(self, x: Tensor) -> Tensor:
        """The map (B, C, h, w) of the stage."""
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        maps: Tensor = self.norm(x).permute(0, 3, 1, 2)
        return maps


class MiT(Encoder):
    """A Mix Transformer: maps at strides 4, 8, 16 and 32."""

    input_weight = "stages.0.embed.proj.weight"

    def __init__(self, shape: Shape, options: Options) -> None:
        super().__init__()
        self.channels = shape.widths
        self.mean = fit_stats(IMAGENET_MEAN, options.in_channels)
        self.std = fit_stats(IMAGENET_STD, options.in_channels)
        drops = iter(rising_rates(options.drop_path, sum(shape.depths)))
        self.stages = nn.ModuleList()
        before = options.in_channels
        for width, depth, heads, reduction in zip(shape.widths, shape.depths, HEADS, REDUCTIONS, strict=True):
            embed = Embed(before, width, 3, 2) if self.stages else Embed(before, width, 7, 4)
            blocks = [Block(width, heads, reduction, next(drops)) for _ in range(depth)]
            self.stages.append(Stage(embed, blocks, width))
            before = width
        self.apply(_start)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at strides 4, 8, 16 and 32, sides rounded up; images of at least 32×32."""
        maps: list[Tensor] = []
        for stage in self.stages:
            maps.append(stage(maps[-1] if maps else images))
        return maps

    def blocks(self) -> list[nn.Module]:
        """The patches of a stage count as a block of their own; its last norm belongs to its last block."""
        units: list[nn.Module] = []
        for stage in self.stages:
            assert isinstance(stage, Stage)
            units += [stage.embed, *stage.blocks[:-1], together(stage.blocks[-1], stage.norm)]
        return units


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=START_STD)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        fan_out = module.out_channels * math.prod(module.kernel_size) // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        assert module.bias is not None
        nn.init.zeros_(module.bias)


def build(name: str, options: Options) -> MiT:
    """One of the models in SHAPES, with random weights."""
    return MiT(SHAPES[name], options)
