"""Every method on the same split, encoder, views and steps, beside labels alone."""

from __future__ import annotations

from ftcseg.methods import METHODS
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.results import Result
from ftcseg.studies.statistics import Summary, summary
from ftcseg.studies.tables import Answer, Table, leaders, spoken

BASELINE = "supervised"
DEFAULTS = Ask(settings=("data.short_side=96", "evaluation.every=100", "evaluation.audit_images=40", "log_every=10"))
"""What `ftcseg demo` trains, so that its three runs are rows of this table."""
UNRUN = ("semivl",)  # needs CLIP weights, which no package carries


def plan(ask: Ask) -> list[Cell]:
    """One run per method, label amount and seed."""
    rows = {name: (name, ()) for name in METHODS if name not in UNRUN or name in ask.only}
    return grid(ask, rows)


def read(ask: Ask, results: list[Result]) -> Answer:
    """One table per label amount, methods by their mean IoU."""
    tables = tuple(_table(labels, [r for r in results if r.cell.labels == labels]) for labels in ask.labels)
    return Answer(tuple(_finding(results, labels) for labels in ask.labels), tables)


def _table(labels: str, results: list[Result]) -> Table:
    rows = {row: [r for r in results if r.cell.row == row] for row in dict.fromkeys(r.cell.row for r in results)}
    order = sorted(rows, key=lambda row: -summary([r.miou() for r in rows[row]]).mean)
    numbers = {row: _numbers(rows[row]) for row in order}
    columns = zip(*(numbers[row] for row in order), strict=True)
    best, second = leaders([[found.mean if found else None for found in column] for column in columns])
    minutes = {row: summary([r.seconds / 60 for r in rows[row]]).mean for row in order}
    return Table(
        f"{labels} of the labels",
        ("method", "mIoU, last", "mIoU, best", "head", "middle", "tail", "minutes a run"),
        tuple((row, *map(spoken, numbers[row]), f"{minutes[row]:.1f}") for row in order),
        best,
        second,
    )


def _numbers(results: list[Result]) -> list[Summary | None]:
    columns = [[r.miou() for r in results], [r.miou("best") for r in results]]
    columns += [[v for r in results if (v := r.group(name)) is not None] for name in ("head", "middle", "tail")]
    return [summary(values) if values else None for values in columns]


def _finding(results: list[Result], labels: str) -> str:
    means = {
        row: summary([r.miou() for r in results if r.cell.row == row and r.cell.labels == labels]).mean * 100
        for row in dict.fromkeys(r.cell.row for r in results if r.cell.labels == labels)
    }
    if BASELINE not in means or len(means) < 2:
        return f"With {labels} of the labels {len(means)} methods were run."
    base = means.pop(BASELINE)
    better = [row for row in means if means[row] > base]
    first = max(means, key=lambda row: means[row])
    return (
        f"With {labels} of the labels, {len(better)} of {len(means)} methods end above labels alone ({base:.1f} mIoU); "
        f"the highest is {first} with {means[first]:.1f}."
    )
