"""How much lambda_D, lambda_B and K matter: one at a time around the values of the chosen reading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ftcseg.config.load import draft_for
from ftcseg.errors import UsageError
from ftcseg.studies.figures import Lines
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    column,
    drawn,
    gap,
    in_group,
    over_seeds,
    places,
    points,
    spread_of,
    suffix,
    uneven,
    unfinished,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULT = "default"
"""The row of the reading itself; it is a point of every sweep."""
DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS = {"lambda_d": "0,0.1,0.5,1,2", "lambda_b": "0,0.05,0.1,0.25,0.5", "K": "4,8,16,32,64"}
"""The values that are tried, with commas; the reading's own is always among them."""
KEYS = {"lambda_d": "atc.lambda_d", "lambda_b": "atc.lambda_b", "K": "opr.count"}
PAPER = {"lambda_d": 0.1, "lambda_b": 0.05, "K": 16.0}
PAPER_LOSS = 4.0
"""Points below the optimum that the paper stays within (FLSMD, 2 %); its figure prints no values."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One parameter and the rows that try its values, from low to high."""

    name: str
    rows: Mapping[str, float]
    own: float
    """The reading's value, tried by the row DEFAULT."""


def plan(ask: Ask) -> list[Cell]:
    """The reading as it is, and every other value of every parameter."""
    rows: Rows = {DEFAULT: (ask.ftc, ())} | {
        row: (ask.ftc, (f"{KEYS[sweep.name]}={value:g}",))
        for sweep in sweeps(ask)
        for row, value in sweep.rows.items()
        if row != DEFAULT
    }
    return grid(ask, rows)


def sweeps(ask: Ask) -> list[Sweep]:
    """The parameters with their values; one without values is left out."""
    config = draft_for(ask.ftc, "cpu", ask.settings).build()  # the hardware's preset says nothing of these
    found = []
    for name, key in KEYS.items():
        values = _values(name, ask.options.get(name, OPTIONS[name]))
        own = float(attrgetter(key)(config))
        rows = {DEFAULT if value == own else f"{name}={value:g}": value for value in sorted({*values, own})}
        if values:
            found.append(Sweep(name, rows, own))
    return found


def _values(name: str, text: str) -> list[float]:
    told = [part.strip() for part in text.split(",") if part.strip()]
    try:
        values = [float(part) for part in told]
    except ValueError:
        values = [math.nan]
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise UsageError(f"--option {name}={text} is no list of numbers. Write them with commas: {OPTIONS[name]}.")
    if name == "K" and any(value < 1 or value % 1 for value in values):
        raise UsageError(f"--option K={text}: there can only be whole prototypes, at least one. Try {OPTIONS['K']}.")
    return values


def read(ask: Ask, evidence: Evidence) -> Answer:
    """A table and a figure for each parameter, set and label amount."""
    cells = plan(ask)
    tables: list[Table] = []
    figures: list[Lines] = []
    tried = sweeps(ask)
    for place in places(ask):
        for sweep in tried:
            if any(evidence.of(row, *place) for row in sweep.rows):
                tables.append(_table(evidence, sweep, *place))
                figures.append(_figure(ask, evidence, sweep, *place))
    findings = [_finding(tried, evidence, *place) for place in places(ask)]
    kept = 2 if unfinished(cells, evidence) else 3
    paper = (
        f"The paper (FLSMD, 2%) has its peak at lambda_d 0.1, lambda_b 0.05 and K 16 and stays within {PAPER_LOSS:.0f} "
        "points of it; its figure prints no values."
    )
    told = (*findings[:kept], *unfinished(cells, evidence))
    return Answer(told, tuple(tables), (*findings[kept:], paper, *uneven(cells, evidence)), tuple(figures))


def _table(evidence: Evidence, sweep: Sweep, dataset: str, labels: str) -> Table:
    rows = [row for row in sweep.rows if evidence.of(row, dataset, labels)]
    base = evidence.of(DEFAULT, dataset, labels)
    gaps = {row: test for row in rows if row != DEFAULT and (test := gap(evidence.of(row, dataset, labels), base))}
    columns = [
        column("mIoU, last", evidence, Result.miou, dataset, labels),
        column("mIoU, best", evidence, lambda r: r.miou("best"), dataset, labels),
        column("tail", evidence, in_group("tail"), dataset, labels),
        Column(heading="over the default", values={DEFAULT: "–"} | {r: points(t.difference) for r, t in gaps.items()}),
        Column(
            heading="default (paper)",
            values={row: "✓" if value == PAPER[sweep.name] else "–" for row, value in sweep.rows.items()},
            paper=True,
        ),
    ]
    table = table_of(f"{sweep.name} with {where(dataset, labels)}", sweep.name, rows, columns)
    return _by_value(table, sweep)


def _by_value(table: Table, sweep: Sweep) -> Table:
    """The same with the value in place of the row's name."""
    names = {row: f"{value:g}{' (default)' if row == DEFAULT else ''}" for row, value in sweep.rows.items()}
    rows = tuple((names[row[0]], *row[1:]) for row in table.rows)
    return Table(table.title, table.headings, rows, table.best, table.second, table.paper)


def _figure(ask: Ask, evidence: Evidence, sweep: Sweep, dataset: str, labels: str) -> Lines:
    found = {value: over_seeds(evidence.of(row, dataset, labels), Result.miou) for row, value in sweep.rows.items()}
    line = tuple((value, height) for value, one in found.items() if (height := drawn(one)) is not None)
    return Lines(
        name=f"sensitivity-{sweep.name.lower()}{suffix(ask, dataset, labels)}",
        title=f"{sweep.name} with {where(dataset, labels)}",
        label="mIoU at the end (%)",
        across=sweep.name,
        series=((ask.ftc, line),),
        chosen=sweep.own,
        log=sweep.name == "K",
        spread=spread_of(ask),
    )


def _finding(tried: Sequence[Sweep], evidence: Evidence, dataset: str, labels: str) -> str:
    """How far the values lie apart, whether the default leads, and whether that means anything."""
    base = evidence.of(DEFAULT, dataset, labels)
    gaps = {
        row: test.difference
        for sweep in tried
        for row in sweep.rows
        if row != DEFAULT and (test := gap(evidence.of(row, dataset, labels), base)) is not None
    }
    start = f"With {where(dataset, labels)}, "
    if not gaps:
        return f"{start}there is nothing to compare the default with yet."
    high, low = max(gaps, key=lambda row: gaps[row]), min(gaps, key=lambda row: gaps[row])
    begun = [sweep for sweep in tried if any(row in gaps for row in sweep.rows)]
    peaks = sum(all(gaps.get(row, 0.0) <= 0 for row in sweep.rows) for sweep in begun)
    widest = 100 * (max(gaps[high], 0.0) - min(gaps[low], 0.0))
    return (
        f"{start}the values tried end between {points(gaps[low])} ({low}) and {points(gaps[high])} ({high}: "
        f"{verdict(evidence.of(high, dataset, labels), base)}) of the default, which leads in {peaks} of {len(begun)} "
        f"sweeps; the lowest is {widest:.1f} points below the best (the paper: at most {PAPER_LOSS:.0f})."
    )
