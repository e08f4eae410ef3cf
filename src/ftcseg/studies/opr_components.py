"""What each part of OPR is for: its residual, its loss and its gate, taken out one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ftcseg.studies.by_place import Reading, answer_of, bars, notes_on, present, printed, rate
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    WITH_OPR,
    calibration_rows,
    column,
    gap,
    over_seeds,
    points,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Table, spoken, table_of

DEFAULTS = Ask(seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
NO_RESIDUAL, NO_LOSS, NO_GATE = "without residual", "without L_O", "without gate"
TAKEN_OUT: Mapping[str, str] = {
    NO_RESIDUAL: "opr.residual=false",
    NO_LOSS: "opr.lambda_o=0",
    NO_GATE: "opr.gate=none",
}
PAPER: Mapping[str, Mapping[str, float]] = {
    "mIoU": {BASELINE: 58.75, NO_RESIDUAL: 56.93, NO_LOSS: 59.26, NO_GATE: 59.84, WITH_OPR: 62.55},
    "all classes": {BASELINE: 67.03, NO_RESIDUAL: 68.69, NO_LOSS: 71.30, NO_GATE: 64.32, WITH_OPR: 72.33},
    "tail": {BASELINE: 56.56, NO_RESIDUAL: 89.61, NO_LOSS: 81.04, NO_GATE: 83.16, WITH_OPR: 87.80},
}
"""FSSG with 2 % of the labels: mIoU, then how many of the kept pseudo-labels are right."""
ACCURACY = {"all classes": rate("accuracy"), "tail": rate("accuracy", "tail")}


def rows(ask: Ask) -> Rows:
    """The EMA baseline, OPR with a part taken out, and OPR whole; ATC is off everywhere, as in the paper."""
    whole = calibration_rows(ask)
    method, own = whole[WITH_OPR]
    broken = {row: (method, (*own, setting)) for row, setting in TAKEN_OUT.items()}
    return {BASELINE: whole[BASELINE], **broken, WITH_OPR: whole[WITH_OPR]}


def plan(ask: Ask) -> list[Cell]:
    """Every row at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """How good the masks are and what the pseudo-labels are worth, one table per set and label amount."""
    named = ("opr-components", "Accuracy of pseudo-labels", "right among those kept (%)")
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=lambda *place: [_table(evidence, *place)],
        figures=lambda *place: bars(ask, evidence, place, ACCURACY, named),
    )
    return answer_of(ask, evidence, plan(ask), reading, (_of_the_paper(), *notes_on(evidence, ask, WITH_OPR)))


def _table(evidence: Evidence, dataset: str, labels: str) -> Table:
    columns = [
        column("mIoU", evidence, Result.miou, dataset, labels),
        printed("mIoU", PAPER["mIoU"]),
    ]
    for name, value in ACCURACY.items():
        columns.append(column(f"accuracy, {name}", evidence, value, dataset, labels))
        columns.append(printed(f"accuracy, {name}", PAPER[name]))
    return table_of(where(dataset, labels), "OPR", present(evidence, dataset, labels), columns)


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {row: evidence.of(row, dataset, labels) for row in PAPER["mIoU"]}
    gain = gap(runs[WITH_OPR], runs[BASELINE])
    if gain is None:
        return [f"With {where(dataset, labels)}, OPR and the EMA baseline have no seed in common yet."]
    said = [
        f"With {where(dataset, labels)}, OPR ends at {spoken(over_seeds(runs[WITH_OPR], Result.miou))} mIoU, "
        f"{points(gain.difference)} over the EMA baseline ({verdict(runs[WITH_OPR], runs[BASELINE])})."
    ]
    lost = {row: test for row in TAKEN_OUT if (test := gap(runs[row], runs[WITH_OPR])) is not None}
    if lost:
        told = ", ".join(f"{row} {points(test.difference)}" for row, test in lost.items())
        worst = min(lost, key=lambda row: lost[row].difference)
        said.append(f"Against whole OPR: {told} ({worst}: {verdict(runs[worst], runs[WITH_OPR])}).")
    right = {row: [over_seeds(runs[row], value) for value in ACCURACY.values()] for row in (BASELINE, WITH_OPR)}
    if all(found is not None for both in right.values() for found in both):
        told = " and ".join(f"{' / '.join(map(spoken, both))} % with {row}" for row, both in right.items())
        said.append(f"Of the pseudo-labels kept, of all classes / of the tail, {told} are right.")
    return said


def _of_the_paper() -> str:
    right, scores = PAPER["all classes"], PAPER["mIoU"]
    drops = {row: right[WITH_OPR] - right[row] for row in TAKEN_OUT}
    most = max(drops, key=lambda row: drops[row])
    below = right[most] - right[BASELINE]
    return (
        f"In the paper pseudo-label accuracy drops most {most}, by {drops[most]:.2f} points: {right[most]:.2f} "
        f"lies {abs(below):.2f} {'below' if below < 0 else 'above'} the baseline without any OPR, while its mIoU is "
        f"{scores[most] - scores[BASELINE]:+.2f} against that baseline and the tail's accuracy "
        f"{PAPER['tail'][most] - PAPER['tail'][BASELINE]:+.2f}."
    )
