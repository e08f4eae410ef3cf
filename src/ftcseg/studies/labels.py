"""How many labels the unlabelled images are worth: where a curve of labels alone reaches what they give."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

from ftcseg.data.split_files import SPLIT
from ftcseg.files import read_json
from ftcseg.studies.figures import Lines, Value
from ftcseg.studies.plan import EMBEDDED, Ask, Cell, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import EMBEDDED_SETTINGS, drawn, over_seeds, points, spread_of, uneven, unfinished
from ftcseg.studies.statistics import Summary
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

CURVE = "supervised"
BASELINE = "unimatch-v2"
DEFAULTS = Ask(labels=("5%", "10%", "20%", "40%", "80%"), settings=EMBEDDED_SETTINGS)
OPTIONS = {"points": "10%"}
"""Label amounts at which the semi-supervised methods run, with commas; the curve has them, too."""


@dataclass(frozen=True, slots=True)
class Point:
    """A row at one label amount, over some seeds."""

    row: str
    labels: str
    images: float
    """Labelled images, the mean over seeds."""
    miou: Summary


@dataclass(frozen=True, slots=True)
class Worth:
    """A point beside the curve of labels alone over the same seeds."""

    point: Point
    alone: float | None
    """What the risen curve has at as many labels; None where it does not reach there."""
    equals: str
    """With how many labels the curve reaches the point."""
    between: str
    """The same for the point less and plus its spread; nothing with one seed."""
    images: float | None
    """`equals` as a number, where there is one."""


def plan(ask: Ask) -> list[Cell]:
    """Labels alone at every amount, the methods that see unlabelled images at the chosen ones."""
    told = ask.options.get("points", OPTIONS["points"]).split(",")
    semi = tuple(dict.fromkeys(amount for text in told if (amount := text.strip())))
    curve = grid(replace(ask, labels=tuple(dict.fromkeys((*ask.labels, *semi)))), {CURVE: (CURVE, ())})
    cells = [*curve, *grid(replace(ask, labels=semi), {name: (name, ()) for name in (BASELINE, ask.ftc)})]
    return sorted(cells, key=lambda cell: ask.seeds.index(cell.seed))  # whole curves of fewer seeds first


def read(ask: Ask, evidence: Evidence) -> Answer:
    """A curve per set, and what each semi-supervised point is worth on it."""
    cells = plan(ask)
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Lines] = []
    for dataset in ask.datasets:
        seeds = whole_seeds(evidence, dataset)
        curve = curve_of(evidence, dataset, seeds)
        rows = [row for row in (ask.ftc, BASELINE) if row in evidence.rows()]
        worths = [found for row in rows for found in _worths(evidence, row, dataset, seeds)]
        findings += [_finding(worth, dataset) for worth in worths] or [
            f"{_named(dataset)}There is no point to read yet."
        ]
        if curve:
            tables.append(_table(curve, worths, dataset))
            figures.append(_figure(ask, curve, worths, dataset))
    kept = 2 if unfinished(cells, evidence) else 3
    remark = (
        "Equal labels are read off the means of labels alone over the same seeds, made to rise (least squares) and "
        "joined by lines over the logarithm of the number of images; every run takes the same number of steps."
    )
    told = (*findings[:kept], *unfinished(cells, evidence))
    return Answer(told, tuple(tables), (*findings[kept:], remark, *uneven(cells, evidence)), tuple(figures))


def labelled_images(result: Result) -> int:
    """How many labelled images a run had."""
    return int(read_json(result.run / SPLIT)["images"]["labeled"])


def whole_seeds(evidence: Evidence, dataset: str) -> set[int]:
    """Seeds that have labels alone at every amount that any seed has: their means lie on one curve."""
    runs = evidence.of(CURVE, dataset)
    amounts = {r.cell.labels for r in runs}
    return {r.cell.seed for r in runs if amounts == {o.cell.labels for o in runs if o.cell.seed == r.cell.seed}}


def curve_of(evidence: Evidence, dataset: str, seeds: Collection[int]) -> list[Point]:
    """Labels alone over these seeds, by the number of images."""
    amounts = dict.fromkeys(r.cell.labels for r in evidence.of(CURVE, dataset))
    found = [_point([r for r in evidence.of(CURVE, dataset, labels) if r.cell.seed in seeds]) for labels in amounts]
    return sorted((point for point in found if point is not None), key=lambda point: point.images)


def equal_labels(curve: Sequence[tuple[float, float]], score: float) -> tuple[float | None, str]:
    """With how many labelled images labels alone reach a score, and how that is said; None beyond what was tried.

    `curve` are (images, score) by images, at least one. Where chance made it fall it is levelled first.
    """
    images, risen = [n for n, _ in curve], _risen(curve)
    if score > risen[-1]:
        return None, f"more than {images[-1]:.0f}"
    if score < risen[0]:
        return None, f"fewer than {images[0]:.0f}"
    after = next(i for i, value in enumerate(risen) if value >= score)
    if after == 0:
        return images[0], f"{images[0]:.0f}"
    share = (score - risen[after - 1]) / (risen[after] - risen[after - 1])
    found = math.exp((1 - share) * math.log(images[after - 1]) + share * math.log(images[after]))
    return found, f"{found:.0f}"


def _risen(curve: Sequence[tuple[float, float]]) -> list[float]:
    return [float(value) for value in isotonic_regression([score for _, score in curve]).x]


def worth_of(point: Point, curve: Sequence[Point]) -> Worth:
    """Where a point stands on the curve; «none» where as many labels alone give as much."""
    line = [(one.images, one.miou.mean) for one in curve]
    within = line[0][0] <= point.images <= line[-1][0]
    logs = [math.log(images) for images, _ in line]
    alone = float(np.interp(math.log(point.images), logs, _risen(line))) if within else None
    mean, std = point.miou.mean, point.miou.std
    between = "" if std is None else " to ".join(equal_labels(line, end)[1] for end in (mean - std, mean + std))
    if alone is not None and mean <= alone:
        return Worth(point, alone, "none", between, None)
    images, said = equal_labels(line, mean)
    return Worth(point, alone, said, between, images)


def _worths(evidence: Evidence, row: str, dataset: str, seeds: Collection[int]) -> list[Worth]:
    """Every point of a row that shares seeds with the curve, against the curve of just these seeds."""
    found = []
    for labels in dict.fromkeys(r.cell.labels for r in evidence.of(row, dataset)):
        runs = [r for r in evidence.of(row, dataset, labels) if r.cell.seed in seeds]
        if point := _point(runs):
            found.append(worth_of(point, curve_of(evidence, dataset, {r.cell.seed for r in runs})))
    return found


def _point(runs: Sequence[Result]) -> Point | None:
    score, images = over_seeds(runs, Result.miou), over_seeds(runs, labelled_images)
    if score is None or images is None:
        return None
    return Point(runs[0].cell.row, runs[0].cell.labels, images.mean, score)


def _table(curve: Sequence[Point], worths: Sequence[Worth], dataset: str) -> Table:
    everything = [*curve, *(worth.point for worth in worths)]
    names = {_name(point): point for point in everything}
    gains = {_name(w.point): w.point.miou.mean - w.alone for w in worths if w.alone is not None}
    beside = {name: "–" for name, point in names.items() if point.row == CURVE}
    columns = [
        Column(heading="labelled images", values={name: f"{point.images:.0f}" for name, point in names.items()}),
        Column(heading="mIoU, last", values={name: point.miou for name, point in names.items()}, best=None),
        Column(heading="over labels alone", values=beside | {name: points(gain) for name, gain in gains.items()}),
        Column(heading="equals labels", values=beside | {_name(w.point): w.equals for w in worths}),
        Column(heading="less and plus the spread", values=beside | {_name(w.point): w.between or "–" for w in worths}),
    ]
    return table_of(f"{_named(dataset)}Labels alone, and with unlabelled images", "run", list(names), columns)


def _figure(ask: Ask, curve: Sequence[Point], worths: Sequence[Worth], dataset: str) -> Lines:
    series = [("labels alone", curve)]
    for row in dict.fromkeys(worth.point.row for worth in worths):
        series.append((row, [worth.point for worth in worths if worth.point.row == row]))
    return Lines(
        name="labels" + (f"-{Path(dataset).name}" if len(ask.datasets) > 1 else ""),
        title=f"{_named(dataset)}What unlabelled images are worth",
        label="mIoU at the end (%)",
        across="labelled images",
        series=tuple((name, _line(found)) for name, found in series),
        log=True,
        spread=spread_of(ask),
    )


def _line(found: Sequence[Point]) -> tuple[tuple[float, Value], ...]:
    return tuple((point.images, height) for point in found if (height := drawn(point.miou)) is not None)


def _finding(worth: Worth, dataset: str) -> str:
    point = worth.point
    start = f"{_named(dataset)}With {point.images:.0f} labels {point.row} ends at {spoken(point.miou)} mIoU"
    spread = f"{worth.between} less and plus its spread; " if worth.between else ""
    trust = f"{spread}{point.miou.count} seed{'s' if point.miou.count > 1 else ''}"
    if worth.equals == "none":
        assert worth.alone is not None
        alone = f"{100 * worth.alone:.1f}"
        return f"{start}, no more than labels alone ({alone}): its unlabelled images are worth none ({trust})."
    more = "" if worth.images is None else f", {worth.images - point.images:.0f} more than it had"
    return f"{start}, for which labels alone need {worth.equals}{more} ({trust})."


def _name(point: Point) -> str:
    return f"{point.row}, {point.labels}"


def _named(dataset: str) -> str:
    return "" if dataset == EMBEDDED else f"{Path(dataset).name}: "
