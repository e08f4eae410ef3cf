"""What a network costs: parameters, multiply-adds, time, and the memory of a training step.

Counts are taken on torch's «meta» device, where operations have shapes but no numbers: they need no memory, take no
image and are the same on every machine. Times are this machine's own.
"""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

NORM_OPERATIONS = 5  # per element of a LayerNorm or GroupNorm, as fvcore counts
BATCH_NORM_OPERATIONS = 2  # per element once its statistics are fixed: one factor, one summand
BILINEAR_OPERATIONS = 4  # per element of an enlarged map: four neighbours
_MOMENTS = 2  # that AdamW keeps of every parameter that learns


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one network and one input."""

    parameters: int
    macs: int
    """Multiply-adds of convolutions, linear layers, attention and all other matrix products."""
    others: int
    """Operations of normalisations and bilinear maps; tools that count them add them to the multiply-adds."""


def cost(net: nn.Module, shape: tuple[int, int, int, int]) -> Cost:
    """What `net` takes to predict an input of this shape, batch first. The network itself is not touched."""
    bare = copy.deepcopy(net).to("meta").eval().requires_grad_(False)
    counter = FlopCounterMode(display=False, custom_mapping=_OTHERS)
    with counter, torch.no_grad():
        bare(torch.empty(shape, device="meta"))
    counts = counter.get_flop_counts()["Global"]
    others = sum(count for operation, count in counts.items() if operation in _OTHERS)
    products = sum(count for operation, count in counts.items() if operation not in _OTHERS)
    return Cost(sum(p.numel() for p in net.parameters()), products // 2, others)  # torch counts a multiply-add as two


def seconds(
    nets: Mapping[str, nn.Module], shape: tuple[int, int, int, int], *, repeats: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """How long each network takes to predict, `repeats` times each, in the networks' own device.

    They take turns, so that a machine that is busy for a while slows all of them alike: compare medians, and ratios of
    what was taken in the same round.
    """
    taken: dict[str, list[float]] = {name: [] for name in nets}
    with torch.inference_mode():
        for turn in range(warm_up + repeats):
            for name, net in nets.items():
                device = next(net.parameters()).device
                image = torch.zeros(shape, device=device)
                start = _now(device)
                net(image)
                if turn >= warm_up:
                    taken[name].append(_now(device) - start)
    return taken


def training_peak(net: nn.Module, shape: tuple[int, int, int, int], *, teacher: bool = True) -> int:
    """Bytes of tensors that live at once, at most, in a training step on a batch of this shape.

    The student's parameters, gradients and AdamW's two moments, what its forward pass keeps for the backward one, and
    a teacher that only holds its weights. All in float32, attention with its full matrix. An allocator's reserve and
    a library's workspace come on top, and are no property of the network.
    """
    student = copy.deepcopy(net).to("meta").train()
    kept = [copy.deepcopy(student)] if teacher else []
    images = torch.empty(shape, device="meta")
    labels = torch.empty((shape[0], *shape[2:]), device="meta", dtype=torch.long)
    moments = [torch.empty_like(p) for p in student.parameters() if p.requires_grad for _ in range(_MOMENTS)]
    living = _Living()
    with living:
        living.see([images, labels, *moments, *(t for model in (student, *kept) for t in _tensors(model))])
        torch.autograd.backward(F.cross_entropy(student(images), labels))
    return living.peak


class _Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that operations return, for as long as somebody holds them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._held: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see([leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)])
        return result

    def see(self, tensors: list[Tensor]) -> None:
        """Take note of these; views share what they look at."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key, size = id(storage), storage.nbytes()
            if key not in self._held:
                self._held[key] = weakref.ref(storage, lambda _, key=key, size=size: self._forget(key, size))  # type: ignore[misc]
                self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int, size: int) -> None:
        del self._held[key]
        self.now -= size


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # it runs ahead of us otherwise
    return time.perf_counter()


def _elements(shape: Any) -> int:
    return torch.Size(shape).numel()


def _norm(shape: Any, *_: Any, **__: Any) -> int:
    return NORM_OPERATIONS * _elements(shape)


def _batch_norm(shape: Any, *_: Any, **__: Any) -> int:
    return BATCH_NORM_OPERATIONS * _elements(shape)


def _bilinear(*_: Any, out_shape: Any, **__: Any) -> int:
    return BILINEAR_OPERATIONS * _elements(out_shape)


_OTHERS: dict[Any, Any] = {
    torch.ops.aten.native_layer_norm: _norm,
    torch.ops.aten.native_group_norm: _norm,
    torch.ops.aten.native_batch_norm: _batch_norm,
    torch.ops.aten._native_batch_norm_legit_no_training: _batch_norm,
    torch.ops.aten.cudnn_batch_norm: _batch_norm,
    torch.ops.aten.upsample_bilinear2d: _bilinear,
}
"""What torch's own counter passes over, by the operation; shapes of all its tensors are handed in."""
