"""What is done with a trained model: evaluate it, predict with it, audit the pseudo-labels it was trained on.

A source is a MODEL folder (config.json and model.safetensors); a RUN folder, which holds one as `model/` beside its
`checkpoints/`, its split and its settings; or a folder that `ftcseg export` wrote. Results are plain mappings, ready
for JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ftcseg.config.build import build_thresholds
from ftcseg.config.load import draft_of_run
from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset, open_dataset
from ftcseg.data.images import read_image
from ftcseg.data.split_files import SPLIT, read_split
from ftcseg.data.video import is_video
from ftcseg.errors import LayoutError, UsageError, unknown_name
from ftcseg.evaluate.audit import audit
from ftcseg.evaluate.bootstrap import intervals_of
from ftcseg.evaluate.files import WHAT, Look, Predicted, predict_folder
from ftcseg.evaluate.inputs import find_inputs
from ftcseg.evaluate.metrics import Scores
from ftcseg.evaluate.per_image import COUNTS, known_sequences, sequences_of
from ftcseg.evaluate.predictor import Prediction, Predictor
from ftcseg.evaluate.run import chosen, evaluate
from ftcseg.export.make import Choices, Exported, export
from ftcseg.export.runtime import RuntimeNet, is_export, load_export
from ftcseg.export.sheet import SHEET
from ftcseg.files import read_json
from ftcseg.nets.folder import CONFIG, WEIGHTS, ModelSpec, build_net, fill, fingerprint, load_model
from ftcseg.nets.segmenter import Segmenter
from ftcseg.parallel import Progress, silent
from ftcseg.report.pictures import class_colors, overlay, visible
from ftcseg.train import checkpoint as checkpoints
from ftcseg.train.keeper import FOLDER
from ftcseg.train.memory import out_of_memory_told, smaller_windows_told
from ftcseg.types import PARTS, ClassTable, Labels, Part, Pixels

Checkpoint: TypeAlias = Literal["last", "best", "all"]
CHECKPOINTS = ("last", "best")
PAIR = {
    "predictors": {"teacher": "pair.teacher.net", "student": "pair.student"},
    "labeler": "pair.teacher.net",
    "thresholds": "pair.thresholds",
}
"""Where most methods keep them, for a run folder that has lost its note."""
SETTINGS = "config.yaml"
NOTE = "run.json"
MODEL = "model"
_DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True, slots=True)
class Source:
    """A loaded model and the run it belongs to, if any. The spec of an exported one says what its graph is handed."""

    net: Segmenter | RuntimeNet
    spec: ModelSpec
    run: Path | None


def load_source(source: str | Path, *, hub: bool = False) -> Source:
    """The model of a MODEL or RUN folder, or one that was exported."""
    folder = Path(source)
    if is_export(folder):
        written = load_export(folder)
        return Source(written, written.sheet.facts(), None)
    if (folder / MODEL / CONFIG).is_file():
        return Source(*load_model(folder / MODEL, hub=hub), folder)
    if (folder / CONFIG).is_file():
        return Source(*load_model(folder, hub=hub), None)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Give a run, a model or an exported folder.")
    if (folder / SETTINGS).is_file():
        raise UsageError(f"The run {folder} has no model yet. Train it further: «ftcseg train --resume {folder}».")
    raise UsageError(
        f"{folder} is neither a run nor a model: it holds no {MODEL}/{CONFIG}, no {CONFIG} and no {SHEET}."
    )


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model that is asked about one image at a time: `load(run).predict("frame.png").labels`."""

    classes: ClassTable
    predictor: Predictor

    def predict(self, image: str | PathLike[str] | NDArray[Any]) -> Prediction:
        """Class ids (`labels`) and their probability (`conf`) at every pixel of an image file or array."""
        pixels = as_pixels(image) if isinstance(image, np.ndarray) else read_image(Path(image))
        return self.predictor.labels_and_conf([pixels])[0]


