"""Foreground told wrongly, read off runs made by hand."""

from __future__ import annotations

import json
from pathlib import Path

from made_results import cells_of, made

from ftcseg.nets.folder import ModelSpec
from ftcseg.studies import foreground
from ftcseg.studies.foreground import ADDED, BOTH, CORRECT, OMITTED
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.types import ClassTable

ASK = Ask(seeds=(0, 1))
IDS = {CORRECT: (1, 2), ADDED: (0, 1, 2), OMITTED: (1,), BOTH: (0, 1)}
SCORES = {CORRECT: (0.40, 0.44), ADDED: (0.38, 0.42), OMITTED: (0.36, 0.42), BOTH: (0.30, 0.32)}
HOOKS = {CORRECT: 0.20, ADDED: 0.15, OMITTED: 0.05, BOTH: 0.0}


def _run(folder: Path, ids: tuple[int, ...]) -> Path:
    """A run whose model says what its OPR took for foreground; the hook is class 2."""
    spec = ModelSpec(
        encoder="tiny",
        head="fusion",
        classes=ClassTable.named("bed", "wall", "hook"),
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        opr={"foreground": ids},
    )
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(spec.as_json()), encoding="utf-8")
    return folder


def _evidence(tmp_path: Path) -> Evidence:
    return Evidence(
        [
            made(c, SCORES[c.row][c.seed], HOOKS[c.row], run=_run(tmp_path / f"{c.row}{c.seed}", IDS[c.row]))
            for c in foreground.plan(ASK)
        ]
    )


def test_the_mistakes_are_named_not_numbered() -> None:
    told = {cell.row: cell.settings for cell in foreground.plan(ASK)}
    assert told == {
        CORRECT: ("thresholds=fixed",),
        ADDED: ("thresholds=fixed", "foreground=everything"),
        OMITTED: ("thresholds=fixed", "foreground=without_rarest"),
        BOTH: ("thresholds=fixed", "foreground=everything_without_rarest"),
    }


def test_changes_and_the_class_that_was_left_out(tmp_path: Path) -> None:
    answer = foreground.read(ASK, _evidence(tmp_path))
    (table,) = answer.tables
    assert cells_of(table, BOTH) == {
        "foreground": BOTH,
        "mIoU": "31.0 ± 1.4",
        "mIoU (paper)": "53.09",
        "change": "-11.0",
        "change (paper)": "-9.46",
        "rarest class": "0.0 ± 0.0",
        "diver (paper)": "2.47",
    }
    assert cells_of(table, CORRECT)["change"] == "–"
    assert cells_of(table, ADDED)["change (paper)"] == "-2.75"
    assert "ends at 42.0 ± 2.8 mIoU; background added -2.0 (" in answer.finding[0]
    # told wrongly, the hook loses 5, 15 and 20 points
    assert "at 20.0 ± 0.0 IoU when told right" in answer.finding[1]
    assert "background added -5.0, rarest omitted -15.0, both mistakes -20.0." in answer.finding[1]
    assert any("hook" in remark for remark in answer.remarks)


def test_without_the_run_that_leaves_it_out_nobody_knows_the_rarest_class(tmp_path: Path) -> None:
    some = [r for r in _evidence(tmp_path).results if r.cell.row in (CORRECT, ADDED)]
    answer = foreground.read(ASK, Evidence(some))
    assert cells_of(answer.tables[0], CORRECT)["rarest class"] == "n/a"
    assert answer.finding[-1] == "4 of 8 runs are missing."
