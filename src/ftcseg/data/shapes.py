"""Outlines and run lengths -> pixels, by rules that are written down.

Coordinates are in pixels, x to the right, y down; pixel (0, 0) covers [0, 1) x [0, 1). A pixel belongs to an outline
when its centre does, by the even-odd rule; a centre exactly on an edge belongs to the outline on its right or below.
So outlines that share an edge neither overlap nor leave a gap, and the same points give the same pixels everywhere.

    fill_polygon(labels, np.array([[1, 1], [4, 1], [4, 3], [1, 3]], float), 7)    # columns 1-3, rows 1-2

Run lengths count pixels of alternating value, off first: COCO's run down the columns of the whole image, CVAT's along
the rows of a box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ftcseg.errors import MaskError
from ftcseg.types import IGNORE, ClassTable, Labels, MaskCoding

Points: TypeAlias = NDArray[np.float64]
"""(N, 2) x, y in pixels."""

Region: TypeAlias = NDArray[np.bool_]
"""(H, W) True where the object is."""

_CROSSINGS_AT_ONCE = 2**20  # bounds the working memory of an outline with very many long edges
_ELLIPSE_CORNERS = 256  # off the true curve by less than 1/10,000 of the radius
_FARTHEST = 1e150  # beyond it the product of two coordinates would overflow

# COCO's compressed run lengths: six bits per character from "0" on; five carry the number, low ones first, one says
# that more follow; the highest of the last five is the sign.
_FIRST_CHARACTER = 48
_BITS = 5
_MORE = 1 << _BITS
_SIGN = 1 << (_BITS - 1)
_LONGEST_NUMBER = 8  # characters, that is 40 bits: more pixels than any image has


@contextmanager
def blamed_on(where: str) -> Iterator[None]:
    """Puts the file and object at fault in front of a MaskError raised within."""
    try:
        yield
    except MaskError as error:
        raise MaskError(f"{where}: {error.what}", remedy=error.remedy, kind=error.kind) from error


def drawn_coding(classes: ClassTable) -> MaskCoding:
    """The coding of masks that a reader draws: every class id stands for itself, IGNORE for nobody knows."""
    return MaskCoding("drawn", values={c.id: c.id for c in classes}, ignore=frozenset({IGNORE}))


def fill_polygon(labels: Labels, points: Points, value: int) -> None:
    """Writes `value` into every pixel whose centre lies within the outline; what lies outside the image is cut off."""
    points = _checked(points)
    height, width = labels.shape
    left, top = (int(_first_centre(v, limit)) for v, limit in zip(points.min(axis=0), (width, height), strict=True))
    right, bottom = (int(_first_centre(v, limit)) for v, limit in zip(points.max(axis=0), (width, height), strict=True))
    if left >= right or top >= bottom:
        return
    # Each edge flips all pixels to its right in every row it crosses; what is flipped an odd number of times is inside.
    flips = np.zeros((bottom - top, right - left + 1), dtype=np.uint8)
    flat = flips.reshape(-1)
    for rows, x in _crossings(points, top, bottom):
        columns = np.clip(_first_centre(x, width), left, right)  # rounding may carry a crossing past its own edge
        # Counts beyond 255 start over at 0, which leaves them odd or even; only `add` of equal types is fast here.
        np.add.at(flat, (rows - top) * flips.shape[1] + (columns - left), np.uint8(1))
    np.add.accumulate(flips, axis=1, out=flips)
    labels[top:bottom, left:right][(flips[:, :-1] & 1).view(np.bool_)] = value


def fill_circle(labels: Labels, center: tuple[float, float], radius: float, value: int) -> None:
    """Writes `value` into every pixel whose centre is at most `radius` from (x, y)."""
    if not np.isfinite([*center, radius]).all() or radius < 0:
        raise MaskError(
            f"A circle at {center} with radius {radius} cannot be drawn.",
            remedy="Draw it again in the labelling tool.",
            kind="bad-shape",
        )
    height, width = labels.shape
    x, y = center
    # The first centre after the far side may itself lie on the circle, hence one row and column more.
    top, bottom = int(_first_centre(y - radius, height)), int(_first_centre(y + radius, height)) + 1
    left, right = int(_first_centre(x - radius, width)), int(_first_centre(x + radius, width)) + 1
    part = labels[top:bottom, left:right]
    rows, columns = np.ogrid[top : top + part.shape[0], left : left + part.shape[1]]
    with np.errstate(over="ignore"):  # too far to be a number is too far to be inside
        part[np.hypot(rows + 0.5 - y, columns + 0.5 - x) <= radius] = value


def box_points(left: float, top: float, right: float, bottom: float) -> Points:
    """The outline of a box, for `fill_polygon`."""
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float64)


def ellipse_points(x: float, y: float, radius_x: float, radius_y: float) -> Points:
    """The outline of an ellipse as a polygon of many corners, for `fill_polygon`."""
    angle = np.linspace(0, 2 * np.pi, _ELLIPSE_CORNERS, endpoint=False)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd points are judged when they are drawn
        return np.stack([x + radius_x * np.cos(angle), y + radius_y * np.sin(angle)], axis=1)


def turned(points: Points, about: tuple[float, float], degrees: float) -> Points:
    """The points turned about (x, y), clockwise as seen on the screen."""
    if degrees == 0:
        return points  # not rounded on the way there and back
    with np.errstate(over="ignore", invalid="ignore"):  # absurd points are judged when they are drawn
        angle = np.deg2rad(degrees)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        result: Points = (points - about) @ turn + about
    return result


def polygon_area(points: Points) -> float:
    """The area within a simple outline in square pixels, whichever way round it runs."""
    x, y = points[:, 0], points[:, 1]
    with np.errstate(over="ignore", invalid="ignore"):  # absurd points are judged when they are drawn
        return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2


def decode_runs(counts: Sequence[int] | NDArray[np.int64], height: int, width: int) -> Region:
    """COCO's run lengths as a region; `height` and `width` are the image's, which the runs must fill exactly."""
    return _spread(counts, height * width).reshape(width, height).T


def encode_runs(region: Region) -> list[int]:
    """A region as COCO's run lengths."""
    flat = region.T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    lengths = np.diff(changes, prepend=0, append=flat.size)
    return [int(n) for n in lengths]


