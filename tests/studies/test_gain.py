"""FTC-Seg's gain as the set is, under noise and on unseen scenes, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_results import cells_of, defaults_of, evidence_of

from ftcseg.errors import UsageError
from ftcseg.studies import gain
from ftcseg.studies.gain import NOISE, PLAIN, SCENES, named
from ftcseg.studies.plan import Prepared
from ftcseg.studies.results import Evidence

ASK = replace(defaults_of("gain"), seeds=(0, 1), settings=())
SCORES = {
    named("unimatch-v2", PLAIN): [0.40, 0.42],
    named("ftc", PLAIN): [0.44, 0.44],
    named("unimatch-v2", NOISE): [0.30, 0.34],
    named("ftc", NOISE): [0.38, 0.40],
    named("unimatch-v2", SCENES): [0.20, 0.21],
    named("ftc", SCENES): [0.19, 0.21],
}


def test_the_set_as_it_is_shares_its_runs_with_other_studies() -> None:
    cells = gain.plan(ASK)
    assert [cell.seed for cell in cells] == [0] * 6 + [1] * 6
    told = {cell.row: cell.prepared for cell in cells}
    assert told[named("ftc", PLAIN)] is None
    assert told[named("ftc", NOISE)] == Prepared(corrupt="speckle", severity=5, parts=("train", "val", "test"))
    assert told[named("unimatch-v2", SCENES)] == Prepared(by_sequence="val", val="20%")


def test_gains_under_each_condition() -> None:
    answer = gain.read(ASK, evidence_of(gain.plan(ASK), SCORES, tail=0.1))
    scores, tails = answer.tables
    assert cells_of(scores, "ftc") == {"model": "ftc", PLAIN: "44.0 ± 0.0", NOISE: "39.0 ± 1.4", SCENES: "20.0 ± 1.4"}
    # 4 and 2 points; 8 and 6; -1 and 0
    assert cells_of(scores, "gain over unimatch-v2") == {
        "model": "gain over unimatch-v2",
        PLAIN: "+3.0 ± 1.4",
        NOISE: "+7.0 ± 1.4",
        SCENES: "-0.5 ± 0.7",
    }
    assert cells_of(tails, "ftc")[PLAIN] == "10.0 ± 0.0"
    assert "ftc over unimatch-v2: +3.0 as it is (" in answer.finding[0]
    assert "+7.0 added noise (" in answer.finding[0]
    assert "-0.5 unseen scenes (" in answer.finding[0]
    (figure,) = answer.figures
    assert figure.name == "gain"


def test_several_models_beside_it() -> None:
    ask = replace(ASK, options={**ASK.options, "beside": "supervised, unimatch-v2"})
    scores = {**SCORES, **{named("supervised", condition): [0.3, 0.3] for condition in (PLAIN, NOISE, SCENES)}}
    table = gain.read(ask, evidence_of(gain.plan(ask), scores, tail=0.1)).tables[0]
    assert cells_of(table, "gain over supervised")[PLAIN] == "+14.0 ± 0.0"


def test_a_part_of_it_beside_it() -> None:
    """Which part a gain comes from, by the names of the ablation."""
    ask = replace(ASK, seeds=(0,), options={**ASK.options, "beside": "unimatch-v2, M4 EMA+ATC"})
    told = {cell.row: (cell.method, cell.settings, cell.prepared) for cell in gain.plan(ask)}
    noise = told[named("ftc", NOISE)][2]
    assert told[named("M4 EMA+ATC", NOISE)] == ("ftc", ("opr.layers=0",), noise)
    scores = {**{row: found[:1] for row, found in SCORES.items()}, named("M4 EMA+ATC", NOISE): [0.35]}
    table = gain.read(ask, evidence_of(gain.plan(ask), scores, tail=0.1)).tables[0]
    assert cells_of(table, "gain over M4 EMA+ATC")[NOISE] == "+3.0"


def test_nothing_yet_is_told() -> None:
    assert "no two runs" in gain.read(ASK, Evidence([])).finding[0]


def test_a_severity_that_is_no_number_is_told() -> None:
    with pytest.raises(UsageError, match="severity=much"):
        gain.plan(replace(ASK, options={**ASK.options, "severity": "much"}))
