"""`ftcseg bench infer`: the ways a trained network can be asked, side by side on the same images."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ftcseg import inference
from ftcseg.bench.case import Case, placed
from ftcseg.bench.fresh import elsewhere
from ftcseg.bench.machine import RateMeter
from ftcseg.bench.record import Row, record, row, write
from ftcseg.bench.rig import prepared
from ftcseg.bench.spread import Spread, ratios
from ftcseg.bench.ways import EAGER, WAYS, WITHOUT_OPR, Answer, opened, written
from ftcseg.data.dataset import Dataset, open_dataset
from ftcseg.data.images import read_image
from ftcseg.errors import FtcsegError, UsageError, unknown_name
from ftcseg.evaluate.predictor import prepare
from ftcseg.evaluate.windows import nearest_multiple
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.heads.base import resize
from ftcseg.nets.segmenter import Segmenter
from ftcseg.parallel import Progress, available_cores, silent
from ftcseg.types import Part

IMAGES, ROUNDS, WARM_UP = 8, 10, 2
CALIBRATED_ON = 32
PERCENTILES = (50, 90, 99)
LEAST_FOR_TAILS = 20  # measurements; a 99th percentile of five is their maximum
_REASON = 240


@dataclass(frozen=True, slots=True)
class _Subject:
    """The network that is asked, and the images it is asked about."""

    net: Segmenter
    spec: ModelSpec
    calibration: list[Path]
    inputs: list[Tensor]  # each (B, C, H, W) from 0 to 1, all of one size

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.inputs[0].shape[-2:]
        return int(height), int(width)


@dataclass(slots=True)
class _Taken:
    """What was measured so far: whole rounds only."""

    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Seconds for all images, by way."""
    calls: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of each call."""
    failed: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    """Seconds from the file to the first answer."""
    interrupted: bool = False


def bench_infer(  # noqa: PLR0913  the way in: each choice has a name
    model: str | Path | None = None,
    *,
    encoder: str | None = None,
    head: str | None = None,
    size: tuple[int, int] | None = None,
    ways: Sequence[str] = (),
    images: int = IMAGES,
    batch: int = 1,
    rounds: int = ROUNDS,
    dataset: str | Path | None = None,
    part: Part | None = None,
    max_images: int | None = None,
    memory: bool = True,
    root: str | Path | None = None,
    seed: int = 0,
    save: str | Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Ask one network in several ways in turns; returns the record.

    `model` is a run or a model folder; without one, a network with random weights is asked about simulated frames,
    which takes as long. With a `dataset`, its images are taken, and a trained model is scored in every way.

    Example: `ftcseg.bench_infer("runs/harbour", dataset="harbour/", ways=["eager", "openvino-int8"])`
    """
    if min(images, batch, rounds) < 1:
        raise UsageError("Ask for at least one image, a batch of one, and one round.")
    for name in ways:
        if name not in WAYS:
            raise unknown_name("way", name, tuple(WAYS))
    torch.set_num_threads(available_cores())
    asked = Case(encoder=encoder, head=head, size=size, seed=seed)
    subject = _subject(model, asked, dataset, part, (images, batch), root)
    chosen = dict.fromkeys([EAGER, *(ways or WAYS)])  # everything is told beside eager
    if subject.net.opr is None:
        chosen.pop(WITHOUT_OPR, None)
    meter = RateMeter(torch.device("cpu"))
    meter.take()
    with tempfile.TemporaryDirectory(prefix="ftcseg-bench-") as folder:
        taken = _Taken()
        places: dict[str, Path] = {}
        answers: dict[str, Answer] = {}
        told = _Steps(progress, 2 * len(chosen) + rounds)
        for name in chosen:
            _build(name, subject, Path(folder), taken, places, answers)
            told()
        beside = {name: _beside(answers[EAGER], answer, subject.inputs[0]) for name, answer in answers.items()}
        _alternate(answers, subject.inputs, rounds, taken, told)
        held = _memory(places, subject, taken, told) if memory else {}
        scores = {} if model is None or dataset is None else _scores(places, dataset, part, max_images, root)
    meter.take()
    rows = [_way(name, subject, taken, beside, held, scores) for name in chosen]
    details = {"ways": rows, "size": list(subject.size), "rounds": rounds, "interrupted": taken.interrupted}
    what = _asked(asked, model, dataset, (images, batch), chosen)
    found = record("infer", what, _rows(rows), meter, torch.device("cpu"), details)
    if save is not None:
        write(found, Path(save))
    return found


