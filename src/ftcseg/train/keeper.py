"""Whatever must survive a restart, and when it is written down.

Three checkpoints: `last` is where the run stood when it was last saved, and where it ended; `last_good` is where it
stood at the last evaluation, and what a roll-back returns to; `best` had the best score. A run goes on from the newer
one of the first two, or from the other where that one is damaged, or from the best where both are; what was found
damaged is said aloud.

Where a run asks for it (`keep_at`), the method's parameters and buffers at certain steps stay as well, as `step-N`:
without the optimiser, to be looked at later and never gone on from. Nothing deletes them.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ftcseg import __version__
from ftcseg.files import not_written
from ftcseg.train import chance, checkpoint
from ftcseg.train.checkpoint import Checkpoint, CheckpointError, RunGone
from ftcseg.train.events import Scores
from ftcseg.train.guard import Guard
from ftcseg.train.optim import Optim
from ftcseg.types import Clock

FOLDER = "checkpoints"
RESUMABLE = ("last", "last_good")
BEST = "best"


class Survivor(Protocol):
    """Something that remembers, in plain numbers, what it must not forget over a restart."""

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperParams:
    """When to save and score, what the best is chosen by, and what a checkpoint belongs to."""

    save_every: int
    """Steps between two saves of `last`; 0: only when something else asks for one."""
    judge_every: int
    """Steps between two evaluations; 0: only at the end, which always has one."""
    keep_at: tuple[int, ...] = ()
    """Steps at which the model alone is kept for good."""
    metric: str = "miou"
    """Of the method's first predictor; higher is better."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """Hashes of config and split: a checkpoint of another run is refused."""
    present: Callable[[], None] = lambda: None
    """Asked before anything is written: RunGone where the folder is this run's no longer."""


