"""OPR with a part taken out, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_results import cells_of, evidence_of

from ftcseg.studies import opr_components
from ftcseg.studies.opr_components import NO_GATE, NO_LOSS, NO_RESIDUAL
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, WITH_OPR, calibration_rows

ASK = Ask(seeds=(0, 1, 2))
SCORES = {
    BASELINE: [0.30, 0.32, 0.34],
    NO_RESIDUAL: [0.28, 0.29, 0.30],
    NO_LOSS: [0.31, 0.33, 0.35],
    NO_GATE: [0.33, 0.33, 0.36],
    WITH_OPR: [0.32, 0.35, 0.38],
}


def _audited(evidence: Evidence, accuracy: float, tail: float) -> Evidence:
    rates: dict[str, Any] = {"global": {"accuracy": accuracy}, "tail": {"accuracy": tail}}
    audit = {"by_truth": {"micro": rates}}
    return Evidence([replace(result, audit=audit) for result in evidence.results])


def test_each_row_lacks_one_part_and_the_whole_is_m3() -> None:
    told = {cell.row: (cell.method, cell.settings) for cell in opr_components.plan(Ask(ftc="ftc-paper"))}
    fixed = "thresholds=fixed"
    assert told == {
        BASELINE: ("ftc-paper", ("opr.layers=0", fixed)),
        NO_RESIDUAL: ("ftc-paper", (fixed, "opr.residual=false")),
        NO_LOSS: ("ftc-paper", (fixed, "opr.lambda_o=0")),
        NO_GATE: ("ftc-paper", (fixed, "opr.gate=none")),
        WITH_OPR: calibration_rows(Ask(ftc="ftc-paper"))[WITH_OPR],
    }


def test_scores_accuracies_and_the_papers_stand_side_by_side() -> None:
    evidence = _audited(evidence_of(opr_components.plan(ASK), SCORES), 0.9, 0.5)
    answer = opr_components.read(ASK, evidence)
    (table,) = answer.tables
    assert cells_of(table, WITH_OPR) == {
        "OPR": WITH_OPR,
        "mIoU": "35.0 ± 3.0",
        "mIoU (paper)": "62.55",
        "accuracy, all classes": "90.0 ± 0.0",
        "accuracy, all classes (paper)": "72.33",
        "accuracy, tail": "50.0 ± 0.0",
        "accuracy, tail (paper)": "87.80",
    }
    assert table.paper == {2, 4, 6}
    first, second, third = answer.finding
    # OPR over the baseline: 2, 3, 4 points; t = 3 sqrt 3, p = 1 - 3 sqrt 3 / sqrt 29 = 0.035
    assert "OPR ends at 35.0 ± 3.0 mIoU, +3.0 over the EMA baseline" in first
    assert "p 0.035 over 3 seeds, too few to trust" in first
    # without residual 29 - 35, without L_O 33 - 35, without gate 34 - 35
    assert "without residual -6.0, without L_O -2.0, without gate -1.0 (without residual: " in second
    assert "90.0 ± 0.0 / 50.0 ± 0.0 % with M3 EMA+OPR" in third


def test_the_papers_largest_drop_is_worked_out() -> None:
    remark = opr_components.read(ASK, Evidence([])).remarks[0]
    # 72.33 - 64.32 = 8.01; 64.32 - 67.03 = -2.71; 59.84 - 58.75 = 1.09; 83.16 - 56.56 = 26.60
    for number in ("by 8.01 points", "2.71 below", "+1.09", "+26.60"):
        assert number in remark


def test_without_audits_the_masks_are_still_compared() -> None:
    answer = opr_components.read(ASK, evidence_of(opr_components.plan(ASK), SCORES))
    assert len(answer.finding) == 2
    assert cells_of(answer.tables[0], WITH_OPR)["accuracy, tail"] == "n/a"
    assert answer.figures == ()
