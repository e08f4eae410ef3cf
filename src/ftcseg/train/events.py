"""What happens during a run, as values. The loop emits them; whoever listens, only watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from ftcseg.types import Clock, StepResult

Scores: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Predictor -> metric -> plain value; absent classes are None."""


@dataclass(frozen=True, slots=True)
class RunPlanned:
    """What a run is about to do, told once per process before its first step."""

    method: str
    classes: tuple[str, ...]  # names by id
    labeled: int
    unlabeled: int
    judged: int
    part: str  # that the judged images are of
    steps: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on, at `clock`; `note` says what had to be mended on the way."""

    clock: Clock
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class StepDone:
    """One update is made. Tensors stay on the device: only the journal asks for their values, and rarely."""

    clock: Clock
    result: StepResult
    norm: Tensor  # () float, of the whole gradient, before clipping
    rates: Mapping[str, float]  # learning rate per parameter group
    images: int
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PseudoRow:
    """Pseudo-labelled pixels per predicted class over an interval."""

    seen: list[int]
    kept: list[int]
    conf: list[float | None]  # mean confidence; None where the class was never predicted


@dataclass(frozen=True, slots=True)
class IntervalDone:
    """The steps since the last interval in plain numbers; whatever depends on the machine's mood is in `timing`."""

    clock: Clock
    losses: Mapping[str, float]  # "loss" is the total, the others its parts
    rates: Mapping[str, float]
    norm: float | None
    kept: float | None  # share of pseudo-labelled pixels that were kept
    pseudo: PseudoRow | None
    facts: Mapping[str, Any]
    skipped: int
    unreadable: tuple[str, ...]
    timing: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FilesUnread:
    """Unlabelled files could not be read for the first time, and others were taken in their place."""

    clock: Clock
    files: tuple[str, ...]
    count: int  # of all so far
    images: int  # that there are
    allowed: int  # more than these end the run


@dataclass(frozen=True, slots=True)
class Noted:
    """Something about the machine that the user should know and that changes no number."""

    text: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The predictors have been scored; `best` says whether no earlier checkpoint was better."""

    clock: Clock
    scores: Scores
    best: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Saved:
    """The checkpoint `name` is whole and on disk."""

    clock: Clock
    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step was not taken because `what` was not finite; nothing of it remains."""

    clock: Clock
    what: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The run went back to `clock`, its last good state, and learns more slowly from there."""

    clock: Clock
    since: int  # the step at which it gave up
    what: str
    ids: tuple[str, ...]
    lr_scale: float


@dataclass(frozen=True, slots=True)
class RunDone:
    """The loop has ended: `finished` at the clock's total, or because it was asked to stop."""

    clock: Clock
    finished: bool


Event: TypeAlias = (
    RunPlanned
    | RunStarted
    | StepDone
    | IntervalDone
    | FilesUnread
    | Noted
    | Evaluated
    | Saved
    | Skipped
    | RolledBack
    | RunDone
)
Listener: TypeAlias = Callable[[Event], None]
Emit: TypeAlias = Callable[[Event], None]
