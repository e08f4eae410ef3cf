"""Image files to arrays, at the depth they were stored with.

The header is read first: size, frames and depth are judged before anything is decoded. A 16-bit sonar frame stays
16 bits, a grey one stays one channel; EXIF orientation is applied. What cannot be used raises ImageError.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.errors import ImageError
from ftcseg.types import Pixels

MAX_PIXELS = 89_478_485
"""Pixels of the largest image we decode unless told otherwise; Pillow's own line for «this may be a bomb»."""
MAX_SIDE = 200_000
"""No survey frame is longer; a header that claims so is damaged or hostile."""
_EXIF_ORIENTATION = 0x0112
_SEPARATE_PLANES = 2  # TIFF's PlanarConfiguration
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "AVIF")
"""What Pillow may take a file for. It knows more than we need, and one of them (EPS) starts a program to be drawn."""
_ANIMATED = {"GIF", "WEBP", "PNG", "AVIF"}
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_CHUNKS = 100_000  # a picture of 800 MB in chunks of 8 kB
_DEEP_MODES = {2: "RGB;16", 4: "LA;16", 6: "RGBA;16"}  # by the colour type in a PNG's header
_FEW_BITS = {(2, 0): "L;2", (4, 0): "L;4"}  # by depth and colour type
_SILENCE = logging.NullHandler()
_LARGER = "If it is meant to be that large, raise the limit: «limits: {pixels: N}» in dataset.yaml, or --max-pixels N."

_PILLOW = threading.Lock()


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself before it is decoded. `width` and `height` are as stored, before orientation."""

    format: str
    mode: str
    width: int
    height: int
    orientation: int = 1


@contextmanager
def opened(path: Path, max_pixels: int = MAX_PIXELS, *, still: bool = True) -> Iterator[Image.Image]:
    """The Pillow image of a file that is small enough, whole and, unless told otherwise, still as its header tells."""
    try:
        check_bytes(path)
        with _pillow_limit(max_pixels):
            image = Image.open(path, formats=_FORMATS)
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{path.name} is larger than {max_pixels:,} pixels.", remedy=_LARGER, kind="oversized"
        ) from error
    except Exception as error:  # decoders raise whatever they like on damaged files; none of it may be a crash
        raise unreadable(path, error) from error
    with image:
        check_size(path, *image.size, max_pixels)
        if still and _is_animated(path, image):
            raise ImageError(f"{path.name} is animated.", remedy="Export the frames as single images.", kind="animated")
        yield image


def _is_animated(path: Path, image: Image.Image) -> bool:
    try:
        return image.format in _ANIMATED and bool(getattr(image, "is_animated", False))
    except Exception as error:  # see opened
        raise unreadable(path, error) from error


@contextmanager
def _pillow_limit(max_pixels: int) -> Iterator[None]:
    """Pillow refuses what is twice its own limit; ours is the user's, judged by `check_size` with the file's name."""
    with _PILLOW:  # both the limit and the warning filters belong to the whole process
        before = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = max_pixels
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # also of damaged EXIF, which is no reason to refuse the picture
                yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def check_bytes(path: Path) -> None:
    """Refuse a file without a single byte."""
    if path.stat().st_size == 0:
        raise ImageError(f"{path.name} is empty (0 bytes).", remedy="Copy it again.", kind="empty-file")


def check_size(path: Path, width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture without pixels, and one that is larger than somebody said it may be."""
    if width < 1 or height < 1:
        raise ImageError(f"{path.name} has no pixels ({width}x{height}).", remedy="Remove it.", kind="zero-size")
    if width * height > max_pixels or max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{path.name} is {width}x{height}, {width * height:,} pixels; the limit is {max_pixels:,}.",
            remedy=_LARGER,
            kind="oversized",
        )


def unreadable(path: Path, error: BaseException) -> ImageError:
    """The error for a file that is missing or locked, or that its decoder gave up on."""
    if isinstance(error, OSError) and error.errno is not None:
        remedy = "Check that it is there, and that you may read it."
        return ImageError(f"{path.name} cannot be read: {error.strerror}.", remedy=remedy, kind="missing")
    reason = " ".join(str(error).split())[:160] or error.__class__.__name__
    return ImageError(
        f"{path.name} cannot be decoded ({reason.replace(str(path), path.name)}).",
        remedy="Copy it again from its source, or remove it.",
        kind="unreadable",
    )


