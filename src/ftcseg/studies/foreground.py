"""What it costs to tell OPR the wrong foreground classes: background added, the rarest object left out, or both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ftcseg.nets.folder import read_spec
from ftcseg.studies.by_place import Reading, Value, answer_of, bars, notes_on, present, printed
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import BACKGROUND, Evidence, Result
from ftcseg.studies.rows import (
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
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

DEFAULTS = Ask(seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
CORRECT, ADDED, OMITTED, BOTH = "correct", "background added", "rarest omitted", "both mistakes"
MISTAKES: Mapping[str, str] = {
    ADDED: "foreground=everything",
    OMITTED: "foreground=without_rarest",
    BOTH: "foreground=everything_without_rarest",
}
PAPER: Mapping[str, Mapping[str, float]] = {
    "mIoU": {CORRECT: 62.55, ADDED: 59.80, OMITTED: 58.42, BOTH: 53.09},
    "rarest": {CORRECT: 17.50, ADDED: 10.11, OMITTED: 11.49, BOTH: 2.47},
}
"""FSSG with 2 % of the labels, one seed; the rarest class is the diver."""


def rows(ask: Ask) -> Rows:
    """EMA + OPR without ATC, told the right classes and three wrong sets; which ids those are the run's set decides."""
    method, own = calibration_rows(ask)[WITH_OPR]
    return {CORRECT: (method, own)} | {row: (method, (*own, setting)) for row, setting in MISTAKES.items()}


def plan(ask: Ask) -> list[Cell]:
    """Every setting at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """How good the masks are, the change, and the rarest class, one table per set and label amount."""
    rarest = rarest_iou(evidence)
    named = ("foreground", "Foreground told wrongly", "IoU (%)")
    reading = Reading(
        finding=partial(_finding, evidence, rarest),
        tables=lambda *place: [_table(evidence, rarest, *place)],
        figures=lambda *place: bars(ask, evidence, place, {"mIoU": Result.miou, "rarest class": rarest}, named),
    )
    return answer_of(ask, evidence, plan(ask), reading, (*_remarks(evidence), *notes_on(evidence, ask, CORRECT)))


def omitted(result: Result) -> str | None:
    """The object class that a run's OPR did not take for foreground; None where it took all, or lacked several."""
    spec = read_spec(result.run / "model")
    told = (spec.opr or {}).get("foreground") or ()
    missing = [c.name for c in spec.classes if not c.background and c.id not in told]
    return missing[0] if len(missing) == 1 else None


def rarest_iou(evidence: Evidence) -> Value:
    """Reads the IoU of the class that the run's neighbour with the same data left out."""
    names = {_place(r): omitted(r) for row in (OMITTED, BOTH) for r in evidence.of(row)}

    def value(result: Result) -> float | None:
        name = names.get(_place(result))
        return None if name is None else result.iou(name)

    return value


def _table(evidence: Evidence, rarest: Value, dataset: str, labels: str) -> Table:
    correct = evidence.of(CORRECT, dataset, labels)
    gaps = {row: gap(evidence.of(row, dataset, labels), correct) for row in MISTAKES}
    change = {row: points(test.difference) for row, test in gaps.items() if test is not None}
    paper = PAPER["mIoU"]
    columns = [
        column("mIoU", evidence, Result.miou, dataset, labels),
        printed("mIoU", paper),
        Column(heading="change", values={CORRECT: "–"} | change),
        Column(
            heading="change (paper)",
            values={CORRECT: "–"} | {row: f"{paper[row] - paper[CORRECT]:+.2f}" for row in MISTAKES},
            paper=True,
        ),
        column("rarest class", evidence, rarest, dataset, labels),
        printed("diver", PAPER["rarest"]),
    ]
    return table_of(where(dataset, labels), "foreground", present(evidence, dataset, labels), columns)


def _finding(evidence: Evidence, rarest: Value, dataset: str, labels: str) -> list[str]:
    correct = evidence.of(CORRECT, dataset, labels)
    runs = {row: evidence.of(row, dataset, labels) for row in MISTAKES}
    gaps = {row: test for row in MISTAKES if (test := gap(runs[row], correct)) is not None}
    if not gaps:
        return [f"With {where(dataset, labels)} there is no mistake to compare with the right foreground yet."]
    told = ", ".join(f"{row} {points(test.difference)} ({verdict(runs[row], correct)})" for row, test in gaps.items())
    said = [
        f"With {where(dataset, labels)} and the right foreground, EMA + OPR ends at "
        f"{spoken(over_seeds(correct, Result.miou))} mIoU; {told}."
    ]
    class_gaps = {row: test for row in MISTAKES if (test := gap(runs[row], correct, rarest)) is not None}
    if class_gaps:
        moved = ", ".join(f"{row} {points(test.difference)}" for row, test in class_gaps.items())
        said.append(f"The rarest class, at {spoken(over_seeds(correct, rarest))} IoU when told right, moves: {moved}.")
    return said


def _remarks(evidence: Evidence) -> list[str]:
    names = {name for row in (OMITTED, BOTH) for r in evidence.of(row) if (name := omitted(r)) is not None}
    said = ["Only the gating set changes; the classes that are predicted stay the same."]
    if names:
        said.append(
            f"The rarest class is the object class with the fewest pixels in the set: {', '.join(sorted(names))}."
        )
    if any(result.members and not result.members.get(BACKGROUND) for result in evidence.results):
        said.append("A set here has no background class: adding it changes nothing there.")
    return said


def _place(result: Result) -> tuple[str, str, int]:
    return result.cell.dataset, result.cell.labels, result.cell.seed
