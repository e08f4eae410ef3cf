"""Pseudo-labels against a hidden truth, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.evaluate.pseudo_quality import PseudoQuality, Tally, grouped, macro, micro
from ftcseg.types import IGNORE, ClassTable, Group, PseudoLabels

CLASSES = ClassTable.named("water", "bottle", "rope")
GROUPS: dict[int, Group] = {0: "background", 1: "head", 2: "tail"}


def quality(truth: Sequence[int], labels: Sequence[int], keep: Sequence[int], valid: Sequence[int]) -> PseudoQuality:
    def row(values: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).view(1, 1, -1)

    pseudo = PseudoLabels(row(labels, torch.long), row(keep, torch.float32), row(valid, torch.bool))
    result = PseudoQuality(3)
    result.add(pseudo, row(keep, torch.bool), row(truth, torch.long))
    return result


def example() -> PseudoQuality:
    return quality(
        #      water       bottle         rope    unknown, padding
        truth=[0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, IGNORE, 0],
        labels=[0, 0, 0, 1, 1, 1, 1, 0, 0, 2, 0, 1, 2, 2],
        keep=[1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1],
        valid=[1] * 13 + [0],
    )


def test_tallies_by_truth() -> None:
    # pixels, kept, correct, correct and kept
    assert example().tallies("truth") == [Tally(4, 3, 3, 2), Tally(5, 3, 3, 2), Tally(3, 1, 1, 0)]


def test_tallies_by_prediction() -> None:
    # Called water: 3 water (2 kept), 2 bottle (1 kept), 1 rope (kept). Called bottle: 1 water (kept), 3 bottle (2
    # kept), 1 rope (dropped). Called rope: 1 rope (dropped).
    assert example().tallies("prediction") == [Tally(6, 4, 3, 2), Tally(5, 3, 3, 2), Tally(1, 0, 1, 0)]


def test_rates_of_a_class() -> None:
    rates = example().tallies("truth")[1].rates()
    assert rates.filtered == pytest.approx(2 / 5)
    assert rates.accuracy == pytest.approx(2 / 3)
    assert rates.correct_kept == pytest.approx(2 / 5)
    assert rates.raw_accuracy == pytest.approx(3 / 5)


def test_a_class_of_which_nothing_is_kept_has_no_accuracy() -> None:
    rates = example().tallies("prediction")[2].rates()
    assert (rates.filtered, rates.accuracy, rates.correct_kept) == (1.0, None, 0.0)


def test_micro_adds_pixels_and_macro_takes_means() -> None:
    tallies = example().tallies("truth")
    together, apart = micro(tallies), macro(tallies)
    assert together.filtered == pytest.approx(5 / 12)  # 7 of 12 kept
    assert together.accuracy == pytest.approx(4 / 7)
    assert together.correct_kept == pytest.approx(4 / 12)
    assert apart.filtered == pytest.approx((1 / 4 + 2 / 5 + 2 / 3) / 3)
    assert apart.accuracy == pytest.approx((2 / 3 + 2 / 3 + 0 / 1) / 3)


def test_groups_hold_their_classes_and_global_all() -> None:
    tallies = example().tallies("truth")
    groups = grouped(tallies, GROUPS)
    assert groups["head"] == [tallies[1]]
    assert groups["tail"] == [tallies[2]]
    assert groups["middle"] == []
    assert groups["global"] == tallies
    assert micro(groups["middle"]).filtered is None


def test_miou_of_accepted_pixels() -> None:
    # Accepted (truth, called): 00 00 01 11 11 10 20: water 2/(3+4-2), bottle 2/(3+3-2), rope 0/1.
    assert example().kept_miou() == pytest.approx((2 / 5 + 2 / 4 + 0) / 3)
    # All: water 3/(4+6-3), bottle 3/(5+5-3), rope 1/(3+1-1).
    assert example().raw_miou() == pytest.approx((3 / 7 + 3 / 7 + 1 / 3) / 3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=40))
def test_correct_kept_is_accuracy_times_what_is_not_filtered(pixels: list[tuple[int, int, int]]) -> None:
    truth, labels, keep = (list(side) for side in zip(*pixels, strict=True))
    tallies = quality(truth, labels, keep, [1] * len(pixels)).tallies("truth")
    for rates in (*(tally.rates() for tally in tallies), micro(tallies)):
        if rates.accuracy is not None and rates.filtered is not None:
            assert rates.correct_kept == pytest.approx(rates.accuracy * (1 - rates.filtered))


def test_the_papers_numbers_obey_the_product() -> None:
    # 13.15 % filtered and 67.03 % right of the rest leave 58.22 %.
    rates = Tally(pixels=10_000, kept=8_685, correct=7_000, correct_kept=5_822).rates()
    assert rates.accuracy == pytest.approx(0.6703, abs=1e-4)


def test_json_is_plain() -> None:
    read = json.loads(json.dumps(example().as_json(CLASSES, GROUPS), allow_nan=False))
    assert read["by_truth"]["classes"][2]["name"] == "rope"
    assert read["by_truth"]["classes"][2]["counts"] == {"pixels": 3, "kept": 1, "correct": 1, "correct_kept": 0}
    assert set(read["by_prediction"]["micro"]) == {"global", "background", "head", "middle", "tail"}
    assert read["by_prediction"]["macro"]["middle"]["filtered"] is None