def orientation_of(image: Image.Image, path: Path) -> int:
    """EXIF orientation 1-8 of an image just opened; 1 where there is none or it makes no sense."""
    try:
        if image.format == "PNG" and "Raw profile type exif" not in image.info and not _png_has_exif(path):
            return 1  # Pillow would decode the whole picture to look behind it
        with warnings.catch_warnings(action="ignore"):
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


def planar(image: Pixels) -> Pixels:
    """The same (H, W, C) image, each plane in one piece in memory: a view is cut from it without copying it first."""
    planes: NDArray[Any] = np.ascontiguousarray(np.moveaxis(image, -1, 0))
    turned: Pixels = np.moveaxis(planes, 0, -1)
    return turned


def read_header(path: Path, max_pixels: int = MAX_PIXELS) -> Header:
    """Format, mode, stored size and orientation, without decoding."""
    if is_tiff(path):
        return _tiff_header(path, max_pixels)
    with opened(path, max_pixels) as image:
        mode = deep_png_mode(path) or few_bits_mode(path) or image.mode
        return Header(image.format or "?", mode, *image.size, orientation_of(image, path))


def read_image(path: Path, max_pixels: int = MAX_PIXELS) -> Pixels:
    """(H, W, C) pixels, upright, in the file's own depth: uint8, uint16 or float32."""
    pixels: Pixels = oriented(*read_unturned(path, max_pixels))
    return pixels


