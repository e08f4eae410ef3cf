"""Where a run computes: the device, the number format, and the other processes of the same run.

lightning-fabric finds the device, casts and launches; this is a thin face on it. Networks are not wrapped for
data-parallel training: a method calls its student as often and in whatever way its paper says, and a wrapper's hooks
count on one `forward` per `backward`. Instead every process computes its gradients alone, and after the backward pass
they are averaged in one flat message. Slower than overlapping the two by the time of that message; right for every
method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ftcseg.distributed import connected
from ftcseg.files import compiler_caches_here
from ftcseg.train.fellows import check_fellows, release_fellows, start_others
from ftcseg.types import SemiBatch

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Precision: TypeAlias = Literal["32-true", "bf16-mixed", "16-mixed"]
Item = TypeVar("Item")
PATIENCE = timedelta(minutes=30)
"""The longest wait of one process for another that is alive: one half of an evaluation may take much longer than the
other. Who is dead or hangs is found much sooner, by the watch."""


def open_machine(
    device: str = "auto", processes: int = 1, nodes: int = 1, precision: Precision | None = None
) -> Machine:
    """This process's machine; with more than one process, the others are started too (or found: torchrun, SLURM).

    "auto" is the first accelerator there is. Without a wish, precision is half only where the hardware computes in it.
    """
    compiler_caches_here()  # fabric brings torch's compiler along
    from lightning_fabric import Fabric  # two seconds that only training pays
    from lightning_fabric.strategies.ddp import DDPStrategy

    several = processes * nodes > 1
    strategy = DDPStrategy(process_group_backend=_backend(device), timeout=PATIENCE) if several else "auto"
    fabric = Fabric(
        accelerator=device,
        devices=processes,
        num_nodes=nodes,
        strategy=strategy,
        precision=precision or _best_precision(device),
    )
    if isinstance(strategy, DDPStrategy):
        assert strategy.cluster_environment is not None, "Fabric has found out where it runs"
        start_others(processes, strategy.cluster_environment)
    with connected():
        fabric.launch()
    return Machine(fabric)


class Machine:
    """One process of a run, with what it needs to compute and to agree with its fellows.

    Whatever is said to be the same everywhere must be called by every process, in the same order.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.device: torch.device = fabric.device
        self.rank: int = fabric.global_rank
        self.world: int = fabric.world_size
        self.format: str = str(fabric.strategy.precision.precision)
        """Of numbers: the precision that was chosen."""
        self._fabric = fabric

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """What keeps float16 gradients from vanishing; None in every other number format."""
        return getattr(self._fabric.strategy.precision, "scaler", None)

    def precision(self) -> AbstractContextManager[None]:
        """Compute in the run's number format inside this block."""
        return self._fabric.autocast()

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients, scaled where the number format asks for it."""
        self._fabric.backward(loss)

    def move(self, batch: SemiBatch) -> SemiBatch:
        """The batch on this machine's device."""
        moved: SemiBatch = self._moved(batch)
        return moved

    def adopt(self, method: nn.Module, *, channels_last: bool = True) -> None:
        """Move the method here and give every process the first one's weights and statistics.

        Convolutions with channels last are much faster on CPUs (1.7x for efficientnet-lite0) and on tensor cores.
        """
        order = torch.channels_last if channels_last else torch.preserve_format
        method.to(self.device, memory_format=order)  # type: ignore[call-overload]
        if self.world > 1:
            for tensor in [*method.parameters(), *method.buffers()]:
                _broadcast(tensor)

    @torch.no_grad()
    def average(self, parameters: Sequence[nn.Parameter], statistics: Sequence[Tensor] = ()) -> None:
        """Average gradients and floating statistics over the processes, all in one message.

        A parameter that no process had a gradient for keeps none: optimisers treat «none» and «zero» differently.
        """
        if self.world == 1:
            return
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        used = grads[0].new_tensor([p.grad is not None for p in parameters])
        tensors = [*grads, *statistics, used]
        flat = torch.cat([tensor.reshape(-1).to(used.dtype) for tensor in tensors])
        with connected():
            dist.all_reduce(flat)
        pieces = torch.split(flat / self.world, [tensor.numel() for tensor in tensors])
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))
        for parameter, grad, share in zip(parameters, grads, used.tolist(), strict=True):
            parameter.grad = grad if share > 0 else None

    def highest(self, number: int | Tensor) -> int:
        """The highest of all processes' numbers: the same everywhere."""
        if self.world == 1:
            return int(number)
        check_fellows()
        shared = torch.as_tensor(number, device=self.device).to(torch.int32).reshape(1)
        with connected():
            dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return int(shared)

    def gather(self, item: Item) -> list[Item]:
        """Everybody's item, by rank: the same everywhere. For small things, now and then."""
        if self.world == 1:
            return [item]
        items: list[Any] = [None] * self.world
        with connected():
            dist.all_gather_object(items, item)
        return items

    def part(self) -> None:
        """Wait for all processes a last time; from here on each works, and may leave, alone."""
        if self.world > 1:
            with connected():
                dist.barrier()
            release_fellows()
            dist.destroy_process_group()

    def _moved(self, value: Any) -> Any:
        """Every tensor in it, however deep, on this machine's device."""
        if isinstance(value, Tensor):
            return value.to(self.device, non_blocking=True)
        if isinstance(value, tuple):
            return tuple(map(self._moved, value))
        if isinstance(value, Mapping):
            return {key: self._moved(item) for key, item in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: self._moved(getattr(value, f.name)) for f in fields(value)})
        return value


def _broadcast(tensor: Tensor) -> None:
    whole = tensor.detach().contiguous()  # channels_last weights travel in plain order
    with connected():
        dist.broadcast(whole, src=0)
    tensor.detach().copy_(whole)


def _backend(device: str) -> str:
    """Sums of counters are made on the CPU wherever the network computes."""
    on_cuda = device in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    return "cpu:gloo,cuda:nccl" if on_cuda else "gloo"


def _best_precision(device: str) -> Precision:
    if device not in ("auto", "cuda", "gpu") or not torch.cuda.is_available():
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
