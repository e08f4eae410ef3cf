"""Mean Teacher: how far two networks' probabilities are apart, and what that weighs."""

from __future__ import annotations

import math

import pytest
import torch

from ftcseg.losses.extra import consistency
from ftcseg.methods import METHODS
from ftcseg.types import IGNORE, Clock
from tiny_methods import LATE, Variant, batch_for, say, with_labels

LN2, LN3 = math.log(2), math.log(3)


def test_the_distance_by_hand() -> None:
    # The student gives (1/2, 1/2), the teacher (3/4, 1/4): squares of 1/4 twice, their mean is 1/16. The second pixel
    # is no pixel.
    logits = torch.tensor([[0.0, 9.0], [0.0, 0.0]]).view(1, 2, 1, 2).requires_grad_()
    teacher = torch.tensor([[LN3, 0.0], [0.0, 0.0]]).view(1, 2, 1, 2).requires_grad_()
    valid = torch.tensor([True, False]).view(1, 1, 2)
    loss = consistency(logits, teacher, valid)
    assert float(loss.detach()) == pytest.approx(1 / 16)
    loss.backward()
    assert teacher.grad is None
    assert logits.grad is not None
    assert bool((logits.grad[..., 1] == 0).all())
    assert float(consistency(logits, teacher, torch.zeros_like(valid)).detach()) == 0.0


@pytest.mark.parametrize(
    ("params", "rule", "loss"),
    [
        ({}, "fixed", LN2 + 100 / 16),
        ({"on_labeled": False}, "fixed", LN2 + 100 / 16),
        ({"weight": 8.0}, "fixed", LN2 + 8 / 16),
        ({}, "closed", LN2 + 100 * (0 + 1 / 16) / 2),  # a rule that keeps nothing leaves the labelled images
        ({"on_labeled": False}, "closed", LN2),
    ],
)
def test_the_loss_by_hand(params: dict[str, object], rule: str, loss: float) -> None:
    method = Variant("mean-teacher", classes=2, rule=rule, params=params).build()
    say(method.pair.student, [0.0, 0.0])  # torn: ln 2 for every label
    say(method.pair.teacher.net, [LN3, 0.0])
    result = method.step(batch_for(method.views, classes=2), LATE)
    assert float(result.loss.detach()) == pytest.approx(loss, rel=1e-5)
    assert ("unsup_labeled" in result.parts) == params.get("on_labeled", True)


def test_a_labelled_image_of_which_nothing_is_known_is_not_compared() -> None:
    method = Variant("mean-teacher", classes=2).build()
    say(method.pair.student, [0.0, 0.0])
    say(method.pair.teacher.net, [LN3, 0.0])
    result = method.step(with_labels(batch_for(method.views, classes=2), IGNORE), LATE)
    assert float(result.parts["unsup_labeled"].detach()) == 0.0
    assert float(result.loss.detach()) == pytest.approx(100 * (1 / 16 + 0) / 2, rel=1e-5)


def test_student_and_teacher_see_the_same_picture() -> None:
    method = Variant("mean-teacher").build().eval()  # without batch statistics they are one network
    result = method.step(batch_for(method.views), LATE)
    assert float(result.parts["unsup"].detach()) == pytest.approx(0.0, abs=1e-12)
    assert method.views.strong == 0


def test_by_default_nothing_is_filtered() -> None:
    assert METHODS["mean-teacher"].preset == {"tau": 0.0, "teaching": {"ema": 0.99}}


def test_the_ramp_scales_the_consistency() -> None:
    method = Variant("mean-teacher", classes=2, teaching={"ramp": 10}).build()
    say(method.pair.student, [0.0, 0.0])
    say(method.pair.teacher.net, [LN3, 0.0])
    result = method.step(batch_for(method.views, classes=2), Clock(step=5, total=40))
    assert float(result.loss.detach()) == pytest.approx(LN2 + math.exp(-1.25) * 100 / 16, rel=1e-5)
