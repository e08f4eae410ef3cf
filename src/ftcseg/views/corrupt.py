"""Speckle, noise, fog and turbid water, in five severities.

The first three are ImageNet-C's (Hendrycks and Dietterich 2019), for images of any size; the paper's mild, medium and
severe are severities 1, 3 and 5. Each corruption is a pure function on a picture in [0, 1]; `corrupt` is the way in and
out for stored pixels. Masks are never touched: nothing here moves a pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ftcseg.errors import UsageError, unknown_name
from ftcseg.types import Pixels

Picture: TypeAlias = NDArray[np.float64]
"""(H, W, C) image in [0, 1]. A corruption may leave the range; `from_unit` clips."""

Level = TypeVar("Level")

WHITE: Mapping[np.dtype[Any], int] = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
SEVERITIES = range(1, 6)

SPECKLE_STD = (0.15, 0.20, 0.35, 0.45, 0.60)  # ImageNet-C, of the noise that multiplies the pixel
GAUSSIAN_STD = (0.08, 0.12, 0.18, 0.26, 0.38)  # ImageNet-C, of the noise that is added
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))  # ImageNet-C: (thickness, decay of the plasma)
TRANSMISSION = (0.8, 0.7, 0.6, 0.5, 0.4)  # the paper's three levels at 1, 3 and 5; halfway between them at 2 and 4

FIRST_WIBBLE = 100.0  # ImageNet-C; any other would give the same cloud, since the plasma is normalised
GREY_VEIL = (0.5,)
WATER_VEIL = (0.05, 0.45, 0.55)  # RGB; our choice, the paper gives none: water swallows red first


def corrupt(image: Pixels, kind: str, severity: int, rng: np.random.Generator) -> Pixels:
    """The image as seen through one kind of corruption, in the dtype and shape it came in.

    Integer images span their whole dtype, so white is 255 or 65535; float images must lie in [0, 1].
    """
    check(kind, severity)
    return from_unit(KINDS[kind](to_unit(image), severity, rng), image.dtype)


def check(kind: str, severity: int) -> None:
    """UsageError for a corruption or a severity that there is not; call it before a long work begins."""
    if kind not in KINDS:
        raise unknown_name("corruption", kind, KINDS)
    _at(SEVERITIES, severity)


def speckle(picture: Picture, severity: int, rng: np.random.Generator) -> Picture:
    """Noise in proportion to brightness, x + x·N(0, std): how coherent sonar, radar and ultrasound are grainy."""
    return picture + picture * _noise(picture, _at(SPECKLE_STD, severity), rng)


def gaussian(picture: Picture, severity: int, rng: np.random.Generator) -> Picture:
    """Noise regardless of brightness, x + N(0, std): a sensor in the dark."""
    return picture + _noise(picture, _at(GAUSSIAN_STD, severity), rng)


def fog(picture: Picture, severity: int, rng: np.random.Generator) -> Picture:
    """Cloudy white of uneven thickness."""
    thickness, decay = _at(FOG, severity)
    height, width, _ = picture.shape
    cloud = plasma(_power_of_two(max(height, width)), decay, rng)
    return lay_fog(picture, cloud[:height, :width], thickness)


def lay_fog(picture: Picture, cloud: NDArray[np.float64], thickness: float) -> Picture:
    """The picture under a given (H, W) cloud, dimmed so that full fog is as bright as its brightest pixel was."""
    brightest = picture.max(initial=0.0)
    dimmed: Picture = (picture + thickness * cloud[..., np.newaxis]) * brightest / (brightest + thickness)
    return dimmed


def scattering(
    picture: Picture, severity: int, _rng: np.random.Generator, *, veil: Sequence[float] | None = None
) -> Picture:
    """Turbid water, J·t + B·(1 - t): what still comes through, and the veiling light B that takes its place.

    The paper names the transmissions t and no formula; this is the usual one. `veil` is B in [0, 1], one value for all
    channels or one each. Left out, it is blue-green for colour and mid grey for everything else.
    """
    transmission = _at(TRANSMISSION, severity)
    if veil is None:
        is_color = picture.shape[2] == len(WATER_VEIL) and not _is_grey(picture)
        veil = WATER_VEIL if is_color else GREY_VEIL
    if len(veil) not in (1, picture.shape[2]):
        raise UsageError(
            f"The veil has {len(veil)} values and the image {picture.shape[2]} channels. Give one value, or one each."
        )
    return picture * transmission + np.asarray(veil, np.float64) * (1 - transmission)


Corruption: TypeAlias = Callable[[Picture, int, np.random.Generator], Picture]

KINDS: Mapping[str, Corruption] = {"speckle": speckle, "gaussian": gaussian, "fog": fog, "scattering": scattering}


def plasma(side: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A (side, side) cloud in [0, 1] by diamond-square; `side` is a power of two from 2 on, and the edges wrap around.

    Each octave fills in the middle of every square, then the middle of every edge: the mean of its four nearest known
    points, wibbled. A larger `decay` calms the finer octaves faster, which makes a smoother cloud.
    """
    height = np.zeros((side, side))
    step, wibble = side, FIRST_WIBBLE
    while step >= 2:
        half = step // 2
        corners = height[::step, ::step]
        squares = _wibbled(_pair_sum(_pair_sum(corners, 1), 0) / 4, wibble, rng)
        # An edge lies between two corners along it and two square middles across it.
        across = (_pair_sum(corners, 1) + _pair_sum(squares, 0, before=True)) / 4
        down = (_pair_sum(corners, 0) + _pair_sum(squares, 1, before=True)) / 4
        height[half::step, half::step] = squares
        height[::step, half::step] = _wibbled(across, wibble, rng)
        height[half::step, ::step] = _wibbled(down, wibble, rng)
        step, wibble = half, wibble / decay
    height -= height.min()
    height /= height.max()
    return height