def read_unturned(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[Pixels, int]:
    """(H, W, C) pixels as they lie in the file, and the EXIF orientation that turns them upright."""
    if is_tiff(path):
        return _read_tiff(path, max_pixels)
    with opened(path, max_pixels) as image:
        try:
            orientation = orientation_of(image, path)
            return _read_deep_png(path) if deep_png_mode(path) else to_array(image), orientation
        except MemoryError as error:
            raise ImageError(f"{path.name} does not fit into memory.", remedy="Tile it.", kind="oversized") from error
        except Exception as error:  # see opened
            raise unreadable(path, error) from error


def to_array(image: Image.Image) -> Pixels:
    """(H, W, C) pixels of a Pillow image, as it lies in its file."""
    if image.mode == "1":
        return (np.asarray(image, dtype=np.uint8) * 255)[:, :, None]
    if image.mode in ("L", "F", "I;16", "I;16L", "I;16B"):
        return _own_depth(np.asarray(image))[:, :, None]
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
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which doctor reports
        return array.astype(np.float32)


def deep_png_mode(path: Path) -> str | None:
    """The mode of a PNG of 16 bits a channel and several channels, which Pillow would cut to 8; None of all others."""
    depth, color_type = _png_depth(path)
    return _DEEP_MODES.get(color_type) if depth == 16 else None


def few_bits_mode(path: Path) -> str | None:
    """The mode of a grey PNG of 2 or 4 bits, which Pillow stretches to 8; None of all others."""
    return _FEW_BITS.get(_png_depth(path))


def _png_depth(path: Path) -> tuple[int, int]:
    """Bits a channel and colour type in a PNG's header; zeros of every other file."""
    start = _first_bytes(path, 26)
    return (start[24], start[25]) if start[:8] == _PNG_SIGNATURE and len(start) == 26 else (0, 0)


def _png_has_exif(path: Path) -> bool:
    """Whether one of the chunks is called eXIf; only their headers are read."""
    with path.open("rb") as file:
        file.seek(len(_PNG_SIGNATURE))
        for _ in range(_MOST_CHUNKS):
            head = file.read(8)
            if len(head) < 8 or head[4:] == b"eXIf":
                return len(head) == 8
            file.seek(int.from_bytes(head[:4], "big") + 4, 1)
    return False


def _read_deep_png(path: Path) -> Pixels:
    import imagecodecs  # only for the rare depth

    array: NDArray[Any] = imagecodecs.png_decode(path.read_bytes())
    return _own_depth(array if array.ndim == 3 else array[:, :, None])


def is_tiff(path: Path) -> bool:
    """Whether the file begins as TIFFs and BigTIFFs do."""
    return _first_bytes(path, 4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise unreadable(path, error) from error


@contextmanager
def tiff_file(path: Path) -> Iterator[Any]:
    """An open tifffile.TiffFile; whatever goes wrong with it inside is an ImageError."""
    import tifffile

    # It reports damage to the log as well as by exceptions; without a handler that would land on the user's terminal.
    logging.getLogger("tifffile").addHandler(_SILENCE)
    try:
        with tifffile.TiffFile(path) as tiff:
            yield tiff
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(f"{path.name} does not fit into memory.", remedy="Tile it.", kind="oversized") from error
    except Exception as error:  # see opened
        raise unreadable(path, error) from error


@contextmanager
def _tiff_page(path: Path, max_pixels: int) -> Iterator[Any]:
    """The only page of a TIFF, its size already judged by its tags."""
    with tiff_file(path) as tiff:
        page: Any = tiff.pages[0]
        if len(tiff.pages) > 1:
            raise _many_pages(path, len(tiff.pages))
        check_page(path, page, max_pixels)
        yield page


def _many_pages(path: Path, pages: int) -> ImageError:
    remedy = "Save one page a file, or the pages as channels."
    return ImageError(f"{path.name} has {pages} pages.", remedy=remedy, kind="animated")


def check_page(path: Path, page: Any, max_pixels: int) -> None:
    """Refuse a page of a TIFF that is a volume, too large, or of numbers that are no picture; its tags tell."""
    if page.imagedepth > 1:
        raise _many_pages(path, int(page.imagedepth))
    # A page of twenty channels holds five times what an RGBA page of its size does.
    check_size(path, int(page.imagewidth), int(page.imagelength), 4 * max_pixels // max(4, page.samplesperpixel))
    if page.dtype is None or page.dtype.kind not in "buif":
        remedy = "Save it as 8- or 16-bit."
        raise ImageError(f"{path.name} has pixels of type {page.dtype}.", remedy=remedy, kind="depth")


def _tiff_orientation(page: Any) -> int:
    tag = page.tags.get("Orientation")
    value = int(tag.value) if tag is not None else 1
    return value if 1 <= value <= 8 else 1


def _tiff_header(path: Path, max_pixels: int) -> Header:
    with _tiff_page(path, max_pixels) as page:
        mode = "P" if page.photometric.name == "PALETTE" else f"{page.samplesperpixel}x{page.dtype}"
        return Header("TIFF", mode, int(page.imagewidth), int(page.imagelength), _tiff_orientation(page))


def read_tiff_numbers(path: Path, max_pixels: int = MAX_PIXELS) -> NDArray[Any]:
    """(H, W, C) numbers as they lie in a TIFF: of a palette its indices, of a bilevel one False and True."""
    with _tiff_page(path, max_pixels) as page:
        return _tiff_array(page)


def _tiff_array(page: Any) -> NDArray[Any]:
    """Every channel, interleaved or in planes."""
    array: NDArray[Any] = page.asarray()
    height, width, channels = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
    if channels > 1 and int(page.planarconfig) == _SEPARATE_PLANES:
        return np.moveaxis(array.reshape(channels, height, width), 0, -1)
    return array.reshape(height, width, channels)


def _read_tiff(path: Path, max_pixels: int) -> tuple[Pixels, int]:
    with _tiff_page(path, max_pixels) as page:
        return page_pixels(page)


def page_pixels(page: Any) -> tuple[Pixels, int]:
    """(H, W, C) pixels of one page of a TIFF as they lie in it, and the orientation that turns them upright."""
    array = _tiff_array(page)
    if page.photometric.name == "PALETTE":
        array = (np.moveaxis(page.colormap[:, array[:, :, 0]], 0, -1) >> 8).astype(np.uint8)
    elif page.photometric.name == "MINISWHITE" and array.dtype.kind in ("b", "u"):
        array = ~array  # stored as a negative: 0 is white
    return _own_depth(array), _tiff_orientation(page)
