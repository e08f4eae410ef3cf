"""Networks whose answers are written down, and small sets to ask them about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor, nn

from ftcseg.data.dataset import Dataset
from ftcseg.data.describe import Description
from ftcseg.types import ClassTable, MaskCoding, MaskFile, Record

CLASSES = ClassTable.named("background", "bottle", "can")


@dataclass(frozen=True)
class Facts:
    """How images are handed to the networks below: as they are."""

    in_channels: int = 1
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    short_side: int | None = None
    multiple: int = 1


class Scripted(nn.Module):
    """A pixel of value v is answered with the probabilities answers[v]; it remembers the sizes it was shown."""

    def __init__(self, answers: Mapping[int, Sequence[float]]) -> None:
        super().__init__()
        table = torch.zeros(256, len(next(iter(answers.values()))))
        for value, probabilities in answers.items():
            table[value] = torch.tensor(probabilities).log()
        self.register_buffer("table", table)
        self.shown: list[tuple[int, ...]] = []
        self.modes: list[bool] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shown.append(tuple(images.shape))
        self.modes.append(self.training)
        return self.table[(images[:, 0] * 255).round().long()].movedim(-1, 1)


def write_set(
    root: Path, images: Mapping[str, ArrayLike], masks: Mapping[str, ArrayLike], part: str = "val"
) -> Dataset:
    """A set of 8-bit grey frames; names without a mask are unlabelled, 255 in a mask is unknown."""
    records = []
    for name, pixels in images.items():
        _write(root / "images" / name, pixels)
        mask = None
        if name in masks:
            _write(root / "masks" / name, masks[name])
            mask = MaskFile(f"masks/{name}")
        records.append(Record(f"images/{name}", mask, part))  # type: ignore[arg-type]
    coding = MaskCoding("ids", values={c.id: c.id for c in CLASSES}, ignore=frozenset({255}))
    return Dataset(Description("scripted", root, "images-masks", CLASSES, coding), records)


def _write(path: Path, pixels: ArrayLike) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
