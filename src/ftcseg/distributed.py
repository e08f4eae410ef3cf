"""The one place where processes that train together add up what each of them counted, or show what each has seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from ftcseg.errors import FtcsegError

_BROKEN = ("connection", "peer", "timed out", "timeout", "socket", "broken pipe")
"""What backends say when it was the way to another process that failed, and not the sum."""


class ProcessLost(FtcsegError):
    """Another process of this run is gone or has given up, so this one cannot go on."""

    exit_code = 5

    def __init__(self, what: str, remedy: str = "", exit_code: int | None = None) -> None:
        self.what = what
        self.remedy = remedy
        self.exit_code = exit_code or type(self).exit_code
        super().__init__(f"{what} {remedy}".strip())


@contextmanager
def connected() -> Iterator[None]:
    """Within it, an error of the connection to the other processes becomes a ProcessLost."""
    try:
        yield
    except RuntimeError as error:
        about = str(error).strip().partition("\n")[0]
        if not isinstance(error, dist.DistError) and not any(word in about.lower() for word in _BROKEN):
            raise
        raise ProcessLost("The connection to another process of this run broke: it was ended, or it hangs.") from error


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of this tensor over all processes of the run; alone, the tensor itself.

    Every process must call this equally often and with the same shape. Counters live on the CPU, statistics on the
    device of the network, so a run on several GPUs is started with the backend "cpu:gloo,cuda:nccl".
    """
    if not _are_several():
        return tensor
    total = tensor.clone()
    with connected():
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
    with connected():
        dist.all_gather(pieces, sent)
    return torch.cat(pieces).to(tensor.dtype)


def _are_several() -> bool:
    return dist.is_available() and dist.is_initialized()
