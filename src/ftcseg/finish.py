"""What a finished run leaves behind: its model, its scores, an audit of its pseudo-labels, pictures and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from PIL import Image

from ftcseg.config.build import Network
from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.evaluate.audit import audit
from ftcseg.evaluate.bootstrap import intervals_of
from ftcseg.evaluate.metrics import Scores
from ftcseg.evaluate.per_image import COUNTS, PerImage, sequences_of, write_counts
from ftcseg.evaluate.predictor import Predictor
from ftcseg.evaluate.run import evaluate
from ftcseg.files import atomic, write_json
from ftcseg.methods.base import Method
from ftcseg.nets.folder import CONFIG, save_model
from ftcseg.nets.segmenter import Segmenter
from ftcseg.report.pictures import class_colors, overlay, visible
from ftcseg.train import checkpoint
from ftcseg.train.keeper import FOLDER
from ftcseg.types import IGNORE, Group, PseudoLabels, Sample

MODEL, SCORES, AUDIT, PICTURE_INDEX = "model", "scores.json", "audit.json", "pictures/index.json"
PICTURES = 6
"""Images shown in the report: for each class from the rarest, the evaluated image that shows most of it."""
_LOOKED_AT = 200  # evaluated images among which those are found
_UNKNOWN: Mapping[str, str] = MappingProxyType({})


class RunData(Protocol):
    """What is needed of a run's data at its end."""

    @property
    def judged(self) -> Dataset: ...  # noqa: D102
    @property
    def oracle(self) -> Dataset: ...  # noqa: D102
    @property
    def groups(self) -> dict[int, Group]: ...  # noqa: D102


def finish(  # noqa: PLR0913  each part of a run has a name
    run: Path,
    config: RunConfig,
    network: Network,
    method: Method,
    data: RunData,
    *,
    stop: Callable[[], bool],
    sequences: Mapping[str, str] = _UNKNOWN,
) -> bool:
    """Write everything a user looks at and is not there yet; False where it was asked to stop half way.

    `sequences` says which sequence an image belongs to; one that is not named there is a sequence of its own.
    """
    method.eval()
    name, net = next(iter(method.predictors().items()))
    if not (run / MODEL / CONFIG).is_file():  # which is written last
        save_model(run / MODEL, cast("Segmenter", net), network.spec)
    if not (run / SCORES).is_file():
        found = _score_checkpoints(run, config, network, method, data, stop)
        if found is None:
            return False
        kept = {at: _kept(scores, sequences) for at, scores in found.checkpoints.items()}
        write_counts(run / COUNTS, kept)
        write_json(run / SCORES, {**_results(config, data, found, kept), "predictor": name})
    if not (run / AUDIT).is_file() and not _audit(run, config, network, method, data, stop):
        return False
    if not (run / PICTURE_INDEX).is_file():
        _draw(run, network, method, data)
    return True


@dataclass(frozen=True, slots=True)
class _Judged:
    """The scores of every network by checkpoint, and what the run noted of its best one."""

    checkpoints: dict[str, dict[str, Scores]]
    best: Mapping[str, Any]


def _score_checkpoints(
    run: Path, config: RunConfig, network: Network, method: Method, data: RunData, stop: Callable[[], bool]
) -> _Judged | None:
    """Last and best, student and teacher, side by side; None where it was asked to stop."""
    assert not (dist.is_available() and dist.is_initialized()), "the first process finishes alone"
    found: dict[str, dict[str, Scores]] = {}
    best = checkpoint.read(run / FOLDER, "last").state["best"]
    for name in ("last", "best"):
        if name == "best" and not checkpoint.exists(run / FOLDER, "best"):
            continue
        if name == "best" and best["step"] == config.steps:
            found[name] = found["last"]  # the same weights
            continue
        with _as_in(run, name, method):
            scores = evaluate(
                method.predictors(),
                data.judged,
                network.spec,
                data.groups,
                batch=config.evaluation.batch,
                window=config.evaluation.window,
                stop=stop,
                boundary=True,
                per_image=True,
            )
        if scores is None:
            return None
        found[name] = scores
    return _Judged(found, best)


