"""A number that is none, put anywhere into a real method: it is skipped or rolled back, and no file ever holds it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import Tensor

from ftcseg.methods.base import Method
from ftcseg.train.events import Evaluated, Event, RolledBack, RunDone, Saved, Skipped, StepDone
from ftcseg.train.guard import Guard, GuardParams, NotFinite, TrainingError
from ftcseg.train.journal import Journal
from ftcseg.train.keeper import Keeper, KeeperParams
from ftcseg.train.listeners import JsonLines
from ftcseg.train.loop import run
from ftcseg.train.machine import Machine
from ftcseg.train.optim import Optim, OptimParams
from ftcseg.types import Clock, SemiBatch, StepResult
from tiny_methods import WHOLE, Variant, batch_for

NAN = math.nan
FTC = Variant("ftc", layers=1, rule="atc", teaching={"burn_in": 0, "ramp": 0})
Accident = Callable[["Rig"], None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("os.fsync", lambda _handle: None)


class Rig:
    """A run of a real method in the real loop, with moments for accidents, each of which happens once."""

    def __init__(
        self,
        folder: Path,
        method: Method,
        *,
        total: int,
        judge_every: int = 0,
        accumulate: int = 1,
        keep_at: tuple[int, ...] = (),
    ) -> None:
        self.folder, self.method, self.total = folder, method, total
        self.events: list[Event] = []
        self.during: dict[int, Accident] = {}
        """At the start of the first batch of these steps: after the statistics were remembered."""
        self.after: dict[int, Accident] = {}
        """When so many steps are done: before anything else is."""
        self.spoiled: set[int] = set()
        """Numbers of the calls of `method.step` that return a loss that is none."""
        self.calls = 0
        machine = Machine(Fabric(accelerator="cpu", devices=1))
        machine.adopt(method)
        self.optim = Optim(method, OptimParams(lr=1e-4, accumulate=accumulate), machine)
        self.guard = Guard(method, machine, GuardParams(roll_backs=20))
        watchers: list[Any] = [self._take_note, JsonLines(folder)]
        self.journal = Journal(watchers, every=1, machine=machine, facts=method.facts)
        keeping = KeeperParams(save_every=0, judge_every=judge_every, keep_at=keep_at)
        self.keeper = Keeper(folder, method, self.optim, self.guard, self.journal, keeping)
        self._own_step, method.step = method.step, self._step  # type: ignore[method-assign]

    def go(self) -> Clock:
        """To the end of the run."""
        clock = Clock(total=self.total, epoch_steps=5)
        world = (self.method, self._stream, self.optim, self.keeper, self.guard)
        return run(*world, self._emit, clock, self._judge, lambda: False)

    def troubles(self) -> list[tuple[str, str]]:
        """What the guard did, and because of what."""
        return [(type(e).__name__, e.what) for e in self.events if isinstance(e, Skipped | RolledBack)]

    def _stream(self, start: int) -> Iterator[SemiBatch]:
        while True:
            yield batch_for(self.method.views, seed=start)
            start += 1

    def _step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        self._let(self.during, clock.step)
        result = self._own_step(batch, clock)
        self.calls += 1
        spoiled = self.calls in self.spoiled
        return StepResult(result.loss * NAN, result.parts, result.pseudo) if spoiled else result

    def _emit(self, event: Event) -> None:
        self.journal(event)
        if isinstance(event, StepDone):
            self._let(self.after, event.clock.step)

    def _take_note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RolledBack):  # whatever was written up to here is about to be used, or written over
            assert_clean(self)

    def _judge(self, method: Method, _clock: Clock) -> dict[str, dict[str, Any]]:
        assert is_finite(method.state_dict()), "a method that is not finite was judged"
        return {name: {"miou": 0.5} for name in method.predictors()}

    def _let(self, accidents: dict[int, Accident], step: int) -> None:
        happen = accidents.pop(step, None)
        if happen is not None:
            with torch.no_grad():
                happen(self)


def is_finite(tensors: dict[str, Tensor]) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors.values() if t.is_floating_point())


def assert_clean(rig: Rig) -> None:
    """Nothing in memory, in any checkpoint or in any line is anything but a number."""
    assert is_finite(rig.method.state_dict())
    assert is_finite(rig.optim.tensors())
    files = sorted(rig.folder.rglob("*.safetensors"))
    for file in files:
        assert is_finite(load_file(file)), file
    for file in [*rig.folder.rglob("*.jsonl"), *rig.folder.rglob("*.json")]:
        assert not {"NaN", "Infinity"} & set(file.read_text().replace(",", " ").replace("]", " ").split()), file
    for line in (rig.folder / "metrics.jsonl").read_text().splitlines():
        told = json.loads(line)
        assert all(value is not None for value in told.get("losses", {}).values()), told


def first(tensor: Tensor) -> Tensor:
    """Its first element, however it lies in memory."""
    return tensor[(0,) * tensor.ndim]


def weight(name: str, value: float = NAN) -> Accident:
    def happen(rig: Rig) -> None:
        first(dict(rig.method.named_parameters())[name]).fill_(value)

    return happen


def statistic(name: str, value: float = NAN) -> Accident:
    def happen(rig: Rig) -> None:
        first(dict(rig.method.named_buffers())[name]).fill_(value)

    return happen


def gradient(name: str) -> Accident:
    """One element, in the backward pass of this step alone."""

    def happen(rig: Rig) -> None:
        parameter = dict(rig.method.named_parameters())[name]

        def poison(grad: Tensor) -> Tensor:
            hook.remove()
            worse = grad.clone()
            first(worse).fill_(NAN)
            return worse

        hook = parameter.register_hook(poison)

    return happen


def moment(kind: str, value: float = NAN) -> Accident:
    def happen(rig: Rig) -> None:
        first(next(t for name, t in rig.optim.tensors().items() if name.startswith(kind))).fill_(value)

    return happen


STUDENT = "pair.student.head.classifier.weight"
TEACHER = "pair.teacher.net.head.classifier.weight"
PROTOTYPE = "pair.student.opr.stages.0.prototypes"
UNLIKE = ("supervised", "cps", "daso", "ael", "crest", "dual-teacher")
"""Methods that hold other things than a student and its teacher: two students, queues, a memory, rounds."""
TAUGHT = "pair.teacher.net.opr.stages.0.prototypes"
ACCURACY, PREDICTED, PRIOR = (f"pair.thresholds.{name}" for name in ("accuracy", "predicted", "prior"))


def test_wherever_it_is_put_into_a_run_of_ftc_it_is_left_behind(tmp_path: Path) -> None:
    """One accident a step, each in another place. Statistics are remembered; weights come from the disk."""
    rig = Rig(tmp_path, FTC.build(), total=16, judge_every=3, keep_at=(15,))
    rig.during = {
        1: weight(STUDENT),
        2: gradient(STUDENT),
        3: statistic(ACCURACY),
        4: weight(PROTOTYPE),
        5: gradient(PROTOTYPE),
        6: statistic(PREDICTED),
        7: weight(TEACHER, math.inf),
        8: statistic(PRIOR, -math.inf),
        9: weight(TAUGHT),
        10: moment("exp_avg/"),
        11: moment("exp_avg_sq/", -1.0),  # whose root is none
        13: moment("exp_avg_sq/", math.inf),  # moves no weight: the checkpoint finds it, at 15
    }
    moved = next(name for name, p in rig.method.named_parameters() if p.requires_grad)
    assert rig.go().step == 16
    assert not rig.during
    skipped, back = ([what for kind, what in rig.troubles() if kind == name] for name in ("Skipped", "RolledBack"))
    assert skipped == ["gradient", ACCURACY, "gradient", PREDICTED, PRIOR]
    assert back == [STUDENT, PROTOTYPE, TEACHER, TAUGHT, moved, moved, f"exp_avg_sq/{moved}"]
    assert {file.parent.name for file in tmp_path.rglob("*.safetensors")} == {"last", "best", "last_good", "step-15"}
    assert_clean(rig)


def test_an_evaluation_never_judges_it(tmp_path: Path) -> None:
    """Put there between a step and the evaluation that follows it: `_judge` would see it."""
    rig = Rig(tmp_path, FTC.build(), total=4, judge_every=1)
    rig.after = {1: weight(STUDENT), 2: weight(TEACHER), 3: statistic(ACCURACY), 4: weight(PROTOTYPE)}
    assert rig.go().step == 4
    assert rig.troubles() == [("RolledBack", place) for place in (STUDENT, TEACHER, ACCURACY, PROTOTYPE)]
    assert [event.clock.step for event in rig.events if isinstance(event, Evaluated)] == [1, 2, 3, 4]
    assert_clean(rig)


def test_the_second_of_two_batches_spoils_the_update(tmp_path: Path) -> None:
    rig = Rig(tmp_path, FTC.build(), total=4, accumulate=2)
    rig.spoiled = {4}  # the second of the second step
    rig.during = {2: gradient(STUDENT), 3: weight(STUDENT)}
    assert rig.go().step == 4
    assert [kind for kind, _ in rig.troubles()] == ["Skipped", "Skipped", "RolledBack"]
    assert_clean(rig)


@pytest.mark.parametrize("name", UNLIKE)
def test_other_methods_leave_a_bad_loss_and_a_bad_weight_behind(name: str, tmp_path: Path) -> None:
    survives(next(variant for variant in WHOLE if variant.name == name), tmp_path)


def survives(variant: Variant, folder: Path) -> None:
    """A method in a run with both; the table is gone through by hand, in scripts/trials/not_finite.py."""
    rig = Rig(folder, variant.build(), total=2)
    trained = next(name for name, p in rig.method.named_parameters() if p.requires_grad)
    rig.spoiled, rig.during = {1}, {1: weight(trained)}
    assert rig.go().step == 2
    assert [kind for kind, _ in rig.troubles()] == ["Skipped", "RolledBack"]
    assert_clean(rig)


def test_a_part_of_the_loss_that_is_none_is_noticed_though_the_loss_is_fine(tmp_path: Path) -> None:
    """The journal adds parts up, and a checkpoint keeps its sums: a nan among them could not be written down."""
    rig = Rig(tmp_path, FTC.build(), total=2)
    told = rig.method.step

    def step(batch: SemiBatch, clock: Clock) -> StepResult:
        result = told(batch, clock)
        worse = {**result.parts, "sup": result.parts["sup"] * NAN} if clock.step == 0 else result.parts
        return StepResult(result.loss, worse, result.pseudo)

    rig.method.step = step  # type: ignore[method-assign]
    assert rig.go().step == 2
    assert rig.troubles() == [("Skipped", "sup")]
    assert_clean(rig)


def test_what_is_damaged_after_the_last_save_makes_no_results(tmp_path: Path) -> None:
    rig = Rig(tmp_path, FTC.build(), total=1)

    def damage(event: Event) -> None:
        if isinstance(event, Saved) and event.name == "last":
            first(dict(rig.method.named_parameters())[TEACHER].data).fill_(NAN)

    rig.journal._listeners = [*rig.journal._listeners, damage]
    with pytest.raises(NotFinite, match=r"pair\.teacher\.net\.head\.classifier\.weight is not finite") as caught:
        rig.go()
    assert caught.value.exit_code == TrainingError.exit_code
    assert not any(isinstance(event, RunDone) for event in rig.events)
    for file in tmp_path.rglob("*.safetensors"):
        assert is_finite(load_file(file)), file
