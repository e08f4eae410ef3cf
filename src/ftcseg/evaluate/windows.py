"""Where to look when an image is larger than a network's view, and which sizes a patch encoder can see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A square part of an image, by its top left pixel."""

    top: int
    left: int
    size: int


def default_stride(window: int) -> int:
    """Two thirds of the window, rounded down: 532 for 798."""
    return max(1, window * 2 // 3)


def window_starts(length: int, window: int, stride: int) -> list[int]:
    """First pixels of the windows along one side; the last one is shifted back to end at the border.

    `window_starts(1920, 798, 532)` is [0, 532, 1064, 1122]. A side no longer than the window needs one.
    """
    last = max(0, length - window)
    return [*range(0, last, stride), last]


def windows(height: int, width: int, window: int, stride: int | None = None) -> list[Window]:
    """All windows of an image, row by row; together they cover every pixel."""
    step = default_stride(window) if stride is None else stride
    tops, lefts = window_starts(height, window, step), window_starts(width, window, step)
    return [Window(top, left, window) for top in tops for left in lefts]


def nearest_multiple(size: int, multiple: int) -> int:
    """The multiple nearest to a size, halves up, never 0: for 14, 320 becomes 322 and 480 becomes 476."""
    return max(1, (2 * size + multiple) // (2 * multiple)) * multiple
