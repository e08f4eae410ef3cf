"""The rarest classes: their IoU by method, how far seeds and images move it, and every class beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ftcseg.evaluate.bootstrap import Interval, Intervals, bootstrap
from ftcseg.studies.figures import Bars
from ftcseg.studies.paper_main import TAIL_LEADS, paper_place, paper_set
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.results import BACKGROUND, Evidence, Result
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    column,
    compared_rows,
    drawn,
    gap,
    over_seeds,
    places,
    points,
    spread_of,
    suffix,
    uneven,
    unfinished,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
RAREST = 2
"""Classes that get bars of their own: the paper shows the rarest, or the second where nobody finds the rarest."""
FOUND = 0.01
"""IoU below which a class counts as not found. The paper says «near-zero» and no number."""


def plan(ask: Ask) -> list[Cell]:
    """The paper's comparison at every set, label amount and seed."""
    return grid(ask, compared_rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """For each set and label amount: the rarest classes, all classes, and intervals over images."""
    cells = plan(ask)
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Bars] = []
    remarks: list[str] = []
    for place in places(ask):
        shares = class_shares(evidence, *place)
        if not shares:
            findings.append(f"With {where(*place)} no run is finished yet.")
            continue
        rows = [row for row in compared_rows(ask) if evidence.of(row, *place)]
        findings.append(_finding(ask, evidence, rows, list(shares)[:RAREST], *place))
        tables += [_rare(ask, evidence, rows, shares, *place), _every(evidence, rows, shares, *place)]
        drawn_again, warned = _drawn_again(evidence, rows, list(shares)[:RAREST], *place)
        tables += drawn_again
        remarks += warned
        figures.append(_figure(ask, evidence, rows, shares, *place))
    kept = 2 if unfinished(cells, evidence) else 3
    told = (*findings[:kept], *unfinished(cells, evidence))
    remarks = [*findings[kept:], *dict.fromkeys(remarks), _paper(), *uneven(cells, evidence)]
    return Answer(told, tuple(tables), tuple(remarks), tuple(figures))


def class_shares(evidence: Evidence, dataset: str, labels: str) -> dict[str, float]:
    """The foreground classes and their share of the judged pixels, the rarest first; absent ones are left out.

    Counted over every seed that has a run, since the simulated set is another one for every seed.
    """
    there = [r for r in evidence.results if (r.cell.dataset, r.cell.labels) == (dataset, labels)]
    pixels: Counter[str] = Counter()
    hidden: set[str] = set()
    for result in {r.cell.seed: r for r in there}.values():
        pixels.update({str(score["name"]): int(score["pixels"]) for score in result.last["classes"]})
        hidden |= set(result.members.get(BACKGROUND, ()))
    total = sum(pixels.values())
    ranked = sorted((count, name) for name, count in pixels.items() if count and name not in hidden)
    return {name: count / total for count, name in ranked}


def iou_of(name: str) -> Callable[[Result], float | None]:
    """Reads the IoU of one class."""
    return lambda result: result.iou(name)


def _rare(
    ask: Ask, evidence: Evidence, rows: Sequence[str], shares: dict[str, float], dataset: str, labels: str
) -> Table:
    columns = [
        column(_heading(name, shares[name]), evidence, iou_of(name), dataset, labels) for name in list(shares)[:RAREST]
    ]
    columns.append(column("all tail classes", evidence, lambda r: r.group("tail"), dataset, labels))
    place, known = paper_place(dataset, labels), paper_set(dataset)
    if place is not None and known is not None and place[1] == 0:
        name, lead = TAIL_LEADS[known]
        values = {ask.ftc: f"{lead:+.2f}"}
        columns.append(Column(heading=f"{name}, lead over the second (paper)", values=values, paper=True))
    return table_of(f"IoU of the rarest classes, {where(dataset, labels)}", "method", rows, columns)


def _every(evidence: Evidence, rows: Sequence[str], shares: dict[str, float], dataset: str, labels: str) -> Table:
    columns = [
        column(_heading(name, shares[name]), evidence, iou_of(name), dataset, labels) for name in reversed(shares)
    ]
    return table_of(f"IoU of every class, {where(dataset, labels)}", "method", rows, columns)


