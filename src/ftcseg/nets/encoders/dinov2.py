"""DINOv2 ViT-S, -B and -L with patches of 14 pixels: four maps of the same stride, from four depths.

Each map is what a block put out, passed through the final LayerNorm, without the class token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftcseg.nets.encoders.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Encoder,
    Options,
    fit_stats,
    park_unused,
    require_multiple,
    together,
)
from ftcseg.nets.encoders.drop_path import DropPath, rising_rates
from ftcseg.nets.weights import KeyMap

PATCH = 14
GRID = 37  # 518 / 14: the grid the published positions were trained on
OFFSET = 0.1
"""Added to the wanted grid before dividing by 37; part of how the published models interpolate."""
MLP_RATIO = 4
LN_EPS = 1e-6
START_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Width, depth and heads of a ViT, and the blocks (from 0) whose outputs are the four maps."""

    dim: int
    depth: int
    heads: int
    taps: tuple[int, int, int, int]


SHAPES: Mapping[str, Shape] = {
    "dinov2-small": Shape(384, 12, 6, (2, 5, 8, 11)),
    "dinov2-base": Shape(768, 12, 12, (2, 5, 8, 11)),
    "dinov2-large": Shape(1024, 24, 16, (4, 11, 17, 23)),
}


class Embed(nn.Module):
    """Patches become tokens that know their place; a class token comes first."""

    def __init__(self, dim: int, in_channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + GRID * GRID, dim))
        self.mask_token = nn.Parameter(torch.zeros(1, dim))  # only pretraining looks at it

    def forward(self, images: Tensor) -> Tensor:
        """Tokens (B, 1 + h * w, dim)."""
        patches = self.proj(images)
        positions = grid_positions(self.pos_embed, patches.shape[-2], patches.shape[-1])
        tokens = patches.flatten(2).transpose(1, 2)
        return torch.cat((self.cls_token.expand(tokens.shape[0], -1, -1), tokens), dim=1) + positions


def grid_positions(positions: Tensor, height: int, width: int) -> Tensor:
    """Positions (1, 1 + height * width, dim) for any grid, of positions (1, 1 + n * n, dim) for a square one."""
    side = math.isqrt(positions.shape[1] - 1)
    if (height, width) == (side, side):
        return positions
    grid = positions[:, 1:].reshape(1, side, side, -1).permute(0, 3, 1, 2)
    scale = ((height + OFFSET) / side, (width + OFFSET) / side)
    # The scale is given and not the size: with the offset in it, samples sit where the published models take them.
    grid = F.interpolate(grid.float(), scale_factor=scale, mode="bicubic").to(positions.dtype)
    return torch.cat((positions[:, :1], grid.flatten(2).transpose(1, 2)), dim=1)


def _fit_positions(positions: Tensor, shape: torch.Size) -> Tensor | None:
    """Positions of a file made for another square grid."""
    side, wanted = math.isqrt(positions.shape[1] - 1), math.isqrt(shape[1] - 1)
    if positions.shape[2] != shape[2] or side * side != positions.shape[1] - 1:
        return None
    return grid_positions(positions, wanted, wanted)


KEYS = KeyMap(
    renames=(
        # The authors' names
        (r"^(cls_token|pos_embed|mask_token)$", r"embed.\1"),
        (r"^patch_embed\.proj\.", "embed.proj."),
        (r"^blocks\.", "layers."),
        (r"\.ls([12])\.gamma$", r".scale\1"),
        # and transformers'
        (r"^embeddings\.(cls_token|mask_token)$", r"embed.\1"),
        (r"^embeddings\.position_embeddings$", "embed.pos_embed"),
        (r"^embeddings\.patch_embeddings\.projection\.", "embed.proj."),
        (r"^encoder\.layer\.", "layers."),
        (r"\.layer_scale([12])\.lambda1$", r".scale\1"),
        (r"\.attention\.attention\.query\.", ".attn.q."),
        (r"\.attention\.attention\.key\.", ".attn.k."),
        (r"\.attention\.attention\.value\.", ".attn.v."),
        (r"\.attention\.output\.dense\.", ".attn.proj."),
        (r"^layernorm\.", "norm."),
    ),
    joins={"qkv": ("q", "k", "v")},
    ignored=(r"^head\.", r"^classifier\."),
    optional=frozenset({"embed.mask_token"}),
    reshapes={"embed.pos_embed": _fit_positions},
)


class Attention(nn.Module):
    """Every token asks all tokens."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        tokens: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return tokens


class FeedForward(nn.Module):
    """Two linear layers around a GELU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, dim * MLP_RATIO)
        self.fc2 = nn.Linear(dim * MLP_RATIO, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim)."""
        tokens: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return tokens


class Block(nn.Module):
    """Attention and feed-forward, each scaled per channel and added to its input."""

    def __init__(self, dim: int, heads: int, drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=LN_EPS)
        self.attn = Attention(dim, heads)
        self.scale1 = nn.Parameter(torch.ones(dim))
        self.norm2 = nn.LayerNorm(dim, eps=LN_EPS)
        self.mlp = FeedForward(dim)
        self.scale2 = nn.Parameter(torch.ones(dim))
        self.drop = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim)."""
        x = x + self.drop(self.attn(self.norm1(x)) * self.scale1)
        branch: Tensor = self.drop(self.mlp(self.norm2(x)) * self.scale2)
        return x + branch


class DinoV2(Encoder):
    """A DINOv2 vision transformer: four maps at stride 14."""

    multiple = PATCH
    input_weight = "embed.proj.weight"
    unused = frozenset({"embed.mask_token"})

    def __init__(self, shape: Shape, options: Options) -> None:
        super().__init__()
        self.channels = (shape.dim,) * len(shape.taps)
        self.mean = fit_stats(IMAGENET_MEAN, options.in_channels)
        self.std = fit_stats(IMAGENET_STD, options.in_channels)
        self.taps = shape.taps
        self.embed = Embed(shape.dim, options.in_channels)
        drops = rising_rates(options.drop_path, shape.depth)
        self.layers = nn.ModuleList(Block(shape.dim, shape.heads, drop) for drop in drops)
        self.norm = nn.LayerNorm(shape.dim, eps=LN_EPS)
        self.apply(_start)
        nn.init.trunc_normal_(self.embed.pos_embed, std=START_STD)
        park_unused(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Four maps (B, dim, H / 14, W / 14)."""
        require_multiple(images, PATCH)
        grid = (images.shape[-2] // PATCH, images.shape[-1] // PATCH)
        x = self.embed(images)
        maps = []
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index in self.taps:
                maps.append(self.norm(x)[:, 1:].unflatten(1, grid).permute(0, 3, 1, 2))
        return maps

    def blocks(self) -> list[nn.Module]:
        """The patches and tokens, then every block; the final norm belongs to the last one."""
        return [self.embed, *self.layers[:-1], together(self.layers[-1], self.norm)]


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=START_STD)
        nn.init.zeros_(module.bias)


def build(name: str, options: Options) -> DinoV2:
    """One of the models in SHAPES, with random weights."""
    return DinoV2(SHAPES[name], options)
