"""Ramps and burn-in, by hand."""

from __future__ import annotations

import math

import pytest

from ftcseg.teaching.ramp import is_burn_in, ramp
from ftcseg.types import Clock


@pytest.mark.parametrize(
    ("step", "weight"), [(0, 0.0), (9, 0.0), (10, 0.0), (15, 0.25), (20, 0.5), (30, 1.0), (99, 1.0)]
)
def test_linear_ramp(step: int, weight: float) -> None:
    assert ramp(Clock(step=step, total=100), start=10, length=20, shape="linear") == pytest.approx(weight)


@pytest.mark.parametrize(
    ("step", "weight"), [(9, 0.0), (10, math.exp(-5)), (20, math.exp(-1.25)), (30, 1.0), (99, 1.0)]
)
def test_sigmoid_ramp(step: int, weight: float) -> None:
    assert ramp(Clock(step=step, total=100), start=10, length=20) == pytest.approx(weight)


def test_a_ramp_without_length_is_a_switch() -> None:
    assert [ramp(Clock(step=s), start=2, length=0) for s in range(4)] == [0, 0, 1, 1]


def test_burn_in_is_the_first_steps() -> None:
    assert [is_burn_in(Clock(step=s), 2) for s in range(4)] == [True, True, False, False]
