"""What a threshold drops, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ftcseg.errors import UsageError
from ftcseg.evaluate.filtering import Condition, dropped_of, filtered_rate, interaction

T = torch.tensor


def test_pixels_are_counted_by_truth_and_by_prediction() -> None:
    truth = T([[0, 0, 1], [1, 2, -1]])
    said = T([[0, 1, 1], [0, 2, 2]])
    dropped = T([[True, False, True], [False, True, True]])
    found = dropped_of(said, dropped, truth, 3)
    assert found[0].tolist() == [[2, 1], [2, 1], [1, 1]]  # by truth: the pixel nobody knows counts nowhere
    assert found[1].tolist() == [[2, 1], [2, 1], [1, 1]]  # by prediction: 0 at (0,0), (1,0); 1 at (0,1), (0,2); 2 once


def test_nothing_has_no_rate() -> None:
    assert filtered_rate(np.array([[4, 1], [6, 4]])) == 0.5
    assert filtered_rate(np.zeros((3, 2), dtype=np.int64)) is None


def test_the_interaction_by_hand() -> None:
    # OB 10 %, OL 20 %, CB 30 %, CL 45 %: 45 - 20 - 30 + 10 = 5 points
    cells = np.array([[[100.0, 10.0], [200.0, 40.0], [100.0, 30.0], [200.0, 90.0]]])
    assert interaction(cells) == pytest.approx([0.05])


def test_a_draw_without_a_tail_pixel_has_no_interaction() -> None:
    cells = np.array([[[0.0, 0.0], [200.0, 40.0], [100.0, 30.0], [200.0, 90.0]]])
    assert np.isnan(interaction(cells)).all()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=2, max_size=2))
def test_without_a_change_of_list_there_is_no_interaction(counts: list[tuple[int, int]]) -> None:
    (a, b), (c, d) = counts  # the same pixels in both lists: OB = OL and CB = CL
    original, corrupted = [float(a), float(min(a, b))], [float(c), float(min(c, d))]
    assert interaction(np.array([[original, original, corrupted, corrupted]])) == pytest.approx([0.0])


def test_an_image_meets_the_same_noise_at_every_severity() -> None:
    image = np.full((8, 8, 1), 100, dtype=np.uint8)
    mild, severe = (Condition(kind="speckle", severity=s).of(image, "a.png").astype(float) - 100 for s in (1, 5))
    inside = np.abs(severe) < 100
    # 0.60 is four times 0.15; each of the two was rounded to a whole level
    assert np.abs(severe - 4 * mild)[inside].max() <= 2.5
    assert np.abs(mild).max() > 5
    again = Condition(kind="speckle", severity=5).of(image, "a.png")
    assert np.array_equal(again.astype(float) - 100, severe)
    assert not np.array_equal(again, Condition(kind="speckle", severity=5).of(image, "b.png"))
    assert not np.array_equal(again, Condition(kind="speckle", severity=5, seed=1).of(image, "a.png"))
    assert Condition().of(image, "a.png") is image


def test_a_kind_or_severity_that_there_is_not_is_told_at_once() -> None:
    with pytest.raises(UsageError, match="speckle"):
        Condition(kind="speckel", severity=5)
    with pytest.raises(UsageError, match="severity 9"):
        Condition(kind="fog", severity=9)
