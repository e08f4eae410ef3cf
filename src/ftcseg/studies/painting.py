"""Pictures that measurements leave behind: frames with classes laid over them, and signed maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.files import atomic
from ftcseg.report.pictures import class_colors, overlay, visible
from ftcseg.types import ClassTable, Labels, Pixels

BELOW, ABOVE = (0, 114, 178), (213, 94, 0)
"""Okabe and Ito's blue and vermilion, which the colour-blind tell apart; 0 is white between them."""


def painted(pixels: Pixels, labels: Labels, classes: ClassTable) -> NDArray[np.uint8]:
    """The frame with the colours of its classes over it, background left as it is: as a run's own pictures."""
    colors = class_colors([c.background for c in classes])
    return overlay(visible(pixels), labels, colors, {c.id for c in classes if c.background})


def color_key(classes: ClassTable) -> dict[int, tuple[str, str]]:
    """Name and colour of every class that `painted` lays over a frame."""
    colors = class_colors([c.background for c in classes])
    return {c.id: (c.name, "#{:02x}{:02x}{:02x}".format(*colors[c.id])) for c in classes if not c.background}


def signed_map(values: NDArray[np.float32], most: float, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(h, w) values from -most to +most as a picture of `size` (height, width): blue, white, vermilion.

    Cells stay cells: nothing is smoothed between them.
    """
    rows, columns = (np.arange(full) * have // full for full, have in zip(size, values.shape, strict=True))
    unit = np.clip(values[rows][:, columns] / (most or 1.0), -1, 1)[..., None]
    ends = np.where(unit >= 0, np.array(ABOVE, dtype=np.float64), np.array(BELOW, dtype=np.float64))
    picture: NDArray[np.uint8] = np.rint(255 + np.abs(unit) * (ends - 255)).astype(np.uint8)
    return picture


def write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write a picture whole or not at all."""
    with atomic(path) as file:
        Image.fromarray(picture).save(file, "PNG", optimize=True)
