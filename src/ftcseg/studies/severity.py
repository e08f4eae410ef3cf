"""How the interaction of noise and long tail grows with the noise: `decouple` at the paper's three severities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ftcseg.errors import unknown_name
from ftcseg.evaluate.filtering import BY
from ftcseg.studies.conditions import (
    CHOICES,
    LEVELS_SHOWN,
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
)
from ftcseg.studies.figures import Lines, Value
from ftcseg.studies.plan import Ask, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import EMBEDDED_SETTINGS, places, suffix, where
from ftcseg.studies.statistics import Summary
from ftcseg.studies.tables import Answer, Column, Table, table_of
from ftcseg.views.corrupt import FOG, KINDS, SPECKLE_STD, TRANSMISSION

__all__ = ["DEFAULTS", "OPTIONS", "measures", "plan", "read"]

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS = {key: CHOICES[key] for key in ("method", "kinds", "balance", "tau", "images")}
NAMES = dict(zip(LEVELS_SHOWN, ("mild", "medium", "severe"), strict=True))
PARAMETERS = {
    "speckle": [f"σ {level:.2f}" for level in SPECKLE_STD],
    "scattering": [f"t {level:.2f}" for level in TRANSMISSION],
    "fog": [f"(a, b) ({a}, {b})" for a, b in FOG],
}
"""What each severity of a kind is made of."""


@dataclass(frozen=True, slots=True)
class Course:
    """One kind of corruption over the severities, each with its networks by seed."""

    kind: str
    squares: Mapping[int, Mapping[int, Square]]

    def mean(self, severity: int, by: str = "truth") -> Summary | None:
        """I of the tail over seeds."""
        return over(self.squares.get(severity, {}), lambda one: one.together("tail", by))

    def first(self, severity: int) -> Square | None:
        """The first network's."""
        return next(iter(self.squares.get(severity, {}).values()), None)

    def span(self, severity: int, *, over_sequences: bool = False) -> str:
        """The first network's interval, in points."""
        one = self.first(severity)
        return "n/a" if one is None else span(one.interval(over_sequences=over_sequences))


def measures(ask: Ask) -> list[Measure]:
    """Each network with the images as they are, once, and with every kind and severity."""
    told = choices(ask)
    conditions = [("", 0), *((kind, severity) for kind in kinds(ask) for severity in LEVELS_SHOWN)]
    return [condition_measure(cell, told, kind, severity) for cell in plan(ask) for kind, severity in conditions]


def kinds(ask: Ask) -> list[str]:
    """The kinds that were asked for."""
    chosen = list(dict.fromkeys(name for text in option(ask, "kinds").split(",") if (name := text.strip())))
    for name in chosen:
        if name not in KINDS:
            raise unknown_name("corruption", name, KINDS)
    return chosen


def read(ask: Ask, evidence: Evidence) -> Answer:
    """I over the severities of every kind, set and label amount."""
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Lines] = []
    remarks: list[str] = []
    for dataset, labels in places(ask):
        courses = [
            Course(kind, {level: squares(ask, evidence, dataset, labels, kind, level) for level in LEVELS_SHOWN})
            for kind in kinds(ask)
        ]
        courses = [course for course in courses if any(course.squares.values())]
        if not courses:
            findings.append(f"With {where(dataset, labels)} nothing is measured yet.")
            continue
        findings += [_finding(course, dataset, labels) for course in courses]
        tables += [_table(courses, dataset, labels), _intervals_table(courses), _prediction_table(courses)]
        figures.append(_figure(ask, courses, dataset, labels))
        remarks += [text for course in courses for text in _list_remarks(ask, course)]
    remarks.append(
        "Network, lists, masks and threshold are the same at all severities, and each image meets the same noise, only "
        "stronger. The paper's numbers stand beside the kind they were measured with, whatever our set is."
    )
    return Answer(tuple(findings[:3]), tuple(tables), tuple(dict.fromkeys(remarks)), tuple(figures))


