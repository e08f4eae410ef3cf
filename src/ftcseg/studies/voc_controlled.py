"""A long tail with and without noise, made on purpose on any set: does FTC-Seg lose less to the noise?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from ftcseg.errors import UsageError
from ftcseg.studies.by_place import Reading, answer_of, printed
from ftcseg.studies.figures import Bars, Figure
from ftcseg.studies.plan import Ask, Cell, Prepared, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    FTC,
    calibration_rows,
    drawn,
    gap,
    over_seeds,
    points,
    signed,
    spread_of,
    suffix,
    verdict,
    where,
)
from ftcseg.studies.statistics import Summary
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS: Mapping[str, str] = {"ratio": "20", "kind": "gaussian", "severity": "3"}
TAIL, NOISE = "long tail", "long tail + noise"
GAIN = "FTC-Seg gain"
PAPER: Mapping[str, Mapping[str, float]] = {
    TAIL: {BASELINE: 70.76, FTC: 75.36},
    NOISE: {BASELINE: 63.18, FTC: 69.11},
}
"""Pascal VOC, one seed, ratio 20, Gaussian noise of 0.18 (severity 3)."""


def named(model: str, condition: str) -> str:
    """The row of a model under a condition."""
    return f"{model}, {condition}"


def plan(ask: Ask) -> list[Cell]:
    """Both models under both conditions; the lists of images are the same for all four, the validation images clean."""
    ratio, severity = _positive(ask, "ratio"), _positive(ask, "severity")
    if severity != int(severity):
        raise UsageError(f"--option severity={ask.options['severity']} must be a whole number.")
    conditions = {
        TAIL: Prepared(long_tail=ratio),
        NOISE: Prepared(long_tail=ratio, corrupt=ask.options["kind"], severity=int(severity), parts=("train",)),
    }
    models = {model: calibration_rows(ask)[model] for model in (BASELINE, FTC)}
    cells = [
        cell
        for condition, prepared in conditions.items()
        for cell in grid(ask, {named(model, condition): told for model, told in models.items()}, prepared)
    ]
    return sorted(cells, key=lambda cell: ask.seeds.index(cell.seed))  # whole tables of fewer seeds, as everywhere


def read(ask: Ask, evidence: Evidence) -> Answer:
    """The two models, the two conditions, what the noise costs and what FTC-Seg gains."""
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=lambda *place: [_table(evidence, *place)],
        figures=partial(_figures, ask, evidence),
    )
    remark = (
        f"Training lists are thinned to a long tail of ratio {ask.options['ratio']}; the noise is "
        f"{ask.options['kind']} of severity {ask.options['severity']} on all training images. The paper's numbers are "
        "those of Pascal VOC with 155 labelled and 5,507 unlabelled images, one seed, ratio 20, Gaussian 0.18; how its "
        "lists were cut is not told (reading D5)."
    )
    return answer_of(ask, evidence, plan(ask), reading, (remark,))


def _table(evidence: Evidence, dataset: str, labels: str) -> Table:
    runs = {model: {c: evidence.of(named(model, c), dataset, labels) for c in PAPER} for model in (BASELINE, FTC)}
    columns = []
    for condition, numbers in PAPER.items():
        scores: dict[str, Summary | str | None] = {m: over_seeds(runs[m][condition], Result.miou) for m in runs}
        scores[GAIN] = signed(runs[FTC][condition], runs[BASELINE][condition])
        columns.append(Column(heading=condition, values=scores))
        paper = printed(condition, numbers)
        gain = f"{numbers[FTC] - numbers[BASELINE]:+.2f}"
        columns.append(Column(heading=paper.heading, values={**paper.values, GAIN: gain}, digits=2, paper=True))
    change = {model: signed(found[NOISE], found[TAIL]) for model, found in runs.items()}
    theirs = {model: f"{PAPER[NOISE][model] - PAPER[TAIL][model]:+.2f}" for model in runs}
    columns.append(Column(heading="noise-induced change", values={**change, GAIN: "–"}))
    columns.append(Column(heading="noise-induced change (paper)", values={**theirs, GAIN: "–"}, paper=True))
    return table_of(f"mIoU (%) with {where(dataset, labels)}", "model", [BASELINE, FTC, GAIN], columns)


def _figures(ask: Ask, evidence: Evidence, dataset: str, labels: str) -> list[Figure]:
    series = tuple(
        (m, tuple(drawn(over_seeds(evidence.of(named(m, c), dataset, labels), Result.miou)) for c in PAPER))
        for m in (BASELINE, FTC)
    )
    if not any(height for _, heights in series for height in heights):
        return []
    figure = Bars(
        name=f"voc-controlled{suffix(ask, dataset, labels)}",
        title=f"A long tail with and without noise, {where(dataset, labels)}",
        label="mIoU (%)",
        groups=tuple(PAPER),
        series=series,
        spread=spread_of(ask),
    )
    return [figure]


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {model: {c: evidence.of(named(model, c), dataset, labels) for c in PAPER} for model in (BASELINE, FTC)}
    lost = {model: gap(found[NOISE], found[TAIL]) for model, found in runs.items()}
    gains = {condition: gap(runs[FTC][condition], runs[BASELINE][condition]) for condition in PAPER}
    if None in (*lost.values(), *gains.values()):
        return [f"With {where(dataset, labels)} not all four runs of a seed are there yet."]
    costs = ", ".join(
        f"{model} {points(test.difference)} ({verdict(runs[model][NOISE], runs[model][TAIL])})"
        for model, test in lost.items()
        if test is not None
    )
    gained = ", ".join(
        f"{points(test.difference)} with a {condition} ({verdict(runs[FTC][condition], runs[BASELINE][condition])})"
        for condition, test in gains.items()
        if test is not None
    )
    return [
        f"With {where(dataset, labels)}, noise on a long tail changes mIoU by: {costs}.",
        f"FTC-Seg over the EMA baseline: {gained}.",
    ]


def _positive(ask: Ask, key: str) -> float:
    try:
        value = float(ask.options[key])
    except ValueError as error:
        raise UsageError(f"--option {key}={ask.options[key]} is no number.") from error
    if not 1 <= value < math.inf:
        raise UsageError(f"--option {key}={ask.options[key]} must be at least 1.")
    return value
