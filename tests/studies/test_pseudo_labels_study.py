"""What pseudo-labels are worth, read off audits made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from made_results import cells_of, evidence_of

from ftcseg.evaluate.pseudo_quality import Tally, macro, micro
from ftcseg.studies import ablation, pseudo_labels
from ftcseg.studies.figures import Bars
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, FTC, WITH_ATC, WITH_OPR

ASK = Ask(seeds=(0,), options=ablation.OPTIONS)
SCORES = {BASELINE: [0.3], WITH_OPR: [0.3], WITH_ATC: [0.3], FTC: [0.3]}
# pixels, kept, correct, correct and kept; of the bed, the wall (head) and the hook (tail)
M2 = [Tally(800, 720, 760, 704), Tally(100, 60, 70, 54), Tally(100, 20, 40, 15)]
M5 = [Tally(800, 760, 770, 744), Tally(100, 70, 75, 63), Tally(100, 50, 60, 40)]


def _audit(tallies: list[Tally]) -> dict[str, Any]:
    members = {"global": tallies, "head": tallies[1:2], "tail": tallies[2:]}
    side = {
        "micro": {name: asdict(micro(own)) for name, own in members.items()},
        "macro": {name: asdict(macro(own)) for name, own in members.items()},
    }
    return {"by_truth": side, "by_prediction": side, "kept_miou": 0.5}


def _evidence() -> Evidence:
    made = evidence_of(pseudo_labels.plan(ASK), SCORES)
    audits = {FTC: _audit(M5)}
    return Evidence([replace(r, audit=audits.get(r.cell.row, _audit(M2))) for r in made.results])


def test_its_runs_are_runs_of_the_ablation() -> None:
    told = {cell.key("facts") for cell in pseudo_labels.plan(ASK)}
    assert len(told) == 4
    assert told < {cell.key("facts") for cell in ablation.plan(ASK)}


def test_rates_by_truth_beside_the_papers() -> None:
    answer = pseudo_labels.read(ASK, _evidence())
    accuracy, filtered, kept, _ = answer.tables
    # the tail of M2: 80 of 100 dropped, 15 of 20 right, 15 of 100 kept and right
    assert cells_of(filtered, BASELINE)["tail"] == "80.0"
    assert cells_of(accuracy, BASELINE)["tail"] == "75.0"
    assert cells_of(kept, BASELINE)["tail"] == "15.0"
    # all of M5: 120 of 1000 dropped, 847 of 880 right
    assert cells_of(filtered, FTC)["all"] == "12.0"
    assert cells_of(accuracy, FTC)["all"] == "96.2"
    assert cells_of(kept, WITH_OPR)["head (paper)"] == "71.34"
    assert filtered.best == {(3, 1), (3, 3), (3, 5)}  # the least is best
    assert "FTC-Seg drops 50.0 % of the tail's pixels, the EMA baseline 80.0 %, -30.0 points" in answer.finding[0]
    assert "one seed allows no test" in answer.finding[0]
    assert "80.0 % is right, +5.0" in answer.finding[1]
    assert "moves by +25.0" in answer.finding[1]


def test_means_over_classes_have_a_table_of_their_own() -> None:
    other = pseudo_labels.read(ASK, _evidence()).tables[3]
    # (10 + 40 + 80) / 3 of the classes are dropped, 20 of all pixels
    assert cells_of(other, f"{BASELINE}, by truth, macro")["filtered rate, all"] == "43.3"
    assert cells_of(other, f"{BASELINE}, by prediction, micro")["filtered rate, all"] == "20.0"
    assert len(other.rows) == 12


def test_the_product_holds_in_ours_and_in_a_third_of_the_papers_cells() -> None:
    ours = pseudo_labels.ours_hold(_evidence())
    assert "in 12 of our 12 cells" in ours
    broken = _evidence().results[0]
    assert broken.audit is not None
    broken.audit["by_truth"]["micro"]["tail"]["correct_kept"] = 0.25
    assert "in 2 of our 3 cells" in pseudo_labels.ours_hold(Evidence([broken]))
    # 67.03 (1 - .1315) = 58.22; the tails 46.47, 77.93, 79.44; 79.60 (1 - .1038) = 71.34 stands one row too high
    assert pseudo_labels.paper_holds() == (
        "In the paper it holds in 4 of 12 cells; 71.34, printed for M3 EMA+OPR (head), is the product of M4 EMA+ATC."
    )


def test_filtered_rates_are_drawn_for_head_and_tail() -> None:
    (figure,) = pseudo_labels.read(ASK, _evidence()).figures
    assert isinstance(figure, Bars)
    assert figure.groups == tuple(SCORES)
    assert {name: [v and v.mean for v in values] for name, values in figure.series} == {
        "head": [pytest.approx(40), pytest.approx(40), pytest.approx(40), pytest.approx(30)],
        "tail": [pytest.approx(80), pytest.approx(80), pytest.approx(80), pytest.approx(50)],
    }


def test_runs_without_an_audit_are_told() -> None:
    answer = pseudo_labels.read(ASK, evidence_of(pseudo_labels.plan(ASK), SCORES))
    assert "4 runs have no audit" in answer.remarks[0]
    assert "no seed has audited runs" in answer.finding[0]