class Keeper:
    """Knows all that must survive, and keeps it in a run folder. Every process calls it; the first one writes."""

    note: str = ""
    """What the user should know about how the run was restored."""

    def __init__(
        self, run: Path, method: nn.Module, optim: Optim, guard: Guard, journal: Survivor, params: KeeperParams
    ) -> None:
        self.folder = run / FOLDER
        self.params = params
        self._machine = optim.machine
        self._method = method
        self._optim = optim
        self._guard = guard
        self._journal = journal
        self._best: dict[str, Any] = {"metric": params.metric, "score": None, "step": None}
        self._judged = 0  # the step of the last evaluation
        self._saved = -1  # the step in `last`, if that is all there is to say about it
        self._kept = 0  # whatever was to be kept up to this step is on disk
        self._is_fresh = True
        self._lost: set[str] = set()  # checkpoints that were found damaged

    def begin(self, clock: Clock) -> None:
        """Make sure that there is a good state to return to, and that nobody else's is overwritten."""
        if self._is_fresh and any(checkpoint.exists(self.folder, name) for name in (*RESUMABLE, BEST)):
            raise CheckpointError(
                f"{self.folder} already holds checkpoints. Resume that run, or give this one a folder of its own."
            )
        self._make_folder()
        if "last_good" in self._lost or not checkpoint.exists(self.folder, "last_good"):
            self.save(clock, "last_good")

    def is_due(self, clock: Clock) -> bool:
        """Whether `last` should be written now; an evaluation that is still owed will save the place anyway."""
        due = _falls_on(clock.step, self.params.save_every) or bool(self._owed(clock))
        return due and not self.owes_scores(clock)

    def owes_scores(self, clock: Clock) -> bool:
        """Whether an evaluation is due and was not made, be it because the run was stopped in the middle of it."""
        due = clock.step == clock.total or _falls_on(clock.step, self.params.judge_every)
        return due and clock.step > self._judged

    def is_best(self, clock: Clock, scores: Scores) -> bool:
        """Note an evaluation; True where no earlier one was better."""
        self._judged, self._saved = clock.step, -1
        value = next(iter(scores.values()), {}).get(self.params.metric)
        if value is None or not math.isfinite(value) or not self._guard.is_calm:
            return False
        if self._best["score"] is not None and value <= self._best["score"]:
            return False
        self._best |= {"score": float(value), "step": clock.step}
        return True

    def worth_keeping(self, *, best: bool) -> list[str]:
        """The checkpoints to write after an evaluation, in this order; in the middle of trouble nothing is good."""
        if not self._guard.is_calm:
            return ["last"]
        return ["best", "last_good"] if best else ["last_good"]

    def save(self, clock: Clock, name: str = "last") -> None:
        """Write a checkpoint, and first what is to be kept of the model by now, so that the one implies the other.

        NotFinite, and nothing is written, where it would hold a number that is none.
        """
        parts = {"model": _tensors_of(self._method), "optim": self._optim.tensors(), "chance": self._chance()}
        self._guard.check(self._guard.lasting(parts["model"]) | parts["optim"])
        state = self._state(clock)
        error: CheckpointError | None = None
        if self._machine.is_first:
            try:
                self.params.present()
                for step in self._owed(clock):
                    checkpoint.write(self.folder, kept_name(step), {"model": parts["model"]}, self._about(clock))
                checkpoint.write(self.folder, name, parts, state)
            except CheckpointError as caught:
                error = caught
        if self._machine.highest(int(error is not None)):  # nobody waits for a process that has given up
            raise error or CheckpointError("The first process could not write its checkpoint; see its message.")
        self._kept = clock.step
        if name == "last":
            self._saved = clock.step

    def save_where_it_stands(self, clock: Clock) -> bool:
        """Write `last` unless it is there already; whether it was written."""
        if self._saved == clock.step:
            return False
        self.save(clock)
        return True

    def restore(self) -> Clock | None:
        """Put everything back as the newest whole checkpoint has it; None in a folder without any."""
        self._settle()
        whole, damage = self._found()
        if not whole:
            if not damage:
                return None
            told = " ".join(map(str, damage.values()))
            raise CheckpointError(f"{told} None is whole: start the run again in another folder.")
        name = max(whole, key=lambda name: (name != BEST, *_age(whole[name])))  # the first of two that are equally new
        self._refuse_strangers(whole[name])
        clock = self._load(whole[name])
        self._guard.load(whole[name].state["guard"])
        self._saved = clock.step if name == "last" else -1
        self._is_fresh = False
        self._lost = set(damage)
        notes = [*map(str, damage.values()), *([f"The run goes on from {name}, step {clock.step}."] if damage else [])]
        self.note = " ".join([*notes, *self._mend_best(whole), *self._changes_since(whole[name])])
        return clock

    def roll_back(self) -> Clock:
        """Return to `last_good`, at the guard's lower learning rate, and write that down as the place to go on from."""
        clock = self._load(checkpoint.read(self.folder, "last_good"))
        self._optim.scale = self._guard.lr_scale
        self.save(clock)
        return clock

    def _settle(self) -> None:
        """Finish what a killed process left half way; the first process does so for all."""
        error: CheckpointError | None = None
        if self._machine.is_first:
            try:
                checkpoint.settle_all(self.folder)
            except CheckpointError as caught:
                error = caught
        if self._machine.highest(int(error is not None)):
            raise error or CheckpointError("The first process could not settle its checkpoints; see its message.")

    def _found(self) -> tuple[dict[str, Checkpoint], dict[str, CheckpointError]]:
        """The checkpoints that are whole, and what is wrong with the others."""
        whole: dict[str, Checkpoint] = {}
        damage: dict[str, CheckpointError] = {}
        for name in (*RESUMABLE, BEST):
            if checkpoint.exists(self.folder, name):
                try:
                    whole[name] = checkpoint.read(self.folder, name)
                except CheckpointError as error:
                    damage[name] = error
        return whole, damage

    def _mend_best(self, whole: Mapping[str, Checkpoint]) -> list[str]:
        """A best that is damaged comes back from its twin, if the last evaluation was the best one; else it is lost."""
        if BEST not in self._lost:
            return []
        step = self._best["step"]
        twin = next((name for name, found in whole.items() if _age(found) == (step, step)), None)
        if twin is not None:
            if self._machine.is_first:
                checkpoint.copy(self.folder, twin, BEST)
            return [f"The best was copied from {twin}, which holds the same."]
        if self._machine.is_first:
            checkpoint.remove(self.folder, BEST)
        self._best |= {"score": None, "step": None}
        self._saved = -1  # what `last` says of the best is no longer so
        return ["The best so far is lost; the best from here on is kept."]

    def _make_folder(self) -> None:
        if self._machine.is_first:
            try:
                self.folder.mkdir(exist_ok=True)
            except FileNotFoundError as error:
                raise RunGone(self.folder.parent) from error
            except OSError as error:
                raise not_written(self.folder, error) from error

    def _state(self, clock: Clock) -> dict[str, Any]:
        return {
            **self._about(clock),
            "best": self._best,
            "judged": self._judged,
            "optim": self._optim.state(),
            "guard": self._guard.state(),
            "journal": self._journal.state(),
        }

    def _about(self, clock: Clock) -> dict[str, Any]:
        return {"clock": asdict(clock), "identity": dict(self.params.identity), "made_by": self._maker()}

    def _maker(self) -> dict[str, str]:
        return {
            "ftcseg": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": self._machine.device.type,
            "processes": str(self._machine.world),
        }

    def _changes_since(self, found: Checkpoint) -> list[str]:
        theirs, ours = found.state["made_by"], self._maker()
        changes = [f"{key} was {theirs[key]} and is {ours[key]}" for key in ours if theirs[key] != ours[key]]
        return [f"Numbers may differ in their last digits: {', '.join(changes)}."] if changes else []

    def _load(self, found: Checkpoint) -> Clock:
        state = found.state
        with found.tensors("model") as model:
            _fill(self._method, model, found.path)
        with found.tensors("optim") as optim:
            self._optim.load(optim, state["optim"])
        with found.tensors("chance") as everybody:
            mine = f"{self._machine.rank}/"
            states = {label.removeprefix(mine): everybody[label] for label in everybody if label.startswith(mine)}
            if states:  # none where the run had fewer processes
                chance.restore(states, self._machine.device)
        self._journal.load(state["journal"])
        self._best, self._judged = dict(state["best"]), state["judged"]
        clock = Clock(**state["clock"])
        self._kept = clock.step  # what lies beyond is kept anew when the run comes there again
        return clock

    def _owed(self, clock: Clock) -> list[int]:
        """Steps to keep that were reached since the last save; after a skipped step, the next one stands for it."""
        return [step for step in self.params.keep_at if self._kept < step <= clock.step]

    def _chance(self) -> dict[str, Tensor]:
        everybody = self._machine.gather(chance.capture(self._machine.device))
        return {f"{rank}/{key}": value for rank, states in enumerate(everybody) for key, value in states.items()}

    def _refuse_strangers(self, found: Checkpoint) -> None:
        theirs, ours = found.state["identity"], self.params.identity
        different = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
        if different:
            raise CheckpointError(
                f"{found.path} belongs to a run with another {' and '.join(different)}. Resume it with its own "
                f"config.yaml and split.json, or start a new run in another folder."
            )


