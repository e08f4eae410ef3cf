"""SemiVL's language-guided decoder: how much each place looks like each class's words, refined class by class.

    cosine of image and text        one map per class, (B, C, h, w)
    7x7, residual ASPP              every class's map on its own, by the same weights
    class attention, twice          at every place the classes look at each other, each with its words
    two steps up                    with shallow maps for sharpness
    3x3                             one score per class

Weights are shared by all classes, so what is learnt about one helps the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.nets.heads.base import Head, resize

WIDTH = 128
TEXT_WIDTH = 512  # of CLIP ViT-B, for encoders that know no language themselves
RATES = (6, 12, 18)
ATTENTION_LAYERS, ATTENTION_HEADS = 2, 4
POOL = 4  # classes are compared on a grid this much coarser
GROUP = 16  # channels normalised together; the paper says no more than GroupNorm


class ResidualASPP(nn.Module):
    """Windows of growing reach over each class's map, the last one the whole image; added to what was there."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.windows = nn.ModuleList([_conv(width, width, 1), *(_conv(width, width, 3, rate) for rate in RATES)])
        self.image = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.ReLU())
        self.join = _conv((len(RATES) + 2) * width, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, width, h, w) as it came."""
        whole = self.image(maps).expand_as(maps)
        added: Tensor = self.join(torch.cat([*(window(maps) for window in self.windows), whole], dim=1))
        return maps + added


class ClassAttention(nn.Module):
    """A transformer layer whose tokens are the classes, at every place of a coarse grid for itself.

    Queries and keys see the words beside the map: whether a class listens to another depends on what the two are.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = math.gcd(ATTENTION_HEADS, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(2 * width, 2 * width)  # query and key
        self.say, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, maps: Tensor, words: Tensor) -> Tensor:
        """(B, C, width, h, w) as it came; `words` is (C, width)."""
        batch, classes, _, *size = maps.shape
        coarse = F.avg_pool2d(maps.flatten(0, 1), [min(POOL, side) for side in size], ceil_mode=True)
        tokens = coarse.view(batch, classes, *coarse.shape[1:]).permute(0, 3, 4, 1, 2)  # (B, h, w, C, width)
        heard = self.attend(self.norm1(tokens), words)
        heard = heard + self.mlp(self.norm2(tokens + heard))
        back = heard.permute(0, 3, 4, 1, 2).flatten(0, 1)
        return maps + resize(back, size).view_as(maps)

    def attend(self, tokens: Tensor, words: Tensor) -> Tensor:
        """What each class hears from all, (B, h, w, C, width)."""
        query, key = self.ask(torch.cat([tokens, words.expand_as(tokens)], dim=-1)).chunk(2, dim=-1)
        parts = [x.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for x in (query, key, self.say(tokens))]
        heard: Tensor = F.scaled_dot_product_attention(*parts)
        out: Tensor = self.out(heard.transpose(-2, -3).flatten(-2))
        return out


class UpBlock(nn.Module):
    """Twice the size; a shallow map, the same for all classes, is put beside; two 3x3."""

    def __init__(self, before: int, after: int, shallow: int, skip: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(before, after, 2, stride=2)
        self.skip = nn.Conv2d(shallow, skip, 1)
        self.convs = nn.Sequential(_conv(after + skip, after, 3), _conv(after, after, 3))

    def forward(self, maps: Tensor, shallow: Tensor) -> Tensor:
        """(B·C, after, 2h, 2w) from (B·C, before, h, w) and (B, shallow, ?, ?)."""
        large = self.up(maps)
        beside = resize(self.skip(shallow), large.shape[-2:])
        classes = len(large) // len(beside)
        refined: Tensor = self.convs(torch.cat([large, beside.repeat_interleave(classes, dim=0)], dim=1))
        return refined


class VLGHead(Head):
    """Reads the deepest map and the two shallowest; its scores come at four times the deepest map's size.

    `text` says that the deepest map lies in the space of text embeddings of that width (CLIP); other maps are projected
    to TEXT_WIDTH. Until `set_words` is called, the classes are random directions. The classifier starts as the
    identity: one map per class is what the decoder ends with.
    """

    words: Tensor  # (num_classes, text width), rows of length one

    def __init__(
        self,
        channels: Sequence[int],
        num_classes: int,
        *,
        features: int | None = None,
        wide: int | None = None,
        text: int | None = None,
    ) -> None:
        super().__init__(channels, num_classes)
        features, width = features or WIDTH, text or TEXT_WIDTH
        half, quarter, eighth = (max(1, features // part) for part in (2, 4, 8))
        self.project = nn.Conv2d(channels[-1], width, 1) if text is None else nn.Identity()
        self.register_buffer("words", F.normalize(torch.randn(num_classes, width), dim=1))
        self.look = nn.Conv2d(1, features, 7, padding=3)
        self.aspp = ResidualASPP(features)
        self.narrow = nn.Linear(width, features)
        self.attention = nn.ModuleList(ClassAttention(features) for _ in range(ATTENTION_LAYERS))
        self.ups = nn.ModuleList(
            [UpBlock(features, half, channels[1], quarter), UpBlock(half, quarter, channels[0], eighth)]
        )
        self.score = nn.Conv2d(quarter, 1, 3, padding=1)
        self.widen = nn.Identity() if wide is None else nn.Conv2d(num_classes, wide, 1)
        self.classifier = nn.Conv2d(wide or num_classes, num_classes, 1)
        if wide is None:
            nn.init.dirac_(self.classifier.weight)
            nn.init.zeros_(self.classifier.bias)  # type: ignore[arg-type]

    @torch.no_grad()
    def set_words(self, words: Tensor) -> None:
        """Tell what each class is called: one text embedding each, (num_classes, text width)."""
        if words.shape != self.words.shape:
            raise UsageError(
                f"The vlg head compares {self.words.shape[1]} numbers a pixel for {len(self.words)} classes; these "
                f"words are {words.shape[1]} numbers for {len(words)}. Choose a CLIP whose text embeddings have "
                f"{self.words.shape[1]} numbers, or take that CLIP as the encoder."
            )
        self.words.copy_(F.normalize(words, dim=1))

    def similarity(self, deep: Tensor) -> Tensor:
        """The cosine of every place with every class's words, (B, num_classes, h, w)."""
        pixels = F.normalize(self.project(deep).float(), dim=1)
        return F.conv2d(pixels, self.words[:, :, None, None]).to(deep.dtype)

    def embedding(self, features: list[Tensor]) -> Tensor:
        """One map per class at four times the deepest map's size."""
        batch, classes = len(features[-1]), len(self.words)
        looks = self.similarity(features[-1]).flatten(0, 1)[:, None]
        maps = self.aspp(self.look(looks)).unflatten(0, (batch, classes))
        words = self.narrow(self.words)
        for layer in self.attention:
            maps = layer(maps, words)
        maps = maps.flatten(0, 1)
        for up, shallow in zip(self.ups, (features[1], features[0]), strict=True):
            maps = up(maps, shallow)
        scores: Tensor = self.widen(self.score(maps)[:, 0].unflatten(0, (batch, classes)))
        return scores


def _conv(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False)
    groups = max(1, outputs // GROUP)
    return nn.Sequential(conv, nn.GroupNorm(groups if outputs % groups == 0 else 1, outputs), nn.ReLU())