def _results(config: RunConfig, data: RunData, found: _Judged, kept: Mapping[str, PerImage]) -> dict[str, Any]:
    """What scores.json holds."""
    classes, best = data.judged.classes, found.best
    checkpoints = {}
    for name, scores in found.checkpoints.items():
        told: dict[str, dict[str, Any]] = {who: score.as_json() for who, score in scores.items()}
        intervals = intervals_of(kept[name], data.groups)
        next(iter(told.values()))["intervals"] = {over: one.as_json() for over, one in intervals.items()}
        checkpoints[name] = told
    return {
        "dataset": data.judged.description.name,
        "part": config.data.part,
        "images": len(data.judged),
        "best_step": best["step"],
        "chosen_by": f"{best['metric']} of the first predictor on the part «{config.data.part}» during training",
        "classes": classes.names,
        "groups": [data.groups.get(c.id) for c in classes],
        "checkpoints": checkpoints,
        "confusion": next(iter(found.checkpoints["last"].values())).confusion,  # of the first predictor at the end
    }


def _kept(scores: Mapping[str, Scores], sequences: Mapping[str, str]) -> PerImage:
    """The counts of the first predictor's images, which are those a user gets, with their sequences."""
    kept = next(iter(scores.values())).per_image
    assert kept is not None, "it was asked for"
    return replace(kept, sequences=sequences_of(kept.names, sequences))


@contextmanager
def _as_in(run: Path, name: str, method: Method) -> Iterator[None]:
    """The method as a checkpoint has it, for a while."""
    now = {key: value.clone() for key, value in method.state_dict().items()}
    with checkpoint.read(run / FOLDER, name).tensors("model") as saved:
        method.load_state_dict(dict(saved.items()))
    try:
        yield
    finally:
        method.load_state_dict(now)


def _audit(
    run: Path, config: RunConfig, network: Network, method: Method, data: RunData, stop: Callable[[], bool]
) -> bool:
    """Whether it was made, or there is nothing to make it of."""
    if not config.evaluation.audit or not method.views.unlabeled or not len(data.oracle.labeled()):
        return True
    net, thresholds = method.labeler()
    found = audit(
        net,
        thresholds,
        data.oracle,
        network.spec,
        data.groups,
        batch=config.evaluation.batch,
        stop=stop,
        max_images=config.evaluation.audit_images,
        window=config.evaluation.window,
    )
    if found is None:
        return False
    write_json(run / AUDIT, found)
    return True


@torch.no_grad()
def _draw(run: Path, network: Network, method: Method, data: RunData) -> None:
    """Input, truth, prediction and what the threshold would keep, of images chosen by rule and never by hand."""
    net = next(iter(method.predictors().values()))
    predictor = Predictor(net, network.spec)
    (_, thresholds), classes = method.labeler(), network.spec.classes
    device = thresholds.tau().device
    colors, hide = class_colors([c.background for c in classes]), {c.id for c in classes if c.background}
    index = []
    for number, sample in enumerate(_telling(data.judged, len(classes))):
        said = predictor.labels_and_conf([sample.image])[0]
        pseudo = PseudoLabels(
            torch.from_numpy(said.labels.astype(np.int64))[None].to(device),
            torch.from_numpy(said.conf)[None].to(device),
            torch.ones(1, *said.labels.shape, dtype=torch.bool, device=device),
        )
        keep = thresholds.accept(pseudo)[0].cpu().numpy()
        picture = visible(sample.image)
        assert sample.labels is not None
        shown = {
            "input": picture,
            "truth": overlay(picture, sample.labels, colors, hide),
            "prediction": overlay(picture, said.labels, colors, hide),
            "kept": overlay(picture, np.where(keep, said.labels, np.int16(IGNORE)), colors, hide),
        }
        files = {kind: f"{number}-{kind}.png" for kind in shown}
        for kind, file in files.items():
            _write_png(run / "pictures" / file, shown[kind])
        index.append({"id": sample.id, **files})
    write_json(run / PICTURE_INDEX, index)


def _telling(dataset: Dataset, num_classes: int) -> list[Sample]:
    step = max(1, len(dataset) // _LOOKED_AT)
    pixels = {}
    for i in range(0, len(dataset), step):
        labels = dataset[i].labels
        assert labels is not None
        pixels[i] = np.bincount(labels[labels >= 0].ravel(), minlength=num_classes)
    total = sum(pixels.values(), np.zeros(num_classes, dtype=np.int64))
    rarest_first = [int(c) for c in np.argsort(total) if total[c] > 0]
    chosen = dict.fromkeys(max(pixels, key=lambda i, c=c: (pixels[i][c], -i)) for c in rarest_first)  # type: ignore[misc]
    return [dataset[i] for i in list(chosen)[:PICTURES]]


def _write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    with atomic(path) as file:
        Image.fromarray(picture).save(file, "PNG", optimize=True)
