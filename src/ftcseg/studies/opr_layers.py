"""On how many encoder stages OPR should sit: what each brings and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ftcseg.config.load import draft_for
from ftcseg.files import read_yaml
from ftcseg.nets.folder import load_model
from ftcseg.nets.opr import OPR_READINGS, OPRParams
from ftcseg.nets.segmenter import Segmenter, nearest_multiple
from ftcseg.studies.by_place import Reading, answer_of, notes_on, printed
from ftcseg.studies.figures import Figure, Lines, Value
from ftcseg.studies.network_costs import (
    GIGA,
    MEBI,
    MILLION,
    everything,
    fresh,
    measured,
    millions,
    milliseconds,
    products,
    slower,
    whole_number,
)
from ftcseg.studies.plan import Ask, Bench, Cell, Measure, Rows, grid
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.rows import (
    BASELINE,
    EMBEDDED_SETTINGS,
    WITH_OPR,
    calibration_rows,
    column,
    drawn,
    gap,
    over_seeds,
    places,
    points,
    spread_of,
    suffix,
    verdict,
    where,
)
from ftcseg.studies.tables import Answer, Column, Table, spoken, table_of

DEFAULTS = Ask(seeds=(0, 1, 2), settings=EMBEDDED_SETTINGS)
OPTIONS: Mapping[str, str] = {
    "encoder": "dinov2-small",
    "head": "dpt",
    "size": "518",
    "classes": "11",
    "images": "12",
    "repeats": "9",
}
STAGES = ("0 stages", "1 stage", "2 stages", "3 stages", "4 stages")
OF_RUNS, OF_PAPER = "networks of the runs", "networks of the paper"
"""The two measurements."""
WIDE, LONE = "wide head, 0 stages", "prototypes alone, 4 stages"
PAPER_MIOU = dict(zip(STAGES, (58.75, 61.92, 62.55, 61.47, 60.98), strict=True))
PAPER_COST: Mapping[str, tuple[float, float, float, float]] = {
    STAGES[0]: (24.79, 56.88, 12.97, 14279),
    STAGES[1]: (24.80, 56.90, 13.15, 14348),
    STAGES[2]: (24.81, 56.92, 13.27, 14398),
    STAGES[3]: (24.82, 56.93, 13.43, 14449),
    STAGES[4]: (24.84, 56.95, 13.58, 14497),
}
"""Parameters (M), FLOPs (G), inference (ms), peak memory (MB)."""
PAPER_DEFAULT = 2


def rows(ask: Ask) -> Rows:
    """EMA and OPR on the deepest 0 to 4 stages, without ATC. Where the reading's own number is meant, it is its run."""
    whole = calibration_rows(ask)
    method, own = whole[WITH_OPR]
    usual = draft_for(ask.ftc, "cpu", ask.settings).build().opr.layers
    return {
        row: whole[BASELINE] if n == 0 else (method, own if n == usual else (*own, f"opr.layers={n}"))
        for n, row in enumerate(STAGES)
    }


def plan(ask: Ask) -> list[Cell]:
    """Every number of stages at every set, label amount and seed."""
    return grid(ask, rows(ask))


def measures(ask: Ask) -> list[Measure]:
    """The networks of the first runs, and the paper's own with random weights."""
    numbers = {key: whole_number(ask, key) for key in ("size", "classes", "images", "repeats")}
    told = {**numbers, "encoder": ask.options["encoder"], "head": ask.options["head"]}
    repeats = numbers["repeats"]
    (dataset, labels), seed = places(ask)[0], ask.seeds[0]
    cells = tuple(c for c in plan(ask) if (c.dataset, c.labels, c.seed) == (dataset, labels, seed))
    return [
        Measure(
            name=OF_RUNS,
            take=partial(_take_runs, [c.row for c in cells], repeats),
            cells=cells,
            dataset=dataset,
            seed=seed,
            told={"repeats": repeats},
        ),
        Measure(name=OF_PAPER, take=partial(_take_papers, told), dataset=dataset, seed=seed, told=told),
    ]


def _take_runs(names: list[str], repeats: int, bench: Bench) -> dict[str, Any]:
    """The trained networks, at the size and with as many images a step as they were trained."""
    nets: dict[str, Segmenter] = {}
    for name, run in zip(names, bench.runs, strict=True):
        nets[name], spec = load_model(run / "model")
    config = read_yaml(bench.runs[-1] / "config.yaml")["config"]  # FTC-Seg's own: without stages it may be UniMatch V2
    height, width = (nearest_multiple(side, spec.multiple) for side in config["data"]["crop"])
    images = config["data"]["labeled_batch"] + config["params"]["strong_views"] * config["data"]["unlabeled_batch"]
    return measured(nets, (1, spec.in_channels, height, width), repeats=repeats, images=images)


