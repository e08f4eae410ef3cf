"""Joint calibration: whether OPR and ATC together beat the better of the two alone, over sets and label amounts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ftcseg.studies.figures import Bars
from ftcseg.studies.paper_main import JOINT, paper_place, share
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import (
    EMBEDDED_SETTINGS,
    FTC,
    LEVEL,
    WITH_ATC,
    WITH_OPR,
    calibration_rows,
    drawn,
    p_cell,
    places,
    points,
    spread_of,
    unfinished,
    where,
)
from ftcseg.studies.statistics import Family, family, summary
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULTS = Ask(labels=("5%", "10%"), seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
MODELS = (WITH_OPR, WITH_ATC, FTC)
UNDECIDED = "†"
HEADS = ("M3", "M4", "M5")


@dataclass(frozen=True, slots=True)
class Setting:
    """One set and label amount: M3, M4 and M5 over the seeds that all three have, seed by seed."""

    opr: list[float]
    atc: list[float]
    both: list[float]

    @property
    def stronger(self) -> list[float]:
        """M3 or M4, whichever has the higher mean."""
        return self.opr if math.fsum(self.opr) >= math.fsum(self.atc) else self.atc


def plan(ask: Ask) -> list[Cell]:
    """M3, M4 and M5 at every set, label amount and seed."""
    rows = calibration_rows(ask)
    return grid(ask, {name: rows[name] for name in MODELS})


def setting(evidence: Evidence, dataset: str, labels: str) -> Setting | None:
    """What the three models give at one setting; None where they share no seed."""
    by_seed = [{r.cell.seed: r.miou() for r in evidence.of(model, dataset, labels)} for model in MODELS]
    seeds = sorted(set.intersection(*map(set, by_seed)))
    return Setting(*([found[seed] for seed in seeds] for found in by_seed)) if seeds else None


def read(ask: Ask, evidence: Evidence) -> Answer:
    """One row per set and label amount, beside the paper's."""
    found = {where(*place): there for place in places(ask) if (there := setting(evidence, *place))}
    tests = family({name: (one.both, one.stronger) for name, one in found.items()})
    cells = plan(ask)
    remarks = (
        "M5 is compared with the stronger of M3 and M4, picked by its mean on the same seeds: of two equals the "
        "luckier one is picked, so Δ comes out too small rather than too large, and the test favours M5 less than a "
        "comparison fixed beforehand would.",
        f"{UNDECIDED}: p is {LEVEL} or more after Holm's correction, or no test is possible.",
    )
    return Answer(
        (*_finding(tests), *unfinished(cells, evidence)),
        (_table(ask, found, tests),) if found else (),
        (*remarks, *tests.notes()),
        (_figure(ask, found),) if found else (),
    )


def _figure(ask: Ask, found: Mapping[str, Setting]) -> Bars:
    return Bars(
        name="joint",
        title="OPR alone, ATC alone, and both",
        label="mIoU at the end (%)",
        groups=tuple(found),
        series=(
            (WITH_OPR, tuple(drawn(summary(one.opr)) for one in found.values())),
            (WITH_ATC, tuple(drawn(summary(one.atc)) for one in found.values())),
            (FTC, tuple(drawn(summary(one.both)) for one in found.values())),
        ),
        spread=spread_of(ask),
    )


def _table(ask: Ask, found: Mapping[str, Setting], tests: Family) -> Table:
    models = {name: [summary(values) for values in (one.opr, one.atc, one.both)] for name, one in found.items()}
    ours = [
        Column(heading=head, values={name: three[i] for name, three in models.items()}, best=None)
        for i, head in enumerate(HEADS)
    ]
    told = [
        Column(heading="seeds", values={name: str(tests[name].count) for name in found}),
        Column(
            heading="Δ",
            values={one.name: points(gap) for one in tests.comparisons if (gap := one.difference) is not None},
        ),
        Column(heading="Holm p", values={name: _marked(tests[name].corrected) for name in found}),
    ]
    columns = [*ours, *told, *_paper(ask, found)]
    table = table_of("M5 less the stronger of M3 and M4", "setting", list(found), columns)
    leads = [max(range(3), key=lambda i: three[i].mean) for three in models.values()]
    return replace(table, best=frozenset((row, 1 + lead) for row, lead in enumerate(leads)))  # along the row, as theirs


def _paper(ask: Ask, found: Collection[str]) -> list[Column]:
    at = {where(*place): paper_place(*place) for place in places(ask)}
    known = {name: JOINT[there[0]][there[1]] for name in found if (there := at[name])}
    if not known:
        return []
    models = [
        Column(heading=f"{head} (paper)", values={n: share(row[i]) for n, row in known.items()}, digits=2, paper=True)
        for i, head in enumerate(HEADS)
    ]
    ps = {name: f"{row[4]:.4f}{UNDECIDED if row[4] >= LEVEL else ''}" for name, row in known.items()}
    return [
        *models,
        Column(heading="Δ (paper)", values={name: f"{row[3]:+.2f}" for name, row in known.items()}, paper=True),
        Column(heading="Holm p (paper)", values=ps, paper=True),
    ]


def _marked(p: float | None) -> str:
    return f"{p_cell(p)}{UNDECIDED if p is None or p >= LEVEL else ''}"


def _finding(tests: Family) -> tuple[str, ...]:
    gaps = {one.name: one.difference for one in tests.comparisons if one.difference is not None}
    if not gaps:
        return ("M3, M4 and M5 have no seed in common yet.",)
    ahead = sum(gap > 0 for gap in gaps.values())
    low, high = min(gaps, key=lambda name: gaps[name]), max(gaps, key=lambda name: gaps[name])
    spans = f"Δ is {points(gaps[low])} points with {low}"
    if len(gaps) > 1:
        spans = f"Δ goes from {points(gaps[low])} ({low}) to {points(gaps[high])} ({high})"
    first = (
        f"FTC-Seg (M5) ends above the better of OPR alone and ATC alone in {ahead} of {len(gaps)} settings; {spans}."
    )
    if not tests.tested:
        return first, "No test is possible: one seed, or gaps that are all equal."
    holds = [gaps[one.name] for one in tests.comparisons if one.holds(LEVEL)]
    higher, most = sum(gap > 0 for gap in holds), max(one.count for one in tests.comparisons)
    return first, (
        f"Of {tests.tested} settings tested over at most {most} seeds each, corrected by Holm, M5 is higher in "
        f"{higher} and lower in {len(holds) - higher} (p < {LEVEL}); the paper finds it higher in 11 of 12."
    )
