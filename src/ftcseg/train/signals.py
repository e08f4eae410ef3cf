"""Leaving in good order: SIGTERM, SIGINT and SIGUSR1 ask a run to save and end.

The loop looks each step. The exit code is 128 plus the signal's number: 143 for SIGTERM, 130 for SIGINT (Ctrl-C), 138
for SIGUSR1 (SLURM's early warning). A second signal leaves at once with the same code; the checkpoints on disk are
whole even then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS: tuple[int, ...] = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name)
)
ONE_CALL_SECONDS = 0.5
"""Launchers forward what the group has already got: signals this close together are one call, not two."""


class Interrupted(Exception):
    """Raised by an evaluation that was asked to stop half way; the resumed run does it again."""


class Stop:
    """`with Stop() as stop: run(..., stop)`, then `sys.exit(stop.exit_code)`.

    `stop()` is asked once per step by every process of a run and answers the same everywhere. `stop.interrupt()` is for
    long work within a step, say each image of an evaluation.
    """

    def __init__(self, agree: Callable[[int], int] | None = None, processes: int = 1) -> None:
        """`agree` is the highest of all processes' numbers: `Stop(machine.highest, machine.world)`."""
        self.signal = 0
        self._agree = agree or (lambda number: number)
        self._processes = processes
        self._owner = os.getpid()
        self._first = 0.0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether any process of the run was told to stop."""
        self.signal = self._agree(self.signal)
        return self.signal > 0

    @property
    def asked(self) -> bool:
        """Whether this process was told to stop."""
        return self.signal > 0

    @property
    def exit_code(self) -> int:
        """What the process should exit with: 0, or 128 plus the signal's number."""
        return 128 + self.signal if self.signal else 0

    def interrupt(self) -> None:
        """Raise Interrupted where this process was told to stop; never among several, which must leave together."""
        if self.signal and self._processes == 1:
            raise Interrupted

    def ask(self, number: int = signal.SIGTERM) -> None:
        """Ask for a stop from the program itself, as the signal would."""
        self.signal = self.signal or int(number)

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a forked loader worker: its parent decides
            return
        now = time.monotonic()
        if not self.signal:
            self._first = now
            self.ask(number)
        elif now - self._first > ONE_CALL_SECONDS:
            os._exit(128 + number)


def ignore_in_worker(_worker: int = 0) -> None:
    """For loader workers (`worker_init_fn`): signals sent to the whole group are the main process's business."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