def _take_papers(told: Mapping[str, Any], _bench: Bench) -> dict[str, Any]:
    """The paper's network with probes on 0 to 4 stages; two more are counted only, to tell readings apart."""
    make = partial(fresh, told["encoder"], told["head"], told["classes"])
    shape = (1, 3, told["size"], told["size"])
    nets = {row: make(OPRParams(layers=n)) for n, row in enumerate(STAGES)}
    found = measured(nets, shape, repeats=told["repeats"], images=told["images"])
    others = {
        WIDE: make(OPRParams(layers=0, gate_head=OPR_READINGS["released"].gate_head)),
        LONE: make(OPRParams(layers=len(STAGES) - 1, gate="none")),
    }
    found["networks"] |= measured(others, shape, repeats=0)["networks"]
    return found


def read(ask: Ask, evidence: Evidence) -> Answer:
    """Scores by stages, the cost of both families of networks, and what the counts say about the paper's."""
    reading = Reading(
        finding=partial(_finding, evidence),
        tables=lambda *place: [_scores(evidence, *place)],
        figures=partial(_figures, ask, evidence),
    )
    ours, theirs = (evidence.measured.get(name) for name in (OF_RUNS, OF_PAPER))
    notes = notes_on(evidence, ask, STAGES[0])
    scored = answer_of(ask, evidence, plan(ask), reading, (*_explained(theirs), *_how(ours, theirs), *notes))
    tables = [_costs(title, found) for title, found in ((OF_RUNS, ours), (OF_PAPER, theirs)) if found is not None]
    return Answer(
        (*scored.finding[:2], *_cost_finding(theirs or ours)),
        (*scored.tables, *tables),
        (*scored.finding[2:], *scored.remarks),
        scored.figures,
    )


def _scores(evidence: Evidence, dataset: str, labels: str) -> Table:
    base = evidence.of(STAGES[0], dataset, labels)
    gaps = {row: gap(evidence.of(row, dataset, labels), base) for row in STAGES[1:]}
    columns = [
        column("mIoU, last", evidence, Result.miou, dataset, labels),
        column("mIoU, best", evidence, lambda r: r.miou("best"), dataset, labels),
        Column(
            heading="over none",
            values={STAGES[0]: "–"} | {r: points(t.difference) for r, t in gaps.items() if t is not None},
        ),
        printed("mIoU", PAPER_MIOU),
    ]
    here = [row for row in STAGES if evidence.of(row, dataset, labels)]
    return table_of(where(dataset, labels), "OPR", here, columns)


def _costs(title: str, taken: Mapping[str, Any]) -> Table:
    found = {row: one for row, one in taken["networks"].items() if row in STAGES}
    plain = found.get(STAGES[0])
    columns = [
        Column(heading="parameters (M)", values={row: millions(one, 4) for row, one in found.items()}),
        Column(heading="products (G)", values={row: products(one, 3) for row, one in found.items()}),
        Column(heading="all (G)", values={row: everything(one, 3) for row, one in found.items()}),
        Column(heading="inference (ms), here", values={row: milliseconds(one) for row, one in found.items()}),
        Column(heading="time / none", values={row: slower(one, plain) for row, one in found.items() if plain}),
        Column(heading="training (MiB)", values={row: f"{one['peak'] / MEBI:.1f}" for row, one in found.items()}),
    ]
    if title == OF_PAPER:
        for place, heading in enumerate(("parameters (M)", "FLOPs (G)", "inference (ms)", "memory (MB)")):
            digits = 0 if place == 3 else 2
            values = {row: f"{numbers[place]:.{digits}f}" for row, numbers in PAPER_COST.items()}
            columns.append(Column(heading=f"{heading} (paper)", values=values, paper=True))
    return table_of(title.capitalize(), "OPR", list(found), columns)


def _figures(ask: Ask, evidence: Evidence, dataset: str, labels: str) -> list[Figure]:
    found = [(n, drawn(over_seeds(evidence.of(row, dataset, labels), Result.miou))) for n, row in enumerate(STAGES)]
    ours = tuple((float(n), value) for n, value in found if value is not None)
    if not ours:
        return []
    theirs = tuple((float(n), Value(PAPER_MIOU[row])) for n, row in enumerate(STAGES))
    figure = Lines(
        name=f"opr-layers{suffix(ask, dataset, labels)}",
        title=f"OPR on more stages, {where(dataset, labels)}",
        label="mIoU (%)",
        across="encoder stages with OPR, deepest first",
        series=(("ours", ours), ("paper, FSSG with 2 %", theirs)),
        chosen=float(PAPER_DEFAULT),
        spread=spread_of(ask),
    )
    return [figure]