def _subject(
    model: str | Path | None,
    case: Case,
    dataset: str | Path | None,
    part: Part | None,
    counts: tuple[int, int],
    root: str | Path | None,
) -> _Subject:
    count, batch = counts
    if model is not None:
        source = inference.load_source(model)
        if not isinstance(source.net, Segmenter):
            raise UsageError(f"{model} is an exported model. Give the run or the model folder it was made from.")
        net, spec = source.net, source.spec
        if dataset is None:
            raise UsageError("Give --dataset as well: a model is asked about images like those it will see.")
    else:
        ready = prepared(placed(case))
        net, spec = ready.network.net, ready.network.spec
    data = open_dataset(dataset if dataset is not None else _frames(case), root=None if root is None else Path(root))
    asked = data.part(part) if part is not None else data
    shaped = _of_one_size(_evenly(asked, 4 * count), spec, count)
    inputs = [torch.cat([tensor for _, tensor in shaped[at : at + batch]]) for at in range(0, len(shaped), batch)]
    known = data.part("train")  # int8 must not be calibrated on what it is judged by
    seen = _of_one_size(_evenly(known if len(known) else data, 4 * CALIBRATED_ON), spec, CALIBRATED_ON, inputs[0])
    return _Subject(net, spec, [path for path, _ in seen], inputs)


