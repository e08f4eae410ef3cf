"""Every method on the same split, encoder, views and steps, beside labels alone."""

from __future__ import annotations

from ftcseg.methods import METHODS
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.results import Evidence, Result, matched
from ftcseg.studies.rows import EMBEDDED_SETTINGS, column, in_group, over_seeds
from ftcseg.studies.tables import Answer, Column, Table, table_of

BASELINE = "supervised"
DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
UNRUN = ("semivl",)  # needs CLIP weights, which no package carries


def plan(ask: Ask) -> list[Cell]:
    """One run per method, label amount and seed."""
    rows = {name: (name, ()) for name in METHODS if name not in UNRUN or name in ask.only}
    return grid(ask, rows)


def read(ask: Ask, evidence: Evidence) -> Answer:
    """One table per set and label amount, methods by their mean IoU."""
    places = [(dataset, labels) for dataset in ask.datasets for labels in ask.labels]
    return Answer(
        tuple(_finding(evidence, dataset, labels) for dataset, labels in places),
        tuple(_table(evidence, dataset, labels) for dataset, labels in places),
    )


def _table(evidence: Evidence, dataset: str, labels: str) -> Table:
    rows = {row: evidence.of(row, dataset, labels) for row in evidence.rows()}
    columns = [
        column("mIoU, last", evidence, Result.miou, dataset, labels),
        column("mIoU, best", evidence, lambda r: r.miou("best"), dataset, labels),
        *(column(group, evidence, in_group(group), dataset, labels) for group in ("head", "middle", "tail")),
    ]
    spent = {row: over_seeds(rows[row], lambda r: r.seconds / 60) for row in rows}
    columns.append(Column(heading="minutes a run", values=spent, best=None, scale=1.0))
    means = {row: found.mean for row in rows if (found := over_seeds(rows[row], Result.miou))}
    return table_of(f"{labels} of the labels", "method", sorted(means, key=lambda row: -means[row]), columns)


def _finding(evidence: Evidence, dataset: str, labels: str) -> str:
    base = evidence.of(BASELINE, dataset, labels)
    gains: dict[str, float] = {}
    for row in evidence.rows():
        ours, theirs = matched(evidence.of(row, dataset, labels), base, Result.miou)
        if ours and row != BASELINE:
            gains[row] = 100 * (sum(ours) - sum(theirs)) / len(ours)
    if not gains:
        return f"With {labels} of the labels there is nothing to compare yet."
    first = max(gains, key=lambda row: gains[row])
    better = sum(gain > 0 for gain in gains.values())
    mean = over_seeds(base, Result.miou)
    assert mean is not None
    return (
        f"With {labels} of the labels, {better} of {len(gains)} methods end above labels alone "
        f"({100 * mean.mean:.1f} mIoU); the highest is {first}, {gains[first]:+.1f} over the seeds both have."
    )
