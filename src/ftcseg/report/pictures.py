"""Pictures for people: frames made visible, class colours laid over them."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.errors import ImageError
from ftcseg.types import IGNORE, Color, Labels, Pixels

PALETTE: tuple[Color, ...] = (
    # Okabe and Ito's colours, which the colour-blind tell apart, then lighter and darker ones of the same.
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (255, 205, 120),
    (170, 220, 250),
    (120, 215, 185),
    (140, 95, 0),
    (250, 170, 130),
    (240, 190, 220),
)
BACKGROUND_COLOR: Color = (40, 40, 40)
IGNORE_COLOR: Color = (255, 255, 255)
OPACITY = 0.55
MAX_PIXELS = 64 * 10**6
"""Largest picture file that is opened; ours are a few hundred pixels wide."""
_QUALITIES = (88, 75, 60, 40)  # JPEG, where PNG is too large: noise does not compress
_LOW, _HIGH = 0.5, 99.5  # percentiles between which a deep image is shown


def class_colors(backgrounds: list[bool]) -> list[Color]:
    """A colour for each class, dark grey for background ones."""
    colors: list[Color] = []
    objects = 0
    for background in backgrounds:
        colors.append(BACKGROUND_COLOR if background else PALETTE[objects % len(PALETTE)])
        objects += not background
    return colors


def visible(pixels: Pixels) -> NDArray[np.uint8]:
    """(H, W, 3) bytes of an image of any depth and channel count, stretched where it is not plain 8-bit."""
    shown: NDArray[Any] = pixels[:, :, :3] if pixels.shape[2] >= 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
    if shown.dtype == np.uint8:
        plain: NDArray[np.uint8] = np.ascontiguousarray(shown)
        return plain
    # Doctor reports what is no number; here it is black.
    shown = np.nan_to_num(shown.astype(np.float64), posinf=0, neginf=0)
    low, high = np.percentile(shown, (_LOW, _HIGH))
    unit = (shown - low) / (high - low if high > low else 1)
    stretched: NDArray[np.uint8] = (np.clip(unit, 0, 1) * 255).astype(np.uint8)
    return stretched


def overlay(picture: NDArray[np.uint8], labels: Labels, colors: list[Color], hide: set[int]) -> NDArray[np.uint8]:
    """The picture with each class's colour over it, but for the classes in `hide`; IGNORE is white."""
    table = np.array([*colors, IGNORE_COLOR], dtype=np.float32)
    painted = table[np.where(labels == IGNORE, len(colors), labels)]
    shown = ~np.isin(labels, list(hide))
    mixed = np.where(shown[:, :, None], OPACITY * painted + (1 - OPACITY) * picture, picture)
    return mixed.astype(np.uint8)


def data_url(picture: NDArray[np.uint8], side: int) -> str:
    """The picture as a PNG inside an address, its longer side at most `side`."""
    image = Image.fromarray(picture)
    image.thumbnail((side, side))
    return _address(_encoded(image, "PNG", optimize=True), "png")


def file_url(path: Path, side: int, limit: int) -> str:
    """A PNG or JPEG file inside an address of at most `limit` characters, its longer side at most `side`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG", "JPEG")) as file:
                if file.width * file.height > MAX_PIXELS:
                    raise ValueError(f"{file.width} by {file.height} pixels")
                image = file.convert("RGB")
    except Exception as error:  # decoders raise whatever they like on damaged files; none of it may be a crash
        raise ImageError(f"{path} cannot be shown ({error}).") from error
    image.thumbnail((side, side))
    while True:
        shown = _address(_encoded(image, "PNG", optimize=True), "png")
        for quality in _QUALITIES:
            if len(shown) <= limit:
                return shown
            shown = _address(_encoded(image, "JPEG", quality=quality), "jpeg")
        if len(shown) <= limit or max(image.size) <= 1:
            return shown
        image.thumbnail((image.width // 2 or 1, image.height // 2 or 1))


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _address(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
