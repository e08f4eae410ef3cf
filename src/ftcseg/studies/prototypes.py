"""What each OPR prototype answers to, and whether it keeps to one class: early, in the middle and at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.errors import FtcsegError
from ftcseg.evaluate.prototype_stats import answers, prototype_stats
from ftcseg.studies.figures import Pictures
from ftcseg.studies.finished import FinishedRun, open_run
from ftcseg.studies.painting import painted, signed_map, write_png
from ftcseg.studies.plan import Ask, Bench, Cell, Measure, grid
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import EMBEDDED_SETTINGS, FTC, where
from ftcseg.studies.tables import Answer, Column, Table, table_of
from ftcseg.train.keeper import kept_name
from ftcseg.types import Sample

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
SHARES: Mapping[str, float] = {"early": 0.1, "middle": 0.5}
"""Of the run's steps; the paper does not say what it calls early and middle."""
MOMENTS = (*SHARES, "final")
KEEP = f"keep_at={list(SHARES.values())}"
PICTURE_SIDE = 240  # pixels, the longer side of a drawn frame

PAPER: tuple[tuple[str, float, float, float], ...] = (
    ("SP→SP→TI", 14.8, 63.6, 99.9),
    ("CC→DV→BL", 13.2, 53.6, 99.8),
    ("SQ→UR→DV", 14.9, 29.7, 99.2),
    ("CC→BL→CC", 17.6, 66.4, 99.6),
    ("CC→CC→DV", 16.1, 39.8, 99.6),
    ("SF→SF→UR", 18.0, 79.2, 99.7),
    ("PO→PO→DV", 15.4, 43.0, 99.6),
    ("PO→PO→SP", 16.4, 76.4, 99.7),
    ("CC→UR→CC", 13.6, 56.4, 99.8),
    ("SF→SF→PO", 16.5, 33.9, 99.4),
    ("DV→DV→PO", 14.0, 34.2, 99.8),
    ("SQ→SQ→PO", 14.4, 37.7, 99.4),
    ("SP→SP→CG", 15.3, 53.2, 99.8),
    ("PO→PO→CC", 17.1, 60.8, 99.7),
    ("SF→TI→CC", 12.7, 51.6, 99.9),
    ("TI→TI→PO", 13.5, 54.3, 99.9),
)
"""Its 16 prototypes on FSSG with 2 % labels: dominant class early to final; purity, selectivity, entropy in percent."""


def plan(ask: Ask) -> list[Cell]:
    """FTC-Seg, with the model kept on its way."""
    return grid(ask, {FTC: (ask.ftc, (KEEP,))})


def measures(ask: Ask) -> list[Measure]:
    """The prototypes of every run, at three moments."""
    return [
        Measure(
            name=measure_name(cell),
            take=partial(take, steps=cell.steps),
            cells=(cell,),
            dataset=cell.dataset,
            seed=cell.seed,
            told={"moments": list(MOMENTS)},
        )
        for cell in plan(ask)
    ]


def measure_name(cell: Cell) -> str:
    """Unique among the cells of a study."""
    return f"prototypes {cell.key('')[:8]}"


def checkpoints(steps: int) -> dict[str, str]:
    """The checkpoint of each moment of a run of so many steps."""
    kept = {name: RunConfig(steps=steps, keep_at=(at,)).kept_steps[0] for name, at in SHARES.items()}
    return {**{name: kept_name(step) for name, step in kept.items()}, "final": "last"}


# ---------------------------------------------------------------- measure


def take(bench: Bench, *, steps: int) -> dict[str, Any]:
    """Statistics of all prototypes at each moment over the evaluated images, and their answers to one of these."""
    run = open_run(bench.runs[0], bench.source, bench.root)
    images, moments = run.judged(), checkpoints(steps)
    names = {c.id: c.name for c in run.spec.classes}
    told: dict[str, Any] = {}
    for moment, checkpoint in moments.items():
        found = prototype_stats(
            run.predictor(checkpoint),
            images,
            run.spec,
            run.spec.classes.foreground,
            stop=bench.stop,
            progress=bench.progress,
        )
        if found is None:
            raise FtcsegError("The measurement was stopped; the same command takes it again.")
        told[moment] = {
            "checkpoint": checkpoint,
            "prototypes": [
                {**asdict(one), "dominant": None if one.dominant is None else names[one.dominant]}
                for one in found.prototypes
            ],
            "chance": asdict(found.chance),
            "gates": found.gates,
            "corrections": found.corrections,
            "change": found.change,
        }
    shown = images[telling(images, run.spec.classes.foreground)]
    return {"images": len(images), "moments": told, "shown": shown.id, "pictures": draw(bench, run, shown, moments)}


