"""Free prototypes against prototypes that each stand for one class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ftcseg.studies.by_place import Reading, Value, answer_of, bars, notes_on, present, printed
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    WITH_OPR,
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
ANCHORED = "class-anchored OPR"
READ: Mapping[str, Value] = {
    "mIoU": Result.miou,
    "tail mIoU": in_group("tail"),
    "pseudo-label mIoU": Result.kept_miou,
}
PAPER: Mapping[str, Mapping[str, float]] = {
    "mIoU": {BASELINE: 58.78, WITH_OPR: 62.55, ANCHORED: 54.87},
    "tail mIoU": {BASELINE: 5.33, WITH_OPR: 17.19, ANCHORED: 8.93},
    "pseudo-label mIoU": {BASELINE: 53.49, WITH_OPR: 73.86, ANCHORED: 58.25},
}
"""FSSG with 2 % of the labels, one seed."""


def rows(ask: Ask) -> Rows:
    """No prototypes, free ones, and one per class started at its mean feature (reading A11); ATC is off."""
    whole = calibration_rows(ask)
    method, own = whole[WITH_OPR]
    return {
        BASELINE: whole[BASELINE],
        WITH_OPR: whole[WITH_OPR],
        ANCHORED: (method, (*own, "opr.prototypes=class_mean")),
    }


def plan(ask: Ask) -> list[Cell]:
    """Every row at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """Masks, tail and pseudo-labels, one table per set and label amount."""
    named = ("class-anchored", "Free and class-anchored prototypes", "mIoU (%)")
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=lambda *place: [_table(evidence, *place)],
        figures=lambda *place: bars(ask, evidence, place, READ, named),
    )
    remark = "Pseudo-label mIoU is that of the accepted pseudo-labels on unlabelled training pixels with a known mask."
    return answer_of(ask, evidence, plan(ask), reading, (remark, *notes_on(evidence, ask, WITH_OPR)))


def _table(evidence: Evidence, dataset: str, labels: str) -> Table:
    columns = []
    for name, value in READ.items():
        columns.append(column(name, evidence, value, dataset, labels))
        columns.append(printed(name, PAPER[name]))
    return table_of(where(dataset, labels), "prototypes", present(evidence, dataset, labels), columns)


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    base, free, anchored = (evidence.of(row, dataset, labels) for row in (BASELINE, WITH_OPR, ANCHORED))
    apart = gap(anchored, free)
    if apart is None:
        return [f"With {where(dataset, labels)}, free and class-anchored prototypes have no seed in common yet."]
    ends = [spoken(over_seeds(runs, Result.miou)) for runs in (free, anchored)]
    theirs = PAPER["mIoU"][ANCHORED] - PAPER["mIoU"][WITH_OPR]
    said = [
        f"With {where(dataset, labels)}, class-anchored prototypes end at {ends[1]} mIoU and free ones at {ends[0]}: "
        f"{points(apart.difference)} ({verdict(anchored, free)}; {theirs:+.2f} in the paper)."
    ]
    gains = [gap(runs, base) for runs in (free, anchored)]
    if gains[0] is not None and gains[1] is not None:
        said.append(
            f"Against the EMA baseline free ones bring {points(gains[0].difference)} ({verdict(free, base)}), anchored "
            f"ones {points(gains[1].difference)}."
        )
    return said
