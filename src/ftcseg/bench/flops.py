"""Floating point operations of a step, counted while it is taken: a multiplication and an addition are two.

Counted are convolutions, matrix products and attention, forward and backward, as they are executed; all else is small.
torch's own table has no entry for attention on CPUs, and takes the gradient of a grouped convolution's weight for that
of a full one, which for depthwise convolutions is hundreds of times too much; both are put right here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Formula = Callable[..., int]


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`with FlopCounter() as counted: ...`, then `counted.total`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


def convolution_flops(grad_out: Sequence[int], weight: Sequence[int]) -> int:
    """Of one convolution with a weight (out, in / groups, ...) whose result, or its gradient, has this shape."""
    per_place = 2 * torch.Size(weight).numel()
    return int(grad_out[0] * torch.Size(grad_out[2:]).numel() * per_place)


def _convolution_backward(*args: Any, out_val: Any, **_: Any) -> int:
    """The gradients of input and weight each take what the convolution itself took."""
    grad_out, _, weight = args[:3]
    wanted = sum(gradient is not None for gradient in out_val[:2])
    return wanted * convolution_flops(grad_out.shape, weight.shape)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _attention_backward(grad_out: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    shapes = (grad_out.shape, query.shape, key.shape, value.shape)
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


_FORMULAS: Mapping[Any, Formula] = {
    **flop_registry,
    torch.ops.aten.convolution_backward: _convolution_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
