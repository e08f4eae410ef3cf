"""How images reach a network: read ahead of it, and gathered by size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice, repeat
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SHELVES = 4
"""Batches' worth of images that may wait for others of their size."""


def ahead(function: Callable[[Item], Result], items: Iterable[Item], depth: int) -> Generator[Result]:
    """`function(item)` of every item in order, at most `depth` of them computed before they are asked for.

    One thread does it: decoders change Pillow's limits while they work, which two at a time would mix up.
    """
    source = iter(items)
    pool = ThreadPoolExecutor(1, thread_name_prefix="ftcseg-read")
    try:
        pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in islice(source, max(1, depth)))
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(function, item) for item in islice(source, 1))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def drawn_ahead(items: Generator[Item], depth: int) -> Iterator[Item]:
    """The items themselves, none of them None, at most `depth` drawn before they are asked for, by one other thread."""
    with closing(items), closing(ahead(lambda _: next(items, None), repeat(None), depth)) as coming:
        for item in coming:
            if item is None:
                return
            yield item


def by_size(items: Iterable[Item], size_of: Callable[[Item], Hashable], batch: int) -> Iterator[list[Item]]:
    """All items in lists of at most `batch` of one size; at most SHELVES * batch of them wait at a time.

    Within a size the order is kept. Where sizes are many, the longest list goes first, full or not.
    """
    waiting: dict[Hashable, list[Item]] = {}
    for item in items:
        size = size_of(item)
        waiting.setdefault(size, []).append(item)
        if len(waiting[size]) >= batch:
            yield waiting.pop(size)
        elif sum(map(len, waiting.values())) >= SHELVES * batch:
            yield waiting.pop(max(waiting, key=lambda key: len(waiting[key])))
    yield from waiting.values()