def kept_name(step: int) -> str:
    """Of the checkpoint that `keep_at` leaves at a step."""
    return f"step-{step}"


def _age(found: Checkpoint) -> tuple[int, int]:
    return found.state["clock"]["step"], found.state["judged"]


def _falls_on(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _tensors_of(method: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a tensor that has two names goes under its first."""
    seen: set[tuple[int, torch.Size]] = set()
    tensors = {}
    for name, tensor in method.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"The method keeps {name} as {type(tensor).__name__}; only tensors survive a restart."
            )
        key = (tensor.data_ptr(), tensor.shape)
        if tensor.numel() == 0 or key not in seen:
            tensors[name] = tensor
        seen.add(key)
    return tensors


@torch.no_grad()
def _fill(method: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Copy saved values into the method's own tensors, one at a time."""
    own = _tensors_of(method)
    strange = sorted(own.keys() ^ saved.keys())
    if strange:
        raise CheckpointError(
            f"{path} was made by another network: {len(strange)} tensors are in one of the two only ({strange[0]}, …). "
            f"Resume with the run's own config.yaml."
        )
    for name, tensor in own.items():
        value = saved[name]
        if value.shape != tensor.shape:
            raise CheckpointError(
                f"{path} holds {name} as {tuple(value.shape)}; this network's is {tuple(tensor.shape)}. "
                f"Resume with the run's own config.yaml."
            )
        tensor.copy_(value)
