"""Free and class-anchored prototypes, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace

from made_results import cells_of, evidence_of

from ftcseg.studies import class_anchored
from ftcseg.studies.class_anchored import ANCHORED
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, WITH_OPR

ASK = Ask(seeds=(0, 1, 2))
SCORES = {BASELINE: [0.30, 0.31, 0.32], WITH_OPR: [0.34, 0.36, 0.38], ANCHORED: [0.31, 0.32, 0.33]}


def test_only_the_prototypes_differ() -> None:
    told = {cell.row: cell.settings for cell in class_anchored.plan(ASK)}
    assert told[ANCHORED] == (*told[WITH_OPR], "opr.prototypes=class_mean")


def test_the_gap_is_told_beside_the_papers() -> None:
    made = evidence_of(class_anchored.plan(ASK), SCORES, tail=0.1)
    evidence = Evidence([replace(r, audit={"kept_miou": 0.25}) for r in made.results])
    answer = class_anchored.read(ASK, evidence)
    (table,) = answer.tables
    assert cells_of(table, ANCHORED) == {
        "prototypes": ANCHORED,
        "mIoU": "32.0 ± 1.0",
        "mIoU (paper)": "54.87",
        "tail mIoU": "10.0 ± 0.0",
        "tail mIoU (paper)": "8.93",
        "pseudo-label mIoU": "25.0 ± 0.0",
        "pseudo-label mIoU (paper)": "58.25",
    }
    # gaps -3, -4, -5; in the paper 54.87 - 62.55
    assert "end at 32.0 ± 1.0 mIoU and free ones at 36.0 ± 2.0: -4.0 (" in answer.finding[0]
    assert "-7.68 in the paper" in answer.finding[0]
    assert "free ones bring +5.0" in answer.finding[1]
    assert "anchored ones +1.0." in answer.finding[1]


def test_nothing_to_compare_is_said() -> None:
    assert "no seed in common yet" in class_anchored.read(ASK, Evidence([])).finding[0]
