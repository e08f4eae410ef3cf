"""Blocks that forget what they computed and run again in the backward pass: less memory, more time.

The second run leaves no trace: it draws the same random numbers, and batch statistics do not count the batch again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.norms import still_statistics


def recompute_blocks(encoder: Encoder) -> None:
    """From now on the encoder's blocks keep only their input while they train. Names of parameters stay the same."""
    for block in encoder.blocks():
        for part in block if isinstance(block, nn.ModuleList) else (block,):
            if next(part.children(), None) is not None:  # a lone layer keeps hardly more than its input anyway
                # A partial and no closure: a copied network (the teacher) then runs the copy's blocks.
                part.forward = partial(_run, part)


def recomputing(module: nn.Module) -> dict[str, Any]:
    """How torch's `checkpoint` is to be called for a module, or for a part of it."""
    return {"use_reentrant": False, "preserve_rng_state": True, "context_fn": partial(_contexts, module)}


def _run(block: nn.Module, *inputs: Tensor) -> Tensor:
    forward = partial(type(block).forward, block)
    # A frozen block is in evaluation mode and keeps nothing; nor does anything without gradients.
    again = block.training and torch.is_grad_enabled()
    out: Tensor = checkpoint(forward, *inputs, **recomputing(block)) if again else forward(*inputs)
    return out


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Around the first run and around the second."""
    return nullcontext(), still_statistics(module)
