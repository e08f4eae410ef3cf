from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_nets import Facts, Scripted, write_set

from ftcseg.errors import UsageError
from ftcseg.evaluate.audit import audit
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.types import Group

GROUPS: dict[int, Group] = {0: "background", 1: "head", 2: "tail"}
# The tens digit is the class the teacher says, the units digit whether it is sure (0) or not (1).
TEACHER = {
    0: (0.90, 0.05, 0.05),
    1: (0.60, 0.20, 0.20),
    10: (0.05, 0.90, 0.05),
    11: (0.20, 0.60, 0.20),
    20: (0.05, 0.05, 0.90),
    21: (0.20, 0.20, 0.60),
}


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    # said        b! b! b? o!  o! o? c! c?      ! kept, ? dropped; b background, o bottle, c can
    # truth       b  b  b  b   o  o  o  c       and one pixel that nobody knows
    images = {"a.png": [[0, 0, 1, 10], [10, 11, 20, 21]], "b.png": [[0]]}
    masks = {"a.png": [[0, 0, 0, 0], [1, 1, 1, 2]], "b.png": [[255]]}
    data = write_set(tmp_path, {**images, "bare.png": [[0]]}, masks, part="train")
    result = audit(Scripted(TEACHER), Fixed(3, 0.8), data, Facts(), GROUPS)
    assert result is not None
    return result


def rates(row: dict[str, Any]) -> list[float | None]:
    return [row[name] for name in ("filtered", "accuracy", "correct_kept", "raw_accuracy")]


def test_by_truth(found: dict[str, Any]) -> None:
    background, bottle, can = (rates(row) for row in found["by_truth"]["classes"])
    assert background == pytest.approx([1 / 4, 2 / 3, 2 / 4, 3 / 4])
    assert bottle == pytest.approx([1 / 3, 1 / 2, 1 / 3, 2 / 3])
    assert can == [1.0, None, 0.0, 1.0]  # its only pixel was right, and dropped


def test_by_prediction(found: dict[str, Any]) -> None:
    background, bottle, can = (rates(row) for row in found["by_prediction"]["classes"])
    assert background == pytest.approx([1 / 3, 1.0, 2 / 3, 1.0])
    assert bottle == pytest.approx([1 / 3, 1 / 2, 1 / 3, 2 / 3])
    assert can == pytest.approx([1 / 2, 0.0, 0.0, 1 / 2])


def test_groups_micro_and_macro(found: dict[str, Any]) -> None:
    by_truth = found["by_truth"]
    assert rates(by_truth["micro"]["global"]) == pytest.approx([3 / 8, 3 / 5, 3 / 8, 6 / 8])
    assert rates(by_truth["macro"]["global"]) == pytest.approx(
        [(1 / 4 + 1 / 3 + 1) / 3, (2 / 3 + 1 / 2) / 2, (1 / 2 + 1 / 3) / 3, (3 / 4 + 2 / 3 + 1) / 3]
    )
    assert rates(by_truth["micro"]["tail"]) == [1.0, None, 0.0, 1.0]
    assert rates(by_truth["micro"]["middle"]) == [None] * 4


def test_iou_of_what_was_kept(found: dict[str, Any]) -> None:
    # Kept: b->b, b->b, b->o, o->o, o->c. background 2/3, bottle 1 of (2 said + 2 true - 1), can 0 of 1.
    assert found["kept_iou"]["classes"] == pytest.approx([2 / 3, 1 / 3, 0.0])
    assert found["kept_iou"]["groups"]["head"] == pytest.approx(1 / 3)
    assert found["kept_miou"] == found["kept_iou"]["groups"]["global"] == pytest.approx(1 / 3)


def test_thresholds_and_images_are_told(found: dict[str, Any]) -> None:
    assert found["thresholds"]["tau"] == pytest.approx([0.8] * 3)
    assert found["images"] == 2


def test_without_oracle_masks_there_is_no_audit(tmp_path: Path) -> None:
    data = write_set(tmp_path, {"a.png": [[0]]}, {})
    with pytest.raises(UsageError):
        audit(Scripted(TEACHER), Fixed(3), data, Facts(), GROUPS)


def test_a_stopped_audit_is_none(tmp_path: Path) -> None:
    data = write_set(tmp_path, {"a.png": [[0]]}, {"a.png": [[0]]})
    assert audit(Scripted(TEACHER), Fixed(3), data, Facts(), GROUPS, stop=lambda: True) is None
