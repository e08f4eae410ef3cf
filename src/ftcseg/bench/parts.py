"""Where the time of a step goes: the loop's own functions, wrapped while a step is watched, and only then.

Every moment belongs to the innermost function that was entered, so that the parts of a step sum up to the whole. What
was wrapped is put back before the next step; nothing outside of this file knows that it may be watched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from ftcseg.bench.machine import now
from ftcseg.data.dataset import Dataset
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.features import feature_losses
from ftcseg.teaching.pseudo import pseudo_counts
from ftcseg.teaching.teacher import follow
from ftcseg.train.guard import Guard
from ftcseg.train.machine import Machine
from ftcseg.train.optim import Optim

if TYPE_CHECKING:
    from ftcseg.bench.rig import Rig

PARTS: Mapping[str, str] = {
    "load": "images read and decoded, or taken from memory; with loader processes, waiting for them",
    "augment": "views cut, resized, altered and stacked",
    "teacher": "the network that makes pseudo-labels, without gradients",
    "student": "forward passes of what learns, OPR included",
    "losses": "cross-entropies and what OPR adds",
    "mixing": "the rest of the method's step: views mixed, pseudo-labels made",
    "backward": "gradients",
    "optimiser": "gradients agreed on and clipped, weights moved",
    "ema": "teachers follow, queues turn",
    "thresholds": "class thresholds and statistics: observed, applied, counted",
    "logging": "events, averages, lines in files",
    "guard": "non-finite numbers looked for, statistics copied for the case of a skip",
    "other": "what is left: the loop itself, results merged, the batch moved to its device",
}
"""The parts of a step in the order of the step, and what each holds."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "data": ("load", "augment"),
    "forward": ("teacher", "student"),
    "losses": ("losses", "mixing"),
    "backward": ("backward",),
    "upkeep": ("optimiser", "ema", "thresholds", "logging", "guard", "other"),
}
"""The same, one storey up."""

Label: TypeAlias = str | Callable[[Any], str]
"""Which part a call belongs to, told from the object it is made on where that matters."""


class Watch:
    """Seconds of each part of one step."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._device = device
        self._open: list[str] = []
        self._since = 0.0

    def begin(self) -> None:
        """From now on time is counted."""
        self._open, self._since = ["other"], now(self._device)

    def end(self) -> None:
        """Until now."""
        self._turn()
        self._open = []

    def wrapped(self, function: Callable[..., Any], label: Label) -> Callable[..., Any]:
        """The same function, its time counted as that part's."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._open:
                return function(*args, **kwargs)
            self._turn()
            self._open.append(label if isinstance(label, str) else label(args[0]))
            try:
                return function(*args, **kwargs)
            finally:
                self._turn()
                self._open.pop()

        return timed

    def _turn(self) -> None:
        moment = now(self._device)
        self.seconds[self._open[-1]] += moment - self._since
        self._since = moment


@contextmanager
def watched(rig: Rig, watch: Watch) -> Iterator[None]:
    """Inside, the rig's functions tell the watch when they are entered and left; afterwards they are as they were."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for (owner, name), label in _methods(rig).items():
            before = vars(owner)[name]
            undo.append((owner, name, before))
            setattr(owner, name, watch.wrapped(before, label))
        for module, name, function, label in _mentions():
            undo.append((module, name, function))
            setattr(module, name, watch.wrapped(function, label))
        yield
    finally:
        for owner, name, before in reversed(undo):
            setattr(owner, name, before)


def _methods(rig: Rig) -> dict[tuple[type, str], Label]:
    """Functions of classes that are to be wrapped: on the class, so that no copy of an object carries a wrapper."""
    wanted: dict[tuple[type, str], Label] = {}

    def want(kind: type, names: str, label: Label) -> None:
        for name in names.split():
            home = next((c for c in kind.__mro__ if isinstance(vars(c).get(name), FunctionType)), None)
            if home is not None:
                wanted.setdefault((home, name), label)

    want(type(rig.stream), "fetch", "load" if rig.stream.is_elsewhere else "augment")
    for shelf in (rig.maker.labeled, rig.maker.unlabeled):
        want(type(shelf), "__getitem__", "load")
    want(Dataset, "__getitem__", "load")
    want(type(rig.method), "step", "mixing")
    want(type(rig.method), "after_update", "ema")
    want(type(rig.method), "facts", "logging")
    want(Segmenter, "forward features decode embed classify", _role(rig))
    want(Segmenter, "overlap probe_loss", "losses")
    want(Optim, "backward", "backward")
    want(Optim, "collect step rates forget", "optimiser")
    want(Guard, "remember check_step check_student check_rest", "guard")
    want(Machine, "move", "other")
    want(type(rig), "emit", "logging")
    for module in rig.method.modules():  # thresholds, banks, queues: whatever observes and accepts
        if not isinstance(module, Segmenter):
            want(type(module), "observe accept", "thresholds")
    return wanted


def _role(rig: Rig) -> Label:
    teachers = {id(part) for teacher in rig.method.teachers() for part in teacher.modules()}

    def role(net: nn.Module) -> str:
        # A student that labels does the teacher's work as long as it keeps no graph.
        return "teacher" if id(net) in teachers or not torch.is_grad_enabled() else "student"

    return role


def _mentions() -> list[tuple[Any, str, FunctionType, str]]:
    """Where functions that are no methods are known by name, in any module of the package."""
    labels: dict[FunctionType, str] = {follow: "ema", pseudo_counts: "thresholds", feature_losses: "losses"}  # type: ignore[dict-item]
    ours = {name: module for name, module in sys.modules.items() if name.startswith("ftcseg.")}
    for name, module in ours.items():
        if name.startswith("ftcseg.losses."):
            defined = [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == name]
            labels |= {function: "losses" for function in defined if not function.__name__.startswith("_")}
    return [
        (module, key, value, labels[value])
        for name, module in ours.items()
        if name != __name__
        for key, value in list(vars(module).items())
        if isinstance(value, FunctionType) and value in labels
    ]
