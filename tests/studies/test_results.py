"""What studies read off finished runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftcseg.errors import UsageError
from ftcseg.evaluate.per_image import COUNTS, PerImage, write_counts
from ftcseg.studies.plan import Cell
from ftcseg.studies.results import Evidence, Result, matched

GROUPS = {"background": ("water",), "head": ("rock",), "tail": ("rope", "tyre", "hook")}


def _cell(row: str = "ftc", seed: int = 0, labels: str = "5%") -> Cell:
    return Cell(row=row, method="ftc", dataset="x", labels=labels, seed=seed, steps=10)


def _class(number: int, name: str, pixels: int, *rates: float | None) -> dict[str, Any]:
    iou, precision, recall = rates
    return {"id": number, "name": name, "iou": iou, "precision": precision, "recall": recall, "pixels": pixels}


def _scores(tail: float = 0.25) -> dict[str, Any]:
    classes = [
        _class(0, "water", 10, 0.9, 0.9, 0.9),
        _class(1, "rock", 900, 0.6, 0.8, 0.7),
        _class(2, "rope", 50, tail, None, 0.0),
        _class(3, "tyre", 20, 0.5, 1.0, 0.5),
        _class(4, "hook", 0, None, 0.5, None),
    ]
    return {"miou": 0.5, "groups": {"head": 0.6, "middle": None, "tail": 0.375}, "classes": classes}


def _result(cell: Cell | None = None, audit: dict[str, Any] | None = None, run: Path = Path()) -> Result:
    return Result(cell or _cell(), "key", _scores(), _scores(0.75), audit, "split", 1.0, GROUPS, run)


def test_a_class_is_read_by_its_name_at_the_end_or_at_its_best() -> None:
    found = _result()
    assert found.iou("rope") == 0.25
    assert found.iou("rope", "best") == 0.75
    assert (found.precision("tyre"), found.recall("tyre")) == (1.0, 0.5)
    assert found.iou("hook") is None
    with pytest.raises(UsageError, match="rope"):
        found.iou("ropes")
    with pytest.raises(UsageError, match="last"):
        found.miou("lasst")


def test_a_group_is_the_mean_of_the_classes_that_have_a_number() -> None:
    found = _result()
    assert found.group_precision("tail") == 0.75  # tyre 1.0 and hook 0.5; rope was never predicted
    assert found.group_recall("tail") == 0.25  # rope 0.0 and tyre 0.5; hook is nowhere
    assert found.group_recall("middle") is None


def test_the_rarest_class_is_foreground_and_there() -> None:
    assert _result().rarest() == "tyre"  # water has 10 pixels but is background, hook has none


def test_rates_of_pseudo_labels() -> None:
    rates = {"accuracy": 0.9, "filtered": 0.2, "correct_kept": 0.72, "raw_accuracy": 0.8}
    none = dict.fromkeys(rates)
    side = {"micro": {"global": rates, "tail": {**rates, "filtered": 0.6}, "middle": none}, "macro": {"global": none}}
    audit = {"kept_miou": 0.4, "by_truth": side, "by_prediction": {"micro": {"global": {**rates, "accuracy": 0.5}}}}
    found = _result(audit=audit)
    assert found.rate("accuracy") == 0.9
    assert found.rate("filtered", "tail") == 0.6
    assert found.rate("accuracy", by="prediction") == 0.5
    assert found.rate("accuracy", "middle") is None
    assert found.rate("accuracy", mean="macro") is None
    assert found.kept_miou() == 0.4
    with pytest.raises(UsageError, match="filtered"):
        found.rate("filter")
    with pytest.raises(UsageError, match="tail"):
        found.rate("filtered", "tails")
    assert _result().rate("accuracy") is None
    assert _result().kept_miou() is None


def test_counts_are_read_when_asked_for(tmp_path: Path) -> None:
    found = _result(run=tmp_path)
    assert found.counts() is None
    kept = PerImage(np.arange(2 * 5 * 3).reshape(2, 5, 3), ("a.png", "b.png"), ("a.png", "a.png"))
    write_counts(tmp_path / COUNTS, {"last": kept})
    read = found.counts()
    assert read is not None
    assert read.counts.tolist() == kept.counts.tolist()
    assert read.clusters == ("a.png", "a.png")


def test_where_a_run_lies_is_not_part_of_its_result(tmp_path: Path) -> None:
    assert _result(run=tmp_path).as_json() == _result().as_json()
    assert str(tmp_path) not in json.dumps(_result(run=tmp_path).as_json())


def test_matched_runs_share_set_labels_and_seed() -> None:
    ours = [_result(_cell(seed=seed)) for seed in (0, 1, 2)]
    theirs = [_result(_cell("other", seed)) for seed in (2, 0)] + [_result(_cell("other", 1, "10%"))]
    assert matched(ours, theirs, lambda r: r.cell.seed) == ([0, 2], [0, 2])
    assert matched(ours, theirs, lambda r: r.iou("hook")) == ([], [])


def test_evidence_finds_the_runs_of_a_row_in_the_order_of_their_seeds() -> None:
    results = [_result(_cell("a", 1)), _result(_cell("b", 0)), _result(_cell("a", 0)), _result(_cell("a", 0, "10%"))]
    evidence = Evidence(results)
    assert [r.cell.seed for r in evidence.of("a", labels="5%")] == [0, 1]
    assert evidence.rows() == ["a", "b"]


def test_objects_that_are_taught_under_a_wrong_name() -> None:
    def kept(name: str, pixels: int, kept: int, correct: int) -> dict[str, Any]:
        return {"name": name, "counts": {"pixels": pixels, "kept": kept, "correct_kept": correct}}

    side = {"classes": [kept("water", 1000, 900, 0), kept("rock", 60, 50, 45), kept("rope", 40, 10, 0)]}
    assert _result(audit={"by_truth": side}).taught_wrong() == 0.15  # 5 and 10 of 100; water is background
    assert _result().taught_wrong() is None
    assert _result(audit={"by_truth": {"classes": []}}).taught_wrong() is None
