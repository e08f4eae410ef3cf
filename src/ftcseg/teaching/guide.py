"""A frozen CLIP that names pixels by words: SemiVL's guidance, and the words themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import kept_loss
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.heads.base import resize
from ftcseg.nets.segmenter import nearest_multiple
from ftcseg.teaching.teacher import make_teacher
from ftcseg.types import ClassTable, PseudoLabels

SHARPNESS = 100.0
"""Cosines are multiplied by this before the softmax, as CLIP was trained."""
UNNAMED = r"class-\d+"
"""What a class is called whose name nobody wrote down; no text can be made of that."""


def prompts_of(classes: ClassTable) -> list[tuple[str, ...]]:
    """The texts of each class: its prompts, or «a photo of a NAME»."""
    for c in classes:
        if not c.prompts and re.fullmatch(UNNAMED, c.name):
            raise UsageError(
                f"Class {c.id} has no name and no prompts, so CLIP cannot be told what it is. Write some under "
                f"«classes» in dataset.yaml: {c.id}: {{name: tire, prompts: [a photo of a tire]}}."
            )
    return [c.prompts or (f"a photo of a {c.name}",) for c in classes]


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The texts of all classes as CLIP reads them."""

    texts: Tensor  # (T, text width)
    owner: Tensor  # (T,) int64, the class of each; every class has one or more

    @property
    def by_class(self) -> Tensor:
        """One embedding for each class, the mean of its texts': (C, text width)."""
        return torch.stack([self.texts[self.owner == c].mean(0) for c in range(int(self.owner.max()) + 1)])


class Guide(nn.Module):
    """CLIP's dense embeddings against the texts of every class; a class is as likely as its likeliest text.

    Images come as the student wants them normalised, and are normalised anew for CLIP.
    """

    texts: Tensor  # (T, text width), rows of length one
    owner: Tensor  # (T,) int64
    scale: Tensor  # (channels, 1, 1)
    shift: Tensor  # (channels, 1, 1)

    def __init__(self, encoder: Encoder, words: Words, shown: Encoder) -> None:
        super().__init__()
        self.encoder = make_teacher(encoder)
        self.classes = int(words.owner.max()) + 1
        self.register_buffer("texts", F.normalize(words.texts, dim=1))
        self.register_buffer("owner", words.owner.clone())
        mean, std, want_mean, want_std = (
            torch.tensor(values)[:, None, None] for values in (shown.mean, shown.std, encoder.mean, encoder.std)
        )
        self.register_buffer("scale", std / want_std)
        self.register_buffer("shift", (mean - want_mean) / want_std)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C, H, W) at the images' size."""
        encoder, size = cast("Encoder", self.encoder.net), images.shape[-2:]
        sides = [nearest_multiple(side, encoder.multiple) for side in size]
        dense = encoder(resize(images * self.scale + self.shift, sides))[-1]
        with torch.autocast(images.device.type, enabled=False):  # a hundredfold of a half-precise cosine is far off
            cosines = F.conv2d(F.normalize(dense.float(), dim=1), self.texts[:, :, None, None])
        return resize(SHARPNESS * self.best(cosines), size)

    def best(self, cosines: Tensor) -> Tensor:
        """Of the texts of each class the one most alike, (B, C, h, w) from (B, T, h, w)."""
        return torch.stack([cosines[:, self.owner == c].amax(1) for c in range(self.classes)], dim=1)


def guided_loss(streams: Sequence[Tensor], targets: Sequence[PseudoLabels], threshold: float) -> list[Tensor]:
    """Cross-entropy of each stream's logits with what CLIP is sure enough of, divided by the count of all pixels."""
    pairs = zip(streams, targets, strict=True)
    return [kept_loss(logits, said, said.conf >= threshold, normaliser="hw") for logits, said in pairs]