def load(  # noqa: PLR0913  each choice has a name
    source: str | Path,
    *,
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    batch: int = 8,
    device: str = "auto",
    hub: bool = False,
) -> Model:
    """The model of a MODEL, RUN or exported folder, ready to be asked."""
    opened = load_source(source, hub=hub)
    return Model(opened.spec.classes, _predictor(opened, window, flips, scales, batch, device))


def as_pixels(array: NDArray[Any]) -> Pixels:
    """(H, W) or (H, W, C) numbers as an image: uint8, uint16, or floats where 1 is white."""
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise UsageError(f"An image is an array of (H, W) or (H, W, C); this one is {array.shape}.")
    if array.dtype.kind == "f":
        array = array.astype(np.float32, copy=False)
    if array.dtype not in (np.uint8, np.uint16, np.float32):
        raise UsageError(
            f"Nobody knows what is white among numbers of type {array.dtype}. "
            "Hand in uint8, uint16, or floats from 0 to 1."
        )
    return array if array.ndim == 3 else array[:, :, None]


@smaller_windows_told
def evaluate_run(  # noqa: PLR0913  each choice has a name
    source: str | Path,
    dataset: str | Path,
    *,
    part: Part | None = None,
    checkpoint: Checkpoint = "all",
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    boundary: bool = False,
    batch: int = 8,
    max_images: int | None = None,
    device: str = "auto",
    root: str | Path | None = None,
    hub: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Scores of a model, and of a run's checkpoints, on one part of a set: val, or test where val has no masks.

    The top level holds the model's own scores; "checkpoints" those of student and teacher at "last" and "best". A run
    remembers which images it was trained on: on its own set, or a copy of it, the parts are those of its split.
    """
    opened = load_source(source, hub=hub)
    data = open_dataset(dataset, root=None if root is None else Path(root))
    same_classes(opened.spec.classes, data.classes)
    data, parts_of = _with_parts(data, opened.run)
    chosen_part = part_with_masks(data, part)
    images = data.part(chosen_part)
    nets: dict[tuple[str, str], nn.Module] = {(MODEL, MODEL): opened.net}
    nets |= _checkpoint_nets(opened, checkpoint, hub=hub)
    keys = {place: fingerprint(net) for place, net in nets.items()}  # the model is one of the checkpoints' networks
    found = evaluate(
        {keys[place]: _placed(net, device) for place, net in nets.items()},
        images,
        opened.spec,
        opened.spec.groups,
        batch=batch,
        progress=progress,
        boundary=boundary,
        max_images=max_images,
        window=window,
        flips=flips,
        scales=scales,
        per_image=True,
    )
    assert found is not None, "nobody could ask it to stop"
    neighbours = known_sequences(opened.run / COUNTS) if opened.run is not None and parts_of == "run" else {}
    rows = {place: _with_groups(found[key], opened.spec) for place, key in keys.items()}
    return {
        "dataset": data.description.name,
        "part": chosen_part,
        "parts_of": parts_of,
        "images": len(chosen(images, max_images)),
        "source": str(source),
        "settings": {"window": window, "flips": flips, "scales": list(scales), "short_side": opened.spec.short_side},
        **rows[MODEL, MODEL],
        "intervals": _intervals(found[keys[MODEL, MODEL]], opened.spec, neighbours),
        "checkpoints": _by_checkpoint(rows),
    }


def _by_checkpoint(rows: Mapping[tuple[str, str], dict[str, object]]) -> dict[str, dict[str, object]]:
    """The rows of checkpoints, by checkpoint and network; the model's own is not among them."""
    found: dict[str, dict[str, object]] = {}
    for (name, net), row in rows.items():
        if name != MODEL:
            found.setdefault(name, {})[net] = row
    return found


@smaller_windows_told
def predict(  # noqa: PLR0913  each choice has a name
    source: str | Path,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    what: Collection[str] = WHAT,
    every: int = 1,
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    batch: int = 8,
    device: str = "auto",
    workers: int = 2,
    hub: bool = False,
    progress: Progress = silent,
) -> Predicted:
    """Masks, colours, overlays and confidences of images, a folder of them or a pattern, written below `out`.

    Of a video, every so many frames.
    """
    opened = load_source(source, hub=hub)
    predictor = _predictor(opened, window, flips, scales, batch, device)
    return predict_folder(
        predictor, inputs, out, look_of(opened.spec.classes), what=what, every=every, progress=progress, workers=workers
    )


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """An exported model, and what it scores beside the network it was made from."""

    exported: Exported
    before: float | None = None
    """mIoU of the network, where there were masks to judge by."""
    after: float | None = None
    """mIoU of the exported model on the same images."""

    def __fspath__(self) -> str:
        """Its folder, so that it can be handed to `predict`."""
        return str(self.exported.folder)


def export_model(  # noqa: PLR0913  each choice has a name
    source: str | Path,
    out: str | Path | None = None,
    *,
    choices: Choices,
    images: str | Path | Sequence[str | Path] | None = None,
    dataset: str | Path | None = None,
    part: Part | None = None,
    max_images: int | None = None,
    root: str | Path | None = None,
    hub: bool = False,
    progress: Progress = silent,
) -> WrittenOut:
    """Write the model of a MODEL or RUN folder for ONNX Runtime or OpenVINO, proved to answer alike.

    `images` calibrate int8 and are compared on; a `dataset` with masks says what the model scores before and after, and
    its training images calibrate where no others are given.
    """
    opened = load_source(source, hub=hub)
    if isinstance(opened.net, RuntimeNet):
        raise UsageError(f"{source} is an exported model already. Give the run or the model folder it was made from.")
    name = f"{choices.format}{'-int8' if choices.int8 else ''}"
    folder = Path(out) if out is not None else Path(source) / "export" / name
    judged: Dataset | None = None
    shown = [] if images is None else _paths(images, folder)
    if dataset is not None:
        data = open_dataset(dataset, root=None if root is None else Path(root))
        same_classes(opened.spec.classes, data.classes)
        data, _ = _with_parts(data, opened.run)
        judged = chosen(data.part(part_with_masks(data, part)), max_images)
        shown = shown or [data.description.root / record.image for record in data.part("train").records]
    written = export(opened.net, opened.spec, folder, replace(choices, images=shown), progress)
    if judged is None:
        return WrittenOut(written)
    exact, after = load_source(folder), []
    for net, spec in ((opened.net, opened.spec), (exact.net, exact.spec)):
        found = evaluate({MODEL: net}, judged, spec, spec.groups, batch=4, progress=progress)
        assert found is not None, "nobody could ask it to stop"
        after.append(found[MODEL].miou)
    return WrittenOut(written, *after)


def _paths(images: str | Path | Sequence[str | Path], out: Path) -> list[Path]:
    """The still images a user means."""
    found = find_inputs(images, out)
    stills = [found.root / name for name in found.names if not is_video(name)]
    if not stills:
        raise UsageError("Videos do not calibrate a model: give images.")
    return stills


@out_of_memory_told("while the teacher was asked", "Try --batch 1: fewer images wait in memory.")
def audit_run(  # noqa: PLR0913  each choice has a name
    run: str | Path,
    *,
    checkpoint: str = "last",
    dataset: str | Path | None = None,
    root: str | Path | None = None,
    batch: int = 8,
    max_images: int | None = None,
    device: str = "auto",
    hub: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """What the teacher's pseudo-labels on the unlabelled training images are worth, where these do have masks.

    The images are the unlabelled ones of the run's split; `dataset` is where they lie, if not where the run says.
    """
    opened = load_source(run, hub=hub)
    if opened.run is None:
        raise UsageError(f"{run} is a model. An audit needs the whole run, with its checkpoints and its split.")
    if checkpoint not in CHECKPOINTS:
        raise unknown_name("checkpoint", checkpoint, CHECKPOINTS)
    images = _unlabeled(opened.run, dataset, root)
    same_classes(opened.spec.classes, images.classes)
    file = _checkpoint_file(opened.run, checkpoint)
    teacher = build_net(opened.spec, hub=hub)
    parts = places_in(opened.run)
    fill(teacher, file, f"{parts['labeler']}.")
    # What it starts from does not matter: everything it has seen comes out of the checkpoint.
    thresholds = build_thresholds(_config(opened.run), torch.ones(len(opened.spec.classes)))
    fill(thresholds, file, f"{parts['thresholds']}.")
    found = audit(
        _placed(teacher, device),
        thresholds.to(_device(device)),
        images,
        opened.spec,
        opened.spec.groups,
        batch=batch,
        max_images=max_images,
        progress=progress,
    )
    assert found is not None, "nobody could ask it to stop"
    return {"run": str(run), "dataset": images.description.name, "checkpoint": checkpoint, **found}


def look_of(classes: ClassTable) -> Look:
    """How a model's classes are drawn: background classes stay see-through in overlays."""
    colors = class_colors([c.background for c in classes])
    hidden = {c.id for c in classes if c.background}

    def over(pixels: Pixels, labels: Labels) -> Any:
        return overlay(visible(pixels), labels, colors, hidden)

    return Look(classes, colors, over)


def same_classes(model: ClassTable, data: ClassTable) -> None:
    """Refuse a set whose class ids mean something else than the model's."""
    if len(model) != len(data):
        raise UsageError(f"The model knows {len(model)} classes, the set has {len(data)}; they cannot be compared.")
    for ours, theirs in zip(model, data, strict=True):
        if ours.name.strip().casefold() != theirs.name.strip().casefold():
            raise UsageError(
                f"Class {ours.id} is {ours.name!r} to the model and {theirs.name!r} to the set. "
                "If they mean the same, give them one name in the set's dataset.yaml."
            )


def part_with_masks(data: Dataset, part: Part | None) -> Part:
    """The part asked for, or else val, or else test; one without masks is a UsageError."""
    if part is not None and part not in PARTS:
        raise unknown_name("part", part, PARTS)
    wanted: tuple[Part, ...] = ("val", "test") if part is None else (part,)
    for name in wanted:
        if len(data.part(name).labeled()):
            return name
    there = [name for name in PARTS if len(data.part(name).labeled())]
    also = f" Parts with masks: {', '.join(there)}." if there else ""
    raise UsageError(f"The {' and '.join(wanted)} part of {data.description.name} has no masks to compare with.{also}")


def _checkpoint_nets(opened: Source, checkpoint: str, *, hub: bool) -> dict[tuple[str, str], nn.Module]:
    """Student and teacher of the checkpoints asked for, by (checkpoint, network)."""
    if checkpoint not in (*CHECKPOINTS, "all"):
        raise unknown_name("checkpoint", checkpoint, (*CHECKPOINTS, "all"))
    if opened.run is None:
        if checkpoint != "all":
            raise UsageError(f"A model folder has no checkpoint «{checkpoint}». Give the run it came from.")
        return {}
    there = [name for name in CHECKPOINTS if checkpoints.exists(opened.run / FOLDER, name)]
    nets: dict[tuple[str, str], nn.Module] = {}
    for name in there if checkpoint == "all" else [checkpoint]:
        file = _checkpoint_file(opened.run, name)
        for net, place in places_in(opened.run)["predictors"].items():
            nets[name, net] = build_net(opened.spec, hub=hub)
            fill(nets[name, net], file, f"{place}.")
    return nets


def places_in(run: Path) -> dict[str, Any]:
    """Where the run's checkpoints keep their networks and thresholds; the first predictor is the one a user gets."""
    note = read_json(run / NOTE) if (run / NOTE).is_file() else {}
    parts = note.get("parts", PAIR) if isinstance(note, dict) else None
    nets = parts.get("predictors") if isinstance(parts, dict) else None
    if isinstance(parts, dict) and isinstance(nets, dict) and nets:
        places = [*nets.values(), parts.get("labeler"), parts.get("thresholds")]
        if all(isinstance(place, str) for place in places):
            return parts
    raise LayoutError(f"{run / NOTE} does not say where the run keeps its networks.", remedy="Copy the run again.")


def _checkpoint_file(run: Path, name: str) -> Path:
    """The weights of a checkpoint, whole by its checksums."""
    if not checkpoints.exists(run / FOLDER, name):
        raise UsageError(f"The run {run} has no checkpoint «{name}».")
    return checkpoints.read(run / FOLDER, name).path / WEIGHTS


def _with_parts(data: Dataset, run: Path | None) -> tuple[Dataset, Literal["run", "dataset"]]:
    """The set with the parts of the run's split where it holds those images, and with its own otherwise.

    A split may have drawn its own validation part; by the set's own parts, training images could be evaluated on.
    """
    if run is None or not (run / SPLIT).is_file():
        return data, "dataset"
    split, held = read_split(run)
    images: dict[Part, Sequence[str]] = {
        "train": (*split.labeled, *split.unlabeled, *split.left_out),
        "val": held["val"],
        "test": held["test"],
    }
    part_of = {name: part for part, names in images.items() for name in names}
    if not part_of.keys() <= {record.image for record in data.records}:
        return data, "dataset"
    records = [replace(record, part=part_of.get(record.image, record.part)) for record in data.records]
    return replace(data, records=records), "run"


def _with_groups(found: Scores, spec: ModelSpec) -> dict[str, Any]:
    row: dict[str, Any] = found.as_json()
    row["classes"] = [{**score, "group": spec.groups.get(score["id"])} for score in row["classes"]]
    return row


def _intervals(found: Scores, spec: ModelSpec, neighbours: Mapping[str, str]) -> dict[str, Any]:
    """How far the model's scores would move with other images, and with other sequences where those are known."""
    assert found.per_image is not None, "it was asked for"
    kept = replace(found.per_image, sequences=sequences_of(found.per_image.names, neighbours))
    return {over: one.as_json() for over, one in intervals_of(kept, spec.groups).items()}


def _config(run: Path) -> RunConfig:
    """The settings of a run."""
    return draft_of_run(run / SETTINGS).build()


def _unlabeled(run: Path, dataset: str | Path | None, root: str | Path | None) -> Dataset:
    """The unlabelled training images of a run that have a mask all the same."""
    note = read_json(run / NOTE) if (run / NOTE).is_file() else {}
    said = note if isinstance(note, Mapping) else {}
    path, base = dataset or said.get("dataset"), root or said.get("root")
    if not path:
        raise UsageError(f"{run / NOTE} does not say which set the run was trained on. Give it: --dataset PATH.")
    split, _ = read_split(run)
    data = open_dataset(str(path), root=None if base is None else Path(str(base)))
    images = data.only(list(split.unlabeled)).labeled()
    if not len(images):
        raise UsageError(
            "None of the run's unlabelled images has a mask, so nobody can say which pseudo-labels are right."
        )
    return images


def _predictor(
    opened: Source, window: int | None, flips: bool, scales: Sequence[float], batch: int, device: str
) -> Predictor:
    return Predictor(_placed(opened.net, device), opened.spec, None, window, flips, scales, batch)


def _placed(net: nn.Module, device: str) -> nn.Module:
    """The network on its device, its weights laid out as CPUs and GPUs convolve fastest."""
    return net.to(_device(device), memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _device(name: str) -> torch.device:
    if name not in _DEVICES:
        raise unknown_name("device", name, _DEVICES)
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
