"""What every encoder promises. Big ones run on the meta device: shapes and counts without memory or arithmetic."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch
from torch import nn

from ftcseg.errors import UsageError
from ftcseg.nets.encoders import ENCODERS, Encoder, build_encoder, set_trainable
from ftcseg.nets.encoders.drop_path import DropPath, rising_rates

SMALL = ("tiny", "efficientnet-lite0", "mit-b0", "resnet-18")


@cache
def bare(name: str, **options: object) -> Encoder:
    """The encoder on the meta device; the same one every time, so not to be changed."""
    with torch.device("meta"):
        return build_encoder(name, weights=None, **options)[0]  # type: ignore[arg-type]


def shapes(encoder: Encoder, height: int, width: int, channels: int = 3) -> list[tuple[int, ...]]:
    device = next(encoder.parameters()).device
    with torch.no_grad():
        return [tuple(m.shape) for m in encoder.eval()(torch.zeros(1, channels, height, width, device=device))]


@pytest.mark.parametrize("name", ENCODERS)
def test_the_table_states_the_number_of_parameters(name: str) -> None:
    assert sum(p.numel() for p in bare(name).parameters()) == ENCODERS[name].params


def test_published_parameter_counts() -> None:
    # methods.md 1.4 for DINOv2; the ResNets are torchvision's totals without the classifier:
    # 25,557,032 - 2,049,000, 44,549,160 - 2,049,000, 11,689,512 - 513,000.
    assert ENCODERS["dinov2-small"].params == 22_056_576
    assert ENCODERS["resnet-50"].params == 25_557_032 - 2_049_000
    assert ENCODERS["resnet-101"].params == 44_549_160 - 2_049_000
    assert ENCODERS["resnet-18"].params == 11_689_512 - 513_000


@pytest.mark.parametrize("name", ENCODERS)
def test_every_parameter_belongs_to_exactly_one_block(name: str) -> None:
    encoder = bare(name)
    in_blocks = [id(p) for block in encoder.blocks() for p in block.parameters()]
    assert sorted(in_blocks) == sorted(id(p) for p in encoder.parameters())
    first = encoder.get_parameter(encoder.input_weight)
    assert any(p is first for p in encoder.blocks()[0].parameters())


@pytest.mark.parametrize("name", ENCODERS)
def test_four_maps_of_the_stated_channels(name: str) -> None:
    encoder = bare(name)
    maps = shapes(encoder, 2 * 14 * 16, 14 * 16)
    assert len(maps) == 4
    assert tuple(shape[1] for shape in maps) == encoder.channels
    assert all(shape[2] == 2 * shape[3] for shape in maps)


@pytest.mark.parametrize("name", SMALL)
def test_odd_sides_are_rounded_up_at_every_stride(name: str) -> None:
    encoder, _ = build_encoder(name, weights=None)
    for side in (64, 97, 101, 127):
        maps = shapes(encoder, side, 160)
        assert [shape[2] for shape in maps] == [-(-side // stride) for stride in (4, 8, 16, 32)]
        assert [shape[3] for shape in maps] == [40, 20, 10, 5]


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("channels", [1, 5])
def test_other_channel_counts(name: str, channels: int) -> None:
    encoder = bare(name, in_channels=channels)
    assert encoder.get_parameter(encoder.input_weight).shape[1] == channels
    assert len(encoder.mean) == len(encoder.std) == channels
    assert len(shapes(encoder, 56, 56, channels)) == 4


@pytest.mark.parametrize("name", SMALL)
def test_all_parameters_learn_except_those_declared_unused(name: str) -> None:
    encoder, _ = build_encoder(name, weights=None)
    sum(m.square().mean() for m in encoder(torch.randn(2, 3, 64, 64))).backward()
    idle = {key for key, p in encoder.named_parameters() if p.grad is None}
    assert idle == set(encoder.unused)


@pytest.mark.parametrize("name", SMALL)
def test_eval_gives_the_same_answer_whatever_the_batch(name: str) -> None:
    encoder = build_encoder(name, weights=None)[0].eval()
    images = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        for both, alone in zip(encoder(images), encoder(images[:1]), strict=True):
            torch.testing.assert_close(both[:1], alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["tiny", "efficientnet-lite0", "resnet-18"])
def test_statistics_of_a_frozen_encoder_do_not_move(name: str) -> None:
    encoder, _ = build_encoder(name, weights=None)
    set_trainable(encoder, "frozen")
    encoder.train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder(torch.randn(2, 3, 64, 64))
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert not any(p.requires_grad for p in encoder.parameters())


def test_last_blocks_learn_and_only_their_statistics_move() -> None:
    encoder, _ = build_encoder("tiny", weights=None)
    set_trainable(encoder, 2)
    encoder.train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder(torch.randn(2, 3, 64, 64))[-1].sum().backward()
    moved = {key.split(".")[1] for key, value in encoder.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {"2", "3"}  # stages.2 and stages.3
    learning = [[p.grad is not None for p in block.parameters()] for block in encoder.blocks()]
    assert [all(block) for block in learning] == [False, False, False, True, True]
    assert not any(any(block) for block in learning[:3])


def test_a_teacher_without_gradients_keeps_statistics_of_its_own() -> None:
    encoder, _ = build_encoder("tiny", weights=None)
    encoder.requires_grad_(False).train()
    before = encoder.stem[1].running_mean.clone()  # type: ignore[index, union-attr]
    encoder(torch.randn(2, 3, 64, 64))
    assert not torch.equal(encoder.stem[1].running_mean, before)  # type: ignore[index, union-attr]


def test_training_can_be_switched_back_to_full() -> None:
    encoder, _ = build_encoder("dinov2-small", weights=None)
    set_trainable(encoder, "frozen")
    set_trainable(encoder, "full")
    idle = {key for key, p in encoder.named_parameters() if not p.requires_grad}
    assert idle == {"embed.mask_token"}
    assert all(module.training for module in encoder.train().modules())


def test_as_many_blocks_as_there_are_is_full_and_none_is_frozen() -> None:
    encoder, _ = build_encoder("tiny", weights=None)
    set_trainable(encoder, len(encoder.blocks()))
    assert all(p.requires_grad for p in encoder.parameters())
    set_trainable(encoder, 0)
    assert not any(p.requires_grad for p in encoder.parameters())


@pytest.mark.parametrize("mode", [6, -1])
def test_more_blocks_than_there_are_is_an_error(mode: int) -> None:
    with pytest.raises(UsageError, match="has 5"):
        set_trainable(build_encoder("tiny")[0], mode)


def test_an_unknown_way_to_train_is_an_error() -> None:
    with pytest.raises(UsageError, match="frozen"):
        set_trainable(build_encoder("tiny")[0], "froze")  # type: ignore[arg-type]


def test_an_unknown_encoder_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="resnet-50"):
        build_encoder("resnet50")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("resnet-50", {"drop_path": 0.1}),
        ("mit-b0", {"dilate_last": True}),
        ("dinov2-small", {"resnet_stride": "1x1"}),
    ],
)
def test_an_option_that_could_only_be_ignored_is_refused(name: str, option: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{name} has no {next(iter(option))}"):
        build_encoder(name, weights=None, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"in_channels": 0}, {"drop_path": 1.0}, {"drop_path": -0.1}])
def test_impossible_numbers_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        build_encoder("tiny", **option)  # type: ignore[arg-type]


def test_listing_encoders_does_not_import_torch() -> None:
    code = "import sys; from ftcseg.nets.encoders import ENCODERS; assert ENCODERS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_drop_path_drops_whole_images_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop = DropPath(0.25)
    dropped = drop(torch.ones(4000, 2, 3))
    per_image = dropped.flatten(1)
    assert torch.equal(per_image.amin(1), per_image.amax(1))
    assert sorted(set(per_image[:, 0].tolist())) == pytest.approx([0, 4 / 3])
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)
    assert torch.equal(drop.eval()(torch.ones(2, 2)), torch.ones(2, 2))


def test_drop_path_rates_rise_to_the_last_block() -> None:
    assert rising_rates(0.3, 4) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert rising_rates(0.3, 1) == [0]


@pytest.mark.parametrize("name", ["efficientnet-lite0", "mit-b0"])
def test_drop_path_reaches_the_blocks(name: str) -> None:
    rates = [m.rate for m in bare(name, drop_path=0.2).modules() if isinstance(m, DropPath)]
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0.2)


def test_the_base_class_promises_but_does_not_do() -> None:
    class Half(Encoder):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

    with pytest.raises(NotImplementedError):
        Half()(torch.zeros(1, 1, 1, 1))
    with pytest.raises(NotImplementedError):
        Half().blocks()
