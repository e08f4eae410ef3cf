"""Blocks that run twice instead of remembering: the same numbers from less memory."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ftcseg.nets.build import build_model
from ftcseg.nets.encoders import build_encoder
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.norms import still_statistics
from ftcseg.nets.segmenter import Segmenter

SIDES = {"tiny": (32, 48), "efficientnet-lite0": (32, 32), "resnet-18": (32, 32), "mit-b0": (32, 32)}
SIDES |= {"dinov2-small": (28, 28)}
WITH_NORMS = ("tiny", "efficientnet-lite0", "resnet-18")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def net(name: str, *, checkpointing: bool, mode: Any = "full") -> Segmenter:
    torch.manual_seed(0)
    built, _ = build_model(
        name, "fusion", 2, weights=None, encoder_mode=mode, head_features=8, checkpointing=checkpointing
    )
    return built.train()


def encoder(name: str, **options: Any) -> Encoder:
    torch.manual_seed(0)
    return build_encoder(name, weights=None, **options)[0].train()


def images(name: str, seed: int = 1) -> Tensor:
    return torch.randn(2, 3, *SIDES[name], generator=torch.Generator().manual_seed(seed))


def kept_bytes(module: nn.Module, shown: Tensor) -> int:
    """What a forward keeps for the backward pass, without the weights, which are there anyway."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(shown)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    return sum(size for place, size in storages.items() if place not in own)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], msg=lambda text, name=name: f"{name}: {text}")


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", SIDES)
def test_logits_gradients_and_statistics_are_the_same(name: str) -> None:
    plain, saving = (net(name, checkpointing=checkpointing) for checkpointing in (False, True))
    said = []
    for model in (plain, saving):
        logits = model(images(name))
        logits.square().mean().backward()
        said.append(logits.detach())
    assert torch.equal(*said)
    assert_same(gradients(saving), gradients(plain))
    buffers = dict(plain.named_buffers())
    assert_same(dict(saving.named_buffers()), buffers)
    counted = {int(buffer) for key, buffer in buffers.items() if key.endswith("num_batches_tracked")}
    assert counted == ({1} if name in WITH_NORMS else set())
    assert saving.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("name", SIDES)
def test_less_is_kept_for_the_backward_pass(name: str) -> None:
    plain, saving = (kept_bytes(encoder(name, checkpointing=c), images(name)) for c in (False, True))
    assert saving < 0.6 * plain


def test_only_the_inputs_of_blocks_are_kept() -> None:
    # Two images of 32x48: 3 channels, then 16 at 16x24, 16 at 8x12, 24 at 4x6, 32 at 2x3; the last map is no input.
    inputs = 3 * 32 * 48 + 16 * 16 * 24 + 16 * 8 * 12 + 24 * 4 * 6 + 32 * 2 * 3
    assert kept_bytes(encoder("tiny", checkpointing=True), images("tiny")) == 2 * 4 * inputs


def test_nothing_is_run_again_where_nothing_learns() -> None:
    model = encoder("tiny", checkpointing=True)
    runs: list[bool] = []
    model.blocks()[1].get_submodule("0").register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    with torch.no_grad():
        model(images("tiny"))
    assert runs == [False]
    sum(m.sum() for m in model.eval()(images("tiny"))).backward()
    assert runs == [False, True]
    sum(m.sum() for m in model.train()(images("tiny"))).backward()
    assert runs == [False, True, True, True]


def test_frozen_blocks_keep_their_statistics_and_the_others_learn_the_same() -> None:
    plain, saving = (net("tiny", checkpointing=checkpointing, mode=2) for checkpointing in (False, True))
    for model in (plain, saving):
        model(images("tiny")).square().mean().backward()
    assert_same(gradients(saving), gradients(plain))
    assert_same(dict(saving.named_buffers()), dict(plain.named_buffers()))
    assert int(saving.get_buffer("encoder.stem.1.num_batches_tracked")) == 0
    assert int(saving.get_buffer("encoder.stages.3.0.1.num_batches_tracked")) == 1


def test_strong_views_move_no_statistics_in_either_run() -> None:
    model = net("tiny", checkpointing=True)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with still_statistics(model):
        logits = model(images("tiny"))
    logits.square().mean().backward()  # the second run, outside
    after = dict(model.named_buffers())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_two_forwards_before_one_backward_count_two_batches() -> None:
    plain, saving = (net("tiny", checkpointing=checkpointing) for checkpointing in (False, True))
    for model in (plain, saving):
        (model(images("tiny")) - model(images("tiny", 2))).square().mean().backward()
    assert_same(gradients(saving), gradients(plain))
    assert_same(dict(saving.named_buffers()), dict(plain.named_buffers()))
    assert int(saving.get_buffer("encoder.stem.1.num_batches_tracked")) == 2


def test_the_second_run_drops_what_the_first_dropped() -> None:
    grads = []
    for checkpointing in (False, True):
        model = encoder("efficientnet-lite0", drop_path=0.5, checkpointing=checkpointing)
        torch.manual_seed(7)
        sum(m.square().mean() for m in model(images("efficientnet-lite0"))).backward()
        grads.append(gradients(model))
    assert_same(*grads)


def test_a_copy_runs_its_own_blocks() -> None:
    student = net("tiny", checkpointing=True)
    teacher = copy.deepcopy(student)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.zero_()
    assert float(teacher(images("tiny")).detach().abs().max()) == 0
    assert float(student(images("tiny")).detach().abs().max()) > 0
    teacher(images("tiny")).sum().backward()
    assert not gradients(student)
    assert int(student.get_buffer("encoder.stem.1.num_batches_tracked")) == 1
