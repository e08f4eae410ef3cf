"""Unlabelled images that could not be read and were replaced: each counted once, and too many end the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ftcseg.errors import DataError
from ftcseg.train.machine import Machine

_NAMES_SHOWN = 20


class Unreadable:
    """The names so far, the same in every process of a run and after every restart."""

    def __init__(self, machine: Machine, images: int, share: float) -> None:
        """Of so many unlabelled `images`, this share may be unreadable, and always one."""
        self._machine = machine
        self.images, self.share = images, share
        self.allowed = max(1, int(share * images))
        self.names: dict[str, None] = {}  # in the order they came up

    def see(self, names: Sequence[str]) -> tuple[str, ...]:
        """Take note of what this step could not read in any process; what of it is new."""
        fresh = [name for name in dict.fromkeys(names) if name not in self.names]
        if not self.images or not self._machine.highest(len(fresh)):
            return ()
        found = dict.fromkeys(chain.from_iterable(self._machine.gather(fresh)))
        self.names |= found
        return tuple(found)

    def check(self) -> None:
        """DataError with the list once there are too many."""
        if len(self.names) <= self.allowed:
            return
        shown = ", ".join(list(self.names)[:_NAMES_SHOWN])
        more = len(self.names) - _NAMES_SHOWN
        raise DataError(
            f"{len(self.names)} of {self.images} unlabelled images cannot be read; a run bears {self.allowed} "
            f"({self.share:.3g} of them, at least one): {shown}{f' and {more} more' if more > 0 else ''}.",
            remedy="Is their disk there? Copy them again and go on with --resume, or let more pass with a larger "
            "data.max_unreadable in the run's config.yaml. metrics.jsonl lists all of them.",
            kind="unreadable",
        )

    def load(self, names: Iterable[str]) -> None:
        """Go on from these."""
        self.names = dict.fromkeys(names)
