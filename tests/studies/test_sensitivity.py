"""Sweeps around the default, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_results import cells_of, evidence_of

from ftcseg.errors import UsageError
from ftcseg.studies import sensitivity
from ftcseg.studies.figures import Lines
from ftcseg.studies.plan import Ask

FEW = {"lambda_d": "0.2, 0,0.1", "lambda_b": "", "K": "8"}
PRINTED = Ask(options=FEW, ftc="ftc-paper")
ASK = replace(PRINTED, seeds=(0, 1))


def test_one_parameter_moves_at_a_time_and_the_default_runs_once() -> None:
    told = [(cell.row, cell.settings) for cell in sensitivity.plan(PRINTED)]
    assert told == [
        ("default", ()),
        ("lambda_d=0", ("atc.lambda_d=0",)),
        ("lambda_d=0.2", ("atc.lambda_d=0.2",)),
        ("K=8", ("opr.count=8",)),
    ]


def test_the_default_is_the_readings_own_or_the_users() -> None:
    assert [(s.name, s.own) for s in sensitivity.sweeps(Ask())] == [("lambda_d", 1.0), ("lambda_b", 0.25), ("K", 16.0)]
    moved = replace(PRINTED, settings=("atc.lambda_d=0.2",))
    assert sensitivity.sweeps(moved)[0].rows == {"lambda_d=0": 0.0, "lambda_d=0.1": 0.1, "default": 0.2}
    assert sensitivity.plan(moved)[2].settings == ("atc.lambda_d=0.2", "atc.lambda_d=0.1")  # the later one counts


@pytest.mark.parametrize("options", [{"lambda_d": "low"}, {"lambda_b": "-1"}, {"K": "8.5"}, {"K": "0"}, {"K": "nan"}])
def test_values_that_are_none_are_told_with_a_remedy(options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=sensitivity.OPTIONS[name]):
        sensitivity.plan(Ask(options=options))


def test_how_far_the_values_lie_apart() -> None:
    scores = {"default": [0.40, 0.42], "lambda_d=0": [0.36, 0.36], "lambda_d=0.2": [0.40, 0.40], "K=8": [0.43, 0.41]}
    answer = sensitivity.read(ASK, evidence_of(sensitivity.plan(ASK), scores))
    swept, prototypes = answer.tables
    assert [row[0] for row in swept.rows] == ["0", "0.1 (default)", "0.2"]
    assert cells_of(swept, "0")["over the default"] == "-5.0"
    assert cells_of(swept, "0.1 (default)")["default (paper)"] == "✓"
    assert swept.best == {(1, 1), (1, 2)}
    assert cells_of(prototypes, "8")["over the default"] == "+1.0"
    # gaps of K=8: 0.03 and -0.01, t = 0.01 / 0.02 = 0.5, one degree: p = 1 - 2 atan(0.5) / pi = 0.7048
    assert answer.finding == (
        "With 10% of the labels, the values tried end between -5.0 (lambda_d=0) and +1.0 (K=8: inside the spread of "
        "±1.4, p 0.7 over 2 seeds, too few to trust) of the default, which leads in 1 of 2 sweeps; "
        "the lowest is 6.0 points below the best (the paper: at most 4).",
    )
    assert [figure.name for figure in answer.figures] == ["sensitivity-lambda_d", "sensitivity-k"]
    first, second = answer.figures
    assert isinstance(first, Lines)
    assert isinstance(second, Lines)
    assert (first.chosen, first.log, second.chosen, second.log) == (0.1, False, 16.0, True)
    assert [(place, value.mean) for place, value in first.series[0][1]] == [
        (0.0, pytest.approx(36.0)),
        (0.1, pytest.approx(41.0)),
        (0.2, pytest.approx(40.0)),
    ]


def test_a_sweep_that_has_not_begun_is_not_counted() -> None:
    answer = sensitivity.read(
        ASK, evidence_of(sensitivity.plan(ASK), {"default": [0.4, None], "lambda_d=0": [0.3, 0.9]})
    )
    assert "between -10.0 (lambda_d=0) and -10.0 (lambda_d=0: one seed allows no test)" in answer.finding[0]
    assert "which leads in 1 of 1 sweeps; the lowest is 10.0 points below the best" in answer.finding[0]
    assert answer.finding[1] == "5 of 8 runs are missing."


def test_without_the_default_there_is_nothing_to_compare() -> None:
    answer = sensitivity.read(ASK, evidence_of(sensitivity.plan(ASK), {"K=8": [0.4, 0.4]}))
    assert answer.finding[0] == "With 10% of the labels, there is nothing to compare the default with yet."
    assert [table.title for table in answer.tables] == ["K with 10% of the labels"]
