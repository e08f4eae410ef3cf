"""Where the paper's own numbers disagree, with the arithmetic that shows it and the reading we take. Trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch

from ftcseg.data.doctor import examine_set
from ftcseg.nets.build import build_model
from ftcseg.nets.cost import cost
from ftcseg.nets.opr import OPR_READINGS, OPRParams
from ftcseg.studies import opr_layers
from ftcseg.studies.cost import PAPER as PAPER_COST
from ftcseg.studies.paper_points import Point, agreeing, all_points, fitting, pooled, products
from ftcseg.studies.plan import EMBEDDED, Ask, Bench, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULTS = Ask()
NETWORKS, PIXELS = "counts of the paper's networks", "pixels of FLSMD"
SHAPE = (1, 3, 518, 518)
CLASSES = 11  # FSSG's, on which the paper's costs were taken
LAYERS = range(5)
RELEASED = range(2)
"""Stages with OPR in the released code's baseline, whose head is as wide, and in its FTC-Seg."""
SUBJECT = "standing-bottle"
"""The class whose share is looked at; a set that has it is FLSMD."""


def measures(ask: Ask) -> list[Measure]:
    """Counts of our networks; and the pixels of FLSMD where it is given."""
    counts = Measure(name=NETWORKS, take=count_networks, told={"shape": SHAPE, "classes": CLASSES})
    given = [dataset for dataset in ask.datasets if dataset != EMBEDDED]
    return [counts, *(Measure(name=f"{PIXELS} {i}", take=count_pixels, dataset=d) for i, d in enumerate(given))]


def count_networks(_bench: Bench) -> dict[str, Any]:
    """Parameters and operations of DINOv2-S with DPT: OPR on 0 to 4 stages, and the released code's two networks."""
    readings: dict[str, OPRParams] = {str(n): OPRParams(layers=n) for n in LAYERS}
    readings |= {f"wide {n}": replace(OPR_READINGS["released"], layers=n) for n in RELEASED}
    return {name: _count(reading) for name, reading in readings.items()}


def _count(reading: OPRParams) -> dict[str, int]:
    with torch.device("meta"):  # shapes are enough to count
        net, _ = build_model("dinov2-small", "dpt", CLASSES, opr=reading)
    found = cost(net, SHAPE)
    return {"parameters": found.parameters, "operations": found.macs + found.others}


def count_pixels(bench: Bench) -> dict[str, Any]:
    """Labelled pixels of each class of a set."""
    found = examine_set(bench.source, root=bench.root, progress=bench.progress)
    return {"classes": {_plain(row.name): row.pixels for row in found.classes}}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def read(ask: Ask, evidence: Evidence) -> Answer:
    """The points, what they were computed from, and what does agree."""
    networks = evidence.measured.get(NETWORKS)
    points = all_points(networks, _flsmd(ask, evidence))
    tables = [_points_table(points), _products_table(), _pooled_table(), _agreeing_table()]
    if networks is not None:
        tables.append(_networks_table(networks))
    return Answer(_finding(points, networks), tuple(tables), _REMARKS)


_REMARKS = (
    "Computed from the numbers as they are printed, allowing for their rounding. That two numbers disagree says "
    "nothing about which of them is right, nor why.",
    "What the released code and configuration do is quoted from reading them.",
)


def _flsmd(ask: Ask, evidence: Evidence) -> Mapping[str, int] | None:
    names = [measure.name for measure in measures(ask) if measure.name != NETWORKS]
    found = (evidence.measured[name]["classes"] for name in names if name in evidence.measured)
    return next((pixels for pixels in found if SUBJECT in pixels), None)


def _finding(points: list[Point], networks: Mapping[str, Any] | None) -> tuple[str, ...]:
    cells, wholes, agree = products(), pooled(), agreeing()
    millions, giga, _ = PAPER_COST["FTC-Seg"]
    holds, outside = sum(c.holds for c in cells), sum(not one.is_between for one in wholes)
    counted = "" if networks is None else f"; our network has both with {fitting(networks)} of its stages in OPR"
    return (
        f"{len(points)} places of the paper do not fit together; {sum(n for _, n, _ in agree)} of "
        f"{sum(n for *_, n in agree)} sums and ranges that can be formed anew come out as printed.",
        f"Of the pseudo-label table, kept = accuracy x (1 - filtered) holds in {holds} of {len(cells)} cells, and "
        f"{outside} of {len(wholes)} values for all classes lie outside those of head and tail.",
        f"The printed cost of FTC-Seg is {millions} M and {giga} G{counted}, where the text says two.",
    )


def _points_table(points: list[Point]) -> Table:
    headings = ("point", "where", "what the paper says", "arithmetic", "verdict", "the reading we take")
    rows = tuple((str(p.number), p.where, p.says, p.arithmetic, p.verdict, p.reading) for p in points)
    return Table("What does not fit together", headings, rows, paper=frozenset({2}))


def _products_table() -> Table:
    cells = products()
    names = {f"{c.row}, {c.group}": c for c in cells}
    return table_of(
        "Correctly kept rate against accuracy x (1 - filtered rate), in percent",
        "cell",
        list(names),
        [
            Column(heading="printed (paper)", values={n: f"{c.printed:.2f}" for n, c in names.items()}, paper=True),
            Column(heading="product", values={n: f"{c.product:.2f}" for n, c in names.items()}),
            Column(heading="difference", values={n: f"{c.printed - c.product:+.2f}" for n, c in names.items()}),
            Column(heading="within rounding", values={n: "yes" if c.holds else "no" for n, c in names.items()}),
        ],
    )


def _pooled_table() -> Table:
    names = {f"{one.row}, {one.kind}": one for one in pooled()}
    columns = [
        Column(heading=f"{what} (paper)", values={n: f"{value(one):.2f}" for n, one in names.items()}, paper=True)
        for what, value in (("all", attrgetter("whole")), ("head", attrgetter("head")), ("tail", attrgetter("tail")))
    ]
    between = {n: "yes" if one.is_between else "no" for n, one in names.items()}
    columns.append(Column(heading="all is between head and tail", values=between))
    return table_of("All classes beside head and tail, in percent", "cell", list(names), columns)


def _agreeing_table() -> Table:
    rows = tuple((name, f"{holds} of {count}") for name, holds, count in agreeing())
    return Table("What agrees", ("computed anew", "as printed"), rows)


def _networks_table(networks: Mapping[str, Any]) -> Table:
    printed = list(opr_layers.PAPER_COST.values())
    rows = [str(n) for n in LAYERS]

    def values(prefix: str, key: str, unit: float) -> dict[str, str]:
        return {row: f"{found[key] / unit:.4f}" for row in rows if (found := networks.get(prefix + row))}

    return table_of(
        "DINOv2-S with DPT, 11 classes, 518 x 518: OPR on 0 to 4 stages",
        "stages",
        rows,
        [
            Column(heading="M, probe", values=values("", "parameters", 1e6)),
            Column(heading="M, wide head (released)", values=values("wide ", "parameters", 1e6)),
            Column(
                heading="M (paper)", values={r: f"{p[0]:.2f}" for r, p in zip(rows, printed, strict=True)}, paper=True
            ),
            Column(heading="G, probe", values=values("", "operations", 1e9)),
            Column(heading="G, wide head (released)", values=values("wide ", "operations", 1e9)),
            Column(
                heading="G (paper)", values={r: f"{p[1]:.2f}" for r, p in zip(rows, printed, strict=True)}, paper=True
            ),
        ],
    )
