"""An answer put together setting by setting: one for every set and label amount that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ftcseg.studies.figures import Bars, Figure
from ftcseg.studies.paper_main import share
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import drawn, family_of, over_seeds, places, spread_of, suffix, uneven, unfinished, where
from ftcseg.studies.tables import Answer, Column, Table

Value: TypeAlias = Callable[[Result], float | None]
"""Reads a number of a run; None where it has none."""

SENTENCES = 3
"""What a finding may take; what many settings say beyond that goes to the remarks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a study reads its runs on one set and label amount: each is given the two."""

    finding: Callable[[str, str], list[str]]
    tables: Callable[[str, str], list[Table]]
    figures: Callable[[str, str], list[Figure]] = lambda *_: []


def answer_of(
    ask: Ask, evidence: Evidence, cells: Sequence[Cell], reading: Reading, remarks: Sequence[str] = ()
) -> Answer:
    """The findings first, at most three sentences of them, then all tables and figures."""
    findings = [sentence for place in places(ask) for sentence in reading.finding(*place)]
    late = unfinished(cells, evidence)
    kept = SENTENCES - len(late)
    return Answer(
        (*findings[:kept], *late),
        tuple(table for place in places(ask) for table in reading.tables(*place)),
        (*findings[kept:], *remarks, *uneven(cells, evidence)),
        tuple(figure for place in places(ask) for figure in reading.figures(*place)),
    )


def notes_on(evidence: Evidence, ask: Ask, base: str) -> tuple[str, ...]:
    """What the tests of every row against `base` warn of, by mIoU, Holm over all of them."""
    tests = family_of(
        {
            f"{row}, {where(*place)}": (evidence.of(row, *place), evidence.of(base, *place))
            for place in places(ask)
            for row in evidence.rows()
            if row != base and evidence.of(row, *place)
        }
    )
    return tests.notes()


def printed(heading: str, numbers: Mapping[str, float]) -> Column:
    """A column of the paper's numbers, in percent."""
    values = {row: share(number) for row, number in numbers.items()}
    return Column(heading=f"{heading} (paper)", values=values, digits=2, paper=True)


def rate(
    kind: str,
    group: str = "global",
    by: Literal["truth", "prediction"] = "truth",
    mean: Literal["micro", "macro"] = "micro",
) -> Value:
    """Reads a rate of the pseudo-labels, as `Result.rate` does."""
    return lambda result: result.rate(kind, group, by, mean)


def present(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    """The rows that have runs here."""
    return [row for row in evidence.rows() if evidence.of(row, dataset, labels)]


def bars(
    ask: Ask,
    evidence: Evidence,
    place: tuple[str, str],
    values: Mapping[str, Value],
    named: tuple[str, str, str],
) -> list[Figure]:
    """A bar for each value of each row; `named` are the file, the title and what the heights are."""
    rows = present(evidence, *place)
    if not rows:
        return []
    series = tuple(
        (name, tuple(drawn(over_seeds(evidence.of(row, *place), value)) for row in rows))
        for name, value in values.items()
    )
    if not any(height for _, heights in series for height in heights):
        return []
    file, title, label = named
    return [
        Bars(
            name=f"{file}{suffix(ask, *place)}",
            title=f"{title} with {where(*place)}",
            label=label,
            groups=tuple(rows),
            series=series,
            spread=spread_of(ask),
        )
    ]
