"""Processes that make batches ahead of their use, and are replaced when they die.

Worker w of n makes the batches start + w, start + w + n, ...; each has a pipe of its own, so the death of one is seen
at once and hurts no other. A batch depends on its number alone: the worker that takes over makes the very same ones.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Generic, TypeAlias, TypeVar

import torch
import torch.multiprocessing  # teaches pipes to hand over tensors in shared memory

from ftcseg.errors import FtcsegError

AHEAD = 2
"""Batches each worker makes before they are asked for."""
RESTARTS = 3
"""Workers replaced within PER batches before the stream gives up."""
PER = 200
PATIENCE = 60.0
"""Seconds without a batch before somebody is told, and again after twice as long."""
GRACE = 3.0
"""Seconds for a worker to end when it is asked to."""
DEATHS = {
    signal.SIGKILL: "killed from outside, most likely because the memory of the machine ran out",
    signal.SIGBUS: "shared memory ran out (in a container: --shm-size), or a disk failed under a mapped file",
    signal.SIGSEGV: "a decoder crashed, most likely over a damaged image",
    signal.SIGABRT: "a library gave up",
}

Item = TypeVar("Item")
Make: TypeAlias = Callable[[int], Item]
Tell: TypeAlias = Callable[[str], None]


class WorkerLost(FtcsegError):
    """Loader workers die faster than they are worth replacing."""

    exit_code = 5


def silence(_text: str) -> None:
    """Nobody is told."""


def made_ahead(make: Make[Item], start: int, workers: int, tell: Tell = silence) -> Generator[Item]:
    """make(start), make(start + 1), ... without end, in order, made by so many processes.

    What `make` raises is raised here. `tell` hears of every worker that had to be replaced.
    """
    multiprocessing.util.get_temp_dir()  # this process's own, which goes with it; a killed worker would leave one
    crew = _Crew(make, workers, tell)
    try:
        for step in range(start, start + workers * AHEAD):
            crew.ask(step)
        step = start
        while True:
            item = crew.take(step)
            crew.ask(step + workers * AHEAD)
            yield item
            step += 1
    finally:
        crew.close()


class _Crew(Generic[Item]):
    def __init__(self, make: Make[Item], workers: int, tell: Tell) -> None:
        self._make, self._tell = make, tell
        self._deaths: list[int] = []  # the step at which each died
        self._workers = [_Worker(make) for _ in range(workers)]
        atexit.register(self.close)  # before multiprocessing's own end, which would wait for them

    def ask(self, step: int) -> None:
        self._of(step).ask(step)

    def take(self, step: int) -> Item:
        """The batch of a step, by a second or third worker where need be."""
        waited = 0.0
        while True:
            try:
                if self._of(step).has_answer(PATIENCE + waited):
                    return self._of(step).take()
            except _Died as death:
                self._replace(step, death)
                continue
            waited = 2 * waited + PATIENCE
            self._tell(
                f"A loader worker has not brought batch {step} for {waited:.0f} s; the disk of its images may not "
                "answer. The run waits."
            )

    def close(self) -> None:
        atexit.unregister(self.close)
        for worker in self._workers:
            worker.say_goodbye()
        for worker in self._workers:
            worker.end()

    def _of(self, step: int) -> _Worker[Item]:
        return self._workers[step % len(self._workers)]

    def _replace(self, step: int, death: _Died) -> None:
        self._deaths = [died for died in self._deaths if step - died < PER] + [step]
        if len(self._deaths) > RESTARTS:
            raise WorkerLost(
                f"Loader workers died {len(self._deaths)} times around batch {step}; the last was {death}. "
                "Nothing of the run is lost up to its last checkpoint. Give it less to do (data.workers=0 or 1, in the "
                "run's config.yaml), or more memory, and go on with --resume.",
            )
        lost = self._of(step)
        lost.end()
        self._workers[step % len(self._workers)] = fresh = _Worker(self._make)
        for owed in lost.owed:
            fresh.ask(owed)
        self._tell(f"A loader worker was lost at batch {step}: {death}. Another one makes the same batches.")


class _Died(Exception):
    """The worker is no more, and why."""


class _Worker(Generic[Item]):
    """One process, and what it was asked for and has not answered yet."""

    def __init__(self, make: Make[Item]) -> None:
        self.owed: deque[int] = deque()
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_work, args=(make, theirs, self._pipe), daemon=True)
        self._process.start()
        theirs.close()  # only the worker has it now: when it dies, the pipe ends

    def ask(self, step: int) -> None:
        self.owed.append(step)
        with suppress(OSError):  # dead: whoever takes the answer will see
            self._pipe.send(step)

    def has_answer(self, seconds: float) -> bool:
        """Whether there is something to take, also word of its death, within this time."""
        try:
            return self._pipe.poll(seconds)
        except OSError as error:
            raise self._death(error) from error

    def take(self) -> Item:
        """The oldest answer owed."""
        try:
            answer: Item | BaseException = self._pipe.recv()
        except (EOFError, OSError) as error:  # also of tensors whose sender is gone
            raise self._death(error) from error
        self.owed.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def say_goodbye(self) -> None:
        with suppress(OSError):
            self._pipe.send(None)

    def end(self) -> None:
        """Wait for it a little, and see that it is gone."""
        self._pipe.close()
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(GRACE)

    def _death(self, error: BaseException) -> _Died:
        self._process.join(GRACE)
        code = self._process.exitcode
        if code is None:
            return _Died(f"still there but not to be understood ({error.__class__.__name__}: {error})")
        if code >= 0:
            return _Died(f"gone with exit code {code}")
        number = signal.Signals(-code) if -code in set(signal.Signals) else None
        name = number.name if number is not None else f"signal {-code}"
        known = DEATHS.get(number) if number is not None else None
        return _Died(f"ended by {name} ({known})" if known else f"ended by {name}")


def _work(make: Make[Item], pipe: Connection, theirs: Connection) -> None:
    """The whole life of a worker: until nobody asks any more."""
    theirs.close()  # a copy: while it is open, the pipe would outlive the process at its other end
    torch.set_num_threads(1)
    # A signal to the whole group is for the parent: it decides when to stop, and still wants its batch until then.
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            step: int | None = pipe.recv()
            if step is None:
                return
            _answer(make, step, pipe)


def _answer(make: Make[Item], step: int, pipe: Connection) -> None:
    try:
        pipe.send(make(step))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # it belongs to the parent, whatever it is
        error.add_note(f"In a loader worker:\n{traceback.format_exc()}")
        try:
            pipe.send(error)
        except Exception:
            pipe.send(RuntimeError(f"{error.__class__.__name__}: {error}"))
