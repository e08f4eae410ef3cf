"""The rows that several studies share, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ftcseg.studies.figures import Value
from ftcseg.studies.plan import EMBEDDED, Ask, Cell, Rows
from ftcseg.studies.results import Evidence, Result, matched
from ftcseg.studies.statistics import (
    ENOUGH,
    Family,
    Paired,
    Summary,
    alike,
    bootstrap_difference,
    family,
    paired,
    summary,
)
from ftcseg.studies.tables import Column, Table, spoken

LABELS_ONLY, BASELINE, WITH_OPR, WITH_ATC, FTC = "M1 labels only", "M2 EMA", "M3 EMA+OPR", "M4 EMA+ATC", "M5 FTC-Seg"
EMBEDDED_SETTINGS = ("data.short_side=96", "evaluation.every=100", "evaluation.audit_images=40", "log_every=10")
"""What `ftcseg demo` trains with, so that its runs are cells of a study."""

PUBLISHED = "UniMatch V2 as published"
"""M2 with the weight and the balance of its own authors, where a reading of FTC-Seg has others."""
COMPARED = ("supervised", "ael", "dual-teacher", "unimatch-v1", "beyond-pixels", "semivl", "vc", "unimatch-v2")
"""What the paper compares FTC-Seg with, in its order."""
UNRUN = ("semivl",)
"""Run where it is asked for by name only: it needs CLIP's weights, which no package carries."""
LEVEL = 0.05
"""p below which a difference is called one."""

UNIMATCH = ("unimatch-v2", ())
"""The published baseline as a row."""
BUILT_ON_IT = "ftc"
"""The reading that is UniMatch V2 to the bit once OPR and ATC are taken out (tests/e2e/test_every_method.py)."""

_NO_OPR, _NO_ATC = "opr.layers=0", "thresholds=fixed"


def calibration_rows(ask: Ask) -> Rows:
    """M1 to M5 of the paper. M2 to M5 share everything but OPR and ATC: one reading of FTC-Seg with parts taken out."""
    return {
        LABELS_ONLY: ("supervised", ()),
        # Named as what it is, so that a study has its runs in common with those that compare methods.
        BASELINE: UNIMATCH if ask.ftc == BUILT_ON_IT else (ask.ftc, (_NO_OPR, _NO_ATC)),
        WITH_OPR: (ask.ftc, (_NO_ATC,)),
        WITH_ATC: (ask.ftc, (_NO_OPR,)),
        FTC: (ask.ftc, ()),
    }


def over_seeds(results: Sequence[Result], value: Callable[[Result], float | None]) -> Summary | None:
    """A number of these runs; None where no run has it."""
    values = [found for result in results if (found := value(result)) is not None]
    return summary(values) if values else None


def in_group(name: str) -> Callable[[Result], float | None]:
    """Reads the mean IoU of a group's classes."""
    return lambda result: result.group(name)


def column(
    heading: str,
    evidence: Evidence,
    value: Callable[[Result], float | None],
    dataset: str,
    labels: str,
    *,
    low: bool = False,
) -> Column:
    """What each row's runs on one set and label amount give; `low` where the lowest is best."""
    rows = evidence.rows()
    values = {row: over_seeds(evidence.of(row, dataset, labels), value) for row in rows}
    return Column(heading=heading, values=values, best="low" if low else "high")


def compared_rows(ask: Ask) -> Rows:
    """The paper's comparison, each row by the name of its method, FTC-Seg last."""
    names = [name for name in COMPARED if name not in UNRUN or name in ask.only]
    return {name: (name, ()) for name in (*names, ask.ftc)}


def places(ask: Ask) -> list[tuple[str, str]]:
    """Every set with every label amount."""
    return [(dataset, labels) for dataset in ask.datasets for labels in ask.labels]


def where(dataset: str, labels: str) -> str:
    """«10% of the labels of flsmd»; the simulated set goes without a name."""
    return f"{labels} of the labels" + ("" if dataset == EMBEDDED else f" of {dataset}")


def suffix(ask: Ask, dataset: str, labels: str) -> str:
    """What keeps the files of several settings apart; nothing where there is one."""
    names = [Path(one).name for one in ask.datasets]
    name = Path(dataset).name if names.count(Path(dataset).name) == 1 else f"set-{ask.datasets.index(dataset) + 1}"
    parts = [name] * (len(ask.datasets) > 1) + [labels.replace("%", "").strip()] * (len(ask.labels) > 1)
    return "".join(f"-{part}" for part in parts)


def gap(
    ours: Sequence[Result], theirs: Sequence[Result], value: Callable[[Result], float | None] = Result.miou
) -> Paired | None:
    """Ours less theirs over the runs both have; None where they share none."""
    pairs = matched(ours, theirs, value)
    return paired(*pairs) if pairs[0] else None


