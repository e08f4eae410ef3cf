"""Every method on the same split, encoder, views and steps, beside labels alone."""

from __future__ import annotations

from collections import Counter

from ftcseg.methods import METHODS
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    UNRUN,
    column,
    elsewhere_column,
    elsewhere_note,
    gap,
    in_group,
    over_seeds,
    places,
    points,
    uneven,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Column, Table, table_of

BASELINE = "supervised"
DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
WRONG = (
    "Objects taught wrong: of the object pixels in the unlabelled images, the share that the method's own labels would "
    "teach under a wrong name, after its threshold."
)
SENTENCES = 3
"""What a finding may take; the rest of many settings is told in the remarks."""


def plan(ask: Ask) -> list[Cell]:
    """One run per method, label amount and seed."""
    rows = {name: (name, ()) for name in METHODS if name not in UNRUN or name in ask.only}
    return grid(ask, rows)


def read(ask: Ask, evidence: Evidence) -> Answer:
    """One table per set and label amount, methods by their mean IoU."""
    gains = {place: _gains(evidence, *place) for place in places(ask)}
    each = [_finding(evidence, gains[place], *place) for place in places(ask)]
    below = [_below(gains[place], *place) for place in places(ask)]
    told = each if len(each) <= SENTENCES else [_together(list(gains.values()))]
    told_wrong = (WRONG,) if any(result.audit for result in evidence.results) else ()
    tables = tuple(_table(evidence, gains[place], *place) for place in places(ask))
    notes = (*uneven(plan(ask), evidence), *elsewhere_note(tables), *told_wrong)
    return Answer(tuple(told), tables, (*(each if len(each) > SENTENCES else ()), *filter(None, below), *notes))


def _gains(evidence: Evidence, dataset: str, labels: str) -> dict[str, float]:
    """Each method less labels alone, over the seeds both have."""
    base = evidence.of(BASELINE, dataset, labels)
    tests = {row: gap(evidence.of(row, dataset, labels), base) for row in evidence.rows() if row != BASELINE}
    return {row: test.difference for row, test in tests.items() if test is not None}


def _table(evidence: Evidence, gains: dict[str, float], dataset: str, labels: str) -> Table:
    rows = {row: evidence.of(row, dataset, labels) for row in evidence.rows()}
    pairs = {row: (rows[row], rows[BASELINE]) for row in gains}
    columns = [
        column("mIoU, last", evidence, Result.miou, dataset, labels),
        column("mIoU, best", evidence, lambda r: r.miou("best"), dataset, labels),
        column("trained network", evidence, lambda r: r.trained, dataset, labels),
        Column(
            heading="over labels alone", values={BASELINE: "–"} | {row: points(gain) for row, gain in gains.items()}
        ),
        *elsewhere_column(pairs, {BASELINE: "–"}),
        *(column(group, evidence, in_group(group), dataset, labels) for group in ("head", "middle", "tail")),
        column("objects taught wrong", evidence, Result.taught_wrong, dataset, labels, low=True),
    ]
    means = {row: found.mean for row in rows if (found := over_seeds(rows[row], Result.miou))}
    return table_of(where(dataset, labels), "method", sorted(means, key=lambda row: -means[row]), columns)


def _finding(evidence: Evidence, gains: dict[str, float], dataset: str, labels: str) -> str:
    base = evidence.of(BASELINE, dataset, labels)
    mean = over_seeds(base, Result.miou)
    if not gains or mean is None:
        return f"With {where(dataset, labels)} there is nothing to compare yet."
    first = max(gains, key=lambda row: gains[row])
    better = sum(gain > 0 for gain in gains.values())
    return (
        f"With {where(dataset, labels)}, {better} of {len(gains)} methods end above labels alone "
        f"({100 * mean.mean:.1f} mIoU); the highest is {first}, {points(gains[first])} over the seeds both have "
        f"({verdict(evidence.of(first, dataset, labels), base)})." + _by_trained(evidence, dataset, labels)
    )


def _by_trained(evidence: Evidence, dataset: str, labels: str) -> str:
    """The same by the networks that were trained: in a short run a teacher lags, and not every method has one."""
    rows = {row: evidence.of(row, dataset, labels) for row in evidence.rows()}
    means = {row: found.mean for row in rows if (found := over_seeds(rows[row], lambda r: r.trained))}
    if BASELINE not in means or len(means) < 2:
        return ""
    first = max(means, key=lambda row: means[row])
    return (
        f" Of the trained networks themselves, without a teacher's running mean, the best is {first}, "
        f"{100 * means[first]:.1f} against {100 * means[BASELINE]:.1f}."
    )


def _together(gains: list[dict[str, float]]) -> str:
    """Many settings in one sentence."""
    some = [found for found in gains if found]
    if not some:
        return "There is nothing to compare yet."
    better = sum(gain > 0 for found in some for gain in found.values())
    firsts = Counter(max(found, key=lambda row: found[row]) for found in some)
    name, times = firsts.most_common(1)[0]
    return (
        f"Over {len(some)} settings, methods end above labels alone in {better} of {sum(map(len, some))} comparisons; "
        f"{name} gains most in {times} of the settings."
    )


def _below(gains: dict[str, float], dataset: str, labels: str) -> str:
    """Which methods the unlabelled images did harm; nothing where none."""
    lost = sorted((gain, row) for row, gain in gains.items() if gain < 0)
    told = ", ".join(f"{row} {points(gain)}" for gain, row in lost)
    return f"Below labels alone with {where(dataset, labels)}: {told}." if lost else ""
