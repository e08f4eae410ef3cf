"""A run whose real loop takes one step at a time, and writes nothing that stays."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from ftcseg.bench.case import Case, placed
from ftcseg.bench.machine import now
from ftcseg.bench.parts import Watch, watched
from ftcseg.bench.plain_step import PlainStep
from ftcseg.config.build import view_params
from ftcseg.config.load import Draft, draft_for, hardware_here
from ftcseg.config.resolve import resolve
from ftcseg.config.schema import RunConfig
from ftcseg.data.doctor import examine_set
from ftcseg.data.drawing import drawn
from ftcseg.data.split_files import read_split
from ftcseg.errors import UsageError
from ftcseg.methods.base import Method
from ftcseg.train.events import Event, Listener, RunDone, RunStarted, Skipped
from ftcseg.train.guard import Guard, TrainingError
from ftcseg.train.journal import Journal
from ftcseg.train.keeper import Keeper
from ftcseg.train.listeners import JsonLines, Terminal
from ftcseg.train.loop import run as run_loop
from ftcseg.train.microbatch import Stream as Batches
from ftcseg.train.optim import Optim
from ftcseg.training import Ready, facts_for, prepare
from ftcseg.types import Clock, SemiBatch
from ftcseg.views.loader import BatchMaker, Stream

PLACE = 0.75
"""Share of a run after which its steps are taken: burn-in, ramp and first rounds are over, everything is at work."""
RESERVE = 1000
"""Steps a run is longer than its place, at least: more than anybody measures."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One step: how long it took and, where it was watched, how long each of its parts did."""

    seconds: float
    parts: Mapping[str, float] | None = None


class Rig:
    """Everything a run consists of, built as training builds it; `step()` is one turn of training's own loop."""

    def __init__(self, case: Case) -> None:
        ready = prepared(placed(case))
        self.case, self.config, self.machine = case, ready.config, ready.machine
        self.method = PlainStep.of(ready.method) if case.plain else ready.method
        how = replace(ready.config.optim, implementation="loop") if case.plain else ready.config.optim
        self.optim = Optim(self.method, how, self.machine)
        self.guard = Guard(self.method, self.machine)
        views = view_params(self.config, ready.network.spec)
        self.maker = BatchMaker(ready.data.labeled, ready.data.unlabeled, self.method.views, views, self.config.seed)
        self.maker.on_rank(self.machine.rank, self.machine.world)
        self.stream = HeldStream(Stream(self.maker, self.config.data.workers), elsewhere=self.config.data.workers > 0)
        self.clock = Clock(int(PLACE * self.config.steps), self.config.steps, self.maker.epoch_steps)
        self.size = views.geometry.crop
        self._threads = torch.get_num_threads()
        self.num_classes = len(ready.network.spec.classes)
        self._folder = tempfile.TemporaryDirectory(prefix="ftcseg-bench-")
        self._log = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115, closed in `close`
        watchers: list[Listener] = [JsonLines(Path(self._folder.name)), Terminal(self._log)]
        every = self.config.log_every or self.config.steps
        self._journal = Journal(watchers, every=every, machine=self.machine, facts=self.method.facts)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.machine.device

    @property
    def images(self) -> int:
        """Images of one step, of all processes: labelled and unlabelled, not counted once more for each view."""
        labeled, unlabeled = self.maker.params.labeled_batch, self.maker.params.unlabeled_batch
        each = labeled + (unlabeled if self.maker.unlabeled is not None else 0)
        return each * self.optim.accumulate * self.machine.world

    def facts(self) -> dict[str, Any]:
        """What the step is one of, as it was settled."""
        model = {"encoder": self.config.model.encoder, "head": self.config.model.head}
        return {**model, "images": self.images, "size": list(self.size), "classes": self.num_classes}

    def step(self, *, watch: bool = False) -> Taken:
        """One turn of the loop; the time is that between its two looks at whether to stop."""
        if not watch:
            return Taken(self._turn(lambda: None, lambda: None))
        seen = Watch(self.device)
        with watched(self, seen):
            seconds = self._turn(seen.begin, seen.end)
        return Taken(seconds, seen.seconds)

    def emit(self, event: Event) -> None:
        """Hand on what a run's journal hears of a step; that the loop begins and ends each time is no news."""
        if isinstance(event, Skipped):
            raise TrainingError(f"The step to be timed was skipped: {event.what} is not finite.", event.ids)
        if not isinstance(event, RunStarted | RunDone):
            self._journal(event)

    def close(self) -> None:
        """Put away what was opened."""
        self.stream.end()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _turn(self, begin: Callable[[], None], end: Callable[[], None]) -> float:
        looks: list[float] = []

        def stop() -> bool:
            if looks:
                end()
                looks.append(now(self.device))
                return True
            looks.append(now(self.device))
            begin()
            return False

        keeper = cast("Keeper", _NothingKept())
        if torch.get_num_threads() != self._threads:  # another rig of this process may want another number
            torch.set_num_threads(self._threads)
        self.clock = run_loop(
            self.method, self.stream, self.optim, keeper, self.guard, self.emit, self.clock, _unjudged, stop
        )
        return looks[1] - looks[0]


