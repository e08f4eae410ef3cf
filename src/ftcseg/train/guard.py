"""Numbers that are none: found before they spread, skipped, rolled back, and in the end reported.

Loss, gradient, statistics and whatever else a step says are looked at before the update: a bad step is skipped and
leaves no trace. Weights are looked at after it, the student's before a teacher follows: bad ones cannot be skipped any
more, so the run goes back to its last good state and learns more slowly. Whatever keeps happening ends the run with the
names of the files involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ftcseg.errors import FtcsegError
from ftcseg.methods.base import Method
from ftcseg.train.machine import Machine
from ftcseg.types import Clock, StepResult

LR_CUT = 0.5
"""Times the learning rate after each roll-back."""
REMEMBERED_ELEMENTS = 2**20
"""Statistics larger than this (feature queues) are not copied each step; a bad value in one means a roll-back."""
_FILES_SHOWN = 12


class TrainingError(FtcsegError):
    """The run cannot go on; `ids` are the files of the steps that went wrong."""

    exit_code = 3

    def __init__(self, what: str, ids: tuple[str, ...] = ()) -> None:
        self.ids = ids
        super().__init__(what)


class NotFinite(TrainingError):
    """`what` holds a number that is none; `moved` says whether weights had already been touched when it was found."""

    def __init__(self, what: str, *, moved: bool) -> None:
        self.what = what
        self.moved = moved
        super().__init__(f"{what} is not finite, so nothing is saved. The checkpoints on disk are whole.")


@dataclass(frozen=True, slots=True)
class GuardParams:
    """How much trouble is borne."""

    skips: int = 3
    """Steps skipped in a row before the run goes back."""
    roll_backs: int = 3
    """Times it goes back before it gives up."""


class Guard:
    """Watches one method. Every process of a run comes to the same verdict."""

    def __init__(self, method: Method, machine: Machine, params: GuardParams | None = None) -> None:
        self.params = params or GuardParams()
        self._machine = machine
        self._trained = {name: p for name, p in method.named_parameters() if p.requires_grad}
        self._followers = {name: p for name, p in method.named_parameters() if not p.requires_grad}
        self._slots = _Slots(method)
        self._skips = 0
        self._roll_backs = 0
        self._culprits: list[str] = []

    @property
    def lr_scale(self) -> float:
        """Times the learning rate, after the roll-backs so far."""
        return LR_CUT**self._roll_backs

    @property
    def is_calm(self) -> bool:
        """Whether the last step was a good one: a state in the middle of trouble is nothing to return to."""
        return self._skips == 0

    def remember(self) -> None:
        """Copy the statistics, so that a step that fails leaves no trace in them."""
        self._slots.remember()

    def check_step(self, result: StepResult, norm: Tensor) -> None:
        """Refuse a step whose loss, gradient, statistics or other numbers are not finite. Asks the device once."""
        statistics = self._slots.floating()
        told = [number.isfinite().all() for number in _told(result).values()]
        bad = ~(torch.stack([*told, norm.isfinite()]).all() & _all_finite(statistics.values()))
        if self._machine.highest(bad):
            raise NotFinite(_culprit_of_step(result, norm, statistics), moved=False)

    def check_student(self) -> None:
        """Refuse a student that is not finite, before a teacher can swallow it."""
        self.check(self._trained)

    def check_rest(self) -> None:
        """Refuse teachers and statistics that are not finite; a step that gets here was a good one."""
        self.check(self._followers | self._slots.floating())
        self._skips = 0
        self._culprits = []

    def check_all(self) -> None:
        """Refuse a method that is not finite: before it is judged, and before its results are made."""
        self.check(self._trained | self._followers | self._slots.floating())

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse any of these that is not finite: the last look before a checkpoint."""
        if self._machine.highest(~_all_finite(tensors.values())):
            raise NotFinite(_first_bad(tensors) or "a tensor of another process", moved=True)

    def lasting(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of a method's tensors that must be finite: not the masks that were born with an infinity in them."""
        return {n: t for n, t in tensors.items() if t.is_floating_point() and n not in self._slots.infinite_from_birth}

    def may_skip(self, trouble: NotFinite, ids: tuple[str, ...], *, blameless: bool) -> bool:
        """Undo what the step did to the statistics; False where that is not enough and the run must go back."""
        self._culprits += ids
        if trouble.moved:
            return False
        self._slots.restore()
        self._skips += self._machine.highest(int(not blameless or trouble.what != "gradient"))
        state = self._trained | self._followers | self._slots.floating()
        hurt = self._machine.highest(~_all_finite(state.values()))  # a skip mends no weight
        trouble.what = _first_bad(state) or trouble.what  # of which the loss was but the symptom
        return not hurt and self._skips < self.params.skips

    def count_roll_back(self, trouble: NotFinite, clock: Clock) -> None:
        """One more roll-back, or the end."""
        culprits = tuple(dict.fromkeys(self._culprits))
        if self._roll_backs >= self.params.roll_backs:
            shown = ", ".join(culprits[:_FILES_SHOWN]) + (" …" if len(culprits) > _FILES_SHOWN else "")
            raise TrainingError(
                f"Training stopped at step {clock.step}: {trouble.what} is not finite, again after "
                f"{self._roll_backs} roll-backs with ever lower learning rates. Files of the last bad steps: {shown}. "
                f"Look at them with «ftcseg doctor», lower the learning rate, or clip gradients.",
                culprits,
            )
        self._roll_backs += 1
        self._skips = 0
        self._culprits = []

    def state(self) -> dict[str, Any]:
        """The counters, which survive a restart."""
        return {"skips": self._skips, "roll_backs": self._roll_backs, "culprits": self._culprits}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up the counters again."""
        self._skips, self._roll_backs = state["skips"], state["roll_backs"]
        self._culprits = list(state["culprits"])


class _Slots:
    """Where a method's statistics live. A slot, not a tensor: methods may put a new tensor there in each step."""

    def __init__(self, method: nn.Module) -> None:
        self._slots = {
            f"{path}.{key}" if path else key: (module._buffers, key)
            for path, module in method.named_modules()
            for key, buffer in module._buffers.items()
            if buffer is not None
        }
        self._copies: dict[str, Tensor] = {}
        self.infinite_from_birth: frozenset[str] = frozenset()
        bad = {name for name, tensor in self.floating().items() if not bool(_all_finite([tensor]))}
        self.infinite_from_birth = frozenset(bad)  # attention masks of minus infinity are no accident

    def floating(self) -> dict[str, Tensor]:
        """The statistics that have to be finite."""
        return {
            name: tensor
            for name, tensor in self._tensors().items()
            if tensor.is_floating_point() and name not in self.infinite_from_birth
        }

    @torch.no_grad()
    def remember(self) -> None:
        now = {name: tensor for name, tensor in self._tensors().items() if tensor.numel() <= REMEMBERED_ELEMENTS}
        if _shapes(now) != _shapes(self._copies):
            self._copies = {name: tensor.clone() for name, tensor in now.items()}
        elif now:
            torch._foreach_copy_(list(self._copies.values()), list(now.values()))  # one kernel, not hundreds

    @torch.no_grad()
    def restore(self) -> None:
        for name, copy in self._copies.items():
            owner, key = self._slots[name]
            current = owner[key]
            if current is not None and current.shape == copy.shape:
                current.copy_(copy)
            else:
                owner[key] = copy.clone()

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name, (owner, key) in self._slots.items() if (tensor := owner[key]) is not None}


