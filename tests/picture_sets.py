"""Small sets of pictures made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image


def picture(seed: int, height: int = 4, width: int = 5, channels: int = 1) -> NDArray[np.uint8]:
    """Noise that is like no other picture's."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, pixels: ArrayLike, **options: Any) -> Path:
    """Save as the suffix asks for, in folders made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(path, **options)
    return path


def images_and_masks(root: Path, masks: Mapping[str, Sequence[Sequence[int]] | NDArray[Any] | None]) -> Path:
    """root/images/NAME.png for every name, and root/masks/NAME.png where there is a mask for it."""
    for seed, (name, mask) in enumerate(masks.items()):
        shape = (4, 5) if mask is None else np.asarray(mask).shape[:2]
        save(root / "images" / f"{name}.png", picture(seed, *shape))
        if mask is not None:
            save(root / "masks" / f"{name}.png", mask)
    return root
