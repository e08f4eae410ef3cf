"""The same function over many items on all cores, in order, with a bounded number in flight."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

from ftcseg.errors import FtcsegError

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress: TypeAlias = Callable[[int, int], None]
"""Called as progress(done, total)."""

CHUNK = 16
"""Items sent to a worker at once: enough to hide the sending, few enough for a smooth progress bar."""
_IN_FLIGHT = 4  # chunks per worker
_GRACE = 5.0  # seconds


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def silent(_done: int, _total: int) -> None:
    """A progress that nobody watches."""


def map_in_order(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[Result]:
    """`function(item)` for every item, in the items' order; memory does not grow with their number.

    A handful of items, or workers=1, stay in this process. An exception of any item ends the whole.
    """
    workers = available_cores() if workers is None else workers
    if workers <= 1 or len(items) <= CHUNK:
        yield from map(function, items)
        return
    chunks = (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))
    pool = ProcessPoolExecutor(workers, initializer=_leave_interrupts_to_the_parent)
    try:
        work = partial(_each, function)
        pending: deque[Future[list[Result]]] = deque(pool.submit(work, c) for c in islice(chunks, _IN_FLIGHT * workers))
        while pending:
            yield from pending.popleft().result()
            pending.extend(pool.submit(work, c) for c in islice(chunks, 1))
    except BrokenProcessPool as error:
        raise FtcsegError("A worker process ended unexpectedly; is the memory full? Try --workers 1.") from error
    except BaseException:
        # Asked politely, a pool that was interrupted between two locks may wait for ever. Files are written whole or
        # not at all, so that nothing is lost by ending its workers.
        manager = getattr(pool, "_executor_manager_thread", None)
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        if manager is not None:
            manager.join(_GRACE)  # an interpreter that ends meanwhile would trip over the pipe this thread is closing
        raise
    pool.shutdown()


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal; one traceback per worker would bury the parent's sentence."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [function(item) for item in items]