class HeldStream:
    """A stream that stays open between turns of the loop: opening it anew would start loader processes each time."""

    def __init__(self, stream: Batches, *, elsewhere: bool) -> None:
        self._stream = stream
        self.is_elsewhere = elsewhere
        self._batches: Iterator[SemiBatch] = iter(())
        self._next = -1

    def __call__(self, start: int) -> Iterator[SemiBatch]:
        """The batches from there on; the ones that are open, where they stand there."""
        if start != self._next:
            self.end()
            self._batches, self._next = self._stream(start), start
        return self

    def __iter__(self) -> Iterator[SemiBatch]:
        return self

    def __next__(self) -> SemiBatch:
        return self.fetch()

    def fetch(self) -> SemiBatch:
        """The next batch."""
        batch = next(self._batches)
        self._next += 1
        return batch

    def end(self) -> None:
        """Let the loader put its processes away."""
        if hasattr(self._batches, "close"):
            self._batches.close()
        self._next = -1


class _NothingKept:
    """In the keeper's place: steps that are timed leave no checkpoint, and nobody scores them."""

    note = ""

    def begin(self, clock: Clock) -> None:
        """There is nothing to return to."""

    def owes_scores(self, clock: Clock) -> bool:  # noqa: ARG002, as the keeper is asked
        """Never."""
        return False

    def is_due(self, clock: Clock) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def save_where_it_stands(self, clock: Clock) -> bool:  # noqa: ARG002
        """Nothing is saved."""
        return False

    def roll_back(self) -> Clock:
        """Numbers that are none cannot be timed."""
        raise TrainingError("The step that was to be timed has numbers that are not finite.")


def prepared(case: Case) -> Ready:
    """The case as a run that could begin. UsageError where nothing would be unlabelled."""
    assert case.dataset is not None, "placed() gives it one"
    draft = draft_for(case.method, hardware_here(), case.overrides())
    wanted = _long_enough(draft)
    examination = examine_set(case.dataset, root=Path(case.root) if case.root else None)
    data = wanted.data
    parts = read_split(data.split) if data.split else drawn(examination, data.labels or "100%", seed=wanted.seed)
    ready = prepare(resolve(draft, facts_for(examination, parts)), examination, parts)
    if ready.method.views.unlabeled and not len(ready.data.unlabeled):
        raise UsageError(
            f"No image of {case.dataset} is left unlabelled, so that the step of {case.method} would be one on labels "
            "alone. Say how many count as labelled: --set data.labels=10%."
        )
    return ready


def _long_enough(draft: Draft) -> RunConfig:
    wanted = draft.build()
    if wanted.steps * (1 - PLACE) < RESERVE and not draft.why.get("steps", "").startswith("set by"):
        draft.set("steps", int(RESERVE / (1 - PLACE)), "room for the steps that are timed")
    return draft.build()


def _unjudged(_method: Method, _clock: Clock) -> Mapping[str, Mapping[str, Any]]:
    return {}


def warm(rig: Rig, steps: int) -> float:
    """Take steps that are not counted; how long they took."""
    began = time.perf_counter()
    for _ in range(steps):
        rig.step()
    return time.perf_counter() - began
