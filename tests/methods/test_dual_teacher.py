"""Dual Teacher by hand: whose turn it is, what is mixed, and how two teachers follow one student."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ftcseg.losses.pixel import kept_share
from ftcseg.methods.dual_teacher import DualTeacher
from ftcseg.teaching.turns import Turn, turn_at, turn_steps
from ftcseg.types import Clock
from ftcseg.views.mix import half_of_the_classes
from tiny_methods import Variant, batch_for


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def dual(**teaching: float) -> DualTeacher:
    return Variant("dual-teacher", teaching=dict(teaching), params={"epoch_steps": 3}).build()  # type: ignore[return-value]


# Turns


@pytest.mark.parametrize(
    ("total", "epoch", "asked", "steps"),
    [
        (87_840, 366, None, 366),  # an epoch
        (300, 366, None, 30),  # a tenth of a short run
        (1000, 2, None, 20),  # a small set: not every other step
        (40, 2, None, 4),  # both at once: the run decides
        (5, 1, None, 1),
        (300, 366, 50, 50),
    ],
)
def test_how_long_a_turn_is(total: int, epoch: int, asked: int | None, steps: int) -> None:
    assert turn_steps(Clock(0, total, epoch), asked) == steps


def test_turns_are_counted_from_the_end_of_the_burn_in() -> None:
    found = [turn_at(Clock(step, 100), 4, 3) for step in (0, 3, 4, 6, 7, 12)]
    assert found == [Turn(0, 0), Turn(0, 0), Turn(0, 0), Turn(0, 2), Turn(1, 0), Turn(2, 2)]
    assert [turn.is_second for turn in found] == [False, False, False, False, True, False]


# Mixing


def test_half_of_the_classes_rounded_down() -> None:
    labels = torch.tensor([[0, 1, 2, 3, 3], [0, 0, 5, 5, 7], [4, 4, 4, 4, 4]]).view(3, 1, 5)
    valid = torch.ones_like(labels, dtype=torch.bool)
    valid[1, 0, 4] = False  # so that the second image shows two classes, 0 and 5
    region = half_of_the_classes(labels, valid, np.random.default_rng(0))
    taken = [set(image[where].tolist()) for image, where in zip(labels, region, strict=True)]
    assert [len(classes) for classes in taken] == [2, 1, 0]  # of four, of two and of one
    for image, where, classes in zip(labels, region, taken, strict=True):
        assert all(bool(where[image == c].all()) for c in classes)  # whole classes
    assert not region[~valid].any()


def test_the_share_of_sure_pixels_of_each_image_and_of_all() -> None:
    keep = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool).view(2, 1, 4)
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool).view(2, 1, 4)
    assert kept_share(keep, valid, of_each=True).flatten().tolist() == [0.5, 0.5]
    assert kept_share(keep, valid, of_each=False).flatten().tolist() == [0.5]  # 3 of 6
    assert kept_share(keep, torch.zeros_like(valid), of_each=True).flatten().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("step", "second"), [(20, False), (21, True)])
def test_views_and_labels_are_mixed_alike(step: int, second: bool) -> None:
    method = dual()
    clock = Clock(step, 40)
    assert method._turn(clock).is_second == second
    batch = batch_for(method.views, unlabeled=3)
    assert batch.unlabeled is not None
    (strong,) = batch.unlabeled.strong
    pseudo = _pseudo(method, batch.unlabeled.weak)
    images, mixed = method._mixed(strong, pseudo, method._turn(clock), clock)
    for place in range(3):
        # Every pixel is the image's own or its one partner's, and its label comes from where it comes from.
        own = (images[place] == strong[place]).all(0)
        partners = [k for k in range(3) if bool((own | (images[place] == strong[k]).all(0)).all())]
        assert partners
        other = pseudo.labels[partners[0]]
        assert torch.equal(mixed.labels[place], torch.where(own, pseudo.labels[place], other))
    again, _ = method._mixed(strong, pseudo, method._turn(clock), clock)
    assert torch.equal(images, again)


def _pseudo(method: DualTeacher, weak: Tensor):  # type: ignore[no-untyped-def]
    from ftcseg.teaching.pseudo import pseudo_labels

    with torch.no_grad():
        return pseudo_labels(method.pair.student(weak), torch.ones(weak.shape[0], *weak.shape[2:], dtype=torch.bool))


# The step


def _says(method: DualTeacher, is_second: bool, class_id: int) -> None:
    """Let a teacher call everything one class."""
    head = method._teacher(is_second).head.classifier
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
        head.bias[class_id] = 9.0


def test_the_teacher_whose_turn_it_is_labels() -> None:
    method = dual()
    _says(method, False, 1)
    _says(method, True, 2)
    seen = []
    for step in range(18, 24):  # two turns of three steps
        counts = method.step(batch_for(method.views), Clock(step, 40)).pseudo
        assert counts is not None
        seen.append(int(counts.seen.argmax()))
    assert seen == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("step", [19, 22])
def test_the_loss_is_the_stated_sum(step: int) -> None:
    method = dual(unsup_weight=3.0)
    result = method.step(batch_for(method.views), Clock(step, 40))
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    expected = parts["sup"] + 3.0 * (parts["unsup"] + 0.2 * parts["ic"])
    assert float(result.loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert set(parts) == {"sup", "unsup", "ic"}


# Teachers


def test_each_teacher_starts_anew_in_its_turn() -> None:
    method = dual(ema=0.6, burn_in=2)
    weight = method.pair.student.head.classifier.bias
    path = []
    for step in range(9):
        with torch.no_grad():
            weight.fill_(float(step))
        method.after_update(Clock(step=step, total=100))
        path.append(tuple(float(method._teacher(who).head.classifier.bias[0]) for who in (False, True)))
    assert path[:2] == [(0, 0), (1, 1)]  # the burn-in: both are the student
    # Steps 2 to 4 are the first teacher's: a copy, then decays 1/2 and, capped, 0.6. After its last step the second
    # teacher becomes the student, to begin its turn with.
    assert path[2:5] == [(2, 1), (2.5, 1), pytest.approx((0.6 * 2.5 + 0.4 * 4, 4))]
    # Steps 5 to 7 are the second's; the first rests, and is made anew at their end.
    assert path[5:8] == [pytest.approx((3.1, 5)), pytest.approx((3.1, 5.5)), pytest.approx((7, 0.6 * 5.5 + 0.4 * 7))]
    assert path[8] == pytest.approx((8, 6.1))


def test_the_student_is_what_a_user_gets() -> None:
    method = dual()
    assert list(method.predictors()) == ["student", "teacher"]
    assert len(method.teachers()) == 2
