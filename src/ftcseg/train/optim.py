"""From a loss to moved weights: gradients, parameter groups, learning rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ftcseg.errors import UsageError
from ftcseg.train.machine import Machine
from ftcseg.types import Clock

Kind: TypeAlias = Literal["adamw", "sgd"]
Implementation: TypeAlias = Literal["auto", "fused", "foreach", "loop"]
_FUSED_ON = ("cuda", "cpu")  # on CPU one pass over memory instead of seven
_NEVER_BELOW = 1.0  # a loss scale this small is no answer to an overflow any more


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimParams:
    """How weights move. The defaults are UniMatch V2's, which FTC-Seg shares."""

    kind: Kind = "adamw"
    lr: float = 5e-6
    """Learning rate of the encoder."""
    head_multiplier: float = 40.0
    """Times the encoder's rate for everything else."""
    opr_multiplier: float | None = None
    """Times the encoder's rate for OPR's prototypes; None: as everything else."""
    weight_decay: float = 0.01
    decay_vectors: bool = True
    """Whether biases and norm weights decay too, as in the public code."""
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.9
    """Of SGD."""
    power: float = 0.9
    """Of the polynomial schedule; 0 keeps the rate constant."""
    warmup: int = 0
    """Steps over which the rate rises in a line."""
    clip: float | None = None
    """Largest norm of the whole gradient."""
    accumulate: int = 1
    """Batches per update."""
    implementation: Implementation = "auto"

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.accumulate < 1 or self.warmup < 0 or (self.clip is not None and self.clip <= 0):
            raise UsageError(
                f"An optimiser needs lr > 0, accumulate >= 1, warmup >= 0 and clip > 0 (or none); "
                f"these are {self.lr}, {self.accumulate}, {self.warmup} and {self.clip}."
            )


def schedule(clock: Clock, power: float, warmup: int = 0) -> float:
    """The share of the starting rate that the step at `clock` is taken with.

    Polynomial decay, counted as the public code does: the rate is lowered after each step from that step's own number,
    so the steps 0 and 1 share the starting rate.
    """
    rise = min(1.0, (clock.step + 1) / warmup) if warmup else 1.0
    gone = min(1.0, max(0, clock.step - 1) / max(1, clock.total))
    return float(rise * (1.0 - gone) ** power)


