"""Studies: a frozen plan of runs, what is missing of it run, and the answer written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ftcseg.errors import unknown_name
from ftcseg.studies import methods
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.results import Result
from ftcseg.studies.tables import Answer


@dataclass(frozen=True, slots=True)
class Study:
    """One question: which runs it takes, and how they are read."""

    line: str
    paper: str
    """The paper's table or figure it stands beside."""
    plan: Callable[[Ask], list[Cell]]
    read: Callable[[Ask, list[Result]], Answer]
    defaults: Ask
    """What is asked where the user says nothing."""


STUDIES: Mapping[str, Study] = {
    "methods": Study(
        "every method on one split, beside labels alone",
        "main tables, one setting",
        methods.plan,
        methods.read,
        methods.DEFAULTS,
    ),
}


def find_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]