def _finding(evidence: Evidence, dataset: str, labels: str) -> list[str]:
    runs = {row: evidence.of(row, dataset, labels) for row in STAGES}
    means = {row: found.mean for row in STAGES if (found := over_seeds(runs[row], Result.miou)) is not None}
    if len(means) < 2:
        return [f"With {where(dataset, labels)} there are no two numbers of stages to compare yet."]
    first = max(means, key=lambda row: means[row])
    ends = spoken(over_seeds(runs[first], Result.miou))
    against = STAGES[0] if first != STAGES[0] else max(means.keys() - {first}, key=lambda row: means[row])
    apart = gap(runs[first], runs[against])
    told = (
        "" if apart is None else f", {points(apart.difference)} over {against} ({verdict(runs[first], runs[against])})"
    )
    best = max(PAPER_MIOU, key=lambda row: PAPER_MIOU[row])
    return [
        f"With {where(dataset, labels)}, {first} of OPR end highest, at {ends} mIoU{told}; in the paper {best} do, "
        f"{PAPER_MIOU[best] - PAPER_MIOU[STAGES[0]]:+.2f} over none."
    ]


def _cost_finding(taken: Mapping[str, Any] | None) -> list[str]:
    if taken is None or not {STAGES[0], STAGES[1]} <= taken["networks"].keys():
        return []
    none, one = taken["networks"][STAGES[0]], taken["networks"][STAGES[1]]
    ratio = slower(one, none)
    slowly = f" and takes {ratio} times as long" if ratio is not None else ""
    return [
        f"A stage adds {one['parameters'] - none['parameters']:,} parameters to {none['parameters'] / MILLION:.2f} M, "
        f"{(one['macs'] - none['macs']) / GIGA:.4f} G multiply-adds to {none['macs'] / GIGA:.2f} G and "
        f"{(one['peak'] - none['peak']) / MEBI:.1f} MiB to the {none['peak'] / MEBI:.0f} MiB of a training step on "
        f"{taken['images']} images{slowly}."
    ]


def _how(*measurements: Mapping[str, Any] | None) -> list[str]:
    said = [
        f"Times of the {name} were taken on this machine ({taken['machine']}; one image of {taken['shape'][2]} x "
        f"{taken['shape'][3]}), taking turns after a round to warm up: median, and the middle half of the rounds."
        for name, taken in zip((OF_RUNS, OF_PAPER), measurements, strict=True)
        if taken is not None
    ]
    if said:
        said.append(
            "Training memory is torch's own accounting, without running anything: bytes of tensors alive at once in a "
            "step of forward, backward and AdamW in float32, the teacher's weights included, an allocator's reserve "
            "not. The paper's is read off a GPU."
        )
    return said


def _explained(taken: Mapping[str, Any] | None) -> list[str]:
    """What the counts say about the paper's columns; only where they are of its network."""
    if taken is None or millions(taken["networks"][STAGES[0]]) != f"{PAPER_COST[STAGES[0]][0]:.2f}":
        return []
    found = taken["networks"]
    base, four = found[STAGES[0]], found[STAGES[4]]
    stage = (four["parameters"] - base["parameters"]) // 4
    rounded = [millions(found[row]) for row in STAGES]
    cut = [f"{math.floor(found[row]['parameters'] / MILLION * 100) / 100:.2f}" for row in STAGES]
    paper = [f"{PAPER_COST[row][0]:.2f}" for row in STAGES]
    grown = [(PAPER_COST[STAGES[4]][i] - PAPER_COST[STAGES[0]][i]) / 4 for i in range(4)]
    least = (PAPER_COST[STAGES[4]][0] - PAPER_COST[STAGES[0]][0] - 0.01) * MILLION / 4  # both printed to 0.005
    peak = (four["peak"] - base["peak"]) / 4 / MEBI
    return [
        f"The paper's columns do not describe the released code, whose wide head alone makes {millions(found[WIDE])} M "
        f"and {everything(found[WIDE])} G.",
        f"From {paper[0]} to {paper[4]} M in four stages takes at least {least:,.0f} parameters a stage. A stage "
        f"with a probe has {stage:,}; prototypes alone would end at {millions(found[LONE])} M.",
        f"No rounding gives the whole column: ours rounds to {' '.join(rounded)} and is cut to {' '.join(cut)}; the "
        f"paper prints {' '.join(paper)}.",
        f"A stage adds {(four['macs'] - base['macs']) / 4 / GIGA:.4f} G here and {grown[1]:.4f} G in the paper: it "
        f"works on encoder tokens, not on decoder features. The paper's base of {PAPER_COST[STAGES[0]][1]} G is "
        f"explained neither by {products(base)} G of products nor by {everything(base)} G of everything.",
        f"A stage adds {peak:.1f} MiB to a step on {taken['images']} images here and {grown[3]:.1f} MB in the paper, "
        f"whose {PAPER_COST[STAGES[0]][3]:.0f} MB without OPR compare with {base['peak'] / MEBI:.0f} MiB. Twelve images"
        " are four labelled ones and two strong views of four others; with the one view of its text they are eight.",
    ]
