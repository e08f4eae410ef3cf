"""A number that is none never reaches the teacher or a file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from torch import Tensor, nn
from toy_training import Accident, Kit, Toy, after, all_finite, assert_same_run, cpu, lines_in, tensors_in

from ftcseg.train.events import RolledBack, Skipped
from ftcseg.train.guard import Guard, NotFinite, TrainingError
from ftcseg.train.machine import Machine
from ftcseg.train.optim import OptimParams
from ftcseg.types import Clock, StepResult

NAN = float("nan")


def bad_loss(_method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    return loss * NAN


def bad_gradient(method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    return loss + (method.student.head.weight.sum() * 0).sqrt()  # worth 0, with an infinite slope times zero


def bad_student(method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    method.student.encoder.bias.data[0] = NAN  # after the forward pass: loss and gradient are still fine
    return loss


def bad_teacher(method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    method.teacher.head.weight.data[0] = math.inf
    return loss


def bad_statistic(method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    method.share[1] = NAN
    return loss


def replaced_statistic(method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
    method.share = method.share * NAN
    return loss


def once(accident: Accident, *steps: int) -> Accident:
    """Only the first time that each of these steps is taken."""
    left = set(steps)

    def happen(method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        if clock.step not in left:
            return loss
        left.discard(clock.step)
        return accident(method, clock, loss)

    return happen


def from_step(accident: Accident, step: int) -> Accident:
    return lambda method, clock, loss: accident(method, clock, loss) if clock.step >= step else loss


def kit_with(folder: Path, accident: Accident | None, total: int = 10) -> Kit:
    return Kit(folder, total=total, judge_every=3, method=Toy(accident=accident))


@pytest.mark.parametrize(
    ("accident", "what"),
    [
        (bad_loss, "loss"),
        (bad_gradient, "gradient"),
        (bad_statistic, "share"),
        (replaced_statistic, "share"),
    ],
)
def test_a_bad_step_is_skipped(accident: Accident, what: str, tmp_path: Path) -> None:
    kit = kit_with(tmp_path, once(accident, 4))
    assert kit.go().step == 10
    (skipped,) = [event for event in kit.events if isinstance(event, Skipped)]
    assert (skipped.clock.step, skipped.what) == (5, what)
    assert skipped.ids == ("labeled_4_0.png", "labeled_4_1.png", "sonar_4.png")
    assert "RolledBack" not in kit.kinds()
    assert all_finite(kit)
    assert int(kit.method.count) == 9  # the statistics of the skipped step are gone with it


@pytest.mark.parametrize(
    ("accident", "what"),
    [(bad_student, "student.encoder.bias"), (bad_teacher, "teacher.head.weight")],
)
def test_a_bad_weight_rolls_the_run_back_at_once(accident: Accident, what: str, tmp_path: Path) -> None:
    kit = kit_with(tmp_path, once(accident, 4))
    assert kit.go().step == 10
    (back,) = [event for event in kit.events if isinstance(event, RolledBack)]
    assert (back.clock.step, back.since, back.what, back.lr_scale) == (3, 4, what, 0.5)
    assert all_finite(kit)
    assert kit.optim.scale == 0.5


def test_a_poisoned_student_never_reaches_its_teacher(tmp_path: Path) -> None:
    kit = kit_with(tmp_path, once(bad_student, 4))
    seen: list[bool] = []
    follow = kit.method.after_update

    def watched(clock: Clock) -> None:
        follow(clock)
        seen.append(all(bool(p.isfinite().all()) for p in kit.method.teacher.parameters()))

    kit.method.after_update = watched  # type: ignore[method-assign]
    kit.go()
    assert all(seen)


def test_a_weight_poisoned_between_steps_is_not_waited_for(tmp_path: Path) -> None:
    """The loss shows it first; but skipping mends no weight, so the run goes back without waiting for three skips."""

    def poison(method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        method.student.head.bias.data[0] = NAN
        return loss * NAN

    kit = kit_with(tmp_path, once(poison, 5))
    kit.go()
    assert kit.kinds().count("Skipped") == 0
    assert kit.kinds().count("RolledBack") == 1
    assert all_finite(kit)


def test_three_skips_in_a_row_roll_back_with_half_the_rate(tmp_path: Path) -> None:
    kit = kit_with(tmp_path, once(bad_loss, 7, 8, 9), total=12)
    kit.go()
    assert [event.clock.step for event in kit.events if isinstance(event, Skipped)] == [8, 9]
    (back,) = [event for event in kit.events if isinstance(event, RolledBack)]
    assert (back.clock.step, back.since) == (6, 9)  # scored at 9 too, but that was no calm moment
    assert back.ids == ("labeled_9_0.png", "labeled_9_1.png", "sonar_9.png")
    lines = [line for line in lines_in(tmp_path) if line.get("kind") == "rolled back"]
    assert [(line["step"], line["lr_scale"]) for line in lines] == [(6, 0.5)]


def test_two_skips_and_a_good_step_start_the_count_again(tmp_path: Path) -> None:
    kit = kit_with(tmp_path, once(bad_loss, 1, 2, 4, 5))
    kit.go()
    assert kit.kinds().count("Skipped") == 4
    assert "RolledBack" not in kit.kinds()


@pytest.mark.parametrize(
    ("accident", "what"),
    [(bad_loss, "loss"), (bad_gradient, "gradient"), (bad_student, "student.encoder.bias"), (bad_teacher, "teacher")],
)
def test_what_keeps_happening_stops_the_run_and_names_the_files(accident: Accident, what: str, tmp_path: Path) -> None:
    kit = kit_with(tmp_path, from_step(accident, 5))
    with pytest.raises(TrainingError, match=f"{what}.* is not finite, again after 3 roll-backs.*sonar_5.png") as caught:
        kit.go()
    assert caught.value.exit_code == 3
    assert "sonar_5.png" in caught.value.ids
    scales = [event.lr_scale for event in kit.events if isinstance(event, RolledBack)]
    assert scales == [0.5, 0.25, 0.125]
    for name in ("last", "best", "last_good"):
        held = tensors_in(tmp_path, name).values()
        assert all(bool(tensor.isfinite().all()) for tensor in held if tensor.is_floating_point())


def test_a_restart_between_two_skips_forgets_nothing(tmp_path: Path) -> None:
    kit_with(tmp_path / "straight", once(bad_loss, 6, 7, 8)).go()
    kit_with(tmp_path / "stopped", once(bad_loss, 6, 7, 8)).go(after(7))
    kit_with(tmp_path / "stopped", once(bad_loss, 7, 8)).go()
    assert_same_run(tmp_path / "stopped", tmp_path / "straight")


def test_a_method_that_is_bad_from_the_start_is_refused(tmp_path: Path) -> None:
    kit = kit_with(tmp_path, None)
    kit.method.student.head.bias.data[0] = NAN
    with pytest.raises(TrainingError, match=r"student\.head\.bias is not finite") as caught:
        kit.go()
    assert caught.value.exit_code == 3
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_a_score_that_is_none_is_never_the_best(tmp_path: Path) -> None:
    kit = Kit(tmp_path, judge=lambda _method, _clock: {"student": {"miou": NAN}})
    kit.go()
    assert not (tmp_path / "checkpoints" / "best").exists()


def test_a_mask_born_with_infinities_is_no_accident(tmp_path: Path) -> None:
    class Masked(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    kit = Kit(tmp_path, method=Masked())
    assert kit.go().step == 8
    assert kit.kinds().count("Skipped") == 0


def test_a_checkpoint_refuses_an_optimiser_with_a_bad_memory(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    kit.go()
    next(iter(kit.optim.tensors().values())).fill_(NAN)
    with pytest.raises(NotFinite, match="/student"):
        kit.keeper.save(Clock(step=8, total=8))


def half(scale: float) -> Machine:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return Machine(Fabric(accelerator="cpu", devices=1, plugins=[MixedPrecision("16-mixed", "cpu", scaler)]))


def test_overflow_of_half_precision_is_nobodys_fault(tmp_path: Path) -> None:
    kit = Kit(tmp_path, total=20, machine=half(2.0**24), method=Toy(plain=True), params=OptimParams(lr=1e-4))
    assert kit.go().step == 20
    skips = kit.kinds().count("Skipped")
    assert skips > 3  # more than the guard would bear
    assert "RolledBack" not in kit.kinds()
    assert kit.machine.scaler is not None
    assert kit.machine.scaler.get_scale() == 2.0 ** (24 - skips)


@pytest.mark.parametrize(
    "machine", [lambda: half(2.0**20), lambda: cpu(precision="bf16-mixed")], ids=["float16", "bfloat16"]
)
def test_half_precision_goes_on_exactly(machine: Callable[[], Machine], tmp_path: Path) -> None:
    Kit(tmp_path / "straight", machine=machine()).go()
    Kit(tmp_path / "stopped", machine=machine()).go(after(3))
    Kit(tmp_path / "stopped", machine=machine()).go()
    assert_same_run(tmp_path / "stopped", tmp_path / "straight")


def test_large_statistics_are_not_copied_but_still_watched(tmp_path: Path) -> None:
    class Queue(Toy):
        queue: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("queue", torch.zeros(2**20 + 1))

    kit = Kit(tmp_path, method=Queue())
    kit.guard.remember()
    assert "queue" not in kit.guard._slots._copies
    kit.method.queue[0] = NAN
    with pytest.raises(NotFinite, match="queue") as caught:
        kit.guard.check_step(StepResult(torch.tensor(1.0), {}), torch.tensor(1.0))
    assert not kit.guard.may_skip(caught.value, (), blameless=False)


@pytest.mark.parametrize("make", [lambda: torch.ones(3, dtype=torch.float64), lambda: torch.ones(3)])
def test_a_clean_method_passes(make: Callable[[], Tensor], tmp_path: Path) -> None:
    method = Toy()
    method.extra = nn.Module()
    method.extra.register_buffer("numbers", make())
    guard = Guard(method, half(1.0))
    guard.remember()
    guard.check_step(StepResult(torch.tensor(1.0), {}), torch.tensor(1.0))
    guard.check_student()
    guard.check_rest()
