"""Arrays to files, at their own depth, whole or not at all."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.errors import UsageError
from ftcseg.files import atomic, is_leftover, read_json, write_json
from ftcseg.types import IGNORE, Labels, Pixels

JPEG_QUALITY = 95
STORED_IGNORE = {np.uint8: 255, np.uint16: 65535}
"""How IGNORE is written: the largest number the mask's depth holds."""
_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".png": "PNG", ".gif": "PNG"}
_HOLDS = {"JPEG": ("L", "RGB"), "WEBP": ("RGB", "RGBA"), "BMP": ("L", "RGB")}
"""Modes that a format can store as they are; PNG takes all others."""
_EXIF_ORIENTATION = 0x0112
_PNG_HEADER_BYTES = 33  # the signature and the first chunk


def write_image(path: Path, pixels: Pixels, orientation: int = 1) -> None:
    """Write (H, W, C) pixels in the format the file's name asks for, keeping their depth; `orientation` is EXIF's."""
    data = encode_image(path.suffix.lower(), pixels, orientation)
    with atomic(path) as file:
        file.write(data)


def encode_image(suffix: str, pixels: Pixels, orientation: int = 1) -> bytes:
    """The bytes of an image file; pixels that the suffix's format cannot hold become PNG or TIFF as they must."""
    buffer = io.BytesIO()
    plain: NDArray[Any] = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    exif = Image.Exif()
    if orientation != 1:
        exif[_EXIF_ORIENTATION] = orientation
    if suffix in (".tif", ".tiff") or pixels.dtype == np.float32 or pixels.shape[2] > 4:
        import tifffile

        planes = "contig" if pixels.shape[2] > 1 else None
        photometric = "rgb" if pixels.shape[2] == 3 and pixels.dtype == np.uint8 else "minisblack"
        tags = [(_EXIF_ORIENTATION, "H", 1, orientation, True)] if orientation != 1 else []
        tifffile.imwrite(
            buffer, plain, photometric=photometric, planarconfig=planes, compression="zlib", extratags=tags
        )
        return buffer.getvalue()
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        import imagecodecs

        encoded: bytes = bytes(imagecodecs.png_encode(pixels))
        return encoded if orientation == 1 else _with_exif(encoded, exif.tobytes().removeprefix(b"Exif\0\0"))
    image = Image.fromarray(plain)
    kind = _FORMATS.get(suffix, "PNG")
    if image.mode not in _HOLDS.get(kind, (image.mode,)) or (kind == "BMP" and orientation != 1):
        kind = "PNG"
    options: dict[str, Any] = {} if kind == "BMP" else {"exif": exif}
    if kind == "JPEG":
        options |= {"quality": JPEG_QUALITY, "subsampling": 0}
    if kind == "WEBP":
        options |= {"lossless": True, "exact": True}  # also where alpha hides the colour
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _with_exif(png: bytes, exif: bytes) -> bytes:
    """The PNG with an eXIf chunk behind its header."""
    chunk = b"eXIf" + exif
    framed = len(exif).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    return png[:_PNG_HEADER_BYTES] + framed + png[_PNG_HEADER_BYTES:]


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
    if out.exists() and (not out.is_dir() or not all(map(is_leftover, out.iterdir()))):
        raise UsageError(f"{out} exists and is not empty. Choose another folder.")
    try:
        write_json(note, recipe)
    except OSError as error:
        raise UsageError(f"{out} cannot be written to: {error.strerror}. Choose another folder.") from error
