"""FixMatch: who labels."""

from __future__ import annotations

import math

import pytest
import torch

from tiny_methods import LATE, Variant, batch_for, say, weights_of

LN3 = math.log(3)


@pytest.mark.parametrize(("ema_teacher", "expected"), [(True, math.log(4)), (False, math.log(4 / 3))])
def test_the_labels_are_the_teachers_or_the_students_own(ema_teacher: bool, expected: float) -> None:
    method = Variant("fixmatch", classes=2, params={"ema_teacher": ema_teacher}).build()
    say(method.pair.student, [LN3, 0.0])  # class 0 with 3/4
    say(method.pair.teacher.net, [0.0, LN3])  # class 1 with 3/4
    result = method.step(batch_for(method.views, classes=2), LATE)
    # The student gives 1/4 to what the teacher says, and 3/4 to what it says itself.
    assert float(result.parts["unsup"].detach()) == pytest.approx(expected, rel=1e-5)
    assert result.pseudo is not None
    assert bool(result.pseudo.seen[1 if ema_teacher else 0] > 0)
    assert int(result.pseudo.seen[0 if ema_teacher else 1]) == 0


@pytest.mark.parametrize("ema_teacher", [True, False])
def test_an_audit_looks_at_whoever_labels(ema_teacher: bool) -> None:
    method = Variant("fixmatch", params={"ema_teacher": ema_teacher}).build()
    net, rule = method.labeler()
    assert net is (method.pair.teacher.net if ema_teacher else method.pair.student)
    assert rule is method.pair.thresholds
    assert list(method.predictors()) == ["teacher", "student"]  # the running mean is evaluated either way


@pytest.mark.parametrize("norms", ["joint", "labeled"])
def test_labelling_itself_leaves_no_trace_in_the_students_statistics(norms: str) -> None:
    alone, taught = (
        Variant("fixmatch", teaching={"norms": norms}, params={"ema_teacher": ema}).build() for ema in (False, True)
    )
    batch = batch_for(alone.views)
    alone.step(batch, LATE)
    taught.step(batch, LATE)  # where the weak views never pass through the student
    mine, theirs = weights_of(alone.pair.student), weights_of(taught.pair.student)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_student_labels_as_it_learns_in_train_mode() -> None:
    method = Variant("fixmatch", params={"ema_teacher": False}).build()
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    said = method.pair.ask(batch.labeled, batch.unlabeled, list(batch.unlabeled.strong))
    with torch.no_grad():
        torch.testing.assert_close(said.weak, method.pair.student(batch.unlabeled.weak), atol=1e-5, rtol=1e-4)
    assert not said.weak.requires_grad
