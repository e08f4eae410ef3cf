"""ReLU6 in place, remembering nothing but its result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

HIGHEST = 6.0


def relu6_(x: Tensor) -> Tensor:
    """`x` cut to 0..6, in its own memory.

    Torch's own, in place, first copies its input for the backward pass: where it was cut shows in the result as well.
    The gradients are the same to the bit, from a third less memory.
    """
    if torch.is_grad_enabled() and x.requires_grad and not torch.compiler.is_compiling():
        cut: Tensor = _ReLU6.apply(x)  # type: ignore[no-untyped-call]
        return cut
    return F.relu6(x, inplace=True)


class _ReLU6(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        cut = x.clamp_(0.0, HIGHEST)
        ctx.save_for_backward(cut)
        return cut

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (cut,) = ctx.saved_tensors
        back: Tensor = torch.ops.aten.hardtanh_backward(gradient, cut, 0.0, HIGHEST)
        return back
