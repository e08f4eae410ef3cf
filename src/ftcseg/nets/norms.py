"""Batch normalisation and who may move its running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def as_evaluated(module: nn.Module) -> Iterator[None]:
    """Inside, the network answers as in evaluation: running statistics, no dropout. Then it is as it was."""
    before = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


@contextmanager
def still_statistics(module: nn.Module) -> Iterator[None]:
    """Inside, batch normalisation uses the batch but remembers nothing of it.

    Strongly augmented views look like nothing that is ever predicted; let into the running statistics, they spoil every
    evaluation.
    """
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm)]
    before = [(m.momentum, m.num_batches_tracked) for m in norms]
    for norm in norms:
        norm.momentum = 0.0
        norm.num_batches_tracked = None
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked


def is_constant(norm: _BatchNorm) -> bool:
    """Whether a norm does the same to every batch and nothing learns it, so that a convolution may do its work.

    Not where torch writes the network down: compilers and exports fold by themselves and want to see the norm.
    """
    if norm.training or torch.compiler.is_compiling():
        return False
    return not torch.is_grad_enabled() or not norm.weight.requires_grad


def folded(conv: nn.Conv2d, norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that equals both: a pass over the map less, and a copy of it."""
    assert norm.running_mean is not None, "it has statistics"
    assert norm.running_var is not None, "it has statistics"
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
