"""The same images segmented by every method: picture grids whose images are chosen by a rule and never by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ftcseg.config.load import VARIANTS
from ftcseg.data.dataset import Dataset
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.evaluate.confusion import pair_counts
from ftcseg.evaluate.metrics import iou, mean
from ftcseg.evaluate.predictor import Predictor
from ftcseg.methods import find_method
from ftcseg.report.pictures import visible
from ftcseg.studies.figures import Pictures
from ftcseg.studies.finished import FinishedRun, open_run
from ftcseg.studies.painting import color_key, painted, write_png
from ftcseg.studies.plan import Ask, Bench, Cell, Measure, Rows, digest, grid
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import EMBEDDED_SETTINGS, suffix, where
from ftcseg.studies.statistics import summary
from ftcseg.studies.tables import Answer, Column, Table, table_of
from ftcseg.types import Labels

DEFAULTS = Ask(settings=EMBEDDED_SETTINGS)
OPTIONS: Mapping[str, str] = {"methods": "supervised,unimatch-v2,ftc"}
QUANTILES: Mapping[str, int] = {"median": 2, "lower quartile": 4}
"""By what the number of images is divided."""
RULE = (
    "The rule: for each tail class, from the one with fewest pixels in the evaluated images, the image with most of "
    "its pixels; then the images at the median and at the lower quartile of the first method's mIoU per image. An "
    "image is shown once: the next by the same measure takes its place. Ties go to the first by name, and a class that "
    "no evaluated image holds is passed over."
)


# ---------------------------------------------------------------- plan


def plan(ask: Ask) -> list[Cell]:
    """One run per method, set, label amount and seed."""
    return grid(ask, rows(ask))


def rows(ask: Ask) -> Rows:
    """The methods that were asked for; «ftc» is the reading that was asked for."""
    told = ask.options.get("methods", OPTIONS["methods"]).split(",")
    names = dict.fromkeys(ask.ftc if name == "ftc" else name for text in told if (name := text.strip()))
    if not names:
        raise UsageError("--option methods= names no method. Write some, such as methods=supervised,ftc.")
    for name in names:
        find_method(VARIANTS.get(name, name), also=tuple(VARIANTS))
    return {name: (name, ()) for name in names}


def together(ask: Ask) -> list[tuple[Cell, ...]]:
    """The cells whose predictions stand side by side."""
    found: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in plan(ask):
        found.setdefault((cell.dataset, cell.labels, cell.seed), []).append(cell)
    return [tuple(cells) for cells in found.values()]


def measures(ask: Ask) -> list[Measure]:
    """The pictures of every set, label amount and seed."""
    return [
        Measure(
            name=measure_name(cells),
            take=partial(take, methods=tuple(cell.row for cell in cells)),
            cells=cells,
            dataset=cells[0].dataset,
            seed=cells[0].seed,
            told={"methods": [cell.row for cell in cells], "rule": RULE},
        )
        for cells in together(ask)
    ]


def measure_name(cells: Sequence[Cell]) -> str:
    """Unique within the study."""
    return f"pictures {digest({'cells': [cell.key('') for cell in cells]})[:8]}"


# ---------------------------------------------------------------- measure


def take(bench: Bench, *, methods: Sequence[str]) -> dict[str, Any]:
    """Choose the images, let every method segment them, draw all of it."""
    runs = [open_run(folder, bench.source, bench.root) for folder in bench.runs]
    first, images = runs[0], runs[0].judged()
    predictors = [Predictor(run.predictor(), run.spec) for run in runs]
    held = held_pixels(images)
    scores: list[float | None] = []
    for number, sample in enumerate(images, 1):
        if bench.stop():
            raise FtcsegError("The measurement was stopped; the same command takes it again.")
        assert sample.labels is not None
        said = predictors[0].labels_and_conf([sample.image])[0]
        scores.append(image_miou(said.labels, sample.labels, len(first.spec.classes)))
        bench.progress(number, len(images))
    tail = {c.id: c.name for c in first.spec.classes if first.groups.get(c.id) == "tail"}
    picked = choose([record.image for record in images.records], held, scores, tail)
    shown = [_draw(bench, first, images, place, dict(zip(methods, predictors, strict=True))) for place in picked]
    for told, why in zip(shown, picked.values(), strict=True):
        told["why"] = why.replace("the first method", methods[0])
    seen = {class_id for told in shown for class_id in told.pop("classes")}
    key = {name: color for class_id, (name, color) in color_key(first.spec.classes).items() if class_id in seen}
    return {"methods": list(methods), "images": len(images), "shown": shown, "key": key}


def held_pixels(images: Dataset) -> NDArray[np.int64]:
    """(images, classes) pixels of each class in each image."""
    classes = len(images.classes)
    found = [
        np.bincount(sample.labels[sample.labels >= 0].ravel(), minlength=classes)
        for sample in images
        if sample.labels is not None
    ]
    return np.stack(found).astype(np.int64)


def image_miou(said: Labels, truth: Labels, num_classes: int) -> float | None:
    """Mean IoU of one image, over the classes that are in its mask or its prediction."""
    counts = pair_counts(torch.from_numpy(said), torch.from_numpy(truth), num_classes)
    return mean(iou(counts))


def choose(
    names: Sequence[str], held: NDArray[np.int64], scores: Sequence[float | None], tail: Mapping[int, str]
) -> dict[int, str]:
    """The places of the images to show, in order, each with its reason; see RULE."""
    picked: dict[int, str] = {}
    totals = held.sum(axis=0)
    for class_id in sorted((c for c in tail if totals[c]), key=lambda c: (totals[c], c)):
        places = [i for i in range(len(names)) if i not in picked and held[i, class_id]]
        if places:
            place = min(places, key=lambda i: (-held[i, class_id], names[i]))
            picked[place] = f"most pixels of {tail[class_id]}"
    for what, divisor in QUANTILES.items():
        judged = [(score, names[i], i) for i, score in enumerate(scores) if score is not None and i not in picked]
        if judged:
            picked[sorted(judged)[(len(judged) - 1) // divisor][2]] = f"{what} of the first method"
    return picked


def _draw(
    bench: Bench, run: FinishedRun, images: Dataset, place: int, predictors: Mapping[str, Predictor]
) -> dict[str, Any]:
    """Write the pictures of one image; their names, and how each method does on it."""
    sample = images[place]
    assert sample.labels is not None
    classes = run.spec.classes
    pictures = {"input": visible(sample.image), "truth": painted(sample.image, sample.labels, classes)}
    miou, seen = {}, set(np.unique(sample.labels).tolist())
    for method, predictor in predictors.items():
        said = predictor.labels_and_conf([sample.image])[0].labels
        pictures[method] = painted(sample.image, said, classes)
        miou[method] = image_miou(said, sample.labels, len(classes))
        seen.update(np.unique(said).tolist())
    files = {what: f"{place:05d}-{what}.png" for what in pictures}
    for what, file in files.items():
        write_png(bench.folder / file, pictures[what])
    return {"id": sample.id, "files": files, "miou": miou, "classes": seen}


# ---------------------------------------------------------------- read


def read(ask: Ask, evidence: Evidence) -> Answer:
    """A grid and a table for every set, label amount and seed."""
    findings: list[str] = []
    tables: list[Table] = []
    figures: list[Pictures] = []
    for cells in together(ask):
        name = measure_name(cells)
        told = evidence.measured.get(name)
        if told is None:
            continue
        findings.append(_finding(cells[0], told))
        tables.append(_table(cells[0], told))
        figures.append(_grid(ask, cells[0], told, evidence, name))
    if not findings:
        return Answer(("No pictures are drawn yet.",), remarks=(RULE,))
    return Answer(tuple(findings[:3]), tuple(tables), (RULE,), tuple(figures))


def _finding(cell: Cell, told: Mapping[str, Any]) -> str:
    shown, methods = told["shown"], told["methods"]
    means = {m: mean(one["miou"][m] for one in shown) for m in methods}
    said = ", ".join(f"{m} {100 * value:.1f}" for m, value in means.items() if value is not None)
    last = methods[-1]
    leads = sum(one["miou"][last] is not None and one["miou"][last] >= _best(one) for one in shown)
    return (
        f"With {where(cell.dataset, cell.labels)}, seed {cell.seed}: on the {len(shown)} images that the rule chose "
        f"out of {told['images']}, the mean mIoU per image is {said}; {last} is highest or level on {leads}. Few "
        "images show how methods err, not which is better."
    )


def _best(one: Mapping[str, Any]) -> float:
    return max(float(value) for value in one["miou"].values() if value is not None)


def _table(cell: Cell, told: Mapping[str, Any]) -> Table:
    shown = {one["id"]: one for one in told["shown"]}
    columns = [Column(heading="chosen for", values={name: one["why"] for name, one in shown.items()})]
    for method in told["methods"]:
        values = {name: one["miou"][method] for name, one in shown.items()}
        known = {name: summary([value]) for name, value in values.items() if value is not None}
        columns.append(Column(heading=method, values=known, best=None))
    title = f"mIoU per image, {where(cell.dataset, cell.labels)}, seed {cell.seed}"
    return table_of(title, "image", list(shown), columns)


def _grid(ask: Ask, cell: Cell, told: Mapping[str, Any], evidence: Evidence, name: str) -> Pictures:
    folder, heads = evidence.folders[name], ("input", "truth", *told["methods"])
    seed = f"-seed{cell.seed}" if len(ask.seeds) > 1 else ""
    return Pictures(
        name=f"qualitative{suffix(ask, cell.dataset, cell.labels)}{seed}",
        title=f"{where(cell.dataset, cell.labels)}, seed {cell.seed}; the number is mIoU of the image",
        heads=heads,
        rows=tuple((_caption(one), tuple(folder / one["files"][head] for head in heads)) for one in told["shown"]),
        key=tuple(told.get("key", {}).items()),
    )


def _caption(one: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{m} {100 * v:.1f}" if v is not None else f"{m} n/a" for m, v in one["miou"].items())
    return f"{one['why']}: {scores}"
