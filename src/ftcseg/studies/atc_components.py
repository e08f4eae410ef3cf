"""What each signal of ATC is for: difficulty and bias, one at a time and together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ftcseg.studies.by_place import Reading, Value, answer_of, bars, notes_on, present, printed
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    WITH_ATC,
    calibration_rows,
    column,
    gap,
    in_group,
    over_seeds,
    points,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Table, spoken, table_of

DEFAULTS = Ask(seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
DIFFICULTY, BIAS = "M_diff alone", "M_bias alone"
READ: Mapping[str, Value] = {
    "tail recall": lambda result: result.group_recall("tail"),
    "tail precision": lambda result: result.group_precision("tail"),
    "tail IoU": in_group("tail"),
    "head IoU": in_group("head"),
    "mIoU": Result.miou,
}
PAPER: Mapping[str, Mapping[str, float]] = {
    "tail recall": {BASELINE: 62.50, DIFFICULTY: 77.11, BIAS: 76.29, WITH_ATC: 86.40},
    "tail precision": {BASELINE: 77.62, DIFFICULTY: 79.20, BIAS: 79.67, WITH_ATC: 84.00},
    "tail IoU": {BASELINE: 49.97, DIFFICULTY: 62.61, BIAS: 62.04, WITH_ATC: 73.87},
    "head IoU": {BASELINE: 72.77, DIFFICULTY: 73.54, BIAS: 73.01, WITH_ATC: 75.37},
    "mIoU": {BASELINE: 58.75, DIFFICULTY: 60.42, BIAS: 59.79, WITH_ATC: 61.90},
}
"""FSSG with 2 % of the labels."""


def rows(ask: Ask) -> Rows:
    """A fixed threshold, each signal alone, and ATC; OPR is off everywhere."""
    whole = calibration_rows(ask)
    method, own = whole[WITH_ATC]
    return {
        BASELINE: whole[BASELINE],
        DIFFICULTY: (method, (*own, "atc.mode=difficulty")),
        BIAS: (method, (*own, "atc.mode=bias")),
        WITH_ATC: whole[WITH_ATC],
    }


def plan(ask: Ask) -> list[Cell]:
    """Every row at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """Tail, head and all classes, one table per set and label amount."""
    named = ("atc-components", "The tail", "mean over the tail's classes (%)")
    tail = {name: READ[name] for name in ("tail recall", "tail precision", "tail IoU")}
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=lambda *place: [_table(evidence, *place)],
        figures=lambda *place: bars(ask, evidence, place, tail, named),
    )
    return answer_of(ask, evidence, plan(ask), reading, (*_remarks(), *notes_on(evidence, ask, BASELINE)))


def _table(evidence: Evidence, dataset: str, labels: str) -> Table:
    columns = []
    for name, value in READ.items():
        columns.append(column(name, evidence, value, dataset, labels))
        columns.append(printed(name, PAPER[name]))
    return table_of(where(dataset, labels), "threshold", present(evidence, dataset, labels), columns)


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {row: evidence.of(row, dataset, labels) for row in PAPER["mIoU"]}
    base, whole = runs[BASELINE], runs[WITH_ATC]
    gain = gap(whole, base)
    if gain is None:
        return [f"With {where(dataset, labels)}, ATC and the fixed threshold have no seed in common yet."]
    alone = {row: test for row in (DIFFICULTY, BIAS) if (test := gap(runs[row], base)) is not None}
    told = "".join(f", {row} {points(test.difference)}" for row, test in alone.items())
    said = [
        f"With {where(dataset, labels)}, ATC ends at {spoken(over_seeds(whole, Result.miou))} mIoU, "
        f"{points(gain.difference)} over a fixed threshold ({verdict(whole, base)}){told}."
    ]
    moved = {name: test for name, value in READ.items() if (test := gap(whole, base, value)) is not None}
    parts = [f"{name} {points(moved[name].difference)}" for name in READ if name in moved and name != "mIoU"]
    if "tail IoU" in moved:
        said.append(f"It moves {', '.join(parts)} (tail IoU: {verdict(whole, base, READ['tail IoU'])}).")
    return said


def _remarks() -> tuple[str, ...]:
    gains = {row: PAPER["tail IoU"][row] - PAPER["tail IoU"][BASELINE] for row in (DIFFICULTY, BIAS, WITH_ATC)}
    return (
        "Recall and precision of the tail are means over its classes; a class that is never predicted has no precision "
        "and counts in none.",
        f"In the paper the two signals bring {gains[DIFFICULTY]:+.2f} and {gains[BIAS]:+.2f} points of tail IoU alone "
        f"and {gains[WITH_ATC]:+.2f} together; its table of class-anchored prototypes prints a tail mIoU of 5.33 for "
        f"the same baseline that has {PAPER['tail IoU'][BASELINE]:.2f} here.",
    )
