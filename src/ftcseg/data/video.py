"""Videos to frames, one after the other: never more than one is in memory, and none is larger than an image may be.

Films (.mp4, .avi, .mkv, ...) are read by PyAV, which is the extra ftcseg[video]; moving GIF, WebP, PNG and AVIF by
Pillow, TIFFs of several pages by tifffile, as still images are. What cannot be used raises ImageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image

from ftcseg.data.images import (
    MAX_PIXELS,
    check_bytes,
    check_page,
    check_size,
    is_tiff,
    opened,
    oriented,
    page_pixels,
    tiff_file,
    to_array,
    unreadable,
)
from ftcseg.errors import ImageError, UsageError
from ftcseg.types import Pixels

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

CONTAINERS = {
    **dict.fromkeys((".mp4", ".m4v", ".mov"), "mov"),
    **dict.fromkeys((".mkv", ".webm"), "matroska"),
    **dict.fromkeys((".mpg", ".mpeg"), "mpeg"),
    ".avi": "avi",
    ".mts": "mpegts",
    ".wmv": "asf",
}
"""Suffix -> what the file is read as. Its content is not asked: among the formats that FFmpeg would find there are
lists of other files and addresses to open."""
VIDEO_SUFFIXES = frozenset(CONTAINERS)
INSTALL = "pip install 'ftcseg[video]'"
GREY_NOISE = 16
"""Colour, of 255, that a lossy codec leaves in a film that shows none."""
_PADDED = 2**20
"""Pixels that a decoder may put around a frame."""
_TICKS = 1_000_000  # of FFmpeg's clock, a second
_DEEP_BITS = 8  # a grey film of more bits than this keeps 16

Wanted: TypeAlias = Callable[[int], bool]
"""Whether somebody wants the frame of this number."""


def is_video(name: str | PurePath) -> bool:
    """Whether the name is that of a film; a moving GIF or a TIFF of several pages shows only when it is opened."""
    return PurePath(name).suffix.lower() in CONTAINERS


def can_read_videos() -> bool:
    """Whether PyAV is installed."""
    return find_spec("av") is not None


def no_reader(name: str) -> UsageError:
    """The error for a film that nothing here can read."""
    return UsageError(f"{name} is a video; to read it, install the extra for videos: {INSTALL}")


def length(path: Path, max_pixels: int = MAX_PIXELS) -> int | None:
    """How many frames the file says it holds; None where it does not say. The truth is known when all were read."""
    if is_video(path):
        with _film(path, max_pixels) as (film, stream):
            if stream.frames or not film.duration or not stream.average_rate:
                return stream.frames or None
            return round(film.duration / _TICKS * stream.average_rate)
    if is_tiff(path):
        with tiff_file(path) as tiff:
            return len(tiff.pages)
    with opened(path, max_pixels, still=False) as image:
        try:
            return getattr(image, "n_frames", None)
        except Exception as error:  # Pillow walks through the whole file to count them
            raise unreadable(path, error) from error


def frames(
    path: Path, wanted: Wanted, *, grey: bool = False, max_pixels: int = MAX_PIXELS
) -> Iterator[tuple[int, Pixels | None]]:
    """(number, pixels) of every frame, from 0; None where nobody wants it, which is cheaper.

    With `grey`, the frame of a film that shows no colour has one channel, however its codec stored it.
    """
    if is_video(path):
        yield from _film_frames(path, wanted, grey, max_pixels)
    elif is_tiff(path):
        yield from _pages(path, wanted, max_pixels)
    else:
        yield from _moving_picture(path, wanted, max_pixels)


@contextmanager
def _film(path: Path, max_pixels: int) -> Iterator[tuple[InputContainer, VideoStream]]:
    """An open film and its picture, the size already judged by its header; what goes wrong inside is an ImageError."""
    if not can_read_videos():
        raise no_reader(path.name)
    import av  # only for those who have films

    try:
        check_bytes(path)
        with path.open("rb") as file, av.open(file, "r", format=CONTAINERS[path.suffix.lower()]) as film:
            stream: Any = film.streams.best("video")
            if stream is None:
                raise ImageError(f"{path.name} holds no video.", remedy="Copy it again from its source.")
            context = stream.codec_context
            if context.width and context.height:  # some files tell only with the first frame
                check_size(path, context.width, context.height, max_pixels)
            context.options = {"max_pixels": str(2 * max_pixels + _PADDED)}  # of a frame whose header lied
            yield film, stream
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(f"{path.name} does not fit into memory.", remedy="Scale it.", kind="oversized") from error
    except av.FFmpegError as error:
        raise unreadable(path, ValueError(error.strerror)) from error
    except Exception as error:  # as with images: decoders raise whatever they like
        raise unreadable(path, error) from error


def _film_frames(path: Path, wanted: Wanted, grey: bool, max_pixels: int) -> Iterator[tuple[int, Pixels | None]]:
    with _film(path, max_pixels) as (film, stream):
        for number, frame in enumerate(film.decode(stream)):
            check_size(path, frame.width, frame.height, max_pixels)  # it may change on the way
            yield number, _film_pixels(frame, grey) if wanted(number) else None


def _film_pixels(frame: VideoFrame, grey: bool) -> Pixels:
    """(H, W, C) pixels, turned as the film says."""
    if frame.format.name.startswith("gray"):
        deep = frame.format.components[0].bits > _DEEP_BITS
        pixels: Any = frame.to_ndarray(format="gray16le" if deep else "gray")[:, :, None]
    else:
        pixels = frame.to_ndarray(format="rgb24")
        if grey and np.ptp(pixels, axis=2).max() <= GREY_NOISE:
            pixels = frame.to_ndarray(format="gray")[:, :, None]
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90)))


def _pages(path: Path, wanted: Wanted, max_pixels: int) -> Iterator[tuple[int, Pixels | None]]:
    with tiff_file(path) as tiff:
        # Smaller copies of a page, and masks of it, are no frames.
        pages = (page for page in tiff.pages if not page.is_reduced and not page.is_mask)
        for number, page in enumerate(pages):
            check_page(path, page, max_pixels)
            yield number, oriented(*page_pixels(page)) if wanted(number) else None


def _moving_picture(path: Path, wanted: Wanted, max_pixels: int) -> Iterator[tuple[int, Pixels | None]]:
    with opened(path, max_pixels, still=False) as image:
        try:
            for number in count():
                if not _turned_to(image, number):
                    return
                check_size(path, *image.size, max_pixels)
                yield number, to_array(image) if wanted(number) else None
        except ImageError:
            raise
        except Exception as error:  # as with still images
            raise unreadable(path, error) from error


def _turned_to(image: Image.Image, number: int) -> bool:
    """Whether there is a frame of this number; then the image shows it."""
    try:
        image.seek(number)
    except EOFError:
        return False
    return True
