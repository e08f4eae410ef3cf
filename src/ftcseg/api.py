"""What notebooks and the command line call: each command as a function of the same name."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ftcseg import files
from ftcseg.data import describe, fetch
from ftcseg.data.dataset import Dataset, open_dataset
from ftcseg.data.describe import Description
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.doctor import as_json as doctor_json
from ftcseg.data.drawing import Whole, drawn
from ftcseg.data.images import MAX_PIXELS, read_unturned
from ftcseg.data.index import DESCRIPTION, Source, open_source
from ftcseg.data.scan import files_of
from ftcseg.data.sets import data_root, sheet_named
from ftcseg.data.simulate import SimParams, class_table, part_of, simulate_frame
from ftcseg.data.split import Split, parse_amount
from ftcseg.data.split_files import read_split, write_split
from ftcseg.data.writing import claim, write_image, write_labels
from ftcseg.errors import DataError, UnsafePathError, UsageError
from ftcseg.parallel import Progress, map_in_order, silent
from ftcseg.report import dataset_page as report_page
from ftcseg.rng import random_for
from ftcseg.types import MaskCoding
from ftcseg.views import corrupt as corruptions

if TYPE_CHECKING:  # training is imported when something is trained: looking at data must not wait for torch
    from ftcseg.evaluate.files import Predicted
    from ftcseg.inference import Model, WrittenOut
    from ftcseg.nets.segmenter import Segmenter
    from ftcseg.train.events import Listener
    from ftcseg.training import Outcome

Folder: TypeAlias = str | PathLike[str]
"""A folder by its path; of a run also what `train` and `resume` return."""

__all__ = [
    "Dataset",
    "Split",
    "audit",
    "build_model",
    "corrupt",
    "dataset_page",
    "doctor",
    "evaluate",
    "export",
    "get",
    "load",
    "open_dataset",
    "predict",
    "read_split",
    "report",
    "resume",
    "simulate",
    "split",
    "train",
]


def doctor(
    path: str | Path,
    *,
    write: str | Path | None = None,
    root: str | Path | None = None,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> Examination:
    """Find out what a folder, manifest or named set holds and what is wrong with it; `write` a dataset.yaml.

    Example: `ftcseg.doctor("frames/", write="frames/dataset.yaml").findings`
    """
    if max_pixels is not None and max_pixels < 1:
        raise UsageError(f"A limit of {max_pixels} pixels lets no image through. Ask for at least 1.")
    examination = examine_set(path, root=_path(root), max_pixels=max_pixels, workers=workers, progress=progress)
    if write is not None:
        _refuse_no_classes(examination)
        _write_description(examination.description, Path(write))
    return examination


def _write_description(description: Description, path: Path) -> None:
    """Write dataset.yaml; one that somebody has changed is not overwritten."""
    text = describe.as_text(description, path.parent)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UsageError(f"{path} exists and says something else. Remove it, or write to another file.")
    files.write_text(path, text)


def dataset_page(found: Examination, out: str | Path, pictures: int = 12) -> Path:
    """Write an HTML page about an examined set: its frames and masks first, then classes and findings."""
    dataset = Dataset(found.description, found.records)
    samples = []
    for index in _telling_images(found, pictures):
        with suppress(DataError):  # what cannot be shown is among the findings
            samples.append(dataset[index])
    text = report_page.dataset_page(doctor_json(found), found.description.classes, samples)
    files.write_text(Path(out), text)
    return Path(out)


def _telling_images(found: Examination, count: int) -> list[int]:
    """For each class from the rarest, the image that shows most of it; then images evenly through the set."""
    chosen: list[int] = []
    for row in sorted(found.classes, key=lambda c: c.pixels):
        holding = [(pixels.get(row.id, 0), -i) for i, pixels in enumerate(found.pixels) if pixels]
        if holding and max(holding)[0] > 0 and row.group != "background":
            index = -max(holding)[1]
            chosen += [index] if index not in chosen else []
    step = max(1, len(found.records) // max(1, count))
    for index in range(0, len(found.records), step):
        chosen += [index] if index not in chosen else []
    return chosen[:count]


def _refuse_no_classes(examination: Examination) -> None:
    if len(examination.description.classes) == 0 and any(r.mask is not None for r in examination.records):
        worst = examination.errors[0]
        raise DataError(f"The masks could not be understood: {worst.detail}", remedy=worst.remedy, kind=worst.kind)


def split(
    dataset: str | Path,
    labels: str | int = "2%",
    *,
    seed: int = 0,
    out: str | Path | None = None,
    by_sequence: Whole = False,
    long_tail: float | None = None,
    balanced: str | None = None,
    val: str | int | None = None,
    tune: str | int | None = None,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> Split:
    """Draw which training images count as labelled; `out` writes the lists, with a hash, as files.

    `labels` is a number of images or a percentage of the training images that have masks. `balanced` is "image" or
    "pixel"; `val` redraws the validation part from the training images (and from a previous validation part);
    `tune` takes one from the training images alone and leaves the set's own validation and test images unused.
    `by_sequence` never parts frames of one sequence; "val" draws the validation part so and labels frame by frame.
    """
    parse_amount(str(labels))  # a typo is told before a long look at the data
    examination = examine_set(dataset, root=_path(root), progress=progress)
    cuts = (long_tail, balanced)
    result, held = drawn(examination, labels, seed=seed, by_sequence=by_sequence, cuts=cuts, val=val, tune=tune)
    if out is not None:
        write_split(Path(out), result, examination, held)
    return result


def simulate(
    out: str | Path,
    images: int = 400,
    *,
    seed: int = 0,
    classes: int = 8,
    noise: float = 0.5,
    imbalance: float = 20.0,
    size: tuple[int, int] = (240, 160),
    workers: int | None = None,
    progress: Progress = silent,
) -> Path:
    """Write a simulated sonar set (images/, masks/, dataset.yaml), a fifth of it for test; returns its folder."""
    if images < 1:
        raise UsageError(f"{images} images are none. Ask for at least 1.")
    params = SimParams(classes=classes, noise=noise, imbalance=imbalance, height=size[0], width=size[1])
    folder = Path(out)
    claim(folder, {"command": "simulate", "images": images, "seed": seed, **asdict(params)}, "simulate.json")
    frame = partial(_simulate_one, folder, seed, params)
    for done, _ in enumerate(map_in_order(frame, range(images), workers), 1):
        progress(done, images)
    table = class_table(params)
    coding = MaskCoding("ids", values={c.id: c.id for c in table})
    describe.save(Description(folder.name, folder, "images-masks", table, coding), folder / "dataset.yaml")
    return folder


def _simulate_one(folder: Path, seed: int, params: SimParams, index: int) -> None:
    name = f"{part_of(index)}/sonar-{index:06d}.png"
    mask = folder / "masks" / name
    if mask.is_file():
        return  # written last, so its image is there too: an interrupted run goes on here
    image, labels = simulate_frame(seed, index, params)
    write_image(folder / "images" / name, image[:, :, None])
    write_labels(mask, labels.astype("int16"))


@dataclass(frozen=True, slots=True)
class _Corruption:
    """What to do to each image of a set; travels to worker processes."""

    source: Path
    out: Path
    kind: str
    severity: int
    seed: int
    max_pixels: int

    def __call__(self, name: str) -> str | None:
        """Corrupt one image; returns what was wrong with it, if anything."""
        target = self.out / name
        if target.is_file():
            return None
        rng = random_for(self.seed, "corrupt", self.kind, self.severity, name)
        try:
            # Masks are copied as they lie in their files, so the image stays as it lies in its own.
            pixels, orientation = read_unturned(files.inside(self.source, name), self.max_pixels)
            corrupted = corruptions.corrupt(pixels, self.kind, self.severity, rng)
        except DataError as error:
            return error.what
        except UsageError as error:  # a float image that is not in [0, 1]
            return f"{name}: {error}"
        write_image(target, corrupted, orientation)
        return None


def corrupt(
    source: str | Path,
    out: str | Path,
    *,
    kind: str = "speckle",
    severity: int = 5,
    seed: int = 0,
    root: str | Path | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[str]:
    """Write a copy of a set whose images are corrupted; masks, lists and everything else are copied untouched.

    Returns one sentence for every image that could not be read and was left out.
    """
    corruptions.check(kind, severity)
    found = open_source(source, _path(root))
    target = Path(out)
    if target.resolve().is_relative_to(found.root.resolve()) or found.root.resolve().is_relative_to(target.resolve()):
        raise UsageError(f"{target} overlaps the source {found.root}. Choose a folder outside of it.")
    names = [record.image for record in found.found.records]
    recipe = {
        "command": "corrupt",
        "source": found.name,
        "images": _fingerprint(found.root, names),
        "kind": kind,
        "severity": severity,
        "seed": seed,
    }
    claim(target, recipe, "corrupt.json")
    limit = found.description.max_pixels if found.description else None
    work = _Corruption(found.root, target, kind, severity, seed, limit or MAX_PIXELS)
    problems: list[str] = []
    for done, problem in enumerate(map_in_order(work, names, workers), 1):
        problems += [problem] if problem else []
        progress(done, len(names))
    _copy_rest(found, target)
    if found.description is not None and not (target / DESCRIPTION).exists():  # it lay outside of the set's folder
        describe.save(replace(found.description, root=target), target / DESCRIPTION)
    return problems


def _fingerprint(root: Path, names: list[str]) -> str:
    """Tells a set from another one of the same name: its images and their sizes."""
    digest = hashlib.sha256()
    for name in names:
        path = root / name
        digest.update(f"{name}\0{path.stat().st_size if path.is_file() else -1}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _copy_rest(found: Source, out: Path) -> None:
    root, images = found.root, {record.image for record in found.found.records}
    names = {files.relative(root, path) for path in root.rglob("*") if path.is_file()}
    names |= {name for record in found.found.records for name in files_of(record)}  # also behind linked folders
    for name in sorted(names - images):
        with suppress(UnsafePathError):  # a link that leads out of the set is no part of it
            path = files.inside(root, name)
            if path.is_file() and not (out / name).exists():
                with path.open("rb") as original, files.atomic(out / name) as copy:
                    shutil.copyfileobj(original, copy)


def get(name: str, *, root: str | Path | None = None, progress: fetch.StageProgress = fetch.quiet) -> Path:
    """Download a public named set below `root` or FTCSEG_DATA; returns the folder it is in."""
    sheet = sheet_named(name)
    base = data_root(_path(root))
    if base is None:
        raise UsageError("Say where sets are kept: --root FOLDER, or set FTCSEG_DATA.")
    return fetch.get(sheet, base, progress=progress)


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def train(
    dataset: str | Path,
    *,
    method: str = "ftc",
    labels: str | int | None = None,
    split: str | Path | None = None,
    seed: int = 0,
    steps: int | None = None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    track: Sequence[str] = (),
    root: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    progress: Progress = silent,
) -> Outcome:
    """Train on a folder, dataset.yaml, manifest or named set; returns where the run is and how it ended.

    `track` names experiment trackers that watch the run: tensorboard, wandb, mlflow.

    Example: `run = ftcseg.train("frames/", method="ftc", labels="2%").folder`
    """
    from ftcseg import training

    if labels is not None and split is not None:
        raise UsageError("A split already says which images are labelled: give --labels or --split, not both.")
    asked = {"seed": seed, "steps": steps, "data.labels": labels, "data.split": split}
    overrides = [*(f"{key}={value}" for key, value in asked.items() if value is not None), *settings]
    amount = str(labels or (Path(split).name if split else "all")).replace("%", "pct")
    name = f"{Path(dataset).resolve().stem if Path(dataset).exists() else dataset}-{method}-{amount}-seed{seed}"
    folder = Path(out) if out is not None else Path("runs") / name
    watchers = [*listeners, *_trackers(track, folder)]
    return training.start(
        dataset, folder, method=method, overrides=overrides, root=_path(root), listeners=watchers, progress=progress
    )


def resume(
    run: str | Path, *, track: Sequence[str] = (), listeners: Sequence[Listener] = (), progress: Progress = silent
) -> Outcome:
    """Continue a run exactly where it stopped; a finished one only gets what it still lacks."""
    from ftcseg import training

    return training.resume(Path(run), listeners=[*listeners, *_trackers(track, Path(run))], progress=progress)


def _trackers(names: Sequence[str], run: Path) -> list[Listener]:
    from ftcseg.train.trackers import tracker

    return [tracker(name, run) for name in names]


def load(
    source: Folder,
    *,
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    batch: int = 8,
    device: str = "auto",
    hub: bool = False,
) -> Model:
    """The trained model of a run or model folder, to be asked about one image after the other.

    Example: `ftcseg.load("runs/harbour").predict("frame.png").labels`; the options are those of `predict`.
    """
    from ftcseg import inference

    return inference.load(Path(source), window=window, flips=flips, scales=scales, batch=batch, device=device, hub=hub)


def evaluate(
    source: Folder,
    dataset: str | Path,
    *,
    part: str | None = None,
    checkpoint: str = "all",
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    boundary: bool = False,
    batch: int = 8,
    max_images: int | None = None,
    device: str = "auto",
    hub: bool = False,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Score a run or model against masks, as `ftcseg eval --json` prints it.

    Example: `ftcseg.evaluate("runs/harbour", "frames/", part="test")["miou"]`
    """
    from ftcseg import inference

    return inference.evaluate_run(
        Path(source),
        dataset,
        part=part,  # type: ignore[arg-type]  # judged there, as is the checkpoint
        checkpoint=checkpoint,  # type: ignore[arg-type]
        window=window,
        flips=flips,
        scales=scales,
        boundary=boundary,
        batch=batch,
        max_images=max_images,
        device=device,
        root=root,
        hub=hub,
        progress=progress,
    )


