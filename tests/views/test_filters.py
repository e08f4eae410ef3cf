"""Filters by hand: what sonar adds, what denoising takes away, and that every filter bears every picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ftcseg.views.denoise import gaussian, lee, median
from ftcseg.views.filters import FILTERS
from ftcseg.views.sonar import ellipses, fade, grain, ripple, shadow

NAMES = pytest.mark.parametrize("name", FILTERS)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


# Every filter


@NAMES
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 20, 30), (3, 7, 5), (5, 9, 9)])
def test_a_filter_keeps_shape_and_range(name: str, shape: tuple[int, int, int]) -> None:
    for image in (noise(*shape), torch.zeros(shape), torch.ones(shape)):
        before = image.clone()
        found = FILTERS[name](image, rng())
        assert found.shape == image.shape
        assert found.dtype == image.dtype
        assert bool((found >= 0).all() and (found <= 1 + 1e-6).all())
        assert torch.equal(image, before)  # a view is made, the picture stays


@NAMES
def test_the_same_generator_makes_the_same_view(name: str) -> None:
    image = noise(3, 20, 30)
    assert torch.equal(FILTERS[name](image, rng(4)), FILTERS[name](image, rng(4)))


@NAMES
def test_grey_stays_grey(name: str) -> None:
    image = noise(1, 20, 30).repeat(3, 1, 1)
    found = FILTERS[name](image, rng(2))
    assert torch.equal(found, found[:1].expand_as(found))


@NAMES
def test_black_stays_black(name: str) -> None:
    assert not FILTERS[name](torch.zeros(3, 12, 12), rng()).any()


# Sonar


def test_grain_has_mean_one_and_the_stated_spread() -> None:
    found = grain(torch.full((1, 200, 200), 0.5), rng(), 0.1) / 0.5
    assert float(found.mean()) == pytest.approx(1.0, abs=0.005)
    assert float(found.std()) == pytest.approx(0.1, abs=0.005)


def test_the_farthest_row_fades_most() -> None:
    # Three rows from far to near: 0.6, then half way to 1, then all of the light.
    assert fade(torch.ones(1, 3, 2), 0.6)[0, :, 0].tolist() == pytest.approx([0.6, 0.8, 1.0])


def test_ripples_are_rings_around_the_sonar() -> None:
    found = ripple(torch.full((1, 40, 41), 0.5), rng())
    assert torch.allclose(found[0, :, :20], found[0, :, 21:].flip(-1), atol=1e-6)  # left as right of its axis
    assert float((found - 0.5).abs().max()) <= 0.5 * 0.15 + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_shadow_reaches_the_far_end(seed: int) -> None:
    dark = shadow(torch.ones(1, 60, 60), rng(seed))[0] < 1
    assert dark.any()
    assert not dark.all()
    # Straight above the sonar, what lies behind something dark is dark as well.
    middle = dark[:, 30]
    assert bool((middle.int().diff() <= 0).all())


@pytest.mark.parametrize("seed", range(5))
def test_ellipses_are_black_and_small(seed: int) -> None:
    found = ellipses(torch.ones(2, 60, 80), rng(seed))
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(found[0], found[1])
    # Three ellipses with half axes of a tenth of the sides: 3 pi / 100 of the picture at most.
    assert 0 < float((found == 0).float().mean()) < 0.1


# Denoising


def test_the_median_drops_one_odd_pixel_and_keeps_an_edge() -> None:
    image = torch.zeros(1, 5, 6)
    image[:, :, 3:] = 1.0
    edge = image.clone()
    image[0, 2, 1] = 1.0  # eight of its nine are 0
    assert torch.equal(median(image), edge)


def test_the_bell_keeps_the_mean_of_a_picture_without_edges() -> None:
    image = torch.zeros(1, 21, 21)
    image[0, 10, 10] = 1.0
    found = gaussian(image)
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-3)
    assert float(found[0, 10, 10]) == pytest.approx(1 / (2 * np.pi), abs=0.002)  # the height of a bell of one pixel


def test_lee_goes_half_way_where_half_of_the_spread_is_noise() -> None:
    image = torch.full((1, 5, 5), 0.5)
    image[0, 2, 2] = 1.0
    # Around the middle: mean (24 * 0.5 + 1) / 25 = 0.52, variance (24 * 0.25 + 1) / 25 - 0.2704 = 0.0096, and
    # 0.0096 / 0.2704 relative to the squared mean. With half of that as noise, k = 1/2: 0.52 + (1 - 0.52) / 2 = 0.76.
    found = lee(image, noise=0.0096 / 0.2704 / 2)
    assert float(found[0, 2, 2]) == pytest.approx(0.76, abs=1e-4)


def test_lee_takes_the_commonest_spread_for_noise() -> None:
    flat = 0.5 * (1 + 0.1 * torch.randn(1, 60, 60, generator=torch.Generator().manual_seed(0)))
    image = flat.clone()
    image[:, :, 30:] *= 0.2
    found = lee(image)
    inside = found[:, 5:-5, 5:25]
    assert float(inside.std()) < 0.6 * float(flat[:, 5:-5, 5:25].std())  # noise is calmed
    step = found[0, 10:50, 29].mean() - found[0, 10:50, 30].mean()
    assert float(step) > 0.35  # the edge of 0.4 stays


def test_colours_are_calmed_one_by_one() -> None:
    image = noise(3, 9, 9)
    together = median(image)
    for channel in range(3):
        assert torch.equal(together[channel], median(image[channel : channel + 1])[0])
