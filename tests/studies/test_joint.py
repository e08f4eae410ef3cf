"""OPR and ATC together, read off runs made by hand."""

from __future__ import annotations

import pytest
from made_results import cells_of, evidence_of

from ftcseg.studies import joint
from ftcseg.studies.figures import Bars
from ftcseg.studies.plan import Ask
from ftcseg.studies.rows import FTC, WITH_ATC, WITH_OPR

ASK = Ask(datasets=("acdc-driving",), labels=("2%", "30"), seeds=(0, 1, 2))
# By turns 2% and 30, seed by seed.
# 2%: M3 0.50, 0.51, 0.52; M4 0.40; M5 0.52, 0.54, 0.56: gaps to M3 0.02, 0.03, 0.04, t = 3 sqrt 3, p = 0.03510
# 30: M3 0.30; M4 0.35, 0.36, 0.34; M5 0.35, 0.37, 0.36: gaps to M4 0.00, 0.01, 0.02, p = 0.2254
SCORES = {
    WITH_OPR: [0.50, 0.30, 0.51, 0.30, 0.52, 0.30],
    WITH_ATC: [0.40, 0.35, 0.40, 0.36, 0.40, 0.34],
    FTC: [0.52, 0.35, 0.54, 0.37, 0.56, 0.36],
}
FIRST, SECOND = "2% of the labels of acdc-driving", "30 of the labels of acdc-driving"


def test_m5_is_compared_with_the_stronger_one() -> None:
    answer = joint.read(ASK, evidence_of(joint.plan(ASK), SCORES))
    (table,) = answer.tables
    assert cells_of(table, FIRST) == {
        "setting": FIRST,
        "M3": "51.0 ± 1.0",
        "M4": "40.0 ± 0.0",
        "M5": "54.0 ± 2.0",
        "seeds": "3",
        "Δ": "+3.0",
        "Holm p": "0.07†",  # 2 x 0.0351
        "M3 (paper)": "58.32",
        "M4 (paper)": "59.07",
        "M5 (paper)": "61.03",
        "Δ (paper)": "+1.96",
        "Holm p (paper)": "0.0769†",
    }
    other = cells_of(table, SECOND)
    assert (other["Δ"], other["Holm p"], other["M5 (paper)"]) == ("+1.0", "0.23†", "n/a")
    assert table.best == {(0, 3), (1, 3)}
    assert table.paper == {7, 8, 9, 10, 11}
    assert answer.finding == (
        "FTC-Seg (M5) ends above the better of OPR alone and ATC alone in 2 of 2 settings; "
        f"Δ goes from +1.0 ({SECOND}) to +3.0 ({FIRST}).",
        "Of 2 settings tested over at most 3 seeds each, corrected by Holm, M5 is higher in 0 and lower in 0 "
        "(p < 0.05); the paper finds it higher in 11 of 12.",
    )
    assert "favours M5 less" in answer.remarks[0]
    (figure,) = answer.figures
    assert isinstance(figure, Bars)
    assert [value.mean for value in figure.series[2][1] if value] == pytest.approx([54.0, 36.0])


def test_one_setting_alone_needs_no_correction() -> None:
    ask = Ask(seeds=(0, 1, 2))
    scores = {row: values[::2] for row, values in SCORES.items()}
    answer = joint.read(ask, evidence_of(joint.plan(ask), scores))
    assert cells_of(answer.tables[0], "10% of the labels")["Holm p"] == "0.035"
    assert "M5 is higher in 1 and lower in 0" in answer.finding[1]
    assert not answer.tables[0].paper


def test_only_seeds_that_all_three_have_count() -> None:
    ask = Ask(seeds=(0, 1, 2))
    scores = {WITH_OPR: [0.50, 0.90, None], WITH_ATC: [0.60, None, 0.1], FTC: [0.55, 0.9, 0.9]}
    answer = joint.read(ask, evidence_of(joint.plan(ask), scores))
    row = cells_of(answer.tables[0], "10% of the labels")
    assert (row["M3"], row["M4"], row["M5"], row["seeds"], row["Δ"]) == ("50.0", "60.0", "55.0", "1", "-5.0")
    assert row["Holm p"] == "no test†"
    assert answer.tables[0].best == {(0, 2)}
    assert answer.finding[1] == "No test is possible: one seed, or gaps that are all equal."
    assert answer.finding[2] == "2 of 9 runs are missing."


def test_without_all_three_there_is_no_answer() -> None:
    ask = Ask()
    answer = joint.read(ask, evidence_of(joint.plan(ask), {WITH_OPR: [0.5], FTC: [0.6]}))
    assert answer.finding == ("M3, M4 and M5 have no seed in common yet.", "1 of 3 runs are missing.")
    assert not answer.tables