def predict(
    source: Folder,
    images: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    what: Collection[str] | None = None,
    every: int = 1,
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    batch: int = 8,
    device: str = "auto",
    hub: bool = False,
    workers: int = 2,
    progress: Progress = silent,
) -> Predicted:
    """Write masks, colours, overlays and confidences of images and videos below `out`; goes on where it stopped.

    `what` is some of "masks", "colors", "overlays" and "confidence"; without it, all of them.
    Example: `ftcseg.predict("runs/harbour", "mission7/", "mission7-masks", what=["masks"]).made`
    """
    from ftcseg import inference
    from ftcseg.evaluate.files import WHAT

    return inference.predict(
        Path(source),
        images,
        out,
        what=WHAT if what is None else what,
        every=every,
        window=window,
        flips=flips,
        scales=scales,
        batch=batch,
        device=device,
        workers=workers,
        hub=hub,
        progress=progress,
    )


def export(
    source: Folder,
    out: str | Path | None = None,
    *,
    format: str = "onnx",  # noqa: A002  what everybody calls it
    int8: bool = False,
    dynamic: bool = False,
    size: tuple[int, int] | None = None,
    images: str | Path | Sequence[str | Path] | None = None,
    dataset: str | Path | None = None,
    part: str | None = None,
    max_images: int | None = None,
    hub: bool = False,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> WrittenOut:
    """Write a run's or model's network for ONNX Runtime or OpenVINO, compared with it before anything is left there.

    Example: `ftcseg.predict(ftcseg.export("runs/harbour", dynamic=True), "mission7/", "mission7-masks")`
    """
    from ftcseg import inference
    from ftcseg.export.make import Choices

    choices = Choices(format=format, int8=int8, dynamic=dynamic, size=size)  # type: ignore[arg-type]  # judged there
    return inference.export_model(
        Path(source),
        out,
        choices=choices,
        images=images,
        dataset=dataset,
        part=part,  # type: ignore[arg-type]  # judged there
        max_images=max_images,
        root=root,
        hub=hub,
        progress=progress,
    )


def audit(
    run: Folder,
    *,
    checkpoint: str = "last",
    dataset: str | Path | None = None,
    max_images: int | None = None,
    batch: int = 8,
    device: str = "auto",
    hub: bool = False,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure a run's pseudo-labels against the masks of its unlabelled images, as `ftcseg audit --json` prints it."""
    from ftcseg import inference

    return inference.audit_run(
        Path(run),
        checkpoint=checkpoint,
        dataset=dataset,
        root=root,
        batch=batch,
        max_images=max_images,
        device=device,
        hub=hub,
        progress=progress,
    )


def report(runs: Folder | Sequence[Folder], *, out: str | Path | None = None) -> Path:
    """Write one HTML page about a run, or about several side by side; returns the page.

    Example: `ftcseg.report(["runs/ftc", "runs/supervised"], out="compare.html")`
    """
    from ftcseg.report.run_page import write_run_page

    several = [runs] if isinstance(runs, str | PathLike) else runs
    return write_run_page([Path(run) for run in several], _path(out))


def build_model(
    encoder: str = "dinov2-small",
    head: str = "dpt",
    num_classes: int = 11,
    opr_layers: int = 0,
    weights: str | None = None,
    in_channels: int = 3,
) -> Segmenter:
    """A network by the names of its parts: images in, logits at the images' size out."""
    from ftcseg.nets.build import build_model as build
    from ftcseg.nets.opr import OPRParams

    reading = OPRParams(layers=opr_layers)
    return build(encoder, head, num_classes, opr=reading, weights=weights, in_channels=in_channels)[0]
