"""Image files to arrays, at the depth they were stored with.

The header is read first: size, frames and depth are judged before anything is decoded. A 16-bit sonar frame stays
16 bits, a grey one stays one channel; EXIF orientation is applied. What cannot be used raises ImageError.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from ftcseg.errors import ImageError
from ftcseg.types import Pixels

MAX_PIXELS = 89_478_485
"""Pixels of the largest image we decode unless told otherwise; Pillow's own line for «this may be a bomb»."""
MAX_SIDE = 200_000
"""No survey frame is longer; a header that claims so is damaged or hostile."""
_EXIF_ORIENTATION = 0x0112
_ANIMATED = {"GIF", "WEBP", "PNG", "AVIF"}
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LARGER = "If it is meant to be that large, raise the limit: «limits: {pixels: N}» in dataset.yaml, or --max-pixels N."


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself before it is decoded. `width` and `height` are as stored, before orientation."""

    format: str
    mode: str
    width: int
    height: int
    orientation: int = 1


@contextmanager
def opened(path: Path, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """The Pillow image of a file that is small enough, still and whole as far as its header tells."""
    try:
        if path.stat().st_size == 0:
            raise ImageError(f"{path.name} is empty (0 bytes).", remedy="Copy it again.", kind="empty-file")
        with _pillow_limit(max_pixels):
            image = Image.open(path)
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{path.name} is larger than {max_pixels:,} pixels.", remedy=_LARGER, kind="oversized"
        ) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, ArithmeticError, LookupError, TypeError) as error:
        raise _unreadable(path, error) from error
    with image:
        _check_size(path, *image.size, max_pixels)
        if image.format in _ANIMATED and getattr(image, "n_frames", 1) > 1:
            raise ImageError(
                f"{path.name} is animated ({getattr(image, 'n_frames', 0)} frames).",
                remedy="Export the frames as single images.",
                kind="animated",
            )
        yield image


@contextmanager
def _pillow_limit(max_pixels: int) -> Iterator[None]:
    """Pillow refuses what is twice its own limit; ours is the user's, judged by `_check_size` with the file's name."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _check_size(path: Path, width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{path.name} has no pixels ({width}x{height}).", remedy="Remove it.", kind="zero-size")
    if width * height > max_pixels or max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{path.name} is {width}x{height}, {width * height:,} pixels; the limit is {max_pixels:,}.",
            remedy=_LARGER,
            kind="oversized",
        )


def _unreadable(path: Path, error: BaseException) -> ImageError:
    reason = " ".join(str(error).split())[:160] or error.__class__.__name__
    return ImageError(
        f"{path.name} cannot be decoded ({reason.replace(str(path), path.name)}).",
        remedy="Copy it again from its source, or remove it.",
        kind="unreadable",
    )


def orientation_of(image: Image.Image) -> int:
    """EXIF orientation 1-8; 1 where there is none or it makes no sense."""
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except Exception:  # EXIF is written by cameras of every kind of quality; a damaged block is no orientation
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def oriented(array: NDArray[Any], orientation: int) -> NDArray[Any]:
    """An (H, W, ...) array turned upright, as EXIF orientation 1-8 defines it."""
    turns = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: a[::-1].swapaxes(0, 1),
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: a[:, ::-1].swapaxes(0, 1),
    }
    return np.ascontiguousarray(turns[orientation](array))


def read_header(path: Path, max_pixels: int = MAX_PIXELS) -> Header:
    """Format, mode, stored size and orientation, without decoding."""
    if _is_tiff(path):
        return _tiff_header(path, max_pixels)
    with opened(path, max_pixels) as image:
        mode = "RGB;16" if _is_deep_png(path) else image.mode
        return Header(image.format or "?", mode, *image.size, orientation_of(image))


def read_image(path: Path, max_pixels: int = MAX_PIXELS) -> Pixels:
    """(H, W, C) pixels, upright, in the file's own depth: uint8, uint16 or float32."""
    if _is_tiff(path):
        return _read_tiff(path, max_pixels)
    with opened(path, max_pixels) as image:
        try:
            if _is_deep_png(path):
                pixels = _read_deep_png(path)
                return oriented(pixels, orientation_of(image))
            return oriented(_to_array(image), orientation_of(image))
        except ImageError:
            raise
        except MemoryError as error:
            raise ImageError(f"{path.name} does not fit into memory.", remedy="Tile it.", kind="oversized") from error
        except Exception as error:  # decoders raise whatever they like on damaged files; none of it may be a crash
            raise _unreadable(path, error) from error


