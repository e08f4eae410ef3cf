"""FlexMatch's curriculum by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ftcseg.errors import UsageError
from ftcseg.teaching.thresholds.flexmatch import FlexMatchParams, FlexThresholds
from ftcseg.types import PseudoLabels

NAN = float("nan")
# Ten pixels: six called 0 and sure, two called 1 and sure, two called 1 and unsure. The last two are padding.
LABELS = torch.tensor([0] * 6 + [1] * 4 + [2] * 2).view(1, 1, 12)
CONF = torch.tensor([0.95] * 6 + [0.99] * 2 + [0.9] * 2 + [1.0] * 2).view(1, 1, 12)
VALID = torch.tensor([True] * 10 + [False] * 2).view(1, 1, 12)


def rule(**params: Any) -> FlexThresholds:
    return FlexThresholds(3, FlexMatchParams(**{"momentum": 0.0, **params}))


def see(thresholds: FlexThresholds, conf: torch.Tensor = CONF, valid: torch.Tensor = VALID) -> FlexThresholds:
    pseudo = PseudoLabels(LABELS, conf, valid)
    thresholds.observe(target=LABELS, logits=torch.zeros(1, 3, 1, 12), pseudo=pseudo)
    return thresholds


def test_everything_is_let_through_at_first() -> None:
    start = rule()
    assert start.tau().tolist() == [0.0, 0.0, 0.0]
    assert torch.equal(start.accept(PseudoLabels(LABELS, CONF * 0.1, VALID)), VALID)


def test_one_step_by_hand() -> None:
    # Learnt: 6/10 of class 0, 2/10 of class 1, nothing of class 2; unsure 2/10, less than the most.
    # Status: 1, 1/3, 0. x / (2 - x): 1, 1/5, 0. Times 0.95.
    seen = see(rule())
    assert seen.learnt.tolist() == pytest.approx([0.6, 0.2, 0.0])
    assert seen.called.tolist() == pytest.approx([0.6, 0.4, 0.0])
    assert seen.status().tolist() == pytest.approx([1.0, 1 / 3, 0.0])
    assert seen.tau().tolist() == pytest.approx([0.95, 0.19, 0.0])


def test_the_unsure_hold_thresholds_down_while_they_are_the_most() -> None:
    # Momentum 1/2: learnt 0.3 and 0.1, unsure 0.6. Status: 1/2, 1/6. Mapped: 1/3, 1/11.
    young = see(rule(momentum=0.5))
    assert young.tau().tolist() == pytest.approx([0.95 / 3, 0.95 / 11, 0.0])
    # Without the warm-up the unsure do not count: as far as class 0 is, all the way.
    assert see(rule(momentum=0.5, warm_up=False)).tau().tolist() == pytest.approx([0.95, 0.19, 0.0])


@pytest.mark.parametrize(("mapping", "second"), [("linear", 1 / 3), ("concave", math.log(4 / 3) / math.log(2))])
def test_the_other_mappings(mapping: str, second: float) -> None:
    assert see(rule(mapping=mapping)).tau().tolist() == pytest.approx([0.95, 0.95 * second, 0.0])


def test_by_rate_a_rare_class_may_be_well_learnt() -> None:
    # All of class 0 passes and half of class 1: rates 1 and 1/2, mapped 1 and 1/3.
    assert see(rule(status="rate")).tau().tolist() == pytest.approx([0.95, 0.95 / 3, 0.0])


def test_a_floor_holds() -> None:
    assert see(rule(floor=0.3)).tau().tolist() == pytest.approx([0.95, 0.3, 0.3])


def test_padding_and_nothing_at_all_change_nothing() -> None:
    seen = see(rule(momentum=0.5))
    before = seen.learnt.clone()
    see(seen, valid=torch.zeros_like(VALID))
    assert torch.equal(seen.learnt, before)


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_non_finite_numbers_never_enter_the_statistics(bad: float) -> None:
    seen = see(rule(momentum=0.5))
    before = {name: value.clone() for name, value in seen.named_buffers()}
    broken = CONF.clone()
    broken[..., 0] = bad
    see(seen, conf=broken)
    assert all(torch.equal(before[name], value) for name, value in seen.named_buffers())


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match="convex, linear, concave"):
        rule(mapping="convx")
    with pytest.raises(UsageError, match="momentum"):
        rule(momentum=1.0)


def test_facts_say_what_the_thresholds_come_from() -> None:
    facts = see(rule()).facts()
    assert {name: tuple(value.shape) for name, value in facts.items()} == dict.fromkeys(
        ("tau", "status", "learnt", "called"), (3,)
    )
