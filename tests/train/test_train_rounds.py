"""A method that begins anew in the middle of a run: its rate, the optimiser's memory, and restarts around the turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_training import Kit, Toy, after, assert_same_run, tensors_in

from ftcseg.teaching.rounds import Rounds
from ftcseg.train.events import Skipped, StepDone
from ftcseg.train.optim import OptimParams
from ftcseg.types import Clock

TOTAL, TURN = 8, 4


class Anew(Toy):
    """Two rounds of four steps."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.rounds = Rounds(self.student, (0, TURN), TOTAL)

    def after_update(self, clock: Clock) -> None:
        super().after_update(clock)
        if self.rounds.turns(clock):
            self.rounds.begin(self.student, clock)

    def pace(self, clock: Clock) -> Clock:
        return self.rounds.pace(clock)

    def facts(self) -> Mapping[str, Tensor]:
        return {"round": self.rounds.number.clone()}


def kit(folder: Path, method: Toy | None = None) -> Kit:
    return Kit(folder, TOTAL, save_every=1, method=method or Anew(), params=OptimParams(lr=1e-2, head_multiplier=2.0))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    assert kit(folder).go().step == TOTAL
    return folder


def test_every_round_has_the_whole_schedule(tmp_path: Path) -> None:
    # Rounds of 4 steps: 1, 1, (3/4)^0.9 = 0.7719, (2/4)^0.9 = 0.5359 of the rate, twice.
    run = kit(tmp_path)
    rates: list[float] = []
    step = run.optim.step
    run.optim.step = lambda clock: (rates.append(run.optim.rates(clock)["encoder"]), step(clock))[1]  # type: ignore[method-assign]
    run.go()
    once = [1e-2, 1e-2, 0.7719e-2, 0.5359e-2]
    assert rates == pytest.approx(once + once, rel=1e-4)


def test_the_optimiser_has_no_memory_of_a_student_that_is_gone(tmp_path: Path) -> None:
    run = kit(tmp_path)
    first = {name: value.clone() for name, value in run.method.student.state_dict().items()}
    run.go(after(TURN))
    assert not run.optim.tensors()
    assert not any(name.startswith("optim/") for name in tensors_in(tmp_path))
    assert all(torch.equal(first[name], value) for name, value in run.method.student.state_dict().items())
    run.go(after(1))
    memory = run.optim.tensors()
    assert {int(value) for name, value in memory.items() if name.startswith("step/")} == {1}


def test_a_method_without_rounds_keeps_its_memory(tmp_path: Path) -> None:
    run = kit(tmp_path, Toy())
    run.go()
    assert {int(value) for name, value in run.optim.tensors().items() if name.startswith("step/")} == {TOTAL}


@pytest.mark.parametrize("steps", [TURN - 1, TURN, TURN + 1])
def test_a_run_stopped_around_the_turn_goes_on_as_if_it_was_not(steps: int, straight: Path, tmp_path: Path) -> None:
    assert kit(tmp_path).go(after(steps)).step == steps
    torch.manual_seed(99)
    assert kit(tmp_path).go().step == TOTAL
    assert_same_run(tmp_path, straight)


def test_a_skipped_step_does_not_cost_the_turn(tmp_path: Path) -> None:
    def spoil(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        return loss * torch.nan if clock.step == TURN - 1 else loss  # the step after which the student begins anew

    run = kit(tmp_path, Anew(accident=spoil))
    assert run.go().step == TOTAL
    assert [type(event) for event in run.events if isinstance(event, Skipped | StepDone)] == [Skipped]
    assert isinstance(run.method, Anew)
    assert (int(run.method.rounds.number), int(run.method.rounds.born)) == (1, TURN + 1)
    memory = run.optim.tensors()
    assert {int(value) for name, value in memory.items() if name.startswith("step/")} == {TOTAL - TURN - 1}
