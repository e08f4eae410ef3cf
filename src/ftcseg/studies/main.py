"""The paper's main tables: its comparison at every set and label amount, FTC-Seg tested against every other row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from ftcseg.studies.figures import Bars, Value
from ftcseg.studies.paper_main import DINOV2, MIT, RN101, published
from ftcseg.studies.plan import EMBEDDED, Ask, Cell, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    column,
    compared_rows,
    drawn,
    family_of,
    in_group,
    over_seeds,
    p_cell,
    places,
    points,
    spread_of,
    suffix,
    uneven,
    unfinished,
    where,
)
from ftcseg.studies.statistics import Comparison, Family, Summary
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
PAPER_DIGITS = 2

Key: TypeAlias = tuple[str, str, str]
"""Set, label amount and the row that FTC-Seg is compared with."""


def plan(ask: Ask) -> list[Cell]:
    """Every row at every set, label amount and seed."""
    return grid(ask, compared_rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """For each set: mIoU beside the paper's, the groups, and the tests."""
    rows = [row for row in compared_rows(ask) if row in evidence.rows()]
    others = [(*place, row) for place in places(ask) for row in rows if row != ask.ftc]
    tests = family_of({_pair(*key): (evidence.of(ask.ftc, *key[:2]), evidence.of(key[2], *key[:2])) for key in others})
    tables = []
    for dataset in ask.datasets:
        tables += [_scores(ask, evidence, dataset, rows), _groups(ask, evidence, dataset, rows)]
        if any(test.count for test in tests.comparisons):
            tables.append(_tested(ask, tests, dataset, rows))
    cells = plan(ask)
    finding = _finding(ask, evidence, {key: tests[_pair(*key)] for key in others})
    return Answer(
        (*finding, *unfinished(cells, evidence)),
        tuple(tables),
        (*tests.notes(), *uneven(cells, evidence)),
        tuple(_figure(ask, evidence, dataset, rows) for dataset in ask.datasets),
    )


def _pair(dataset: str, labels: str, row: str) -> str:
    return f"{row}, {where(dataset, labels)}"


def _scores(ask: Ask, evidence: Evidence, dataset: str, rows: Sequence[str]) -> Table:
    columns = []
    for labels in ask.labels:
        columns.append(column(f"{labels}, last", evidence, Result.miou, dataset, labels))
        columns.append(column(f"{labels}, best", evidence, lambda r: r.miou("best"), dataset, labels))
        columns += paper_columns(ask, dataset, labels)
    return table_of(f"mIoU{_of(dataset)}", "method", rows, columns)


def paper_columns(ask: Ask, dataset: str, labels: str) -> list[Column]:
    """The paper's mIoU at this setting by encoder; none where it has no such setting."""
    told = {row: published(dataset, labels, "ftc" if row == ask.ftc else row) for row in compared_rows(ask)}
    if not any(told.values()):
        return []
    first: dict[str, Summary | str | None] = {row: found.get(RN101) for row, found in told.items()}
    for row, found in told.items():
        if MIT in found:  # one row of the paper: too few for a column
            first[row] = f"{spoken(found[MIT], digits=PAPER_DIGITS)} ({MIT})"
    second = {row: found.get(DINOV2) for row, found in told.items()}
    return [
        Column(heading=f"{labels}, {RN101} (paper)", values=first, digits=PAPER_DIGITS, paper=True),
        Column(heading=f"{labels}, {DINOV2} (paper)", values=second, digits=PAPER_DIGITS, paper=True),
    ]


def _figure(ask: Ask, evidence: Evidence, dataset: str, rows: Sequence[str]) -> Bars:
    def heights(row: str) -> tuple[Value | None, ...]:
        return tuple(drawn(over_seeds(evidence.of(row, dataset, labels), Result.miou)) for labels in ask.labels)

    return Bars(
        name=f"main{suffix(replace(ask, labels=()), dataset, '')}",
        title=f"Labels alone and the paper's comparison{_of(dataset)}",
        label="mIoU at the end (%)",
        groups=tuple(f"{labels} of the labels" for labels in ask.labels),
        series=tuple((row, heights(row)) for row in rows),
        spread=spread_of(ask),
    )


def _groups(ask: Ask, evidence: Evidence, dataset: str, rows: Sequence[str]) -> Table:
    columns = [
        column(f"{labels}, {group}", evidence, in_group(group), dataset, labels)
        for labels in ask.labels
        for group in ("head", "middle", "tail")
    ]
    return table_of(f"mIoU of head, middle and tail classes at the end{_of(dataset)}", "method", rows, columns)


def _tested(ask: Ask, tests: Family, dataset: str, rows: Sequence[str]) -> Table:
    others = [row for row in rows if row != ask.ftc]
    columns = []
    for labels in ask.labels:
        found = {row: tests[_pair(dataset, labels, row)] for row in others}
        gaps = {row: points(t.difference) for row, t in found.items() if t.difference is not None}
        told = {
            f"{ask.ftc} less row": gaps,
            "seeds": {row: str(t.count) for row, t in found.items()},
            "Holm p": {row: p_cell(t.corrected) for row, t in found.items() if row in gaps},
        }
        columns += [Column(heading=f"{labels}, {name}", values=values) for name, values in told.items()]
    return table_of(f"{ask.ftc} against every row over the seeds both have{_of(dataset)}", "method", others, columns)


def _finding(ask: Ask, evidence: Evidence, tests: Mapping[Key, Comparison]) -> tuple[str, ...]:
    gaps = {key: test.difference for key, test in tests.items() if test.difference is not None}
    if not gaps:
        return (f"There is nothing to compare {ask.ftc} with yet.",)
    ahead = sum(difference > 0 for difference in gaps.values())
    high, low = max(gaps, key=lambda key: gaps[key]), min(gaps, key=lambda key: gaps[key])
    settings = {key[:2] for key in gaps}
    if len(settings) == 1:
        mean = over_seeds(evidence.of(ask.ftc, *high[:2]), Result.miou)
        first = f"With {where(*high[:2])}, {ask.ftc} ({spoken(mean)} mIoU) ends above {ahead} of {len(gaps)} rows"
        name = {high: high[2], low: low[2]}
    else:
        first = f"Over {len(settings)} settings, {ask.ftc} is the higher in {ahead} of {len(gaps)} comparisons"
        name = {key: _pair(*key) for key in (high, low)}
    first += (
        f" over the seeds both have, from {points(gaps[low])} ({name[low]}) to {points(gaps[high])} ({name[high]})."
    )
    formed = {key: test for key, test in tests.items() if test.corrected is not None}
    if not formed:
        return first, "One seed, or gaps that are all equal, allow no test: none of this is more than a first look."
    holds = [gaps[key] for key, test in formed.items() if test.holds()]
    higher, fewest = sum(gap > 0 for gap in holds), min(test.count for test in formed.values())
    return first, (
        f"Of {len(formed)} paired tests over {fewest} seeds or more, corrected by Holm, {higher} say that it is higher "
        f"and {len(holds) - higher} that it is lower; {len(formed) - len(holds)} are undecided."
    )


def _of(dataset: str) -> str:
    return "" if dataset == EMBEDDED else f", {Path(dataset).name}"
