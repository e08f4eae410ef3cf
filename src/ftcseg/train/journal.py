"""Steps go in, plain numbers come out: averages over an interval, handed to whoever listens.

The sums stay on the device and are asked for once per interval. They survive a restart, so that the line a resumed run
writes is the line the uninterrupted run would have written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ftcseg.train.events import Event, FilesUnread, IntervalDone, Listener, PseudoRow, RunStarted, Skipped, StepDone
from ftcseg.train.machine import Machine
from ftcseg.train.memory import device_peak_bytes, resident_bytes
from ftcseg.train.unreadable import Unreadable
from ftcseg.types import Clock

_MB = 2**20
_NORM = "gradient norm"  # no part of a loss is called that


class Journal:
    """Hands every event on to its listeners; steps only as averages, every `every` steps and at the end of the run."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        every: int,
        machine: Machine,
        facts: Callable[[], Mapping[str, Tensor]] = dict,
        unreadable: Unreadable | None = None,
    ) -> None:
        """`facts` is the method's own: read once per interval. `unreadable` says how many files may be."""
        self._listeners = listeners if machine.is_first else ()
        self._every = every
        self._machine = machine
        self._facts = facts
        self._unreadable = unreadable or Unreadable(machine, images=0, share=0.0)
        self._sums = _Sums(machine.device)
        self._began = self._since = time.perf_counter()
        self._images = 0
        self._ticks = 0

    def __call__(self, event: Event) -> None:
        """Take note of an event and hand it on."""
        if isinstance(event, RunStarted):  # building the run is over, and is no part of its speed
            self._began = self._since = time.perf_counter()
        if isinstance(event, StepDone | Skipped):
            self._ticks += 1
        if isinstance(event, StepDone):
            self._sums.add(event)
            self._images += event.images
            self._see_unread(event)
        else:
            self._tell(event)
        if isinstance(event, Skipped):
            self._sums.skipped += 1
        if isinstance(event, StepDone | Skipped) and self._is_due(event.clock):
            rates = event.rates if isinstance(event, StepDone) else {}
            self._tell(self._interval(event.clock, rates))

    def state(self) -> dict[str, Any]:
        """The sums of the interval that is under way, over all processes."""
        return _added(self._machine.gather(self._sums.plain())) | {"unread": list(self._unreadable.names)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up the interval where it was; the first process does so for all."""
        self._sums = _Sums(self._machine.device)
        if self._machine.is_first:
            self._sums.fill(state)
        self._unreadable.load(state.get("unread", ()))  # older runs did not count them

    def _see_unread(self, event: StepDone) -> None:
        fresh, seen = self._unreadable.see(event.unreadable), self._unreadable
        if fresh:
            self._tell(FilesUnread(event.clock, fresh, len(seen.names), seen.images, seen.allowed))
            seen.check()

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _is_due(self, clock: Clock) -> bool:
        return clock.step % self._every == 0 or clock.step == clock.total

    def _interval(self, clock: Clock, rates: Mapping[str, float]) -> IntervalDone:
        total = self.state()
        self._sums = _Sums(self._machine.device)
        pseudo = _pseudo_row(total["pseudo"])
        means = {name: sum_ / count for name, (sum_, count) in total["means"].items()}
        norm = means.pop(_NORM, None)
        return IntervalDone(
            clock=clock,
            losses=means,
            rates=rates,
            norm=norm,
            kept=sum(pseudo.kept) / max(1, sum(pseudo.seen)) if pseudo else None,
            pseudo=pseudo,
            facts={name: value.detach().tolist() for name, value in self._facts().items()},
            skipped=total["skipped"],
            unreadable=tuple(total["unreadable"]),
            timing=self._timing(clock),
        )

    def _timing(self, clock: Clock) -> dict[str, float]:
        """What depends on the machine. Time left is judged by all of this process's steps, evaluations included."""
        now = time.perf_counter()
        images, self._images = sum(self._machine.gather(self._images)), 0
        passed, self._since = now - self._since, now
        timing = {"seconds": now - self._began, "images_per_second": images / max(passed, 1e-9)}
        timing["seconds_left"] = timing["seconds"] / max(1, self._ticks) * max(0, clock.total - clock.step)
        resident, peak = resident_bytes(), device_peak_bytes(self._machine.device)
        if resident is not None:
            timing["resident_mb"] = resident / _MB
        if peak is not None:
            timing["device_peak_mb"] = peak / _MB
        return {name: round(value, 3) for name, value in timing.items()}


class _Sums:
    """Sums over the steps of one interval, on the device they come from."""

    def __init__(self, device: torch.device) -> None:
        self._dtype = torch.float32 if device.type == "mps" else torch.float64  # Apple's chips have no doubles
        self._device = device
        self._means: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._pseudo: dict[str, Tensor] = {}
        self.skipped = 0
        self.unreadable: list[str] = []

    @torch.no_grad()
    def add(self, event: StepDone) -> None:
        for name, value in {"loss": event.result.loss, **event.result.parts, _NORM: event.norm}.items():
            self._means[name] = self._means.get(name, 0) + value.detach().to(self._dtype)
            self._counts[name] = self._counts.get(name, 0) + 1
        counts = event.result.pseudo
        if counts is not None:
            for name in ("seen", "kept", "conf"):
                new = getattr(counts, name).detach()
                new = new.to(self._dtype) if new.is_floating_point() else new
                self._pseudo[name] = self._pseudo[name] + new if name in self._pseudo else new.clone()
        self.unreadable += event.unreadable

    def plain(self) -> dict[str, Any]:
        return {
            "means": {name: [value.item(), self._counts[name]] for name, value in self._means.items()},
            "pseudo": {name: value.tolist() for name, value in self._pseudo.items()},
            "skipped": self.skipped,
            "unreadable": list(self.unreadable),
        }

    def fill(self, state: Mapping[str, Any]) -> None:
        for name, (value, count) in state["means"].items():
            self._means[name] = torch.tensor(value, dtype=self._dtype, device=self._device)
            self._counts[name] = count
        for name, values in state["pseudo"].items():
            dtype = self._dtype if name == "conf" else torch.int64
            self._pseudo[name] = torch.tensor(values, dtype=dtype, device=self._device)
        self.skipped = state["skipped"]
        self.unreadable = list(state["unreadable"])


def _added(sums: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of all processes as one. Steps are skipped by all of them together."""
    if len(sums) == 1:
        return sums[0]
    names = {name: None for each in sums for name in each["means"]}
    lists = {name: None for each in sums for name in each["pseudo"]}
    return {
        "means": {name: [sum(pair) for pair in zip(*_having(sums, "means", name), strict=True)] for name in names},
        "pseudo": {name: [sum(row) for row in zip(*_having(sums, "pseudo", name), strict=True)] for name in lists},
        "skipped": sums[0]["skipped"],
        "unreadable": [name for each in sums for name in each["unreadable"]],
    }


def _having(sums: Sequence[dict[str, Any]], kind: str, name: str) -> list[Any]:
    return [each[kind][name] for each in sums if name in each[kind]]


def _pseudo_row(totals: Mapping[str, Any]) -> PseudoRow | None:
    if not totals:
        return None
    seen: list[int] = totals["seen"]
    means = [conf / count if count else None for conf, count in zip(totals["conf"], seen, strict=True)]
    return PseudoRow(seen, totals["kept"], means)
