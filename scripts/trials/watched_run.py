"""Runs one `ftcseg` command line and notes, in a file that outlives it, what it is doing at every moment.

    watched_run.py NOTES train frames ...

NOTES is a few numbers that the process maps into its memory: the phase it is in, and how often it has entered each. A
process that is killed leaves them as they were. Nothing of the program itself is changed: functions are wrapped from
outside, and only told of.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

PHASES = ("start", "loader", "step", "checkpoint", "evaluation", "finish")
_NUMBERS = struct.Struct(f"={1 + len(PHASES)}i")  # the phase, then how often each was entered


class Notes:
    """What a process is doing, written by it and read by whoever watches it."""

    def __init__(self, path: Path) -> None:
        """Map the file; a new one says that nothing has happened."""
        if not path.exists():
            path.write_bytes(_NUMBERS.pack(-1, *([0] * len(PHASES))))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NUMBERS.size)

    @property
    def phase(self) -> str:
        """What it is doing now, or was when it ended."""
        number = _NUMBERS.unpack_from(self._memory)[0]
        return PHASES[number] if number >= 0 else "start"

    def entered(self, phase: str) -> int:
        """How often."""
        return int(_NUMBERS.unpack_from(self._memory)[1 + PHASES.index(phase)])

    def enter(self, phase: str, *, again: bool = False) -> None:
        """Be in a phase; `again` where it was only interrupted."""
        _, *counts = _NUMBERS.unpack_from(self._memory)
        counts[PHASES.index(phase)] += not again
        _NUMBERS.pack_into(self._memory, 0, PHASES.index(phase), *counts)


class Watch:
    """Keeps the notes of this process, and how long each phase took."""

    def __init__(self, notes: Notes) -> None:
        """Begin with the start."""
        self._took: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self._notes = notes
        self._owner = os.getpid()
        self._inside = 0.0  # seconds in phases inside the one that is on
        self._began = time.monotonic()
        notes.enter("start")

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """In this phase; then in the one before."""
        if os.getpid() != self._owner:  # a loader worker
            yield
            return
        before = self._notes.phase
        self._notes.enter(phase)
        inside, self._inside = self._inside, 0.0
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self._took[phase].append(took - self._inside)
            self._inside = inside + took
            self._notes.enter(before, again=True)

    @contextmanager
    def looping(self) -> Iterator[None]:
        """Between two phases of the loop: in a step, that began before and is not counted again."""
        self._took["start"].append(time.monotonic() - self._began)
        self._notes.enter("step", again=True)
        yield
        self._notes.enter("finish", again=True)

    def usual(self) -> dict[str, float]:
        """The middle one of the times that each phase took, without the phases inside it."""
        return {phase: median(took) if took else 0.0 for phase, took in self._took.items()}

    def around(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, told of."""

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            with self.during(phase):
                return function(*args, **kwargs)

        return told


def main(notes: Path, argv: list[str]) -> None:
    """Watch one command line."""
    watch = Watch(Notes(notes))
    from ftcseg import cli, training
    from ftcseg.train import checkpoint, loop
    from ftcseg.train.microbatch import Feed

    place: Any
    for place, name, phase in (
        (checkpoint, "write", "checkpoint"),
        (loop, "score", "evaluation"),
        (loop, "learn", "step"),
        (training, "finish", "finish"),
        (training, "write_run_page", "finish"),
    ):
        setattr(place, name, watch.around(phase, getattr(place, name)))
    feeds: Any = Feed
    runs: Any = training
    batches, run_loop = feeds.at, runs.run_loop

    def told_batches(feed: Feed, clock: Any) -> Iterator[Any]:
        made = batches(feed, clock)
        while True:
            with watch.during("loader"):
                batch = next(made, None)
            if batch is None:
                return
            yield batch

    def told_loop(*args: Any, **kwargs: Any) -> Any:
        with watch.looping():
            return run_loop(*args, **kwargs)

    feeds.at, runs.run_loop = told_batches, told_loop
    sys.argv = ["ftcseg", *argv]
    try:
        cli.main()
    finally:
        notes.with_suffix(".json").write_text(json.dumps(watch.usual()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
