"""Arrays to files, at their own depth, whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.errors import UsageError
from ftcseg.files import atomic, read_json, write_json
from ftcseg.types import IGNORE, Labels, Pixels

JPEG_QUALITY = 95
STORED_IGNORE = {np.uint8: 255, np.uint16: 65535}
"""How IGNORE is written: the largest number the mask's depth holds."""
_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".png": "PNG", ".gif": "PNG"}


def write_image(path: Path, pixels: Pixels) -> None:
    """Write (H, W, C) pixels in the format the file's name asks for, keeping their depth."""
    data = encode_image(path.suffix.lower(), pixels)
    with atomic(path) as file:
        file.write(data)


def encode_image(suffix: str, pixels: Pixels) -> bytes:
    """The bytes of an image file; deep or many-channelled pixels become PNG or TIFF as they must."""
    buffer = io.BytesIO()
    plain: NDArray[Any] = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    if suffix in (".tif", ".tiff") or pixels.dtype == np.float32 or pixels.shape[2] > 4:
        import tifffile

        planes = "contig" if pixels.shape[2] > 1 else None
        photometric = "rgb" if pixels.shape[2] == 3 and pixels.dtype == np.uint8 else "minisblack"
        tifffile.imwrite(buffer, plain, photometric=photometric, planarconfig=planes, compression="zlib")
        return buffer.getvalue()
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        import imagecodecs

        encoded: bytes = bytes(imagecodecs.png_encode(pixels))
        return encoded
    options: dict[str, Any] = {"quality": JPEG_QUALITY, "subsampling": 0} if suffix in (".jpg", ".jpeg") else {}
    if suffix == ".webp":
        options = {"lossless": True}
    Image.fromarray(plain).save(buffer, _FORMATS.get(suffix, "PNG"), **options)
    return buffer.getvalue()


def write_labels(path: Path, labels: Labels) -> None:
    """Write class ids as a PNG of 8 bits, or 16 where 8 do not hold them; IGNORE becomes the largest value."""
    depth: type[np.uint8] | type[np.uint16] = np.uint8 if labels.max(initial=0) < STORED_IGNORE[np.uint8] else np.uint16
    stored = np.where(labels == IGNORE, STORED_IGNORE[depth], labels).astype(depth)
    with atomic(path) as file:
        Image.fromarray(stored).save(file, "PNG")


def claim(out: Path, recipe: dict[str, object], name: str) -> None:
    """Make `out` the home of this recipe, or confirm that it already is; another's folder is never written into."""
    note = out / name
    if note.is_file():
        if read_json(note) == recipe:
            return
        raise UsageError(f"{out} was made with other settings (see {note}). Choose another folder, or remove it.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty. Choose another folder.")
    try:
        write_json(note, recipe)
    except OSError as error:
        raise UsageError(f"{out} cannot be written to: {error.strerror}. Choose another folder.") from error
