"""Self-training in rounds inside one run: the last round's model becomes a fixed labeler, and a student begins anew."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.types import Clock

ROUND_STEPS = 300
"""Steps below which a student that begins anew ends no better than nothing: on the simulated set, one of 33 steps calls
everything background."""


def equal_starts(total: int, count: int, before: int = 0) -> tuple[int, ...]:
    """The first step of each of `count` rounds that share what follows step `before` equally; the first begins at 0.

    `equal_starts(1000, 3, before=400)` is (0, 600, 800): the first round has the 400 steps to itself as well.
    """
    if count < 1:
        raise UsageError(f"There must be at least one round, not {count}.")
    rest = max(0, total - before)
    return (0, *(before + rest * number // count for number in range(1, count)))


def long_enough(starts: tuple[int, ...], total: int) -> bool:
    """Whether every round after the first is long enough for a student that begins anew."""
    ends = (*starts[1:], total)
    return min((end - start for start, end in zip(starts[1:], ends[1:], strict=True)), default=total) >= ROUND_STEPS


class Rounds(nn.Module):
    """Which round it is, and what every student begins with.

    Where students do not begin `anew`, the one there is goes on: with its weights, its optimiser and the run's own
    learning rate. Only its labeler changes.

    The first weights are kept beside the module and not in it: a run that goes on is built from the same seed, data and
    files as before and so has them again, and a checkpoint need not hold a network more.
    """

    number: Tensor  # () int64, the round whose student is being trained
    born: Tensor  # () int64, the step that student began with

    def __init__(self, student: nn.Module, starts: tuple[int, ...], total: int, *, anew: bool = True) -> None:
        super().__init__()
        self.starts, self.total, self.anew = starts, total, anew
        self.register_buffer("number", torch.zeros((), dtype=torch.int64))
        self.register_buffer("born", torch.zeros((), dtype=torch.int64))
        self._first = {name: value.detach().clone() for name, value in student.state_dict().items()}

    def at(self, clock: Clock) -> int:
        """The round a step belongs to."""
        return max(number for number, start in enumerate(self.starts) if start <= clock.step)

    def end(self, number: int) -> int:
        """The step after a round's last."""
        return self.starts[number + 1] if number + 1 < len(self.starts) else self.total

    def turns(self, clock: Clock) -> bool:
        """Whether a new student is due after this step, or was due after a step that was skipped."""
        return self.at(clock.tick()) > int(self.number)

    @torch.no_grad()
    def begin(self, student: nn.Module, clock: Clock) -> None:
        """The student as it was before the first step; what it is now has to be copied before."""
        self.number.fill_(self.at(clock.tick()))
        if self.anew:
            for name, value in student.state_dict().items():
                value.copy_(self._first[name])
            self.born.fill_(clock.step + 1)

    def pace(self, clock: Clock) -> Clock:
        """The round as a run of its own: its learning rate starts high and ends low, whatever round it is."""
        if not self.anew:
            return clock
        born = int(self.born)
        return replace(clock, step=clock.step - born, total=max(1, self.end(int(self.number)) - born))

    def teaching(self, clock: Clock, burn_in: int) -> Clock:
        """The clock for ramp and teacher: every round after the first begins where the burn-in ends."""
        if self.at(clock) == 0 or not self.anew:
            return clock
        return replace(clock, step=clock.step - int(self.born) + burn_in)