def _evenly(data: Dataset, count: int) -> list[Path]:
    records = data.records[:: max(1, len(data) // count)]
    return [data.description.root / record.image for record in records]


def _frames(case: Case) -> str:
    dataset = placed(case).dataset
    assert dataset is not None, "placed() gives it one"
    return dataset


def _of_one_size(
    paths: Sequence[Path], spec: ModelSpec, count: int, like: Tensor | None = None
) -> list[tuple[Path, Tensor]]:
    """So many images of the size of `like`, or else of the first one, each (1, C, H, W) as a graph is handed it."""
    found: list[tuple[Path, Tensor]] = []
    for path in paths:
        image = prepare(read_image(path), spec).scaled[0][None]
        image = resize(image, [nearest_multiple(side, spec.multiple) for side in image.shape[-2:]]).contiguous()
        like = image if like is None else like
        if image.shape[-2:] == like.shape[-2:]:
            found.append((path, image))
        if len(found) == count:
            break
    if not found:
        raise UsageError("There is no image to ask about.")
    return found


class _Steps:
    """Counts what is done."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self) -> None:
        self._done += 1
        self._progress(min(self._done, self._total), self._total)


def _build(
    name: str,
    subject: _Subject,
    folder: Path,
    taken: _Taken,
    places: dict[str, Path],
    answers: dict[str, Answer],
) -> None:
    """Make one way ready; one that does not work on this machine is a result, too."""
    way = WAYS[name]
    place = folder / ("model" if way.format is None else name)
    try:
        places[name] = written(way, subject.net, subject.spec, subject.size, subject.calibration, place)
        began = time.perf_counter()
        answer = opened(way, places[name])
        for _ in range(WARM_UP):
            answer(subject.inputs[0])
            taken.ready.setdefault(name, time.perf_counter() - began)
    except Exception as error:
        if name == EAGER:
            raise
        lines = [line for line in str(error).splitlines() if line.strip()]
        taken.failed[name] = f"{type(error).__name__}: {lines[0] if lines else ''}"[:_REASON]
    else:
        answers[name] = answer


def _beside(eager: Answer, other: Answer, images: Tensor) -> dict[str, float]:
    """How alike two ways answer: the largest difference of logits, and the share of pixels of the same class."""
    truth, said = eager(images), other(images)
    same = (truth.argmax(1) == said.argmax(1)).double().mean()
    return {"difference": float((truth - said).abs().max()), "agreement": float(same)}


def _alternate(
    answers: Mapping[str, Answer], inputs: Sequence[Tensor], rounds: int, taken: _Taken, told: Callable[[], None]
) -> None:
    """Every way once a round, every other round in the other order."""
    names = list(answers)
    taken.rounds, taken.calls = {name: [] for name in names}, {name: [] for name in names}
    try:
        for number in range(rounds):
            calls: dict[str, list[float]] = {}
            for name in names if number % 2 == 0 else names[::-1]:
                calls[name] = [_timed(answers[name], images) for images in inputs]
            for name in names:
                taken.calls[name] += calls[name]
                taken.rounds[name].append(sum(calls[name]))
            told()
    except KeyboardInterrupt:
        taken.interrupted = True
        if not taken.rounds[names[-1]]:
            raise


def _timed(answer: Answer, images: Tensor) -> float:
    began = time.perf_counter()
    answer(images)
    return time.perf_counter() - began


def _memory(
    places: Mapping[str, Path], subject: _Subject, taken: _Taken, told: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """The most each way holds while it answers, each in a process of its own."""
    held: dict[str, dict[str, Any]] = {}
    shape = list(subject.inputs[0].shape)
    try:
        for name, place in places.items():
            if name not in taken.failed and not taken.interrupted:
                try:
                    held[name] = elsewhere("answers", Case(), {"way": name, "folder": str(place), "shape": shape})
                except FtcsegError as error:
                    held[name] = {"problem": str(error)[:_REASON]}
            told()
    except KeyboardInterrupt:
        taken.interrupted = True
    return held


def _scores(
    places: Mapping[str, Path],
    dataset: str | Path,
    part: Part | None,
    max_images: int | None,
    root: str | Path | None,
) -> dict[str, float]:
    """MIoU of every way but those that compute the same as another one, or another network."""
    found = {}
    for name, place in places.items():
        if name == EAGER or (WAYS[name].format is not None and WAYS[name].opr):
            said = inference.evaluate_run(place, dataset, part=part, max_images=max_images, root=root)
            found[name] = float(said["miou"])
    return found


def _way(
    name: str,
    subject: _Subject,
    taken: _Taken,
    beside: Mapping[str, Mapping[str, float]],
    held: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, float],
) -> dict[str, Any]:
    if name in taken.failed:
        return {"name": name, "works": False, "reason": taken.failed[name]}
    images = sum(len(batch) for batch in subject.inputs)
    spread = Spread.of(taken.rounds[name])
    against = "onnx" if name == WITHOUT_OPR and "onnx" in taken.rounds else EAGER
    return {
        "name": name,
        "works": True,
        "images_per_second": spread.under(images).as_json(),
        "latency": _latency(taken.calls[name]),
        "ready": taken.ready[name],
        "faster": ratios(taken.rounds[against], taken.rounds[name]).as_json(),
        "than": against,
        "memory": held.get(name),
        "miou": scores.get(name),
        **beside[name],
    }


def _latency(calls: Sequence[float]) -> dict[str, float | None]:
    """Percentiles of a call; those of the tail only where enough calls were made to have one."""
    if len(calls) < LEAST_FOR_TAILS:
        return {"p50": statistics.median(calls), **{f"p{p}": None for p in PERCENTILES[1:]}}
    cuts = statistics.quantiles(calls, n=100, method="inclusive")
    return {f"p{p}": cuts[p - 1] for p in PERCENTILES}


def _asked(
    case: Case, model: str | Path | None, dataset: str | Path | None, counts: tuple[int, int], ways: Mapping[str, Any]
) -> dict[str, Any]:
    """What two records must share. A model by its name alone: where it lies says nothing about speed."""
    network = None if model is not None else case.encoder or "the preset's"
    return {
        "encoder": network,
        "head": case.head,
        "model": None if model is None else Path(model).name,
        "dataset": None if dataset is None else Path(dataset).name,
        "size": None if case.size is None else list(case.size),
        "images": counts[0],
        "batch": counts[1],
        "ways": list(ways),
        "seed": case.seed,
    }


def _rows(ways: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows = []
    for way in ways:
        if not way["works"]:
            continue
        name = way["name"]
        rows.append(row(f"{name}: images a second", "images/s", "higher", Spread(**way["images_per_second"])))
        if name != EAGER:
            rows.append(row(f"{name}: times as fast as {way['than']}", "ratio", "higher", Spread(**way["faster"])))
        if way["memory"] and "above" in way["memory"]:
            rows.append(row(f"{name}: peak memory", "bytes", "lower", float(way["memory"]["above"])))
        if way["miou"] is not None:
            rows.append(row(f"{name}: mIoU", "miou", "higher", way["miou"]))
    return rows
