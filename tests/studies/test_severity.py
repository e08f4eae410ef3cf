"""The interaction over severities, from numbers made by hand."""

from __future__ import annotations

import pytest
from made_conditions import CORRUPTED, ORIGINAL, evidence

from ftcseg.errors import UsageError
from ftcseg.studies import severity
from ftcseg.studies.conditions import measure_name, plan
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence

ASK = Ask(labels=("50%",))
ALL = [(kind, level) for kind in ("speckle", "scattering", "fog") for level in (1, 3, 5)]


def test_the_severities_and_the_papers_nine_numbers() -> None:
    answer = severity.read(ASK, evidence(ASK, *ALL))
    rows = answer.tables[0].rows
    assert [row[0] for row in rows] == ["speckle", "scattering", "fog"]
    assert rows[0][1:4] == ("σ 0.15", "5.00", "+0.89 (flsmd)")
    assert [row[3] for row in rows] == ["+0.89 (flsmd)", "+1.04 (suim)", "-0.11 (acdc-driving)"]
    assert [row[6] for row in rows] == ["+1.83 (flsmd)", "+1.56 (suim)", "+1.55 (acdc-driving)"]
    assert [row[9] for row in rows] == ["+2.92 (flsmd)", "+1.22 (suim)", "+2.23 (acdc-driving)"]
    assert [row[7] for row in rows] == ["σ 0.60", "t 0.40", "(a, b) (3.0, 1.4)"]
    assert answer.tables[0].paper == {3, 6, 9}
    assert answer.finding[0] == (
        "With 50% of the labels and speckle, I in points is mild +5.00, medium +5.00, severe +5.00, nowhere apart from "
        "0 over images."
    )
    assert len(answer.finding) == 3


def test_the_lines_carry_half_the_interval() -> None:
    (lines,) = severity.read(ASK, evidence(ASK, *ALL)).figures
    name, places = lines.series[0]  # type: ignore[union-attr]
    assert name == "speckle"
    assert [place for place, _ in places] == [1.0, 3.0, 5.0]  # type: ignore[misc]
    assert places[0][1].mean == pytest.approx(5.0)  # type: ignore[union-attr, index]
    assert places[0][1].spread == pytest.approx(2.5)  # type: ignore[union-attr, index]  # from 0 to 5


def test_a_set_of_the_papers_has_its_own_number_alone() -> None:
    ask = Ask(datasets=("suim",))
    rows = severity.read(ask, evidence(ask, *ALL)).tables[0].rows
    assert [row[3] for row in rows] == ["+0.89 (flsmd)", "+1.04", "-0.11 (acdc-driving)"]


def test_what_is_not_measured_yet_is_left_open() -> None:
    assert severity.read(ASK, Evidence([])).finding == ("With 50% of the labels nothing is measured yet.",)
    (cell,) = plan(ASK)
    told = {measure_name(cell, "", 0): ORIGINAL, measure_name(cell, "fog", 3): CORRUPTED}
    answer = severity.read(ASK, Evidence([], told))
    assert [row[0] for row in answer.tables[0].rows] == ["fog"]
    assert answer.tables[0].rows[0][2] == "n/a"
    assert "I in points is medium +5.00" in answer.finding[0]


def test_kinds_are_checked_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="no corruption called 'rain'"):
        severity.measures(Ask(options={"kinds": "speckle,rain"}))
    found = severity.measures(Ask(options={"kinds": "gaussian, gaussian"}))
    assert [m.told["kind"] for m in found] == ["", "gaussian", "gaussian", "gaussian"]
    assert [m.told["severity"] for m in found] == [0, 1, 3, 5]
