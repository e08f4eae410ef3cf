"""The one place where processes that train together add up what each of them counted, or show what each has seen."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of this tensor over all processes of the run; alone, the tensor itself.

    Every process must call this equally often and with the same shape. Counters live on the CPU, statistics on the
    device of the network, so a run on several GPUs is started with the backend "cpu:gloo,cuda:nccl".
    """
    if not _are_several():
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def join_ranks(tensor: Tensor) -> Tensor:
    """The tensors of all processes one behind the other along the first dimension; alone, the tensor itself.

    Every process must call this equally often and with the same shape.
    """
    if not _are_several():
        return tensor
    # Not every backend sends bool.
    sent = (tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor).contiguous()
    pieces = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, sent)
    return torch.cat(pieces).to(tensor.dtype)


def _are_several() -> bool:
    return dist.is_available() and dist.is_initialized()