def _finding(course: Course, dataset: str, labels: str) -> str:
    found = {level: course.mean(level) for level in LEVELS_SHOWN}
    said = [f"{NAMES[level]} {100 * value.mean:+.2f}" for level, value in found.items() if value is not None]
    if not said:
        return f"With {where(dataset, labels)} {course.kind} finds no tail pixel to compare."
    clear = [NAMES[level] for level in LEVELS_SHOWN if _is_clear(course.first(level))]
    apart = f"apart from 0 over images at {' and '.join(clear)}" if clear else "nowhere apart from 0 over images"
    return f"With {where(dataset, labels)} and {course.kind}, I in points is {', '.join(said)}, {apart}."


def _is_clear(one: Square | None) -> bool:
    found = None if one is None else one.interval()
    return found is not None and (found.low > 0 or found.high < 0)


def _list_remarks(ask: Ask, course: Course) -> list[str]:
    return [text for found in course.squares.values() if found for text in list_remarks(found, option(ask, "balance"))]


def _table(courses: list[Course], dataset: str, labels: str) -> Table:
    columns = []
    for level, name in NAMES.items():
        made = {c.kind: PARAMETERS[c.kind][level - 1] if c.kind in PARAMETERS else str(level) for c in courses}
        columns.append(Column(heading=f"{name}: parameter", values=made))
        columns.append(Column(heading="I", values={c.kind: c.mean(level) for c in courses}, best=None, digits=2))
        columns.append(Column(heading="paper, I", values=_paper(courses, dataset, level), best=None, paper=True))
    return table_of(f"I of the tail by truth in points, {where(dataset, labels)}", "kind", _names(courses), columns)


def _paper(courses: list[Course], dataset: str, level: int) -> dict[str, str]:
    """The paper's number of this set, or of the set that the kind was measured on there."""
    sets = {"speckle": "flsmd", "scattering": "suim", "fog": "acdc-driving"}
    told = {}
    for course in courses:
        own = paper_value(dataset, course.kind, level)
        other = paper_value(sets.get(course.kind, ""), course.kind, level)
        if own is not None:
            told[course.kind] = f"{own:+.2f}"
        elif other is not None:
            told[course.kind] = f"{other:+.2f} ({sets[course.kind]})"
    return told


def _intervals_table(courses: list[Course]) -> Table:
    columns = []
    for level, name in NAMES.items():
        images = {c.kind: c.span(level) for c in courses}
        sequences = {c.kind: c.span(level, over_sequences=True) for c in courses}
        columns += [
            Column(heading=f"{name}, over images", values=images),
            Column(heading=f"{name}, over sequences", values=sequences),
        ]
    return table_of("95 % intervals of I by truth, of the first network", "kind", _names(courses), columns)


def _prediction_table(courses: list[Course]) -> Table:
    columns = [
        Column(heading=name, values={c.kind: c.mean(level, BY[1]) for c in courses}, best=None, digits=2)
        for level, name in NAMES.items()
    ]
    return table_of("I of the tail by prediction in points", "kind", _names(courses), columns)


def _names(courses: list[Course]) -> list[str]:
    return [course.kind for course in courses]


def _figure(ask: Ask, courses: list[Course], dataset: str, labels: str) -> Lines:
    return Lines(
        name=f"severity{suffix(ask, dataset, labels)}",
        title=f"Noise and long tail together beyond either alone, {where(dataset, labels)}",
        label="I of the tail in points, by truth (half the 95 % interval over images)",
        across="severity",
        series=tuple((course.kind, _points(course)) for course in courses),
    )


def _points(course: Course) -> tuple[tuple[float, Value], ...]:
    found = []
    for level in LEVELS_SHOWN:
        mean, one = course.mean(level), course.first(level)
        ends = None if one is None else one.interval()
        if mean is not None:
            spread = None if ends is None else 50 * (ends.high - ends.low)
            found.append((float(level), Value(100 * mean.mean, spread)))
    return tuple(found)