def decode_box_runs(counts: Sequence[int] | NDArray[np.int64], height: int, width: int) -> Region:
    """CVAT's run lengths as the region of their own box, `height` and `width` being the box's."""
    return _spread(counts, height * width).reshape(height, width)


def encode_box_runs(region: Region) -> list[int]:
    """The region of a box as CVAT's run lengths."""
    return encode_runs(region.T)


def decode_compressed(text: str | bytes, height: int, width: int) -> Region:
    """COCO's run lengths in their compressed spelling, as `decode_runs`."""
    return decode_runs(uncompressed(text), height, width)


def uncompressed(text: str | bytes) -> NDArray[np.int64]:
    """The numbers behind COCO's compressed run lengths, unjudged: `decode_runs` does that."""
    try:
        raw = text.encode("ascii") if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise _bad_runs(f"Compressed run lengths hold the character {text[error.start]!r}.") from error
    codes = np.frombuffer(raw, dtype=np.uint8).astype(np.int64) - _FIRST_CHARACTER
    if len(codes) == 0 or codes.min() < 0 or codes.max() >= 2 * _MORE:
        raise _bad_runs("Compressed run lengths are empty or hold a character that is none of theirs.")
    ends = np.flatnonzero((codes & _MORE) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if len(ends) == 0 or ends[-1] != len(codes) - 1 or lengths.max() > _LONGEST_NUMBER:
        raise _bad_runs("Compressed run lengths break off within a number, or hold one that is far too long.")
    place = np.arange(len(codes)) - np.repeat(starts, lengths)
    numbers = np.add.reduceat((codes & (_MORE - 1)) << (_BITS * place), starts)
    numbers -= np.where(codes[ends] & _SIGN, np.int64(1) << (_BITS * lengths), 0)
    # The first three stand for themselves, later ones for the difference from two before.
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def encode_compressed(region: Region) -> str:
    """A region as COCO's compressed run lengths."""
    counts = encode_runs(region)
    # From the fourth on, a run is stored as its difference from the run of the same value before it.
    numbers = [n - counts[i - 2] if i > 2 else n for i, n in enumerate(counts)]
    characters: list[int] = []
    for number in numbers:
        while True:
            bits, number = number & (_MORE - 1), number >> _BITS
            done = number == (-1 if bits & _SIGN else 0)
            characters.append(_FIRST_CHARACTER + (bits if done else bits | _MORE))
            if done:
                break
    return bytes(characters).decode("ascii")


def _checked(points: Points) -> Points:
    if points.ndim != 2 or points.shape[1:] != (2,) or len(points) < 3:
        raise MaskError(
            f"An outline needs three or more points (x, y); this one has the shape {points.shape}.",
            remedy="Finish or delete it in the labelling tool.",
            kind="bad-shape",
        )
    if not np.isfinite(points).all():
        raise MaskError(
            f"Point {int(np.argmin(np.isfinite(points).all(axis=1)))} of an outline is not a finite number.",
            remedy="Mend or delete it in the labelling tool.",
            kind="bad-shape",
        )
    return np.clip(points, -_FARTHEST, _FARTHEST)


def _first_centre(position: Points | float, limit: int) -> NDArray[np.int64]:
    """The first row or column whose centre is not before `position`, kept within 0..limit."""
    return np.clip(np.ceil(np.subtract(position, 0.5)), 0, limit).astype(np.int64)


def _crossings(points: Points, top: int, bottom: int) -> Iterator[tuple[NDArray[np.int64], Points]]:
    """Rows top..bottom-1 and the x at which an edge crosses the middle of each, in blocks of bounded size."""
    ends = np.stack([points, np.roll(points, -1, axis=0)])
    # Every edge is walked downwards: a neighbour that has it the other way round computes the very same crossings.
    order = np.argsort(ends[:, :, 1], axis=0, kind="stable")
    start, end = np.take_along_axis(ends, order[:, :, None], axis=0)
    first, last = (np.clip(_first_centre(e[:, 1], bottom), top, bottom) for e in (start, end))
    edges = np.flatnonzero(last > first)
    total = np.cumsum(last[edges] - first[edges])
    for block in np.split(edges, np.flatnonzero(np.diff(total // _CROSSINGS_AT_ONCE)) + 1):
        count = last[block] - first[block]
        edge = np.repeat(block, count)
        rows = np.arange(len(edge)) + np.repeat(first[block] - (np.cumsum(count) - count), count)
        across, down = (end[edge] - start[edge]).T
        # Multiplied before divided: a crossing that falls exactly on a centre is then computed exactly.
        yield rows, start[edge, 0] + (rows + 0.5 - start[edge, 1]) * across / down


def _spread(counts: Sequence[int] | NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Runs of alternating value, off first, as `size` single values."""
    runs = np.asarray(counts)
    if runs.ndim != 1 or runs.dtype.kind not in "iu" or not len(runs):
        raise _bad_runs("Run lengths must be a plain list of whole numbers.")
    if runs.min() < 0 or runs.max() > size or runs.sum() != size:
        # Summed as Python integers: these cannot wrap round to the right answer.
        raise _bad_runs(
            f"The run lengths add up to {sum(map(int, runs)):,} with the shortest {int(runs.min()):,}, "
            f"but there are {size:,} pixels."
        )
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _bad_runs(what: str) -> MaskError:
    return MaskError(what, remedy="Export the annotations again.", kind="bad-runs")
