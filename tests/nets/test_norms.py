"""Batch normalisation that uses the batch and remembers nothing of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ftcseg.nets.norms import as_evaluated, folded, is_constant, still_statistics


def norms(momentum: float | None = 0.1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(2, momentum=momentum), nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).train()


def statistics(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_stand_still_to_the_bit(momentum: float | None) -> None:
    module, images = norms(momentum), torch.randn(4, 2, 5, 5) * 7 + 3
    module(images)  # statistics that are no longer round numbers
    before = statistics(module)
    with still_statistics(module):
        module(images * 100)
    after = statistics(module)
    assert before.keys() == after.keys() == {f"{i}.{n}" for i in (0, 2) for n in _BUFFERS}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert int(after["0.num_batches_tracked"]) == 1


def test_inside_the_batch_is_what_it_is_normalised_by() -> None:
    module, images = norms(), torch.randn(4, 2, 5, 5) * 7 + 3
    with still_statistics(module):
        out = module[0](images)
    assert out.mean((0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-5)  # by the running ones it would be near 3
    assert out.var((0, 2, 3), unbiased=False).tolist() == pytest.approx([1, 1], abs=1e-3)
    assert torch.equal(out, module[0](images))  # the same function as without


def test_gradients_flow_as_always() -> None:
    module, images = norms(), torch.randn(2, 2, 3, 3)
    with still_statistics(module):
        module(images).square().sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_afterwards_they_move_again_even_after_an_error() -> None:
    module, images = norms(), torch.randn(2, 2, 3, 3) + 5
    with pytest.raises(KeyError), still_statistics(module):
        raise KeyError
    module(images)
    # Momentum 0.1: from 0 a tenth of the way to the batch's mean.
    torch.testing.assert_close(module[0].running_mean, images.mean((0, 2, 3)) * 0.1)
    assert [int(module[i].num_batches_tracked) for i in (0, 2)] == [1, 1]
    assert {name for name, _ in module.named_buffers()} == set(module.state_dict()) - set(
        dict(module.named_parameters())
    )


def test_a_network_without_norms_is_left_alone() -> None:
    module = nn.Linear(2, 2)
    with still_statistics(module):
        assert module(torch.ones(1, 2)).shape == (1, 2)


_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def test_answering_as_evaluated_changes_nothing_for_later() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.9)))
    module[3].eval()  # a part that somebody put to rest stays so
    images = torch.randn(2, 1, 4, 4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with as_evaluated(module):
        first = module(images)
        assert torch.equal(first, module(images))  # nothing is dropped
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == [True, True, True, True, False, False]
    with pytest.raises(KeyError), as_evaluated(module):
        raise KeyError
    assert module.training


def test_a_norm_folded_into_its_convolution_by_hand() -> None:
    conv, norm = nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1, eps=0.0)
    with torch.no_grad():
        conv.weight.fill_(3.0)
        norm.weight.fill_(5.0)
        norm.bias.fill_(7.0)
        norm.running_mean.fill_(2.0)  # type: ignore[union-attr]
        norm.running_var.fill_(4.0)  # type: ignore[union-attr]
    weight, bias = folded(conv, norm)
    assert weight.tolist() == [[[[7.5]]]]  # 3 * 5 / 2
    assert bias.tolist() == [2.0]  # 7 - 2 * 5 / 2


def test_only_a_norm_that_nothing_moves_is_constant() -> None:
    norm = nn.BatchNorm2d(1)
    assert not is_constant(norm.train())
    assert not is_constant(norm.eval())  # its weight may be learning
    with torch.no_grad():
        assert is_constant(norm)
        assert not is_constant(norm.train())
    assert is_constant(norm.eval().requires_grad_(False))
