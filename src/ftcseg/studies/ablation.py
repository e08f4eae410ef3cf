"""M1 to M5: what the teacher, OPR and ATC bring, each on and off, beside the published baseline."""

from __future__ import annotations

from collections.abc import Mapping

from ftcseg.studies.figures import Bars
from ftcseg.studies.paper_main import ABLATION, DINOV2, published, share
from ftcseg.studies.plan import Ask, Cell, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    FTC,
    LABELS_ONLY,
    PUBLISHED,
    UNIMATCH,
    WITH_ATC,
    WITH_OPR,
    calibration_rows,
    column,
    drawn,
    elsewhere_column,
    elsewhere_note,
    family_of,
    gap,
    in_group,
    over_seeds,
    p_cell,
    p_said,
    places,
    points,
    spread_of,
    suffix,
    uneven,
    unfinished,
    verdict,
    where,
)
from ftcseg.studies.statistics import Family, main_effect, paired, summary
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

DEFAULTS = Ask(seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
OPTIONS: Mapping[str, str] = {"beside": ""}
"""Other methods that stand in the same table, such as fixmatch,ftc-paper."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "EMA": (BASELINE, PUBLISHED, WITH_OPR, WITH_ATC, FTC),
    "OPR": (WITH_OPR, FTC),
    "ATC": (WITH_ATC, FTC),
}
"""Which rows have which part."""
EFFECTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "OPR": ((WITH_OPR, BASELINE), (FTC, WITH_ATC)),
    "ATC": ((WITH_ATC, BASELINE), (FTC, WITH_OPR)),
}
"""The pairs of rows that differ in one part only: it is there and not there, the other one being off, then on."""
PAPER = dict(zip((LABELS_ONLY, BASELINE, WITH_OPR, WITH_ATC, FTC), map(share, ABLATION), strict=True)) | {
    PUBLISHED: published("fssg", "2%", "unimatch-v2")[DINOV2]
}
GROUPS = ("head", "middle", "tail")


def rows(ask: Ask) -> Rows:
    """M1 to M5, the published baseline where M2 is another one, and whatever else shall stand beside them."""
    parts = dict(calibration_rows(ask))
    first = {name: parts.pop(name) for name in (LABELS_ONLY, BASELINE)}
    if first[BASELINE] != UNIMATCH:
        first[PUBLISHED] = UNIMATCH
    named = (name.strip() for name in ask.options["beside"].split(","))
    beside = {name: (name, ()) for name in named if name}
    return {**first, **beside, **parts}


def plan(ask: Ask) -> list[Cell]:
    """Every model at every set, label amount and seed."""
    return grid(ask, rows(ask))


def read(ask: Ask, evidence: Evidence) -> Answer:
    """One table and one figure per set and label amount."""
    cells = plan(ask)
    tests = family_of(
        {
            _pair(row, *place): (evidence.of(row, *place), evidence.of(BASELINE, *place))
            for place in places(ask)
            for row in rows(ask)
            if row != BASELINE and evidence.of(row, *place)
        }
    )
    findings = [sentence for place in places(ask) for sentence in _finding(evidence, *place)]
    kept = 2 if unfinished(cells, evidence) else 3
    tables = tuple(_table(ask, evidence, tests, *place) for place in places(ask))
    return Answer(
        (*findings[:kept], *unfinished(cells, evidence)),
        tables,
        (*findings[kept:], *_effects(ask, evidence), *tests.notes(), *elsewhere_note(tables), *uneven(cells, evidence)),
        tuple(_figure(ask, evidence, *place) for place in places(ask)),
    )


def _pair(row: str, dataset: str, labels: str) -> str:
    return f"{row}, {where(dataset, labels)}"


def _table(ask: Ask, evidence: Evidence, tests: Family, dataset: str, labels: str) -> Table:
    present = [row for row in rows(ask) if evidence.of(row, dataset, labels)]
    found = {row: tests[_pair(row, dataset, labels)] for row in present if row != BASELINE}
    gaps = {row: points(one) for row, test in found.items() if (one := test.difference) is not None}
    ours = {row for row in present if row in PAPER}  # of other methods nothing is on or off
    base = evidence.of(BASELINE, dataset, labels)
    pairs = {row: (evidence.of(row, dataset, labels), base) for row in gaps}
    columns = [
        Column(heading=part, values={row: ("✓" if row in has else "–") if row in ours else "" for row in present})
        for part, has in PARTS.items()
    ]
    columns += [
        column("mIoU, last", evidence, Result.miou, dataset, labels),
        column("mIoU, best", evidence, lambda r: r.miou("best"), dataset, labels),
        *(column(group, evidence, in_group(group), dataset, labels) for group in GROUPS),
        Column(heading="over M2", values={BASELINE: "–"} | gaps),
        Column(heading="p", values={BASELINE: "–"} | {row: p_cell(found[row].p) for row in gaps}),
        Column(heading="Holm p", values={BASELINE: "–"} | {row: p_cell(found[row].corrected) for row in gaps}),
        *elsewhere_column(pairs, {BASELINE: "–"}),
        Column(heading="FSSG, 2% (paper)", values=PAPER, digits=2, paper=True),
    ]
    return table_of(where(dataset, labels), "model", present, columns)


def _figure(ask: Ask, evidence: Evidence, dataset: str, labels: str) -> Bars:
    values = {"all": Result.miou} | {group: in_group(group) for group in GROUPS}
    series = []
    for row in rows(ask):
        heights = [drawn(over_seeds(evidence.of(row, dataset, labels), value)) for value in values.values()]
        if any(heights):
            series.append((row, tuple(heights)))
    return Bars(
        name=f"ablation{suffix(ask, dataset, labels)}",
        title=f"M1 to M5 with {where(dataset, labels)}",
        label="mIoU at the end (%)",
        groups=tuple(values),
        series=tuple(series),
        spread=spread_of(ask),
    )


def _effects(ask: Ask, evidence: Evidence) -> list[str]:
    """What each part brings, both times it is measured, over the seeds that all four rows have."""
    said = []
    for place in places(ask):
        rows = {row: evidence.of(row, *place) for pairs in EFFECTS.values() for pair in pairs for row in pair}
        ends = {row: {result.cell.seed: result.miou() for result in found} for row, found in rows.items()}
        seeds = sorted(set.intersection(*({*found} for found in ends.values())))
        if not seeds:
            continue
        parts = []
        for part, pairs in EFFECTS.items():
            sides = [([ends[a][seed] for seed in seeds], [ends[b][seed] for seed in seeds]) for a, b in pairs]
            gains = main_effect(sides)
            test, told = paired(gains, [0.0] * len(gains)), summary(gains)
            sure = test.warning if test.p is None else f"{p_said(test.p)} over {test.count} seeds"
            parts.append(f"{part} {'+' if told.mean >= 0 else ''}{spoken(told)} ({sure})")
        said.append(
            f"With {where(*place)} each part is measured twice, the other one being off and on; mean of both, seed by "
            f"seed: {', '.join(parts)}."
        )
    return said


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {
        row: evidence.of(row, dataset, labels) for row in (LABELS_ONLY, PUBLISHED, BASELINE, WITH_OPR, WITH_ATC, FTC)
    }
    base = runs[BASELINE]
    whole = gap(runs[FTC], base)
    if whole is None:
        return [f"With {where(dataset, labels)}, M2 and M5 have no seed in common yet."]
    ends = spoken(over_seeds(runs[FTC], Result.miou))
    parts = [(name, gap(runs[row], base)) for name, row in (("OPR alone", WITH_OPR), ("ATC alone", WITH_ATC))]
    alone = ", ".join(f"{name} {points(test.difference)}" for name, test in parts if test is not None)
    said = [
        f"With {where(dataset, labels)}, FTC-Seg (M5) ends at {ends} mIoU, {points(whole.difference)} over the "
        f"baseline M2 ({verdict(runs[FTC], base)}){'; over M2, ' + alone if alone else ''}."
    ]
    taught, own = gap(base, runs[LABELS_ONLY]), gap(base, runs[PUBLISHED])
    if taught is not None:
        against = f", and {points(own.difference)} over UniMatch V2 as published" if own is not None else ""
        said.append(
            f"M2 itself is {points(taught.difference)} over labels alone ({verdict(base, runs[LABELS_ONLY])}){against}."
        )
    return said