def family_of(
    named: Mapping[str, tuple[Sequence[Result], Sequence[Result]]],
    value: Callable[[Result], float | None] = Result.miou,
) -> Family:
    """Every named pair of rows (ours, theirs) tested over the runs both have, corrected over all that could be."""
    return family({name: matched(ours, theirs, value) for name, (ours, theirs) in named.items()})


def verdict(
    ours: Sequence[Result], theirs: Sequence[Result], value: Callable[[Result], float | None] = Result.miou
) -> str:
    """How much a difference may be trusted, in words: «p 0.074 over 3 seeds, too few to trust»."""
    pairs = matched(ours, theirs, value)
    if not pairs[0]:
        return "they share no seed"
    test = paired(*pairs)
    if test.p is None:
        return test.warning
    wide = max(found.std or 0.0 for found in map(summary, pairs))
    inside = f"inside the spread of ±{100 * wide:.1f}, " if abs(test.difference) <= wide else ""
    few = "" if test.count > ENOUGH else ", too few to trust"
    return f"{inside}{p_said(test.p)} over {test.count} seeds{few}"


def points(difference: float) -> str:
    """A difference of shares in points: «+1.3»."""
    return f"{100 * difference:+.1f}"


def signed(
    ours: Sequence[Result], theirs: Sequence[Result], value: Callable[[Result], float | None] = Result.miou
) -> str | None:
    """«-7.6 ± 0.4»: ours less theirs over the runs both have; None where they share none."""
    pairs = matched(ours, theirs, value)
    if not pairs[0]:
        return None
    found = summary([a - b for a, b in zip(*pairs, strict=True)])
    return f"{'+' if found.mean >= 0 else ''}{spoken(found)}"


ELSEWHERE = "other scenes"
ELSEWHERE_NOTE = (
    "Other scenes: between which ends 95 % of the draws of a gap lie where the judged images are drawn again, the same "
    "for all runs, and whole sequences where frames are neighbours. It tells of the images; training again would move "
    "the gap as well."
)


def elsewhere_column(
    pairs: Mapping[str, tuple[Sequence[Result], Sequence[Result]]], others: Mapping[str, str]
) -> list[Column]:
    """A column of `elsewhere` for named pairs, with ready words for other rows; none where no run kept its counts."""
    told = {row: ends for row, pair in pairs.items() if (ends := elsewhere(*pair)) is not None}
    return [Column(heading=ELSEWHERE, values={**others, **told})] if told else []


def elsewhere_note(tables: Sequence[Table]) -> tuple[str, ...]:
    """What the column says, where a table has it."""
    return (ELSEWHERE_NOTE,) if any(ELSEWHERE in table.headings for table in tables) else ()


def elsewhere(ours: Sequence[Result], theirs: Sequence[Result]) -> str | None:
    """«-0.7 to +1.5»: where the mean gap over the runs both have would lie had other images been judged."""
    counts = matched(ours, theirs, Result.counts)
    runs = [*counts[0], *counts[1]]
    if not runs or not alike(runs):
        return None
    found = bootstrap_difference(*counts, runs[0].clusters).miou
    return None if found is None else f"{points(found.low)} to {points(found.high)}"


def p_cell(p: float | None) -> str:
    """For a table: «0.074», or that there is no test."""
    return "no test" if p is None else f"{p:.2g}"


def p_said(p: float) -> str:
    """«p 0.074»; very small ones as a bound."""
    return "p < 0.0001" if p < 1e-4 else f"p {p:.2g}"


def unfinished(cells: Sequence[Cell], evidence: Evidence) -> tuple[str, ...]:
    """How many of the planned runs are not there yet; nothing where all are."""
    have = {result.cell for result in evidence.results}
    missing = sum(cell not in have for cell in cells)
    return (f"{missing} of {len(cells)} runs are missing.",) if missing else ()


def uneven(cells: Sequence[Cell], evidence: Evidence) -> tuple[str, ...]:
    """Rows that lack runs where others have them: their means are not over the same sets, amounts and seeds."""
    have = {result.cell for result in evidence.results}
    begun = {(cell.dataset, cell.labels, cell.seed) for cell in have}
    counts: dict[str, list[bool]] = {}
    for cell in cells:
        if (cell.dataset, cell.labels, cell.seed) in begun:
            counts.setdefault(cell.row, []).append(cell in have)
    partial = [f"{row} {sum(done)} of {len(done)}" for row, done in counts.items() if 0 < sum(done) < len(done)]
    if not partial:
        return ()
    return (
        f"Means are over the runs a row has, gaps over those both have. Rows that lack some: {', '.join(partial)}.",
    )


def drawn(found: Summary | None) -> Value | None:
    """A share over seeds as a height in percent with its standard deviation."""
    if found is None:
        return None
    return Value(100 * found.mean, None if found.std is None else 100 * found.std)


def spread_of(ask: Ask) -> str:
    """What the spreads of a figure are."""
    return f"standard deviation over {len(ask.seeds)} seeds" if len(ask.seeds) > 1 else ""
