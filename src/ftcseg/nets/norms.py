"""Batch normalisation and who may move its running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
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
