"""What OPR and ATC do to the pseudo-labels: how many are dropped, how many of the kept are right, and whose.

Counted by the true class of each pixel, all pixels of a group together (reading D2); the other ways to count the same
pixels have a table of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

from ftcseg.studies.by_place import Reading, answer_of, bars, present, printed, rate
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    FTC,
    LABELS_ONLY,
    WITH_ATC,
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
GROUPS: Mapping[str, str] = {"global": "all", "head": "head", "tail": "tail"}
KINDS: Mapping[str, str] = {"accuracy": "accuracy", "filtered": "filtered rate", "correct_kept": "correctly kept rate"}
PAPER: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    BASELINE: {
        "accuracy": (67.03, 73.06, 56.56),
        "filtered": (13.15, 9.50, 17.83),
        "correct_kept": (58.22, 67.04, 46.47),
    },
    WITH_OPR: {
        "accuracy": (72.33, 74.08, 87.80),
        "filtered": (9.04, 7.04, 11.24),
        "correct_kept": (63.98, 71.34, 77.93),
    },
    WITH_ATC: {
        "accuracy": (69.73, 79.60, 88.65),
        "filtered": (11.63, 10.38, 10.39),
        "correct_kept": (64.80, 68.13, 79.44),
    },
    FTC: {
        "accuracy": (73.83, 84.13, 89.03),
        "filtered": (8.26, 6.75, 8.43),
        "correct_kept": (67.15, 78.21, 80.61),
    },
}
"""FSSG with 2 % of the labels: all classes, head, tail."""
OTHER_READINGS: tuple[tuple[Literal["truth", "prediction"], Literal["micro", "macro"]], ...] = (
    ("truth", "macro"),
    ("prediction", "micro"),
    ("prediction", "macro"),
)
_EXACT = 1e-9
_HALF = 0.005  # a number printed with two places may be off by so much


def rows(ask: Ask) -> Rows:
    """M2 to M5: the runs of the ablation."""
    return {row: told for row, told in calibration_rows(ask).items() if row != LABELS_ONLY}


def plan(ask: Ask) -> list[Cell]:
    """Every row at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """A table for each rate, one for the other readings, and the filtered rates as bars."""
    named = ("filtered-rate", "Pseudo-labels that are dropped", "share of the pixels of a group (%)")
    dropped = {group: rate("filtered", group) for group in ("head", "tail")}
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=partial(_tables, evidence),
        figures=lambda *place: bars(ask, evidence, place, dropped, named),
    )
    return answer_of(ask, evidence, plan(ask), reading, (*_unaudited(evidence), ours_hold(evidence), paper_holds()))


def _tables(evidence: Evidence, dataset: str, labels: str) -> list[Table]:
    here = present(evidence, dataset, labels)
    tables = []
    for kind, title in KINDS.items():
        columns = []
        for i, (group, name) in enumerate(GROUPS.items()):
            columns.append(column(name, evidence, rate(kind, group), dataset, labels, low=kind == "filtered"))
            columns.append(printed(name, {row: PAPER[row][kind][i] for row in PAPER}))
        tables.append(table_of(f"{title.capitalize()} (%) with {where(dataset, labels)}", "model", here, columns))
    return [*tables, _other_readings(evidence, dataset, labels)]


def _other_readings(evidence: Evidence, dataset: str, labels: str) -> Table:
    """The same counts by the class they were called, and as means over classes."""
    named = {
        f"{row}, by {by}, {mean}": (evidence.of(row, dataset, labels), by, mean)
        for by, mean in OTHER_READINGS
        for row in present(evidence, dataset, labels)
    }
    columns = [
        Column(
            heading=f"{title}, {name}",
            values={row: over_seeds(runs, rate(kind, group, by, mean)) for row, (runs, by, mean) in named.items()},
            best=None,
        )
        for kind, title in KINDS.items()
        for group, name in GROUPS.items()
    ]
    return table_of(f"Other readings (%) with {where(dataset, labels)}", "model", list(named), columns)


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {row: evidence.of(row, dataset, labels) for row in PAPER}
    base, whole = runs[BASELINE], runs[FTC]
    dropped, right = rate("filtered", "tail"), rate("accuracy", "tail")
    less = gap(whole, base, dropped)
    if less is None:
        return [f"With {where(dataset, labels)}, no seed has audited runs of both M2 and M5 with tail pixels yet."]
    said = [
        f"With {where(dataset, labels)}, FTC-Seg drops {spoken(over_seeds(whole, dropped))} % of the tail's pixels, "
        f"the EMA baseline {spoken(over_seeds(base, dropped))} %, {points(less.difference)} points "
        f"({verdict(whole, base, dropped)})."
    ]
    better, kept = gap(whole, base, right), gap(whole, base, rate("correct_kept", "tail"))
    if better is not None and kept is not None:
        said.append(
            f"Of what it keeps of the tail {spoken(over_seeds(whole, right))} % is right, {points(better.difference)} "
            f"({verdict(whole, base, right)}), so that the share kept and right moves by {points(kept.difference)}."
        )
    parts = {row: gap(runs[row], base, dropped) for row in (WITH_OPR, WITH_ATC)}
    told = ", ".join(f"{row} {points(test.difference)}" for row, test in parts.items() if test is not None)
    return [*said, f"The tail's filtered rate against the baseline: {told}."] if told else said


def _unaudited(evidence: Evidence) -> list[str]:
    without = sum(result.audit is None for result in evidence.results)
    if not without:
        return []
    return [f"{without} runs have no audit: their set has no masks of unlabelled images, or evaluation.audit is off."]


def ours_hold(evidence: Evidence) -> str:
    """Whether accuracy · (1 - filtered) is the correctly kept rate in every run and group of ours."""
    misses = [abs(right * (1 - gone) - kept) for right, gone, kept in _triples(evidence)]
    if not misses:
        return "There is no run to check accuracy · (1 - filtered) = correctly kept on."
    holds = sum(miss <= _EXACT for miss in misses)
    return (
        f"Accuracy · (1 - filtered) = correctly kept in {holds} of our {len(misses)} cells by truth and pixel; the "
        f"largest difference is {max(misses):.1g}. All classes include background, which no group of three holds."
    )


def _triples(evidence: Evidence) -> Iterator[tuple[float, float, float]]:
    for result in evidence.results:
        for group in GROUPS:
            right, gone, kept = (rate(kind, group)(result) for kind in KINDS)
            if right is not None and gone is not None and kept is not None:  # nothing kept has no accuracy
                yield right, gone, kept


def paper_holds() -> str:
    """The same of the paper's own numbers, as far as two places tell; and whose product a wrong one is."""
    cells = [(row, group) for row in PAPER for group in range(len(GROUPS))]
    broken = [cell for cell in cells if not _agree(cell, PAPER[cell[0]]["correct_kept"][cell[1]])]
    names = list(GROUPS.values())
    swapped = [
        f"{printed_one:.2f}, printed for {row} ({names[group]}), is the product of {other}"
        for row, group in broken
        for other in PAPER
        if other != row and _agree((other, group), printed_one := PAPER[row]["correct_kept"][group])
    ]
    told = f"; {', '.join(swapped)}" if swapped else ""
    return f"In the paper it holds in {len(cells) - len(broken)} of {len(cells)} cells{told}."


def _agree(cell: tuple[str, int], kept: float) -> bool:
    row, group = cell
    right, gone = PAPER[row]["accuracy"][group], PAPER[row]["filtered"][group] / 100
    off = _HALF * (1 - gone) + _HALF * right / 100 + _HALF
    return abs(right * (1 - gone) - kept) <= off
