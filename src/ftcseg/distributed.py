"""The one place where processes that train together add up what each of them counted."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of this tensor over all processes of the run; alone, the tensor itself.

    Every process must call this equally often and with the same shape. Counters live on the CPU, statistics on the
    device of the network, so a run on several GPUs is started with the backend "cpu:gloo,cuda:nccl".
    """
    if not (dist.is_available() and dist.is_initialized()):
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total
