"""What FTC-Seg gains as the set is, under added noise, and on scenes that training never saw."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ftcseg.errors import UsageError
from ftcseg.studies.by_place import Reading, Value, answer_of
from ftcseg.studies.figures import Bars, Figure
from ftcseg.studies.plan import Ask, Cell, Prepared, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    calibration_rows,
    drawn,
    gap,
    in_group,
    over_seeds,
    points,
    signed,
    spread_of,
    suffix,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS: Mapping[str, str] = {"kind": "speckle", "severity": "5", "val": "20%", "beside": "unimatch-v2"}
"""What stands beside FTC-Seg is a method, or FTC-Seg without one of its parts: unimatch-v2,M4 EMA+ATC."""
PLAIN, NOISE, SCENES = "as it is", "added noise", "unseen scenes"
CONDITIONS = (PLAIN, NOISE, SCENES)
GAIN = "gain"


def named(model: str, condition: str) -> str:
    """The row of a model under a condition."""
    return f"{model}, {condition}"


def models(ask: Ask) -> list[str]:
    """What FTC-Seg is compared with, and FTC-Seg."""
    return [*(name.strip() for name in ask.options["beside"].split(",")), ask.ftc]


def rows(ask: Ask, condition: str) -> Rows:
    """Every model under a condition."""
    parts = calibration_rows(ask)
    return {named(model, condition): parts.get(model, (model, ())) for model in models(ask)}


def plan(ask: Ask) -> list[Cell]:
    """Every model under the three conditions; with noise the lists are those of the set as it is."""
    try:
        severity = int(ask.options["severity"])
    except ValueError as error:
        raise UsageError(f"--option severity={ask.options['severity']} must be a whole number.") from error
    everywhere = ("train", "val", "test")
    conditions = {
        PLAIN: None,
        NOISE: Prepared(corrupt=ask.options["kind"], severity=severity, parts=everywhere),
        SCENES: Prepared(by_sequence="val", val=ask.options["val"]),
    }
    cells = [cell for condition, prepared in conditions.items() for cell in grid(ask, rows(ask, condition), prepared)]
    return sorted(cells, key=lambda cell: ask.seeds.index(cell.seed))  # whole tables of fewer seeds, as everywhere


def read(ask: Ask, evidence: Evidence) -> Answer:
    """Scores by model and condition, and FTC-Seg's gain over each other model."""
    reading = Reading(
        finding=partial(_finding, ask, evidence),
        tables=lambda *place: [
            _table(ask, evidence, "mIoU", Result.miou, *place),
            _table(ask, evidence, "tail", in_group("tail"), *place),
        ],
        figures=partial(_figures, ask, evidence),
    )
    told = ask.options
    remark = (
        f"Noise: {told['kind']} of severity {told['severity']} on every image, also where it is judged; the lists as "
        f"without it. Unseen scenes: {told['val']} of the set are held out as whole sequences and judge; labels are "
        "drawn frame by frame from the others, so the frames judged are others than in the first column."
    )
    return answer_of(ask, evidence, plan(ask), reading, (remark,))


def _runs(evidence: Evidence, model: str, condition: str, place: tuple[str, str]) -> list[Result]:
    return evidence.of(named(model, condition), *place)


def _table(ask: Ask, evidence: Evidence, title: str, value: Value, dataset: str, labels: str) -> Table:
    place, (*others, ours) = (dataset, labels), models(ask)
    columns = []
    for condition in CONDITIONS:
        runs = {model: _runs(evidence, model, condition, place) for model in (*others, ours)}
        scores = {model: over_seeds(found, value) for model, found in runs.items()}
        gains = {f"{GAIN} over {model}": signed(runs[ours], runs[model], value) for model in others}
        columns.append(Column(heading=condition, values={**scores, **gains}))
    rows = [*others, ours, *(f"{GAIN} over {model}" for model in others)]
    return table_of(f"{title} (%) with {where(dataset, labels)}", "model", rows, columns)


def _figures(ask: Ask, evidence: Evidence, dataset: str, labels: str) -> list[Figure]:
    place = (dataset, labels)
    series = tuple(
        (m, tuple(drawn(over_seeds(_runs(evidence, m, c, place), Result.miou)) for c in CONDITIONS))
        for m in models(ask)
    )
    if not any(height for _, heights in series for height in heights):
        return []
    figure = Bars(
        name=f"gain{suffix(ask, dataset, labels)}",
        title=f"As it is, under noise, on unseen scenes, {where(dataset, labels)}",
        label="mIoU (%)",
        groups=CONDITIONS,
        series=series,
        spread=spread_of(ask),
    )
    return [figure]


def _finding(ask: Ask, evidence: Evidence, dataset: str, labels: str) -> list[str]:
    place, (*others, ours) = (dataset, labels), models(ask)
    said = []
    for other in others:
        told = []
        for condition in CONDITIONS:
            mine, theirs = (_runs(evidence, model, condition, place) for model in (ours, other))
            test = gap(mine, theirs)
            if test is not None:
                told.append(f"{points(test.difference)} {condition} ({verdict(mine, theirs)})")
        if told:
            said.append(f"With {where(dataset, labels)}, {ours} over {other}: {', '.join(told)}.")
    return said or [f"With {where(dataset, labels)} no two runs of a seed are there yet."]
