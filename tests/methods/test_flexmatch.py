"""FlexMatch: the step with its curriculum; the rule itself is tested with the thresholds."""

from __future__ import annotations

import math

import pytest
import torch

from ftcseg.methods import METHODS
from ftcseg.teaching.thresholds.flexmatch import FlexThresholds
from tiny_methods import LATE, Variant, batch_for, say

LN3 = math.log(3)


def test_a_class_that_is_behind_is_let_through() -> None:
    method = Variant("flexmatch", classes=2, rule="flexmatch").build()
    say(method.pair.teacher.net, [LN3, 0.0])  # class 0 everywhere, with 3/4, which reaches tau0 = 1/2
    result = method.step(batch_for(method.views, classes=2), LATE)
    rule = method.pair.thresholds
    assert isinstance(rule, FlexThresholds)
    # Momentum 1/2 from nothing: learnt 1/2 of class 0, 0 of class 1, unsure 1/2. So class 0 is all the way.
    assert rule.learnt.tolist() == pytest.approx([0.5, 0.0])
    assert rule.tau().tolist() == pytest.approx([0.5, 0.0])
    assert result.pseudo is not None
    assert torch.equal(result.pseudo.kept, result.pseudo.seen)
    assert method.facts()["status"].tolist() == pytest.approx([1.0, 0.0])


def test_the_curriculum_is_its_preset_and_any_rule_will_do() -> None:
    assert METHODS["flexmatch"].preset == {"thresholds": "flexmatch"}
    fixed, other = (Variant(name, rule="fixed").build() for name in ("flexmatch", "fixmatch"))
    batch = batch_for(fixed.views)
    # With FixMatch's threshold it is FixMatch.
    assert float(fixed.step(batch, LATE).loss.detach()) == float(other.step(batch, LATE).loss.detach())


@pytest.mark.parametrize("ema_teacher", [True, False])
def test_the_student_may_label_itself(ema_teacher: bool) -> None:
    method = Variant("flexmatch", params={"ema_teacher": ema_teacher}).build()
    assert method.labeler()[0] is (method.pair.teacher.net if ema_teacher else method.pair.student)
