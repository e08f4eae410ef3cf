"""Many items, several processes, one order."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from typing import overload

import pytest

from ftcseg import parallel
from ftcseg.errors import FtcsegError
from ftcseg.parallel import CHUNK, available_cores, map_in_order


def square(n: int) -> int:
    return n * n


def square_after_a_while(n: int) -> int:
    time.sleep(0.02 if n < CHUNK else 0)  # the first chunk is the last to be done
    return n * n


def process_of(_: int) -> int:
    return os.getpid()


def refuse_40(n: int) -> int:
    if n == 40:
        raise ValueError("forty")
    return n


def die(_: int) -> int:
    os._exit(9)


class Watched(Sequence[int]):
    """Numbers that note how far they were read."""

    def __init__(self, count: int) -> None:
        self.count, self.furthest = count, 0

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, int):
            return range(self.count)[index]
        self.furthest = max(self.furthest, index.stop)
        return range(self.count)[index]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 100])
def test_results_come_in_the_order_of_the_items(count: int, workers: int) -> None:
    assert list(map_in_order(square, range(count), workers)) == [n * n for n in range(count)]


def test_a_slow_start_changes_no_order() -> None:
    assert list(map_in_order(square_after_a_while, range(3 * CHUNK), 2)) == [n * n for n in range(3 * CHUNK)]


def test_a_handful_stays_in_this_process() -> None:
    here = os.getpid()
    assert set(map_in_order(process_of, range(CHUNK), 2)) == {here}
    assert set(map_in_order(process_of, range(100), 1)) == {here}
    assert here not in set(map_in_order(process_of, range(100), 2))


def test_only_a_bounded_number_is_in_flight() -> None:
    items = Watched(100_000)
    results = map_in_order(square, items, 2)
    assert next(results) == 0
    # Four chunks for each of two workers are sent before the first result is handed out.
    assert items.furthest <= (4 * 2 + 1) * CHUNK
    results.close()  # type: ignore[attr-defined]


def workers_end() -> bool:
    """Whether no worker is left after a while."""
    deadline = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def test_an_exception_of_an_item_is_raised_here() -> None:
    results = map_in_order(refuse_40, range(100), 2)
    with pytest.raises(ValueError, match="forty"):
        list(results)
    assert workers_end()


def interrupted(results: Iterator[int]) -> int:
    for result in results:
        if result >= 4:
            raise KeyboardInterrupt
    return 0


def test_leaving_early_ends_the_workers() -> None:
    results = map_in_order(square, range(10_000), 2)
    with pytest.raises(KeyboardInterrupt):
        interrupted(results)
    results.close()  # type: ignore[attr-defined]
    assert workers_end()


def test_a_worker_that_is_killed_is_told_in_a_sentence() -> None:
    with pytest.raises(FtcsegError, match="worker process ended"):
        list(map_in_order(die, range(100), 2))


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_the_number_of_workers_is_that_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 1)
    assert set(map_in_order(process_of, range(100))) == {os.getpid()}