def _shapes(tensors: Mapping[str, Tensor]) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in tensors.items()]


def _all_finite(tensors: Iterable[Tensor]) -> Tensor:
    """() bool. A norm is finite only if every element is, and costs one pass over memory."""
    return get_total_norm(list(tensors)).isfinite()


def _told(result: StepResult) -> dict[str, Tensor]:
    """All that a step says in numbers; the journal adds it up, and a checkpoint keeps the sums."""
    conf = {} if result.pseudo is None else {"confidence of the pseudo-labels": result.pseudo.conf}
    return {"loss": result.loss, **result.parts, **conf}


def _culprit_of_step(result: StepResult, norm: Tensor, statistics: Mapping[str, Tensor]) -> str:
    if not bool(result.loss.isfinite()):
        parts = [name for name, part in result.parts.items() if not bool(part.isfinite().all())]
        return f"loss ({', '.join(parts)})" if parts else "loss"
    bad = _first_bad(statistics)
    if bad:
        return bad
    silent = [name for name, number in _told(result).items() if not bool(number.isfinite().all())]
    if silent:
        return silent[0]
    return "gradient" if not bool(norm.isfinite()) else "a number of another process"


def _first_bad(tensors: Mapping[str, Tensor]) -> str:
    bad = [name for name, tensor in tensors.items() if not bool(_all_finite([tensor]))]
    return "" if not bad else bad[0] if len(bad) == 1 else f"{bad[0]} (and {len(bad) - 1} more)"
