"""Boundary F1 on maps small enough to draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from ftcseg.evaluate.boundary import Boundaries, boundary_pixels, tolerance
from ftcseg.types import IGNORE


def split_at(column: int, width: int = 12) -> Tensor:
    """Two rows: class 0 left of the column, class 1 from it on."""
    return (torch.arange(width) >= column).long().repeat(2, 1)


def f1(pred: Tensor, target: Tensor, num_classes: int = 2) -> list[float | None]:
    boundaries = Boundaries(num_classes)
    boundaries.add(pred, target)
    return boundaries.f1()


@pytest.mark.parametrize(("size", "pixels"), [((320, 480), 4), ((1080, 1920), 17), ((10, 10), 1), ((1, 1), 1)])
def test_tolerance_is_a_share_of_the_diagonal(size: tuple[int, int], pixels: int) -> None:
    assert tolerance(*size) == pixels


def test_boundary_pixels_touch_another_known_class() -> None:
    # 0 0 1        The right-hand 1s touch 0; the unknown corner makes no boundary, neither does the edge of the image.
    # 0 ? 1
    labels = np.array([[0, 0, 1], [0, IGNORE, 1]], np.int16)
    edges = boundary_pixels(labels)
    assert {c: sorted(map(tuple, places.tolist())) for c, places in edges.items()} == {0: [(0, 1)], 1: [(0, 2)]}


def test_one_pixel_off_is_still_a_match_and_three_are_not() -> None:
    assert f1(split_at(6), split_at(6)) == [1.0, 1.0]
    assert f1(split_at(7), split_at(6)) == [1.0, 1.0]
    assert f1(split_at(9), split_at(6)) == [0.0, 0.0]


def test_precision_and_recall_by_hand() -> None:
    # Truth: one edge of 2 pixels per class. Prediction: that edge, and a second one far away with 2 pixels per class.
    target, pred = split_at(3), split_at(3)
    pred[:, 9:] = 0
    # precision 2/4, recall 2/2, F1 = 2 * 0.5 / 1.5
    assert f1(pred, target) == [pytest.approx(2 / 3), pytest.approx(2 / 3)]


def test_a_class_without_any_boundary_is_none_and_a_missed_one_zero() -> None:
    assert f1(torch.zeros(2, 12, dtype=torch.long), split_at(6), num_classes=3) == [0.0, 0.0, None]


def test_predictions_where_nobody_knows_do_not_count() -> None:
    target, pred = split_at(3), split_at(3)
    target[:, 8:] = IGNORE
    pred[:, 10:] = 0
    assert f1(pred, target) == [1.0, 1.0]


def test_counts_are_summed_before_dividing() -> None:
    boundaries = Boundaries(2)
    boundaries.add(split_at(6), split_at(6))  # 2 of 2 each way
    boundaries.add(split_at(9), split_at(6))  # 0 of 2 each way
    assert boundaries.f1() == [0.5, 0.5]


def test_distances_agree_with_a_distance_transform() -> None:
    rng = np.random.default_rng(0)
    pred, target = (rng.integers(0, 3, (20, 30)).repeat(8, 0).repeat(8, 1).astype(np.int16) for _ in range(2))
    boundaries = Boundaries(3)
    boundaries.add(torch.from_numpy(pred), torch.from_numpy(target))
    reach = tolerance(*pred.shape)
    for class_id, counts in enumerate(boundaries.counts.tolist()):
        here, there = np.zeros(pred.shape, bool), np.zeros(pred.shape, bool)
        here[tuple(boundary_pixels(pred)[class_id].T)] = True
        there[tuple(boundary_pixels(target)[class_id].T)] = True
        near = [(distance_transform_edt(~other) <= reach)[own].sum() for own, other in ((here, there), (there, here))]
        assert counts == [here.sum(), near[0], there.sum(), near[1]]
