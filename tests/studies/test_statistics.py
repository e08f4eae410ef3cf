"""Numbers over seeds, worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftcseg.studies.statistics import holm, paired, summary


def test_three_seeds() -> None:
    found = summary([40.0, 42.0, 44.0])
    assert found.mean == 42.0
    assert found.std == 2.0  # sqrt((4 + 0 + 4) / 2)
    # t(0.975, 2 degrees) = 4.3027; 4.3027 * 2 / sqrt(3) = 4.9683
    assert found.half_width == pytest.approx(4.9683, abs=1e-4)


def test_one_seed_has_no_spread() -> None:
    found = summary([40.0])
    assert (found.mean, found.std, found.half_width) == (40.0, None, None)


def test_a_paired_test_looks_at_gaps_seed_by_seed() -> None:
    found = paired([41.0, 52.0, 63.0], [40.0, 50.0, 60.0])  # gaps 1, 2, 3: mean 2, std 1, t = 2 sqrt(3) = 3.4641
    assert found.difference == 2.0
    # two-sided with two degrees of freedom: p = 1 - t / sqrt(t^2 + 2) = 1 - 3.4641 / sqrt(14) = 0.0742
    assert found.p == pytest.approx(1 - 3.4641016 / math.sqrt(14), abs=1e-6)
    assert "3 seeds" in found.warning


def test_equal_gaps_and_single_seeds_allow_no_test() -> None:
    assert paired([2.0, 3.0], [1.0, 2.0]).p is None
    assert paired([2.0], [1.0]).p is None
    assert paired([2.0], [1.0]).difference == 1.0


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.04: times 3, 2, 1 -> 0.03, 0.04, 0.04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    # 0.03 * 3 = 0.09; 0.031 * 2 = 0.062 may not fall below it
    assert holm([0.03, 0.031, 0.9]) == pytest.approx([0.09, 0.09, 0.9])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_value_and_never_swaps_two(values: list[float]) -> None:
    corrected = holm(values)
    assert all(value <= found <= 1 for value, found in zip(values, corrected, strict=True))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))
