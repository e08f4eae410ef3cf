"""Two teachers who take turns: whose turn it is depends on the clock alone."""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.types import Clock

LEAST_TURNS = 10
"""Turns in a run, however long its epochs: both teachers must have taught, and more than once."""
SHORTEST_TURN = 20
"""Steps of a turn, however small the set; a teacher of fewer steps has nothing to say that the student does not know.
A run of less than ten such turns has shorter ones."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of one of two teachers, and how many of its steps are done."""

    number: int
    place: int

    @property
    def is_second(self) -> bool:
        """Whether it is the second teacher's: odd turns are."""
        return self.number % 2 == 1


def turn_at(clock: Clock, start: int, steps: int | None) -> Turn:
    """The turn that the clock's step belongs to; turns are counted from step `start`, before which it is the first."""
    return Turn(*divmod(max(0, clock.step - start), turn_steps(clock, steps)))


def turn_steps(clock: Clock, steps: int | None) -> int:
    """How long a turn is: as asked, else an epoch, within what a short run or a small set can bear."""
    if steps is not None:
        return max(1, steps)
    return min(max(clock.epoch_steps, SHORTEST_TURN), max(1, clock.total // LEAST_TURNS))
