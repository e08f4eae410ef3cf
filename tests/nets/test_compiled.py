"""A compiled encoder answers as before and keeps its names; without a compiler the user is told."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.nets.build import build_model
from ftcseg.nets.compiled import compile_encoders
from ftcseg.nets.segmenter import Segmenter


def network() -> Segmenter:
    torch.manual_seed(0)
    net, _ = build_model("tiny", "fusion", 3, weights=None, head_features=8)
    return net


def loss_and_grad(net: Segmenter, images: Tensor) -> tuple[Tensor, Tensor]:
    loss = net(images).square().mean()
    loss.backward()
    grads = [p.grad.flatten() for p in net.encoder.parameters() if p.grad is not None]
    return loss.detach(), torch.cat(grads)


def test_the_same_answers_gradients_and_names() -> None:
    plain, compiled = network(), network()
    holder = nn.ModuleDict({"student": compiled, "teacher": copy.deepcopy(compiled)})
    assert compile_encoders(holder, backend="eager") == 2
    images = torch.rand(2, 3, 32, 48)
    loss, grad = loss_and_grad(plain, images)
    again, same = loss_and_grad(compiled, images)
    torch.testing.assert_close(again, loss)
    torch.testing.assert_close(same, grad)
    assert list(compiled.state_dict()) == list(plain.state_dict())


def test_a_compiled_network_can_be_copied() -> None:
    net = network()
    compile_encoders(net, backend="eager")
    twin = copy.deepcopy(net)
    images = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(twin.eval()(images), net.eval()(images))


def test_without_a_compiler_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setenv("FTCSEG_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="C\\+\\+ compiler"):
        compile_encoders(network())
