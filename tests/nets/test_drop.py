from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.nets.drop import ComplementaryDrop, FeatureDrop


def ones(images: int, *widths: int) -> list[Tensor]:
    return [torch.ones(images, width, 2, 3) for width in widths]


def test_complementary_masks_sum_to_two() -> None:
    for first, second in (x.chunk(2) for x in ComplementaryDrop(seed=1)(ones(8, 32, 32))):
        assert torch.equal(first + second, torch.full_like(first, 2))


def test_masks_are_zero_or_two_and_half_of_the_pairs_are_whole() -> None:
    (masked,) = ComplementaryDrop(seed=2)(ones(2 * 5, 64))
    first = masked[:5, :, 0, 0]
    whole = [set(row.tolist()) == {1.0} for row in first]
    assert sum(whole) == 2  # floor(5 * 0.5)
    assert all(set(row.tolist()) == {0.0, 2.0} for row, exempt in zip(first, whole, strict=True) if not exempt)


@pytest.mark.parametrize(("pairs", "whole"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_exempt_pairs_are_rounded_down(pairs: int, whole: int) -> None:
    (masked,) = ComplementaryDrop(seed=3)(ones(2 * pairs, 64))
    assert sum(bool((image == 1).all()) for image in masked) == 2 * whole


def test_exempt_share_is_a_choice() -> None:
    (masked,) = ComplementaryDrop(seed=3, exempt=1.0)(ones(6, 8))
    assert (masked == 1).all()


def test_a_channel_is_silent_everywhere_in_its_map() -> None:
    (masked,) = ComplementaryDrop(seed=4)(ones(2, 64))
    assert (masked.amax(dim=(2, 3)) == masked.amin(dim=(2, 3))).all()


def test_levels_of_one_width_share_the_mask() -> None:
    shallow, deep = ComplementaryDrop(seed=5)(ones(4, 64, 64))
    assert torch.equal(shallow, deep)


def test_levels_of_different_width_draw_their_own_but_exempt_the_same_pairs() -> None:
    maps = ComplementaryDrop(seed=6)(ones(8, 64, 128, 64))
    assert not torch.equal(maps[0], maps[2])
    whole = [[bool((image == 1).all()) for image in x] for x in maps]
    assert whole[0] == whole[1] == whole[2]
    assert sum(whole[0]) == 4


@pytest.mark.parametrize("drop", [ComplementaryDrop, FeatureDrop])
def test_the_seed_decides_everything(drop: type[ComplementaryDrop] | type[FeatureDrop]) -> None:
    torch.manual_seed(0)
    (a,) = drop(seed=7)(ones(4, 64))
    torch.manual_seed(1)
    (b,) = drop(seed=7)(ones(4, 64))
    (c,) = drop(seed=8)(ones(4, 64))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize("drop", [ComplementaryDrop, FeatureDrop])
def test_the_global_generator_is_left_alone(drop: type[ComplementaryDrop] | type[FeatureDrop]) -> None:
    before = torch.random.get_rng_state()
    drop(seed=7)(ones(4, 8))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_maps_given_are_not_changed() -> None:
    features = ones(4, 8)
    ComplementaryDrop(seed=1)(features)
    FeatureDrop(seed=1)(features)
    assert (features[0] == 1).all()


def test_masks_take_the_maps_dtype() -> None:
    (masked,) = ComplementaryDrop(seed=1)([torch.ones(2, 4, 1, 1, dtype=torch.bfloat16)])
    assert masked.dtype == torch.bfloat16


def test_feature_drop_keeps_the_mean() -> None:
    (masked,) = FeatureDrop(seed=1, rate=0.75)(ones(1, 4096))
    assert set(masked.unique().tolist()) == {0.0, 4.0}
    assert masked.mean().item() == pytest.approx(1, abs=0.1)


def test_feature_drop_is_each_images_and_levels_own() -> None:
    a, b = FeatureDrop(seed=1)(ones(2, 64, 64))
    assert not torch.equal(a, b)
    assert not torch.equal(a[0], a[1])


def test_calls_that_cannot_mean_anything() -> None:
    with pytest.raises(UsageError, match="3 images"):
        ComplementaryDrop(seed=1)(ones(3, 8))
    with pytest.raises(UsageError, match="below 1"):
        FeatureDrop(seed=1, rate=1.0)
