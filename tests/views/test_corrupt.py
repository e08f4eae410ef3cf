"""What each corruption does to a pixel, with numbers worked out by hand."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ftcseg.errors import UsageError
from ftcseg.rng import random_for
from ftcseg.types import Pixels
from ftcseg.views.corrupt import (
    GREY_VEIL,
    KINDS,
    WATER_VEIL,
    corrupt,
    fog,
    from_unit,
    gaussian,
    lay_fog,
    plasma,
    scattering,
    speckle,
    to_unit,
)

SPECKLE = {1: 0.15, 2: 0.20, 3: 0.35, 4: 0.45, 5: 0.60}
GAUSSIAN = {1: 0.08, 2: 0.12, 3: 0.18, 4: 0.26, 5: 0.38}


class SteadyNoise(np.random.Generator):
    """A generator whose normal noise is always exactly one standard deviation, up or down."""

    def __init__(self, sign: int = 1) -> None:
        super().__init__(np.random.PCG64(0))
        self.sign = sign

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return np.full(size, self.sign * scale)


def flat(value: float, dtype: str = "uint8", channels: int = 1) -> Pixels:
    pixels: Pixels = np.full((2, 3, channels), value, dtype)
    return pixels


@pytest.mark.parametrize(("severity", "std"), SPECKLE.items())
def test_speckle_adds_noise_in_proportion_to_the_pixel(severity: int, std: float) -> None:
    # 0.5 + 0.5 * std
    assert speckle(np.full((2, 2, 1), 0.5), severity, SteadyNoise()) == pytest.approx(0.5 + 0.5 * std)


def test_speckle_in_stored_levels() -> None:
    # 100/255 + 100/255 * 0.15 is level 115; on 16 bits 20000 becomes 23000; black stays black.
    assert (corrupt(flat(100), "speckle", 1, SteadyNoise()) == 115).all()
    assert (corrupt(flat(20000, "uint16"), "speckle", 1, SteadyNoise()) == 23000).all()
    assert (corrupt(flat(0), "speckle", 5, SteadyNoise()) == 0).all()


def test_gaussian_adds_the_same_everywhere_and_is_clipped() -> None:
    # One std at severity 5 is 0.38 * 255 = 96.9 levels.
    assert (corrupt(flat(100), "gaussian", 5, SteadyNoise()) == 197).all()
    assert (corrupt(flat(100), "gaussian", 5, SteadyNoise(-1)) == 3).all()
    assert (corrupt(flat(200), "gaussian", 5, SteadyNoise()) == 255).all()
    assert (corrupt(flat(50), "gaussian", 5, SteadyNoise(-1)) == 0).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_noise_has_the_standard_deviation_of_the_table(severity: int) -> None:
    # 512 * 512 * 3 draws: the sampling error of a standard deviation is 1/sqrt(2n) = 0.08 %; 0.5 % is six of them.
    picture = np.broadcast_to([0.4, 0.5, 0.6], (512, 512, 3))
    rng = random_for(7, severity)
    ratio = speckle(picture, severity, rng) / picture - 1
    assert ratio.std() == pytest.approx(SPECKLE[severity], rel=0.005)
    assert ratio.mean() == pytest.approx(0, abs=0.005)
    assert (gaussian(picture, severity, rng) - picture).std() == pytest.approx(GAUSSIAN[severity], rel=0.005)


@pytest.mark.parametrize("kind", ["speckle", "gaussian"])
def test_channels_of_a_colour_image_get_noise_of_their_own(kind: str) -> None:
    picture = np.broadcast_to([0.4, 0.5, 0.6], (64, 64, 3))
    noise = KINDS[kind](picture, 3, random_for(0)) - picture
    assert abs(np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_grey_stored_as_rgb_stays_grey(kind: str) -> None:
    grey = np.repeat(random_for(1).integers(0, 256, (16, 20, 1), np.uint8), 3, axis=2)
    seen = corrupt(grey, kind, 3, random_for(2))
    assert (seen == seen[..., :1]).all()
    assert (seen[..., :1] == corrupt(grey[..., :1], kind, 3, random_for(2))).all()


def test_fog_under_a_known_cloud() -> None:
    # Brightest 0.8, thickness 2: dark under full cloud (0.2 + 2) * 0.8 / 2.8, bright under none 0.8 * 0.8 / 2.8.
    picture = np.array([[[0.2], [0.8]]])
    seen = lay_fog(picture, np.array([[1.0, 0.0]]), thickness=2.0)
    assert seen.ravel() == pytest.approx([2.2 * 0.8 / 2.8, 0.64 / 2.8])


@pytest.mark.parametrize(
    ("severity", "thickness", "decay"), [(1, 1.5, 2.0), (2, 2.0, 2.0), (3, 2.5, 1.7), (4, 2.5, 1.5), (5, 3.0, 1.4)]
)
def test_fog_has_the_thickness_and_decay_of_the_table(
    severity: int, thickness: float, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_cloud(side: int, decay: float, rng: np.random.Generator) -> Any:
        asked.append((side, decay))
        return np.ones((side, side))

    asked: list[tuple[int, float]] = []
    monkeypatch.setattr("ftcseg.views.corrupt.plasma", full_cloud)
    # Brightest 0.5 everywhere, so (0.5 + thickness) * 0.5 / (0.5 + thickness): full fog is as bright as the image was.
    picture = np.full((224, 200, 1), 0.5)
    picture[0, 0] = 0.0
    seen = fog(picture, severity, random_for(0))
    assert seen[1, 1] == pytest.approx(0.5)
    assert seen[0, 0] == pytest.approx(thickness * 0.5 / (0.5 + thickness))
    assert asked == [(256, decay)]  # the smallest power of two that holds 224


def test_fog_leaves_a_black_image_black() -> None:
    assert (corrupt(flat(0, channels=3), "fog", 5, random_for(0)) == 0).all()


def test_fog_takes_contrast_away() -> None:
    # At severity 5 differences shrink by max / (max + 3): a quarter is left of black against white.
    picture = np.zeros((1, 2, 1))
    picture[0, 1] = 1.0
    seen = lay_fog(picture, np.full((1, 2), 0.5), thickness=3.0)
    assert seen[0, 1] - seen[0, 0] == pytest.approx(0.25)


@pytest.mark.parametrize("shape", [(10, 1), (37, 53), (512, 512), (1, 1)])
def test_fog_covers_an_image_of_any_size(shape: tuple[int, int]) -> None:
    seen = corrupt(np.full((*shape, 3), 128, np.uint8), "fog", 1, random_for(3))
    assert seen.shape == (*shape, 3)
    # Brightest 128/255 = 0.502, thickness 1.5: between 0.502 * 0.502 / 2.002 (level 32) and level 128.
    assert seen.min() >= 32
    assert seen.max() <= 128


@pytest.mark.parametrize("side", [2, 16, 64, 512])
@pytest.mark.parametrize("decay", [1.4, 2.0])
def test_plasma_fills_the_unit_range(side: int, decay: float) -> None:
    cloud = plasma(side, decay, random_for(side))
    assert cloud.shape == (side, side)
    assert (cloud.min(), cloud.max()) == (0.0, 1.0)


def test_the_smallest_plasma_by_hand() -> None:
    # Corner 0; square middle 100 * u1; edges (0 + 0 + 2 squares) / 4 + 100 * u, with u drawn in this order.
    class Drawn(np.random.Generator):
        def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
            return np.full(size, next(draws))

    draws = iter([4.0, -2.0, -1.0])
    # square 400; right edge 200 - 200 = 0; lower edge 200 - 100 = 100; normalised by 400.
    assert plasma(2, 2.0, Drawn(np.random.PCG64(0))).tolist() == [[0.0, 0.0], [0.25, 1.0]]


def test_a_calm_octave_puts_every_point_at_the_mean_of_its_four_neighbours() -> None:
    class CalmAtLast(np.random.Generator):
        """Wibbles, except in the last octave of a map of side 16, which fills in 8 x 8 points at a time."""

        def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
            return np.zeros(size) if size == (8, 8) else super().uniform(low, high, size)

    cloud = plasma(16, 2.0, CalmAtLast(np.random.PCG64(0)))
    for row, column in np.ndindex(16, 16):
        if row % 2 and column % 2:  # the middle of a square: its corners
            around = [(row + down, column + right) for down in (-1, 1) for right in (-1, 1)]
        elif row % 2 or column % 2:  # the middle of an edge: left, right, above, below
            around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        else:
            continue
        assert cloud[row, column] == pytest.approx(sum(cloud[r % 16, c % 16] for r, c in around) / 4)


def test_wibble_falls_with_the_square_of_the_decay() -> None:
    # wibble * U(-wibble, wibble): 100 * 100 in the first octave, 50 * 50 in the next, 25 * 25 in the third.
    limits: list[float] = []

    class Noting(np.random.Generator):
        def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
            limits.append(high)
            return super().uniform(low, high, size)

    plasma(8, 2.0, Noting(np.random.PCG64(0)))
    assert limits == [100.0] * 3 + [50.0] * 3 + [25.0] * 3


def test_a_larger_decay_makes_a_smoother_cloud() -> None:
    rough, smooth = (np.abs(np.diff(plasma(128, decay, random_for(5)))).mean() for decay in (1.4, 2.0))
    assert smooth < rough


def test_a_large_plasma_takes_no_time_worth_mentioning() -> None:
    start = time.perf_counter()
    plasma(2048, 1.7, random_for(0))
    assert time.perf_counter() - start < 5  # 0.2 s on a laptop; a loop in Python takes minutes


@pytest.mark.parametrize(
    ("severity", "eight_bit", "sixteen_bit"),
    [
        (1, 106, 14554),  # 0.8 * 101 + 0.2 * 127.5 = 106.3; 0.8 * 10001 + 0.2 * 32767.5 = 14554.3
        (2, 109, 16831),  # 0.7 * 101 + 0.3 * 127.5 = 108.95; 0.7 * 10001 + 0.3 * 32767.5 = 16830.95
        (3, 112, 19108),  # 0.6 * 101 + 0.4 * 127.5 = 111.6; 0.6 * 10001 + 0.4 * 32767.5 = 19107.6
        (4, 114, 21384),  # 0.5 * 101 + 0.5 * 127.5 = 114.25; 0.5 * 10001 + 0.5 * 32767.5 = 21384.25
        (5, 117, 23661),  # 0.4 * 101 + 0.6 * 127.5 = 116.9; 0.4 * 10001 + 0.6 * 32767.5 = 23660.9
    ],
)
def test_scattering_mixes_the_image_with_the_veil(severity: int, eight_bit: int, sixteen_bit: int) -> None:
    assert (corrupt(flat(101), "scattering", severity, random_for(0)) == eight_bit).all()
    assert (corrupt(flat(10001, "uint16"), "scattering", severity, random_for(0)) == sixteen_bit).all()


def test_scattering_of_a_colour_image_goes_blue_green() -> None:
    # Red 0.8 * 1 + 0.2 * 0.05, green 0.2 * 0.45, blue 0.2 * 0.55.
    red = np.zeros((1, 1, 3))
    red[..., 0] = 1.0
    assert WATER_VEIL == (0.05, 0.45, 0.55)
    assert scattering(red, 1, random_for(0)).ravel() == pytest.approx([0.81, 0.09, 0.11])


def test_the_veil_is_the_callers_to_choose() -> None:
    white = np.ones((1, 1, 2))
    # Severity 5 lets 0.4 through; the veil adds 0.6 of itself.
    assert scattering(white, 5, random_for(0), veil=(0.0, 0.5)).ravel() == pytest.approx([0.4, 0.7])
    assert scattering(white, 5, random_for(0), veil=(0.0,)).ravel() == pytest.approx([0.4, 0.4])
    with pytest.raises(UsageError, match="3 values and the image 2 channels"):
        scattering(white, 5, random_for(0), veil=(0.0, 0.5, 1.0))


def test_two_channels_are_no_colour() -> None:
    picture = np.zeros((1, 1, 2))
    picture[..., 1] = 1.0
    assert GREY_VEIL == (0.5,)
    assert scattering(picture, 5, random_for(0)).ravel() == pytest.approx([0.3, 0.7])


stored = st.one_of(
    [
        hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=3, max_dims=3, max_side=9),
            elements={"min_value": 0, "max_value": 1} if dtype == "float32" else None,
        )
        for dtype in ("uint8", "uint16", "float32")
    ]
)


@given(image=stored, kind=st.sampled_from(sorted(KINDS)), severity=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_dtype_and_shape_survive_and_the_original_is_untouched(
    image: Pixels, kind: str, severity: int, seed: int
) -> None:
    before = image.copy()
    seen = corrupt(image, kind, severity, random_for(seed))
    assert (seen.dtype, seen.shape) == (image.dtype, image.shape)
    assert (image == before).all()
    if image.dtype == np.float32:
        assert seen.min() >= 0
        assert seen.max() <= 1


@given(image=stored)
def test_the_way_in_and_out_changes_nothing(image: Pixels) -> None:
    assert (from_unit(to_unit(image), image.dtype) == image).all()


@pytest.mark.parametrize("kind", ["speckle", "gaussian", "fog"])
def test_the_seed_decides(kind: str) -> None:
    image = random_for(0).integers(1, 256, (20, 30, 3), np.uint8)
    first, again, other = (corrupt(image, kind, 3, random_for(seed)) for seed in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


def test_an_unknown_corruption_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no corruption called 'speckel'\. Did you mean speckle"):
        corrupt(flat(0), "speckel", 1, random_for(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("severity", [-1, 0, 6])
def test_there_are_five_severities(kind: str, severity: int) -> None:
    with pytest.raises(UsageError, match=rf"no severity {severity}\. Choose 1 \(mild\) to 5"):
        corrupt(flat(0), kind, severity, random_for(0))


@pytest.mark.parametrize("value", [-0.1, 1.5, 255.0, float("nan")])
def test_a_float_image_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match=r"must lie in \[0, 1\]"):
        corrupt(flat(value, "float32"), "fog", 1, random_for(0))


def test_other_depths_are_refused() -> None:
    with pytest.raises(UsageError, match="int32 cannot be corrupted"):
        corrupt(flat(0, "int32"), "fog", 1, random_for(0))