def telling(images: Dataset, foreground: Sequence[int]) -> int:
    """The place of the image with most foreground classes; of several, the first by name."""
    inside = set(foreground)
    held = {
        i: len(inside & set(np.unique(sample.labels).tolist()))
        for i, sample in enumerate(images)
        if sample.labels is not None
    }
    return min(held, key=lambda i: (-held[i], images.records[i].image))


def draw(bench: Bench, run: FinishedRun, sample: Sample, moments: Mapping[str, str]) -> dict[str, Any]:
    """The answers of every prototype to one image, all moments on one scale; names of the files."""
    assert sample.labels is not None
    maps: dict[str, NDArray[np.float32]] = {
        moment: answers(run.predictor(checkpoint), sample.image, run.spec)[1].float().cpu().numpy()
        for moment, checkpoint in moments.items()
    }
    most = max(float(np.abs(found).max()) for found in maps.values())
    picture = painted(sample.image, sample.labels, run.spec.classes)
    factor = PICTURE_SIDE / max(picture.shape[:2])
    size = (max(1, round(picture.shape[0] * factor)), max(1, round(picture.shape[1] * factor)))
    write_png(bench.folder / "truth.png", picture)
    files = {}
    for moment, found in maps.items():
        files[moment] = [f"{moment}-{k + 1:02d}.png" for k in range(len(found))]
        for file, values in zip(files[moment], found, strict=True):
            write_png(bench.folder / file, signed_map(values, most, size))
    return {"truth": "truth.png", "scale": most, **files}


# ---------------------------------------------------------------- read


def read(ask: Ask, evidence: Evidence) -> Answer:
    """A table and a grid of pictures for every run, the paper's prototypes beside."""
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Pictures] = []
    remarks: list[str] = []
    for cell in plan(ask):
        told = evidence.measured.get(measure_name(cell))
        if told is None:
            continue
        findings.append(_finding(cell, told))
        tables.append(_table(cell, told))
        figures.append(_pictures(cell, told, evidence))
        chance = told["moments"]["final"]["chance"]
        remarks.append(
            f"Seed {cell.seed}: {told['images']} images of {chance['cells']} cells in all, {chance['foreground']} of "
            "them foreground by the pixel under their centre; where cells are large, small objects fall between them."
        )
    if not findings:
        return Answer(("No run is measured yet.",))
    return Answer((*findings[:2], _papers()), tuple(tables), (*_REMARKS, *remarks), tuple(figures))


_REMARKS = (
    "Of the deepest OPR stage, over the evaluated images at the encoder's resolution. The mass of a prototype is the "
    "sum of its similarity where that is above 0. P is the share of the largest foreground class in the mass on "
    "foreground, F the share of the mass on foreground, H the entropy of the mass over foreground cells as a share of "
    "the largest possible.",
    "A prototype that answers alike to every cell has the P and F of the cells themselves, and H 100: these chance "
    "levels stand in the last row. F says nothing without them.",
    "The paper's prototypes stand beside ours by number alone; numbers mean nothing across runs. Its classes are "
    "FSSG's: BL block, CG circle cage, SF steel frame, CC concrete column, SP steel plate, PO pot, SQ square cage, TI "
    "tire, UR underwater robot, DV diver.",
    "Early and middle are 10 % and 50 % of the steps. The image drawn is the evaluated one with most foreground "
    "classes, the first by name of several; white is a similarity of 0, vermilion above, blue below.",
)


