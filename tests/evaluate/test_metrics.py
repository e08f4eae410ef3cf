"""Scores from counts, by hand."""

from __future__ import annotations

import json

import pytest
import torch

from ftcseg.errors import UsageError
from ftcseg.evaluate.boundary import Boundaries
from ftcseg.evaluate.calibration import Calibration
from ftcseg.evaluate.confusion import Confusion
from ftcseg.evaluate.metrics import group_means, iou, mean, scores
from ftcseg.types import IGNORE, ClassTable, Group

CLASSES = ClassTable.named("water", "bottle", "can", "rope")
GROUPS: dict[int, Group] = {0: "background", 1: "head", 2: "tail", 3: "tail"}


def example() -> Confusion:
    confusion = Confusion(4)
    confusion.counts = torch.tensor(
        [
            [6, 1, 1, 0],  # 8 pixels of water: 6 hit
            [2, 3, 0, 0],  # 5 of bottle: 3 hit
            [0, 0, 0, 0],  # no can, but one pixel was called can
            [0, 0, 0, 0],  # rope is in neither
        ]
    )
    return confusion


def test_scores_by_hand() -> None:
    result = scores(example(), CLASSES, GROUPS)
    water, bottle, can, rope = result.classes
    assert water.iou == pytest.approx(6 / 10)  # 8 true + 8 called - 6
    assert water.precision == pytest.approx(6 / 8)
    assert water.recall == pytest.approx(6 / 8)
    assert water.f1 == pytest.approx(12 / 16)
    assert bottle.iou == pytest.approx(3 / 6)
    assert (bottle.precision, bottle.recall) == (pytest.approx(3 / 4), pytest.approx(3 / 5))
    assert (can.iou, can.precision, can.recall, can.f1, can.pixels) == (0, 0, None, 0, 0)
    assert (rope.iou, rope.precision, rope.recall, rope.f1) == (None, None, None, None)
    assert result.miou == pytest.approx((0.6 + 0.5 + 0) / 3)  # rope does not count
    assert result.pixel_accuracy == pytest.approx(9 / 13)
    assert result.groups == {"background": pytest.approx(0.6), "head": 0.5, "middle": None, "tail": 0.0}


def test_an_empty_set_has_no_scores_but_no_crash_either() -> None:
    result = scores(Confusion(4), CLASSES, GROUPS, Boundaries(4), Calibration())
    assert result.miou is None
    assert result.pixel_accuracy is None
    assert result.ece is None
    assert set(result.groups.values()) == {None}


def test_json_has_the_promised_keys_and_no_nan() -> None:
    boundaries, calibration = Boundaries(4), Calibration()
    maps = torch.tensor([[0, 0, 1], [0, 0, 1]])
    boundaries.add(maps, maps)
    calibration.add(torch.ones(2), torch.zeros(2), torch.zeros(2))
    written = scores(example(), CLASSES, GROUPS, boundaries, calibration).as_json()
    read = json.loads(json.dumps(written, allow_nan=False))
    assert set(read) == {"miou", "groups", "classes", "pixel_accuracy", "ece"}
    assert set(read["groups"]) == {"background", "head", "middle", "tail"}
    assert read["classes"][1] == {
        "id": 1,
        "name": "bottle",
        "iou": 0.5,
        "precision": 0.75,
        "recall": 0.6,
        "f1": pytest.approx(6 / 9),
        "boundary_f1": 1.0,
        "pixels": 5,
    }
    assert read["ece"] == 0.0


def test_mean_of_nothing_is_none() -> None:
    assert mean([]) is None
    assert mean([None, None]) is None
    assert mean([None, 0.5]) == 0.5


def test_classes_outside_all_groups_count_in_none() -> None:
    assert group_means([0.1, 0.2], {0: "head"}) == {"background": None, "head": 0.1, "middle": None, "tail": None}


def test_perfect_is_one() -> None:
    assert iou(torch.diag(torch.tensor([3, 1]))) == [1.0, 1.0]


# ---------------------------------------------------------------- calibration


def test_calibration_error_by_hand() -> None:
    calibration = Calibration()
    # Bin of 0.95 and 1.0 (14/15 and up): 2 pixels, one right, confidence 1.95. Bin of 0.5: 2 pixels, both right.
    calibration.add(
        conf=torch.tensor([0.95, 1.0, 0.5, 0.5, 0.3]),
        pred=torch.tensor([0, 0, 1, 1, 1]),
        target=torch.tensor([0, 1, 1, 1, IGNORE]),
    )
    assert calibration.error() == pytest.approx((0.95 + 1.0) / 4, abs=1e-5)  # |1 - 1.95| + |2 - 1.0|, over 4 pixels


def test_calibration_does_not_depend_on_how_pixels_arrive() -> None:
    conf = torch.rand(100, generator=torch.Generator().manual_seed(0))
    pred, target = (conf * 7).long() % 3, (conf * 5).long() % 3
    at_once, in_parts = Calibration(), Calibration()
    at_once.add(conf, pred, target)
    for i in range(99, -1, -1):
        in_parts.add(conf[i : i + 1], pred[i : i + 1], target[i : i + 1])
    assert torch.equal(at_once.counts, in_parts.counts)


@pytest.mark.parametrize("conf", [float("nan"), -0.1, 1.5])
def test_calibration_refuses_what_is_no_probability(conf: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Calibration().add(torch.tensor([conf]), torch.tensor([0]), torch.tensor([0]))
