"""The teacher: its mode, its speed, and what it refuses to swallow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ftcseg.teaching.teacher import (
    SHORTEST_TEACHER,
    all_finite,
    follow,
    make_teacher,
    scaled_momentum,
    warm_decay,
)


def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5))


def test_teacher_is_an_equal_but_separate_copy_without_gradients() -> None:
    student = small_net()
    teacher = make_teacher(student)
    for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
        assert not mine.requires_grad
        assert theirs.requires_grad


@pytest.mark.parametrize("train_mode", [False, True])
def test_teacher_stays_in_its_mode_whatever_its_owner_does(train_mode: bool) -> None:
    owner = nn.ModuleDict({"teacher": make_teacher(small_net(), train_mode=train_mode)})
    for mode in (True, False):
        owner.train(mode)
        assert all(module.training is train_mode for module in owner["teacher"].modules())


def test_teacher_of_a_training_student_answers_without_dropout() -> None:
    teacher = make_teacher(small_net().train())
    image = torch.rand(1, 1, 4, 4)
    assert torch.equal(teacher(image), teacher(image))


@pytest.mark.parametrize(
    ("step", "decay"), [(0, 0.0), (1, 0.5), (3, 0.75), (248, 1 - 1 / 249), (249, 0.996), (250, 0.996)]
)
def test_decay_warms_up_to_its_cap(step: int, decay: float) -> None:
    assert warm_decay(step, 0.996) == pytest.approx(decay, abs=1e-12)


def test_follow_moves_parameters_and_running_statistics() -> None:
    student = small_net()
    teacher = make_teacher(student)
    for tensor in (*teacher.parameters(), *(b for b in teacher.buffers() if b.is_floating_point())):
        tensor.fill_(1.0)
    with torch.no_grad():
        for tensor in (*student.parameters(), *(b for b in student.buffers() if b.is_floating_point())):
            tensor.fill_(2.0)
    follow(teacher, student, decay=0.75)  # 0.75 * 1 + 0.25 * 2
    floating = [t for t in (*teacher.parameters(), *teacher.buffers()) if t.is_floating_point()]
    assert len(floating) == 6  # weight and bias twice, running mean and variance
    assert all(torch.all(t == 1.25) for t in floating)


def test_whole_numbers_are_copied_not_averaged() -> None:
    student = small_net()
    teacher = make_teacher(student)
    student[1].num_batches_tracked.fill_(7)
    follow(teacher, student, decay=0.996)
    assert teacher.net[1].num_batches_tracked == 7


def test_decay_zero_makes_the_teacher_the_student_bit_by_bit() -> None:
    student = small_net()
    teacher = make_teacher(small_net())
    follow(teacher, student, decay=0.0)
    for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_many_small_steps_reach_the_student() -> None:
    # 100 steps of decay 0.9 leave 0.9^100 = 2.66e-5 of the way.
    student, teacher = nn.Linear(1, 1, bias=False), make_teacher(nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        student.weight.fill_(1.0)
        teacher.net.weight.fill_(0.0)
    for _ in range(100):
        follow(teacher, student, decay=0.9)
    assert float(teacher.net.weight) == pytest.approx(1 - 2.656e-5, abs=2e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["parameter", "buffer"])
def test_a_bad_value_is_noticed_and_leaves_the_teacher_alone(bad: float, where: str) -> None:
    student = small_net()
    teacher = make_teacher(student)
    before = [t.clone() for t in (*teacher.parameters(), *teacher.buffers())]
    with torch.no_grad():
        (student[0].weight if where == "parameter" else student[1].running_var).view(-1)[1] = bad
    assert not all_finite(student)
    with pytest.raises(FloatingPointError, match="did not follow"):
        follow(teacher, student, decay=0.5)
    assert all(torch.equal(a, b) for a, b in zip(before, (*teacher.parameters(), *teacher.buffers()), strict=True))


def test_a_module_without_numbers_is_finite_and_can_be_followed() -> None:
    assert all_finite(nn.ReLU())
    follow(make_teacher(nn.ReLU()), nn.ReLU(), decay=0.5)


def test_momentum_keeps_its_share_of_the_run() -> None:
    assert scaled_momentum(0.999, 87_840) == 0.999
    assert scaled_momentum(0.999, 8_784) == pytest.approx(0.99)  # a tenth of the run, a tenth of 1000 steps
    assert scaled_momentum(0.999, 4_392) == pytest.approx(0.98)  # 50 steps


def test_momentum_has_a_shortest_and_a_longest_memory() -> None:
    assert scaled_momentum(0.999, 400) == pytest.approx(0.95)  # 4.6 steps would be too few: 20
    assert scaled_momentum(0.996, 1_000, shortest=SHORTEST_TEACHER) == pytest.approx(0.98)  # 2.8 steps: 50
    assert scaled_momentum(0.999, 10**6) == 0.999
    assert scaled_momentum(0.5, 400) == 0.5  # 2 steps already: never made longer
