"""ATC's two signals, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace

from made_results import cells_of, evidence_of

from ftcseg.studies import atc_components
from ftcseg.studies.atc_components import BIAS, DIFFICULTY
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import BASELINE, WITH_ATC, calibration_rows

ASK = Ask(seeds=(0, 1))
SCORES = {BASELINE: [0.30, 0.32], DIFFICULTY: [0.32, 0.33], BIAS: [0.29, 0.32], WITH_ATC: [0.34, 0.38]}


def _with_tail(result: Result, recall: float, precision: float | None) -> Result:
    classes = [
        {**c, "recall": recall, "precision": precision} if c["name"] == "hook" else c for c in result.last["classes"]
    ]
    return replace(result, last={**result.last, "classes": classes})


def _evidence() -> Evidence:
    made = evidence_of(atc_components.plan(ASK), SCORES, tail=0.2)
    seen = {BASELINE: (0.4, 0.5), WITH_ATC: (0.6, None)}
    return Evidence([_with_tail(r, *seen.get(r.cell.row, (0.5, 0.5))) for r in made.results])


def test_one_signal_at_a_time_and_atc_is_m4() -> None:
    told = {cell.row: (cell.method, cell.settings) for cell in atc_components.plan(ASK) if cell.seed == 0}
    assert told == {
        BASELINE: ("unimatch-v2", ()),
        DIFFICULTY: ("ftc", ("opr.layers=0", "atc.mode=difficulty")),
        BIAS: ("ftc", ("opr.layers=0", "atc.mode=bias")),
        WITH_ATC: calibration_rows(ASK)[WITH_ATC],
    }


def test_the_tail_is_read_class_by_class() -> None:
    answer = atc_components.read(ASK, _evidence())
    (table,) = answer.tables
    atc = cells_of(table, WITH_ATC)
    assert [atc[name] for name in ("tail recall", "tail precision", "tail IoU", "head IoU", "mIoU")] == [
        "60.0 ± 0.0",
        "n/a",  # it never predicts the hook
        "20.0 ± 0.0",
        "50.0 ± 0.0",
        "36.0 ± 2.8",
    ]
    assert [atc[f"{name} (paper)"] for name in ("tail recall", "tail IoU", "mIoU")] == ["86.40", "73.87", "61.90"]
    assert "+5.0 over a fixed threshold" in answer.finding[0]
    assert "M_diff alone +1.5, M_bias alone -0.5." in answer.finding[0]
    assert "tail recall +20.0, tail IoU +0.0, head IoU +0.0" in answer.finding[1]


def test_what_the_signals_add_up_to_in_the_paper() -> None:
    told = atc_components.read(ASK, Evidence([])).remarks[1]
    # 62.61 - 49.97, 62.04 - 49.97, 73.87 - 49.97
    assert "+12.64 and +12.07 points of tail IoU alone and +23.90 together" in told