def _finding(cell: Cell, told: Mapping[str, Any]) -> str:
    final = told["moments"]["final"]
    paths = _paths(told)
    moved = sum(path[0] != path[-1] for path in paths)
    chance = final["chance"]
    selective = sum((one["selectivity"] or 0) > (chance["selectivity"] or 0) for one in final["prototypes"])
    opened = sum(gate > 0 for gate in final["gates"])
    return (
        f"With {where(cell.dataset, cell.labels)}, seed {cell.seed}: {moved} of {len(paths)} prototypes end with "
        "another dominant class than they began with; "
        f"P {_range(final, 'purity')} (chance {_percent(chance['purity'])}), F "
        f"{_range(final, 'selectivity')} (chance {_percent(chance['selectivity'])}, above it {selective}), H "
        f"{_range(final, 'entropy')}; {opened} gates are open and the correction is {_percent(final['change'])} % of "
        "the features."
    )


def _papers() -> str:
    moved = sum(path.split("→")[0] != path.split("→")[-1] for path, *_ in PAPER)
    spans = [f"{min(column)} to {max(column)}" for column in list(zip(*PAPER, strict=True))[1:]]
    return (
        f"The paper's 16 on FSSG: {moved} end with another class, P {spans[0]}, F {spans[1]}, H {spans[2]}; it "
        "prints no chance levels."
    )


def _paths(told: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The dominant class of each prototype at each moment."""
    moments = [told["moments"][moment]["prototypes"] for moment in MOMENTS]
    return [tuple(one["dominant"] or "none" for one in same) for same in zip(*moments, strict=True)]


def _range(final: Mapping[str, Any], key: str) -> str:
    values = [100 * one[key] for one in final["prototypes"] if one[key] is not None]
    return f"{min(values):.1f} to {max(values):.1f}" if values else "n/a"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def _table(cell: Cell, told: Mapping[str, Any]) -> Table:
    final = told["moments"]["final"]
    stats, chance = final["prototypes"], final["chance"]
    names = [f"μ{k + 1}" for k in range(len(stats))]
    each = dict(zip(names, stats, strict=True))
    beside = {"purity": chance["purity"], "selectivity": chance["selectivity"], "entropy": 1.0}
    columns = [Column(heading="dominant, early→middle→final", values=dict(zip(names, _arrows(told), strict=True)))]
    for heading, key in (("P", "purity"), ("F", "selectivity"), ("H", "entropy")):
        values = {name: _percent(one[key]) for name, one in each.items()}
        columns.append(Column(heading=heading, values={**values, "chance": _percent(beside[key])}))
    gates = {name: "open" if gate > 0 else "shut" for name, gate in zip(names, final["gates"], strict=True)}
    sizes = {name: f"{100 * size:.2f}" for name, size in zip(names, final["corrections"], strict=True)}
    columns += [Column(heading="gate", values=gates), Column(heading="correction, % of a feature", values=sizes)]
    for place, heading in enumerate(("paper, dominant", "paper, P", "paper, F", "paper, H")):
        theirs = {name: str(row[place]) for name, row in zip(names, PAPER, strict=False)}
        columns.append(Column(heading=heading, values=theirs, best=None, paper=True))
    title = f"Prototypes of the deepest stage, {where(cell.dataset, cell.labels)}, seed {cell.seed}"
    return table_of(title, "prototype", [*names, "chance"], columns)


def _arrows(told: Mapping[str, Any]) -> list[str]:
    return ["→".join(path) for path in _paths(told)]


def _pictures(cell: Cell, told: Mapping[str, Any], evidence: Evidence) -> Pictures:
    folder, files = evidence.folders[measure_name(cell)], told["pictures"]
    gates = told["moments"]["final"]["gates"]
    rows = tuple(
        (
            f"μ{k + 1} {arrows}, {'open' if gates[k] > 0 else 'shut'}",
            (folder / files["truth"], *(folder / files[moment][k] for moment in MOMENTS)),
        )
        for k, arrows in enumerate(_arrows(told))
    )
    return Pictures(
        name=f"prototypes-{cell.key('')[:8]}",
        title=f"Answers to {told['shown']}, from -{files['scale']:.2f} (blue) to +{files['scale']:.2f} (vermilion)",
        heads=("image with truth", *MOMENTS),
        rows=rows,
    )
