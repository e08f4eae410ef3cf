"""ReLU6 in place: torch's numbers from less memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ftcseg.bench.plain_step import plain_layers
from ftcseg.nets.encoders.efficientnet_lite import ConvNorm
from ftcseg.nets.relu6 import relu6_


def test_values_and_gradients_are_those_of_torch_at_the_edges_too() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 6.0, 7.0])
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    weights = torch.arange(1.0, 6.0)
    (relu6_(ours * 1) * weights).sum().backward()
    (F.relu6(theirs) * weights).sum().backward()
    assert ours.grad is not None
    assert ours.grad.tolist() == [0.0, 0.0, 3.0, 0.0, 0.0]
    assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_the_result_lies_where_the_input_lay() -> None:
    x = torch.randn(4, requires_grad=True) * 1
    where = x.data_ptr()
    assert relu6_(x).data_ptr() == where
    with torch.no_grad():
        y = torch.tensor([-1.0, 9.0])
        assert relu6_(y).tolist() == [0.0, 6.0]
        assert y.tolist() == [0.0, 6.0]


def maps_kept() -> int:
    """How many maps of its output's size a layer of EfficientNet-Lite and whoever reads it remember for backward."""
    layer = ConvNorm((2, 8), 1)
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(torch.randn(1, 2, 16, 16)).square().sum().backward()
    return sum(size == 8 * 16 * 16 for size in kept.values())


def test_a_layer_remembers_two_maps_and_the_plain_one_three() -> None:
    assert maps_kept() == 2  # what the convolution made, and what was cut; not what lay between
    with plain_layers():
        assert maps_kept() == 3
    assert maps_kept() == 2


def test_the_gradient_is_that_of_small_steps() -> None:
    x = torch.tensor([-2.0, 0.7, 3.0, 8.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: relu6_(t * 1), (x,))