def _to_array(image: Image.Image) -> Pixels:
    if image.mode == "1":
        return (np.asarray(image, dtype=np.uint8) * 255)[:, :, None]
    if image.mode in ("L", "F", "I;16", "I;16L", "I;16B"):
        array = np.asarray(image)
        return _own_depth(array)[:, :, None]
    if image.mode == "I":
        array = np.asarray(image)
        deep = array.astype(np.uint16) if array.min() >= 0 and array.max() <= 65535 else array.astype(np.float32)
        return deep[:, :, None]
    if image.mode in ("RGB", "RGBA", "LA"):
        return np.asarray(image)
    # A palette picture is a coloured picture; CMYK, YCbCr, LAB and the like become the RGB they stand for.
    return np.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))


def _own_depth(array: NDArray[Any]) -> Pixels:
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        return array.astype(np.uint16, copy=False)  # also turns the byte order round
    if array.dtype.kind not in "uif":
        raise ImageError(
            f"Pixels of type {array.dtype} are not supported.", remedy="Save as 8- or 16-bit.", kind="depth"
        )
    return array.astype(np.float32)


def _is_deep_png(path: Path) -> bool:
    """Whether this is a PNG of 16 bits a channel and several channels, which Pillow would cut to 8."""
    with path.open("rb") as file:
        start = file.read(26)
    return start[:8] == _PNG_SIGNATURE and len(start) == 26 and start[24] == 16 and start[25] in (2, 4, 6)


def _read_deep_png(path: Path) -> Pixels:
    import imagecodecs  # only for the rare depth

    array: NDArray[Any] = imagecodecs.png_decode(path.read_bytes())
    return _own_depth(array if array.ndim == 3 else array[:, :, None])


def _is_tiff(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
    except OSError as error:
        raise ImageError(
            f"{path.name} cannot be read: {error.strerror}.", remedy="Check it.", kind="missing"
        ) from error


@contextmanager
def _tiff_page(path: Path, max_pixels: int) -> Iterator[Any]:
    """The only page of a TIFF, its size already judged by its tags."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as tiff:
            if len(tiff.pages) > 1:
                remedy = "Save one page a file, or the pages as channels."
                raise ImageError(f"{path.name} has {len(tiff.pages)} pages.", remedy=remedy, kind="animated")
            page: Any = tiff.pages[0]
            # A page of twenty channels holds five times what an RGBA page of its size does.
            _check_size(
                path, int(page.imagewidth), int(page.imagelength), 4 * max_pixels // max(4, page.samplesperpixel)
            )
            yield page
    except ImageError:
        raise
    except Exception as error:  # see read_image
        raise _unreadable(path, error) from error


def _tiff_orientation(page: Any) -> int:
    tag = page.tags.get("Orientation")
    value = int(tag.value) if tag is not None else 1
    return value if 1 <= value <= 8 else 1


def _tiff_header(path: Path, max_pixels: int) -> Header:
    with _tiff_page(path, max_pixels) as page:
        mode = f"{page.samplesperpixel}x{page.dtype}"
        return Header("TIFF", mode, int(page.imagewidth), int(page.imagelength), _tiff_orientation(page))


def _read_tiff(path: Path, max_pixels: int) -> Pixels:
    """Every channel of a TIFF: interleaved or in planes, 8 or 16 bits or float."""
    with _tiff_page(path, max_pixels) as page:
        if page.photometric.name == "PALETTE":
            with opened(path, max_pixels) as image:
                return oriented(_to_array(image), orientation_of(image))
        array: NDArray[Any] = page.asarray()
        height, width, channels = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
        if channels > 1 and array.shape == (channels, height, width):
            array = np.moveaxis(array, 0, -1)
        return oriented(_own_depth(array.reshape(height, width, channels)), _tiff_orientation(page))
