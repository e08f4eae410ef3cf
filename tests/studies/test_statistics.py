"""Numbers over seeds, worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftcseg.studies.statistics import family, holm, paired, summary


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


def test_gaps_that_differ_by_rounding_alone_are_equal() -> None:
    assert 0.3 - 0.2 != 0.4 - 0.3  # one tenth each, but for the last digit
    found = paired([0.3, 0.4], [0.2, 0.3])
    assert found.p is None
    assert found.difference == pytest.approx(0.1)
    assert paired([0.0, 0.0], [0.0, 0.0]).p is None
    assert paired([1e-300, 3e-300], [0.0, 0.0]).p is None  # their squares are 0


def test_a_family_is_corrected_over_exactly_what_was_tested() -> None:
    ones, gaps = [40.0] * 4, {"a": [1.0, 2.0, 3.0, 4.0], "b": [0.1, -0.1, 0.3, 0.2]}
    pairs = {name: ([x + g for x, g in zip(ones, own, strict=True)], ones) for name, own in gaps.items()}
    found = family({**pairs, "single": ([41.0], [40.0]), "none": ([], []), "equal": (ones, ones)})
    assert found.tested == 2
    # a: mean 2.5, std sqrt(5 / 3), t = 2.5 / sqrt(5 / 12) = 3.8730 with three degrees of freedom: p = 0.0305
    assert found["a"].difference == 2.5
    assert found["a"].p == pytest.approx(0.0305, abs=1e-4)
    assert found["a"].corrected == pytest.approx(2 * 0.0305, abs=2e-4)  # twice, not five times
    assert found["b"].corrected == found["b"].p
    # t(0.975, 3 degrees) = 3.1824; 3.1824 * sqrt(5 / 12) = 2.0542
    assert found["a"].half_width == pytest.approx(2.0542, abs=1e-4)
    assert not found["a"].holds()
    assert found["a"].holds(0.1)
    assert (found["single"].difference, found["single"].p, found["single"].corrected) == (1.0, None, None)
    assert (found["none"].difference, found["none"].count, found["none"].half_width) == (None, 0, None)
    assert not found["none"].holds(1.0)


def test_a_family_says_what_must_be_borne_in_mind() -> None:
    ones = [40.0] * 4
    four = [41.0, 42.0, 43.0, 44.0]
    assert family({"a": (four, ones), "b": (four, ones)}).notes() == (
        "Two-sided paired t-tests over matched seeds; p corrected by Holm over the 2 tests made.",
    )
    mixed = family({"a": (four, ones), "b": (four[:3], ones[:3]), "c": ([41.0], [40.0]), "d": ([42.0], [40.0])})
    told, few, single = mixed.notes()
    assert told.endswith("Holm over the 2 tests made. 2 of 4 comparisons allowed none.")
    assert few.startswith("b: With 3 seeds a t-test says little")
    assert single == "c, d: One seed allows no test: the difference may be chance."
    assert family({"a": ([], [])}).notes() == (
        "No test could be formed: nothing here tells a difference from chance.",
        "The two share no seed, so there is nothing to compare.",
    )
    assert "equal" in family({"a": (ones, ones)})["a"].warning
    assert "same amount" in family({"a": ([41.0, 42.0], [40.0, 41.0])})["a"].warning
    assert "only one" in family({"a": (four, ones)}).notes()[0]
    assert family({}).notes() == ()


@given(st.lists(st.lists(st.floats(-1, 1), max_size=5), max_size=6))
def test_a_family_never_makes_a_difference_look_surer(gaps: list[list[float]]) -> None:
    found = family({str(i): (own, [0.0] * len(own)) for i, own in enumerate(gaps)})
    for one in found.comparisons:
        assert (one.p is None) == (one.corrected is None)
        assert one.p is None or one.corrected is None or one.p <= one.corrected <= 1