def to_unit(image: Pixels) -> Picture:
    """Stored pixels as a picture in [0, 1]."""
    if image.dtype in WHITE:
        return image.astype(np.float64) / WHITE[image.dtype]
    if image.dtype != np.float32:
        raise UsageError(f"An image of {image.dtype} cannot be corrupted. Give uint8, uint16 or float32.")
    low, high = image.min(initial=0.0), image.max(initial=0.0)
    if not (low >= 0 and high <= 1):  # said this way round, NaN is refused too
        raise UsageError(f"A float image must lie in [0, 1]; this one runs from {low:g} to {high:g}. Scale it first.")
    return image.astype(np.float64)


def from_unit(picture: Picture, dtype: np.dtype[Any]) -> Pixels:
    """A picture, clipped to [0, 1], as pixels of `dtype`.

    Integers are rounded to the nearest. ImageNet-C cuts the fraction off, which darkens by half a level and lets the
    last bit of a float decide between 79 and 80; the two differ by one level at most.
    """
    clipped = picture.clip(0, 1)
    if dtype not in WHITE:
        return clipped.astype(np.float32)
    pixels: Pixels = np.rint(clipped * WHITE[dtype]).astype(dtype)
    return pixels


def _at(levels: Sequence[Level], severity: int) -> Level:
    if severity not in SEVERITIES:
        raise UsageError(
            f"There is no severity {severity}. Choose {SEVERITIES[0]} (mild) to {SEVERITIES[-1]} (severe)."
        )
    return levels[severity - 1]


def _noise(picture: Picture, std: float, rng: np.random.Generator) -> Picture:
    """Independent noise per channel; one map for all channels of a grey picture, which would turn colourful else."""
    height, width, channels = picture.shape
    return rng.normal(scale=std, size=(height, width, 1 if _is_grey(picture) else channels))


def _is_grey(picture: Picture) -> bool:
    return bool((picture == picture[..., :1]).all())


def _power_of_two(side: int) -> int:
    """The smallest power of two that is at least `side`, and at least 2, where a plasma begins."""
    return max(2, 1 << (side - 1).bit_length())


def _pair_sum(points: NDArray[np.float64], axis: int, *, before: bool = False) -> NDArray[np.float64]:
    """Each point plus the one after it (or before it), around the edge."""
    return points + np.roll(points, 1 if before else -1, axis)


def _wibbled(mean: NDArray[np.float64], wibble: float, rng: np.random.Generator) -> NDArray[np.float64]:
    # ImageNet-C multiplies by the wibble once more, so that amplitudes fall with the square of the decay.
    return mean + wibble * rng.uniform(-wibble, wibble, mean.shape)
