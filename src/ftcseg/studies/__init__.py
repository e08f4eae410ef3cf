"""Studies: a frozen plan of runs, what is missing of it run, and the answer written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ftcseg.errors import unknown_name
from ftcseg.studies import methods
from ftcseg.studies.plan import Ask, Cell, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.tables import Answer


def no_measures(_ask: Ask) -> list[Measure]:
    """For studies that read all they need from their runs."""
    return []


def no_runs(_ask: Ask) -> list[Cell]:
    """For studies that train nothing."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question: which runs it takes, what is measured on them, and how all that is read."""

    line: str
    paper: str
    """The paper's table or figure it stands beside."""
    plan: Callable[[Ask], list[Cell]] = no_runs
    measures: Callable[[Ask], list[Measure]] = no_measures
    read: Callable[[Ask, Evidence], Answer]
    defaults: Ask
    """What is asked where the user says nothing."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The study's own choices, each with its default; `Ask.options` always has all of them."""


STUDIES: Mapping[str, Study] = {
    "methods": Study(
        line="every method on one split, beside labels alone",
        paper="main tables, one setting",
        plan=methods.plan,
        read=methods.read,
        defaults=methods.DEFAULTS,
    ),
}


def find_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]
