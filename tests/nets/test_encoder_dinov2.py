from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.nets.encoders.base import Options, set_trainable
from ftcseg.nets.encoders.dinov2 import GRID, SHAPES, DinoV2, Shape, grid_positions

SMALL = Shape(dim=32, depth=4, heads=2, taps=(0, 1, 2, 3))


def small(**options: object) -> DinoV2:
    torch.manual_seed(0)
    return DinoV2(SMALL, Options(**options))  # type: ignore[arg-type]


def grid(positions: Tensor, height: int, width: int) -> Tensor:
    return grid_positions(positions, height, width)[0, 1:].unflatten(0, (height, width))


def test_the_taps_are_those_of_the_paper() -> None:
    assert SHAPES["dinov2-small"].taps == SHAPES["dinov2-base"].taps == (2, 5, 8, 11)
    assert SHAPES["dinov2-large"].taps == (4, 11, 17, 23)


def test_positions_of_their_own_grid_are_untouched() -> None:
    positions = torch.randn(1, 1 + GRID * GRID, 8)
    assert grid_positions(positions, GRID, GRID) is positions


def test_positions_follow_when_rows_and_columns_are_swapped() -> None:
    positions = torch.randn(1, 1 + GRID * GRID, 8)
    square = positions[:, 1:].unflatten(1, (GRID, GRID))
    swapped = torch.cat((positions[:, :1], square.transpose(1, 2).flatten(1, 2)), dim=1)
    torch.testing.assert_close(grid(swapped, 20, 11), grid(positions, 11, 20).transpose(0, 1))


def test_positions_are_sampled_with_the_published_offset() -> None:
    # Output j of 20 looks at (j + 0.5) / scale - 0.5 with scale = 20.1 / 37, and on a ramp sees its own place, to the
    # 0.05 by which torch's bicubic kernel bends a ramp. Without the offset it would look 0.1 to 0.15 further.
    ramp = torch.arange(GRID, dtype=torch.float32).repeat(GRID, 1)
    positions = torch.cat((torch.zeros(1, 1, 1), ramp.reshape(1, -1, 1)), dim=1)
    expected = torch.tensor([(j + 0.5) * 37 / 20.1 - 0.5 for j in range(11, 17)])
    torch.testing.assert_close(grid(positions, 30, 20)[15, 11:17, 0], expected, atol=0.05, rtol=0)


def test_the_class_token_keeps_its_position() -> None:
    positions = torch.randn(1, 1 + GRID * GRID, 8)
    assert torch.equal(grid_positions(positions, 3, 5)[:, 0], positions[:, 0])


@pytest.mark.parametrize("side", range(1, 60))
def test_any_grid_gets_as_many_positions_as_it_has_patches(side: int) -> None:
    assert grid_positions(torch.randn(1, 1 + GRID * GRID, 1), side, 7).shape == (1, 1 + 7 * side, 1)


def test_every_map_went_through_the_final_norm() -> None:
    # A norm that starts as the identity leaves every token with mean 0 and variance 1, in all four maps.
    maps = small()(torch.randn(2, 3, 42, 56))
    assert [tuple(m.shape) for m in maps] == [(2, 32, 3, 4)] * 4
    for m in maps:
        torch.testing.assert_close(m.mean(1), torch.zeros(2, 3, 4), atol=1e-5, rtol=0)
        torch.testing.assert_close(m.var(1, correction=0), torch.ones(2, 3, 4), atol=1e-3, rtol=0)


def test_a_map_has_the_places_of_the_image() -> None:
    encoder = small().eval()
    images = torch.randn(1, 3, 42, 56)
    changed = images.clone()
    changed[..., 14:28, 42:56] += 5  # the patch in row 1, column 3
    with torch.no_grad():
        difference = (encoder(images)[0] - encoder(changed)[0]).abs().sum(1)[0]
    assert divmod(int(difference.argmax()), 4) == (1, 3)


def test_sides_that_do_not_fit_name_the_size_that_does() -> None:
    with pytest.raises(UsageError, match="504×336"):
        small()(torch.zeros(1, 3, 500, 333))


def test_only_the_mask_token_gets_no_gradient() -> None:
    encoder = small()
    sum(m.pow(3).sum() for m in encoder(torch.randn(1, 3, 28, 28))).backward()
    assert {key for key, p in encoder.named_parameters() if p.grad is None} == {"embed.mask_token"}
    assert not encoder.embed.mask_token.requires_grad


def test_the_final_norm_trains_with_the_last_block() -> None:
    encoder = small()
    set_trainable(encoder, 1)
    learning = {key.split(".")[0] for key, p in encoder.named_parameters() if p.requires_grad}
    assert learning == {"layers", "norm"}
    assert {key.split(".")[1] for key, p in encoder.layers.named_parameters() if p.requires_grad} >= {"norm1", "attn"}
    assert not any(p.requires_grad for p in encoder.layers[:-1].parameters())
