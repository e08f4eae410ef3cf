"""CutMix: boxes drawn per image, applied alike to pixels, labels and confidences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CutMixParams:
    """Where and how large boxes are (UniMatch V2; methods.md 2.3)."""

    chance: float = 0.5
    area: tuple[float, float] = (0.02, 0.4)
    """Share of the view that a box covers."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    """Height of a box over its width."""
    tries: int = 50
    """Draws until a box fits; then the view stays whole."""


def draw_box(height: int, width: int, params: CutMixParams, rng: np.random.Generator) -> Tensor:
    """(H, W) bool, True inside the box; all False where chance decided against one."""
    box = torch.zeros(height, width, dtype=torch.bool)
    if rng.random() >= params.chance:
        return box
    for _ in range(params.tries):
        area = rng.uniform(*params.area) * height * width
        aspect = rng.uniform(*params.aspect)
        rows, columns = int(np.sqrt(area * aspect)), int(np.sqrt(area / aspect))
        top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
        if top + rows <= height and left + columns <= width:
            box[top : top + rows, left : left + columns] = True
            return box
    return box


def paste_partner(values: Tensor, boxes: Tensor) -> Tensor:
    """Each item with the box of its partner pasted in; the partner is the same place in the reversed batch.

    Works on (B, H, W) maps and on (B, C, H, W) images with (B, H, W) boxes. A batch of one is its own partner.
    """
    inside = boxes if values.dim() == boxes.dim() else boxes[:, None]
    return torch.where(inside, values.flip(0), values)