def _heading(name: str, share: float) -> str:
    return f"{name} ({100 * share:.2g} % of pixels)"


def _drawn_again(
    evidence: Evidence, rows: Sequence[str], names: Sequence[str], dataset: str, labels: str
) -> tuple[list[Table], list[str]]:
    """Intervals by drawing images again, and sequences where frames are neighbours; of each row's first seed."""
    found: dict[str, list[Intervals]] = {}
    order: dict[str, int] = {}
    for row in rows:
        first = evidence.of(row, dataset, labels)[0]
        counts = first.counts()
        if counts is None:
            continue
        order = {str(score["name"]): i for i, score in enumerate(first.last["classes"])}
        found[row] = [bootstrap(counts.counts)]
        if counts.clusters is not None:
            found[row].append(bootstrap(counts.counts, counts.clusters))
    if not found:
        return [], []
    columns = []
    for name in names:
        for over in ("images", "sequences"):
            told = {row: one.classes[order[name]] for row, both in found.items() for one in both if one.over == over}
            if told:
                values = {row: _ends(interval) for row, interval in told.items()}
                columns.append(Column(heading=f"{name}, over {over}", values=values))
    warned = [one.warning for both in found.values() for one in both if one.warning]
    title = f"95 % intervals by drawing images again, first seed of each row, {where(dataset, labels)}"
    return [table_of(title, "method", list(found), columns)], warned


def _ends(interval: Interval | None) -> str:
    if interval is None:
        return "n/a"
    return f"{100 * interval.value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _figure(
    ask: Ask, evidence: Evidence, rows: Sequence[str], shares: dict[str, float], dataset: str, labels: str
) -> Bars:
    names = list(shares)[:RAREST]
    series = []
    for row in rows:
        heights = [drawn(over_seeds(evidence.of(row, dataset, labels), iou_of(name))) for name in names]
        series.append((row, tuple(heights)))
    return Bars(
        name=f"tail{suffix(ask, dataset, labels)}",
        title=f"The rarest classes with {where(dataset, labels)}",
        label="IoU at the end (%)",
        groups=tuple(_heading(name, shares[name]) for name in names),
        series=tuple(series),
        spread=spread_of(ask),
    )


def _finding(ask: Ask, evidence: Evidence, rows: Sequence[str], names: Sequence[str], dataset: str, labels: str) -> str:
    """Of the rarest class that anybody finds."""
    start, lost = f"With {where(dataset, labels)}, ", []
    for rank, name in zip(("the rarest class", "the second rarest"), names, strict=False):
        means = [over_seeds(evidence.of(row, dataset, labels), iou_of(name)) for row in rows]
        if max((one.mean for one in means if one is not None), default=0.0) < FOUND:
            lost.append(f"{name}, {rank}")
            continue
        missed = f"nobody finds {' or '.join(lost)}; " if lost else ""
        ours = evidence.of(ask.ftc, dataset, labels)
        others = {row: evidence.of(row, dataset, labels) for row in rows if row != ask.ftc}
        gaps = {row: test for row, runs in others.items() if (test := gap(ours, runs, iou_of(name))) is not None}
        if not gaps:
            return f"{start}{missed}there is nothing to compare {ask.ftc} with on {name}, {rank}, yet."
        second = min(gaps, key=lambda row: gaps[row].difference)  # over the seeds both have
        return (
            f"{start}{missed}{ask.ftc} reaches an IoU of {spoken(over_seeds(ours, iou_of(name)))} on {name}, {rank}, "
            f"{points(gaps[second].difference)} against the best other row, {second} "
            f"({verdict(ours, others[second], iou_of(name))})."
        )
    return f"{start}none of {len(rows)} methods finds {' or '.join(lost)}: every IoU is below {100 * FOUND:g} %."


def _paper() -> str:
    leads = ", ".join(f"{known} {name} {lead:+.2f}" for known, (name, lead) in TAIL_LEADS.items())
    return f"The paper prints no values, only FTC-Seg's leads over the second best with 2% labels: {leads}."
