"""OPR on more stages, read off runs and counts made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import cells_of, defaults_of, evidence_of

from ftcseg.studies import opr_layers
from ftcseg.studies.figures import Lines
from ftcseg.studies.opr_layers import LONE, OF_PAPER, OF_RUNS, STAGES, WIDE
from ftcseg.studies.plan import Bench
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, WITH_OPR, calibration_rows

ASK = replace(defaults_of("opr-layers"), seeds=(0, 1), settings=())
SCORES = {row: [0.30 + gain, 0.32 + gain] for row, gain in zip(STAGES, (0.0, 0.02, 0.04, 0.03, 0.01), strict=True)}
MEBI = 2**20


def _counted() -> dict[str, Any]:
    """The counts of methods.md 1.4 with memory of 50 MiB a stage."""
    found = {
        row: {
            "parameters": 24_794_987 + n * 10_379,
            "macs": 56_828_926_464 + n * 16_889_856,
            "others": 115_246_896,
            "seconds": [0.5 + 0.01 * n] * 3,
            "peak": (13_700 + 50 * n) * MEBI,
        }
        for n, row in enumerate(STAGES)
    }
    found[WIDE] = {"parameters": 24_983_147, "macs": 73_280_000_000, "others": 115_246_896, "seconds": []}
    found[LONE] = {"parameters": 24_794_987 + 4 * 6_144, "macs": 0, "others": 0, "seconds": []}
    return {"shape": [1, 3, 518, 518], "images": 12, "machine": "a processor", "networks": found}


@pytest.mark.parametrize(("ftc", "usual"), [("ftc", 1), ("ftc-paper", 2)])
def test_a_readings_own_number_of_stages_is_its_own_run(ftc: str, usual: int) -> None:
    ask = replace(ASK, ftc=ftc)
    told = {cell.row: cell.settings for cell in opr_layers.plan(ask)}
    assert told[STAGES[0]] == calibration_rows(ask)[BASELINE][1]
    assert told[STAGES[usual]] == calibration_rows(ask)[WITH_OPR][1]
    assert told[STAGES[3]] == ("thresholds=fixed", "opr.layers=3")


def test_scores_by_stages_beside_the_papers() -> None:
    answer = opr_layers.read(ASK, evidence_of(opr_layers.plan(ASK), SCORES))
    (table,) = answer.tables
    row = cells_of(table, STAGES[2])
    assert (row["mIoU, last"], row["over none"], row["mIoU (paper)"]) == ("35.0 ± 1.4", "+4.0", "62.55")
    assert (
        "2 stages of OPR end highest, at 35.0 ± 1.4 mIoU, +4.0 over 0 stages (the gaps are all equal)"
        in (answer.finding[0])
    )
    assert "in the paper 2 stages do, +3.80 over none" in answer.finding[0]
    (figure,) = answer.figures
    assert isinstance(figure, Lines)
    assert [place for place, _ in figure.series[0][1]] == [0, 1, 2, 3, 4]


def test_what_the_counts_say_about_the_papers_columns() -> None:
    evidence = Evidence(evidence_of(opr_layers.plan(ASK), SCORES).results, {OF_PAPER: _counted()})
    answer = opr_layers.read(ASK, evidence)
    costs = cells_of(answer.tables[1], STAGES[4])
    assert costs["parameters (M)"] == "24.8365"
    assert costs["parameters (M) (paper)"] == "24.84"
    assert costs["memory (MB) (paper)"] == "14497"
    assert costs["training (MiB)"] == "13900.0"
    assert costs["time / none"] == "1.080 (1.080 to 1.080)"
    assert (
        "A stage adds 10,379 parameters to 24.79 M, 0.0169 G multiply-adds to 56.83 G and 50.0 MiB"
        in (answer.finding[-1])
    )
    told = " ".join(answer.remarks)
    assert "takes at least 10,000 parameters a stage. A stage with a probe has 10,379" in told
    assert "prototypes alone would end at 24.82 M" in told
    assert "rounds to 24.79 24.81 24.82 24.83 24.84 and is cut to 24.79 24.80 24.81 24.82 24.83" in told
    assert "wide head alone makes 24.98 M and 73.40 G" in told
    assert "50.0 MiB to a step on 12 images here and 54.5 MB in the paper" in told
    assert len(answer.finding) <= 3


def test_the_papers_network_is_measured_on_0_to_4_stages(tmp_path: Path) -> None:
    small = {**ASK.options, "encoder": "tiny", "size": "64", "classes": "3", "images": "2", "repeats": "1"}
    measures = {measure.name: measure for measure in opr_layers.measures(replace(ASK, options=small))}
    assert [cell.row for cell in measures[OF_RUNS].cells] == list(STAGES)
    assert {cell.seed for cell in measures[OF_RUNS].cells} == {0}
    found = measures[OF_PAPER].take(Bench((), "", None, tmp_path))["networks"]
    assert set(found) == {*STAGES, WIDE, LONE}
    peaks = [found[row]["peak"] for row in STAGES]
    assert peaks == sorted(peaks)
    assert found[LONE]["seconds"] == []
