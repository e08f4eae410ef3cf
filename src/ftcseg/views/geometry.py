"""Scale, crop and flip: one window drawn per image, laid alike over pixels and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ftcseg.errors import ImageError
from ftcseg.types import IGNORE, Labels, Pixels

WHITE = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0, np.dtype(np.float32): 1.0}
"""What counts as 1 in each depth; float images are taken as they are."""
ALPHA = {2: 1, 4: 3}
"""Channel counts whose last channel is transparency, and how many come before it."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an image that a view shows: a box in source pixels, drawn at `size`, perhaps mirrored."""

    top: float
    left: float
    bottom: float
    right: float
    size: tuple[int, int]  # (h, w) on the canvas; the canvas may be larger, the rest is padding
    flip: bool


@dataclass(frozen=True, slots=True)
class GeometryParams:
    """How labelled images and weak views are cut (UniMatch V2)."""

    crop: tuple[int, int] = (518, 518)
    """(height, width) of every view."""
    short_side: int | None = None
    """Images are first brought to this shorter side; None keeps their own size."""
    scale: tuple[float, float] = (0.5, 2.0)
    flip: float = 0.5


def fit_channels(image: Pixels, wanted: int, name: str) -> Pixels:
    """The image in the channels a network reads; one that cannot be brought to them is an ImageError that names it.

    Transparency is left out, grey is repeated, three equal channels are one grey; nothing is mixed or guessed.
    """
    planes = fitting_planes(image, wanted, name)
    return planes if planes.shape[2] == wanted else planes.repeat(wanted, axis=2)


def fitting_planes(image: Pixels, wanted: int, name: str) -> Pixels:
    """As `fit_channels`, but grey comes as one plane that stands for all: it need not be resized more than once."""
    if image.dtype == np.float32 and not np.isfinite(image).all():
        raise ImageError(f"{name} holds NaN or infinity.", remedy="Mend or remove these pixels.", kind="not-finite")
    count = image.shape[2]
    if count == wanted:
        return image
    opaque = image[:, :, : ALPHA.get(count, count)]
    if opaque.shape[2] in (1, wanted):
        return opaque
    if wanted == 1 and (opaque == opaque[:, :, :1]).all():
        return opaque[:, :, :1]
    raise ImageError(f"{name} has {count} channels; the model reads {wanted}.", remedy="Convert it.", kind="channels")


def draw_window(shape: tuple[int, int], params: GeometryParams, rng: np.random.Generator) -> Window:
    """A random scale, a random place and a coin for the mirror, for an image of (height, width) `shape`."""
    height, width = shape
    base = params.short_side / min(height, width) if params.short_side else 1.0
    scale = base * rng.uniform(*params.scale)
    rows, columns = max(1, round(height * scale)), max(1, round(width * scale))
    crop_h, crop_w = params.crop
    top = int(rng.integers(0, max(0, rows - crop_h) + 1))
    left = int(rng.integers(0, max(0, columns - crop_w) + 1))
    shown = min(crop_h, rows - top), min(crop_w, columns - left)
    y, x = height / rows, width / columns
    box = (top * y, left * x, (top + shown[0]) * y, (left + shown[1]) * x)
    return Window(*box, size=shown, flip=bool(rng.random() < params.flip))


def whole(height: int, width: int, size: tuple[int, int]) -> Window:
    """The whole image at another size, for evaluation."""
    return Window(0, 0, height, width, size, flip=False)


def lay_image(image: Pixels, window: Window, canvas: tuple[int, int]) -> Tensor:
    """(C, H, W) float in [0, 1], bilinear, black in the padding at the right and the bottom."""
    out = np.zeros((image.shape[2], *canvas), dtype=np.float32)
    lay_into(out, image, window)
    return torch.from_numpy(out)


def lay_into(out: NDArray[np.float32], image: Pixels, window: Window) -> None:
    """`lay_image` onto a black (C, H, W) canvas of the caller's; one plane is laid once, for all channels."""
    rows, columns = window.size
    box = (window.left, window.top, window.right, window.bottom)
    planes = image.shape[2]
    for channel in range(planes):
        source = Image.fromarray(_cut(image[:, :, channel], window))
        drawn = np.asarray(source.resize((columns, rows), Image.Resampling.BILINEAR, box=box), dtype=np.float32)
        shown = out[channel, :rows, :columns]
        np.divide(drawn[:, ::-1] if window.flip else drawn, WHITE[image.dtype], out=shown, dtype=np.float32)
    for channel in range(planes, len(out)):
        out[channel] = out[0]


def _cut(plane: Pixels, window: Window) -> Pixels:
    """A plane of the same shape that holds what the window shows, as bytes or as floats, and elsewhere nothing.

    The shape stays, for Pillow works in another order in a smaller picture, and rounds differently. What holds nothing
    costs next to nothing.
    """
    if plane.dtype == np.uint8 and plane.flags.c_contiguous:
        return plane  # Pillow looks at it where it is
    rows = _touched(window.top, window.bottom, window.size[0], plane.shape[0])
    columns = _touched(window.left, window.right, window.size[1], plane.shape[1])
    cut = np.zeros(plane.shape, np.uint8 if plane.dtype == np.uint8 else np.float32)
    cut[rows, columns] = plane[rows, columns]
    return cut


def _touched(start: float, stop: float, count: int, limit: int) -> slice:
    """The source pixels that `count` canvas pixels depend on, and a few more."""
    reach = math.ceil(max(1.0, (stop - start) / count)) + 2
    return slice(max(0, math.floor(start) - reach), min(limit, math.ceil(stop) + reach))


def lay_labels(labels: Labels, window: Window, canvas: tuple[int, int]) -> Tensor:
    """(H, W) int64 class ids, nearest neighbour, IGNORE in the padding."""
    out = np.full(canvas, IGNORE, dtype=np.int64)
    rows, columns = window.size
    ys = _centres(window.top, window.bottom, rows, labels.shape[0])
    xs = _centres(window.left, window.right, columns, labels.shape[1])
    drawn = labels[ys][:, xs]
    out[:rows, :columns] = drawn[:, ::-1] if window.flip else drawn
    return torch.from_numpy(out)


def shown_area(window: Window, canvas: tuple[int, int]) -> Tensor:
    """(H, W) bool, False in the padding."""
    area = torch.zeros(canvas, dtype=torch.bool)
    area[: window.size[0], : window.size[1]] = True
    return area


def _centres(start: float, stop: float, count: int, limit: int) -> NDArray[np.intp]:
    """Source pixel under the centre of each of `count` canvas pixels."""
    centres = start + (np.arange(count) + 0.5) * (stop - start) / count
    return np.clip(np.floor(centres), 0, limit - 1).astype(np.intp)
