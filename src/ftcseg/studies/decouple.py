"""Noise and long tail, apart and together: what a fixed threshold drops of the tail under either and under both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ftcseg.evaluate.bootstrap import Interval
from ftcseg.evaluate.filtering import BY, CELLS, PIXELS
from ftcseg.studies.conditions import (
    CHOICES,
    RANGE,
    Square,
    choices,
    condition_measure,
    list_remarks,
    option,
    over,
    paper_value,
    plan,
    span,
    squares,
    whole,
)
from ftcseg.studies.figures import Bars, Value
from ftcseg.studies.plan import Ask, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import EMBEDDED_SETTINGS, drawn, places, spread_of, suffix, where
from ftcseg.studies.statistics import summary
from ftcseg.studies.tables import Answer, Column, Table, table_of

__all__ = ["DEFAULTS", "OPTIONS", "measures", "plan", "read"]

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS = {key: CHOICES[key] for key in ("method", "kind", "severity", "balance", "tau", "images")}
GROUPS = ("tail", "middle", "head", "background")

Squares: TypeAlias = Mapping[int, Square]
"""By seed."""


def measures(ask: Ask) -> list[Measure]:
    """Each network with the images as they are, and with the corrupted ones."""
    kind, severity = option(ask, "kind"), whole(ask, "severity")
    told = choices(ask)
    return [
        condition_measure(cell, told, *condition) for cell in plan(ask) for condition in (("", 0), (kind, severity))
    ]


def read(ask: Ask, evidence: Evidence) -> Answer:
    """The 2x2 of every set and label amount."""
    kind, severity = option(ask, "kind"), whole(ask, "severity")
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Bars] = []
    remarks: list[str] = []
    for dataset, labels in places(ask):
        found = squares(ask, evidence, dataset, labels, kind, severity)
        if not found:
            findings.append(f"With {where(dataset, labels)} nothing is measured yet.")
            continue
        paper = paper_value(dataset, kind, severity)
        findings += _finding(found, dataset, labels, paper)
        tables += [_groups_table(found, dataset, labels, paper), _seeds_table(found), _classes_table(found)]
        figures.append(_figure(ask, found, dataset, labels))
        remarks += list_remarks(found, option(ask, "balance"))
    remarks.append(f"Corruption: {kind}, severity {severity}; threshold {option(ask, 'tau')} for every class.")
    return Answer(tuple(findings[:3]), tuple(tables), tuple(dict.fromkeys(remarks)), tuple(figures))


def _finding(found: Squares, dataset: str, labels: str, paper: float | None) -> list[str]:
    mean = over(found, lambda one: one.together())
    if mean is None:
        return [f"With {where(dataset, labels)} the lists hold no tail pixel, so there is nothing to compare."]
    rates = {cell: over(found, _rate("tail", "truth", cell)) for cell in CELLS}
    said = ", ".join(f"{cell} {100 * value.mean:.2f}" for cell, value in rates.items() if value is not None)
    theirs = f"the paper prints {paper:+.2f}" if paper is not None else f"the paper's sets lie at {RANGE}"
    seeds = "" if len(found) == 1 else f", the mean of {len(found)} networks"
    one = next(iter(found.values()))
    images, sequences = one.interval(), one.interval(over_sequences=True)
    which = "" if len(found) == 1 else " of the first network"
    return [
        f"With {where(dataset, labels)} a fixed threshold drops of the tail's pixels in percent {said}: I = "
        f"{100 * mean.mean:+.2f} points{seeds}; {theirs}.",
        f"The 95 % interval{which} is {span(images)} over {len(one.sequences)} images ({_verdict(images)}) and "
        f"{span(sequences)} over {len(set(one.sequences))} sequences ({_verdict(sequences)}).",
    ]


def _verdict(found: Interval | None) -> str:
    if found is None:
        return "it cannot be formed"
    return "apart from 0" if found.low > 0 or found.high < 0 else "it holds 0"


def _groups_table(found: Squares, dataset: str, labels: str, paper: float | None) -> Table:
    names = {f"{group}, by {by}": (group, by) for by in BY for group in GROUPS}
    columns = [
        Column(
            heading=cell,
            values={name: over(found, _rate(*of, cell)) for name, of in names.items()},
            best=None,
            digits=2,
        )
        for cell in CELLS
    ]
    together = {name: over(found, _together(*of)) for name, of in names.items()}
    columns.append(Column(heading="I", values=together, best=None, digits=2))
    told = f"{paper:+.2f}" if paper is not None else f"{RANGE} (its sets)"
    columns.append(Column(heading="paper, I", values={next(iter(names)): told}, best=None, paper=True))
    title = f"Dropped pixels in percent of the group's, {where(dataset, labels)}"
    return table_of(title, "classes", list(names), columns)


def _rate(group: str, by: str, cell: str) -> Callable[[Square], float | None]:
    return lambda one: one.rates(group, by)[cell]


def _together(group: str, by: str) -> Callable[[Square], float | None]:
    return lambda one: one.together(group, by)


def _class_rate(class_id: int, cell: str) -> Callable[[Square], float | None]:
    return lambda one: one.class_rate(class_id, cell)


def _class_together(class_id: int) -> Callable[[Square], float | None]:
    return lambda one: one.class_together(class_id)


def _seeds_table(found: Squares) -> Table:
    names = {f"seed {seed}, by {by}": (one, by) for seed, one in found.items() for by in BY}
    told = {name: one.together("tail", by) for name, (one, by) in names.items()}
    values = {name: None if value is None else summary([value]) for name, value in told.items()}
    images = {name: span(one.interval(by)) for name, (one, by) in names.items()}
    sequences = {name: span(one.interval(by, over_sequences=True)) for name, (one, by) in names.items()}
    return table_of(
        "I of the tail, network by network, in points",
        "network",
        list(names),
        [
            Column(heading="I", values=values, best=None, digits=2),
            Column(heading="95 % over images", values=images),
            Column(heading="95 % over sequences", values=sequences),
            Column(heading="images", values={n: str(len(one.sequences)) for n, (one, _) in names.items()}),
            Column(heading="sequences", values={n: str(len(set(one.sequences))) for n, (one, _) in names.items()}),
        ],
    )


def _classes_table(found: Squares) -> Table:
    one = next(iter(found.values()))
    names = {
        f"{one.names[c]} ({group})": c for group in GROUPS for c in range(len(one.names)) if one.groups[c] == group
    }
    columns = [
        Column(
            heading=cell,
            values={name: over(found, _class_rate(c, cell)) for name, c in names.items()},
            best=None,
            digits=2,
        )
        for cell in CELLS
    ]
    together = {name: over(found, _class_together(c)) for name, c in names.items()}
    columns.append(Column(heading="I", values=together, best=None, digits=2))
    for cell, of in (("OL", "long-tailed list"), ("OB", "balanced list")):
        pixels = one.classes["truth"][:, CELLS.index(cell), PIXELS]
        columns.append(Column(heading=f"pixels, {of}", values={name: str(pixels[c]) for name, c in names.items()}))
    return table_of("Dropped pixels in percent, class by class, by truth", "class", list(names), columns)


def _figure(ask: Ask, found: Squares, dataset: str, labels: str) -> Bars:
    def heights(group: str) -> tuple[Value | None, ...]:
        return tuple(drawn(over(found, _rate(group, "truth", cell))) for cell in CELLS)

    spread = spread_of(ask)
    return Bars(
        name=f"decouple{suffix(ask, dataset, labels)}",
        title=f"What a fixed threshold drops, {where(dataset, labels)}",
        label="dropped pixels in percent, by truth" + (f" ({spread})" if spread else ""),
        groups=("original, balanced", "original, long-tailed", "corrupted, balanced", "corrupted, long-tailed"),
        series=tuple((group, heights(group)) for group in ("tail", "head")),
    )
