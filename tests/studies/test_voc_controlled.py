"""A long tail with and without noise, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_results import cells_of, defaults_of, evidence_of

from ftcseg.errors import UsageError
from ftcseg.studies import voc_controlled
from ftcseg.studies.plan import Prepared
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, FTC
from ftcseg.studies.voc_controlled import GAIN, NOISE, TAIL, named

ASK = replace(defaults_of("voc-controlled"), seeds=(0, 1), settings=())
SCORES = {
    named(BASELINE, TAIL): [0.40, 0.42],
    named(FTC, TAIL): [0.44, 0.44],
    named(BASELINE, NOISE): [0.30, 0.34],
    named(FTC, NOISE): [0.38, 0.40],
}


def test_both_conditions_have_the_same_lists_and_noise_on_training_images_only() -> None:
    cells = voc_controlled.plan(ASK)
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    told = {cell.row: cell.prepared for cell in cells}
    assert told[named(FTC, TAIL)] == Prepared(long_tail=20)
    assert told[named(BASELINE, NOISE)] == Prepared(long_tail=20, corrupt="gaussian", severity=3, parts=("train",))


def test_costs_of_the_noise_and_gains() -> None:
    answer = voc_controlled.read(ASK, evidence_of(voc_controlled.plan(ASK), SCORES))
    (table,) = answer.tables
    # the baseline loses 10 and 8 points: 9 ± sqrt 2
    assert cells_of(table, BASELINE) == {
        "model": BASELINE,
        TAIL: "41.0 ± 1.4",
        f"{TAIL} (paper)": "70.76",
        NOISE: "32.0 ± 2.8",
        f"{NOISE} (paper)": "63.18",
        "noise-induced change": "-9.0 ± 1.4",
        "noise-induced change (paper)": "-7.58",
    }
    # 4 and 2 points without noise, 8 and 6 with
    gains = cells_of(table, GAIN)
    assert (gains[TAIL], gains[NOISE]) == ("+3.0 ± 1.4", "+7.0 ± 1.4")
    assert (gains[f"{TAIL} (paper)"], gains[f"{NOISE} (paper)"]) == ("+4.60", "+5.93")
    assert "M2 EMA -9.0 (" in answer.finding[0]
    assert "M5 FTC-Seg -5.0 (" in answer.finding[0]
    assert "+3.0 with a long tail (" in answer.finding[1]
    assert "+7.0 with a long tail + noise (" in answer.finding[1]


def test_an_unfinished_seed_is_told() -> None:
    assert "not all four runs" in voc_controlled.read(ASK, Evidence([])).finding[0]


@pytest.mark.parametrize(("key", "value"), [("ratio", "much"), ("ratio", "0.5"), ("ratio", "inf"), ("severity", "1.5")])
def test_an_option_that_is_no_number_is_told(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{key}={value}"):
        voc_controlled.plan(replace(ASK, options={**ASK.options, key: value}))