class Optim:
    """One optimiser over all trainable parameters of a method, in groups by the name of the part they belong to."""

    scale: float = 1.0
    """Times every rate; lowered by a roll-back."""

    def __init__(self, method: nn.Module, params: OptimParams, machine: Machine) -> None:
        self.params = params
        self.machine = machine
        self.accumulate = params.accumulate
        self._method = method
        self._named = {name: p for name, p in method.named_parameters() if p.requires_grad}
        if not self._named:
            raise UsageError("The method has no trainable parameter, so there is nothing to optimise.")
        groups = _groups(self._named, params)
        self._base = [group["lr"] for group in groups]
        self._fused = _is_fused(params, self._named.values())
        self._optimizer = _optimizer(groups, params, fused=self._fused)
        self._norm: Tensor | None = None

    def backward(self, loss: Tensor) -> None:
        """Add one batch's gradients to those of the update."""
        self.machine.backward(loss / self.accumulate)

    def collect(self) -> Tensor:
        """Agree on the gradients with the other processes, unscale them, and return the norm of the whole."""
        self.machine.average(list(self._named.values()), self._student_statistics())
        if self.machine.scaler is not None:
            self.machine.scaler.unscale_(self._optimizer)
        self._norm = get_total_norm([p.grad for p in self._named.values() if p.grad is not None])
        return self._norm

    def step(self, clock: Clock) -> None:
        """Clip and move the weights, at the rate that belongs to this step."""
        if self.params.clip is not None and self._norm is not None:
            clip_grads_with_norm_(self._named.values(), self.params.clip, self._norm)
        for group, rate in zip(self._optimizer.param_groups, self._rates(clock), strict=True):
            group["lr"] = rate
        self._optimizer.step()
        self.drop()

    def forget(self) -> None:
        """Lose all memory of past gradients, as at the start of a run: the weights they moved are gone."""
        self._optimizer.state.clear()

    def drop(self) -> bool:
        """Forget the gradients; True where float16 overflowed and has room to scale down, which is nobody's fault."""
        self._optimizer.zero_grad(set_to_none=True)
        collected, self._norm = self._norm is not None, None
        if self.machine.scaler is None or not collected:
            return False
        before = self.machine.scaler.get_scale()
        self.machine.scaler.update()
        return before > self.machine.scaler.get_scale() >= _NEVER_BELOW

    def rates(self, clock: Clock) -> dict[str, float]:
        """Learning rate per group at this step."""
        names = [group["name"] for group in self._optimizer.param_groups]
        return dict(zip(names, self._rates(clock), strict=True))

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's memory, by parameter: «exp_avg/student.head.weight»."""
        memory = self._optimizer.state
        return {
            f"{key}/{name}": value
            for name, parameter in self._named.items()
            for key, value in memory.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def state(self) -> dict[str, Any]:
        """What else must survive, in plain numbers."""
        scaler = self.machine.scaler
        return {"scale": self.scale, "scaler": scaler.state_dict() if scaler is not None else {}}

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on exactly where `tensors()` and `state()` were taken."""
        self._optimizer.state.clear()
        for label in tensors:
            key, name = label.split("/", 1)
            parameter = self._named[name]
            self._optimizer.state[parameter][key] = self._placed(tensors[label], parameter)
        self.scale = state["scale"]
        if self.machine.scaler is not None and state["scaler"]:
            self.machine.scaler.load_state_dict(state["scaler"])
        self._optimizer.zero_grad(set_to_none=True)
        self._norm = None

    def _placed(self, value: Tensor, parameter: nn.Parameter) -> Tensor:
        if value.ndim == 0 and parameter.ndim > 0:  # the step count: on the device only for the fused kernels
            return value.clone().to(parameter.device if self._fused else "cpu")
        # Fused kernels walk raw memory: the order of elements in it must be the parameter's (channels_last).
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)

    def _rates(self, clock: Clock) -> list[float]:
        factor = self.scale * schedule(clock, self.params.power, self.params.warmup)
        return [base * factor for base in self._base]

    def _student_statistics(self) -> list[Tensor]:
        # Batch norms have seen other images in each process; the teachers that follow them must not drift apart.
        if self.machine.world == 1:
            return []
        trained = [part for part in self._method.children() if any(p.requires_grad for p in part.parameters())]
        return [buffer for part in trained for buffer in part.buffers() if buffer.is_floating_point()]


def _groups(named: Mapping[str, nn.Parameter], params: OptimParams) -> list[dict[str, Any]]:
    """Parameter groups in a fixed order: encoder, head, opr, each perhaps with a part that does not decay."""
    opr = params.head_multiplier if params.opr_multiplier is None else params.opr_multiplier
    times = {"encoder": 1.0, "head": params.head_multiplier, "opr": opr}
    members: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in named.items():
        decays = params.decay_vectors or parameter.ndim > 1
        members.setdefault((_group_of(name), decays), []).append(parameter)
    return [
        {
            "name": group if decays else f"{group} without decay",
            "params": members[group, decays],
            "lr": params.lr * times[group],
            "weight_decay": params.weight_decay if decays else 0.0,
        }
        for group in times
        for decays in (True, False)
        if (group, decays) in members
    ]


def _group_of(name: str) -> str:
    parts = name.split(".")
    if "opr" in parts:
        return "opr"
    return "encoder" if "encoder" in parts else "head"


def _is_fused(params: OptimParams, parameters: Iterable[nn.Parameter]) -> bool:
    fits = all(p.device.type in _FUSED_ON and p.is_floating_point() for p in parameters)
    return params.implementation == "fused" or (params.implementation == "auto" and fits)


def _optimizer(groups: list[dict[str, Any]], params: OptimParams, *, fused: bool) -> torch.optim.Optimizer:
    foreach = {"foreach": True, "loop": False}.get(params.implementation)
    how: dict[str, Any] = {"fused": True} if fused else {"foreach": foreach}
    if params.kind == "sgd":
        return torch.optim.SGD(groups, lr=params.lr, momentum=params.momentum, **how)
    return torch.optim.AdamW(groups, lr=params.lr, betas=params.betas, **how)
