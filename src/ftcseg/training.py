"""From a dataset and a method to a run folder: the arrangement of everything below it.

A run folder holds config.yaml, split.json, run.json, metrics.jsonl, pseudo.jsonl, log.txt and checkpoints/; when it is
done also model/, scores.json, audit.json, pictures/ and report.html.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, TypeAlias, cast

import torch
from torch import Tensor

from ftcseg import __version__
from ftcseg.config.build import Network, build_method, build_network, view_params
from ftcseg.config.lighter import evaluation_told, training_told
from ftcseg.config.load import Draft, as_mapping, draft_for, draft_of_run, hardware_here
from ftcseg.config.resolve import Facts, resolve
from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.data.decoded import DecodedCache
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.drawing import drawn
from ftcseg.data.groups import rarest
from ftcseg.data.masks import upright_shape
from ftcseg.data.split import Split
from ftcseg.data.split_files import read_split, write_split
from ftcseg.distributed import ProcessLost
from ftcseg.errors import LayoutError, UsageError
from ftcseg.evaluate.run import evaluate
from ftcseg.files import read_json, sweep, to_yaml, write_json, write_text
from ftcseg.finish import finish
from ftcseg.methods.base import Method
from ftcseg.nets.compiled import compile_encoders
from ftcseg.parallel import Progress, available_cores, silent
from ftcseg.report.run_page import write_run_page
from ftcseg.train import chance
from ftcseg.train.checkpoint import STATE_FILE, RunGone
from ftcseg.train.events import Listener, Noted, RunPlanned, Scores
from ftcseg.train.fellows import one_for_all
from ftcseg.train.guard import Guard
from ftcseg.train.journal import Journal
from ftcseg.train.keeper import FOLDER, RESUMABLE, Keeper, KeeperParams
from ftcseg.train.listeners import JsonLines, LogFile, Terminal
from ftcseg.train.lock import RunLock
from ftcseg.train.loop import run as run_loop
from ftcseg.train.machine import Machine, open_machine
from ftcseg.train.memory import out_of_memory_told
from ftcseg.train.optim import Optim
from ftcseg.train.signals import Interrupted, Stop
from ftcseg.train.unreadable import Unreadable
from ftcseg.types import ClassInfo, ClassTable, Clock, Group, Part
from ftcseg.views.loader import BatchMaker, Stream

CONFIG, RUN, LOG = "config.yaml", "run.json", "log.txt"
LESS = (
    "Look who else holds memory, or take a smaller encoder: «ftcseg encoders» lists them for --set model.encoder=NAME."
)

Drawn: TypeAlias = tuple[Split, dict[str, list[str]]]
"""A split, and the images of the other parts."""


@dataclass(frozen=True, slots=True)
class Data:
    """The images of a run, each where it belongs. The unlabelled ones have lost their masks for good."""

    labeled: Dataset
    unlabeled: Dataset
    judged: Dataset
    """Of the part that is evaluated."""
    oracle: Dataset
    """The unlabelled images with their masks, for the audit alone."""
    groups: dict[int, Group]
    pixels: Tensor  # (num_classes,) labelled pixels
    images: Tensor  # (num_classes,) labelled images that show a class
    in_channels: int
    sequences: dict[str, str]
    """The sequence of every image, by its name."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything a run consists of, built and not yet written anywhere."""

    config: RunConfig
    parts: Drawn
    data: Data
    machine: Machine
    network: Network
    method: Method


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a run is, whether it came to its end, and what the process should exit with.

    It stands for the run's folder wherever a path is asked for: `ftcseg.load(ftcseg.train("frames/"))`.
    """

    folder: Path
    finished: bool
    exit_code: int
    is_first: bool = True
    """Whether this is the process that speaks for the run; with several, all the others stay silent."""

    def __fspath__(self) -> str:
        return str(self.folder)


Train: TypeAlias = Callable[[Path, Ready, Sequence[Listener], Callable[[], None]], Outcome]


@one_for_all()
@out_of_memory_told("before the first step", LESS)
def start(  # noqa: PLR0913  the way in: each choice has a name
    dataset: str | Path,
    folder: Path,
    *,
    method: str,
    overrides: Sequence[str],
    root: Path | None = None,
    listeners: Sequence[Listener] = (),
    progress: Progress = silent,
) -> Outcome:
    """Draw or read the split, settle every value, write both down, and train."""
    draft = draft_for(method, hardware_here(), overrides)
    wanted = draft.build()
    _refuse_taken(folder)
    examination = examine_set(dataset, root=root, progress=progress)
    parts = _split_of(wanted, examination)
    ready = prepare(resolve(draft, facts_for(examination, parts)), examination, parts)
    with _alone_in(folder, ready.machine) as lock:
        if ready.machine.is_first:
            _refuse_taken(folder)
            write_split(folder, parts[0], examination, parts[1])
            note: dict[str, Any] = {"dataset": _lasting(dataset), "root": _lasting(root) if root else None}
            note["method"] = method
            note |= {"title": folder.name, "status": "started", "parts": _parts_of(ready.method), **_versions()}
            write_json(folder / RUN, note)
            write_text(folder / CONFIG, _config_text(ready.config, draft))  # last: with it there is a run to resume
        return _train(folder, ready, listeners, _presence(folder, lock))


@one_for_all()
@out_of_memory_told("before the first step", LESS)
def resume(folder: Path, *, listeners: Sequence[Listener] = (), progress: Progress = silent) -> Outcome:
    """Go on exactly where a run was, with its own settings, split and data."""
    if not (folder / CONFIG).is_file() or not (folder / RUN).is_file():
        raise UsageError(
            f"{folder} holds no run to resume: {CONFIG} or {RUN} is missing. If it ended before it had begun, start "
            f"it again with the command it was started with; the folder may stay."
        )
    draft = draft_of_run(folder / CONFIG)
    dataset, root = _set_of(folder / RUN)
    examination = examine_set(dataset, root=root, progress=progress)
    saved = any((folder / FOLDER / name / STATE_FILE).is_file() for name in RESUMABLE)  # a half-written one is none
    ready = prepare(draft.build(), examination, read_split(folder), resumed=saved)
    with _alone_in(folder, ready.machine) as lock:
        return _train(folder, ready, listeners, _presence(folder, lock))


def prepare(config: RunConfig, examination: Examination, parts: Drawn, *, resumed: bool = False) -> Ready:
    """Build everything first: a call that cannot work must not leave a run folder behind."""
    if config.device in ("cuda", "mps") and not getattr(torch, config.device).is_available():
        raise UsageError(f"There is no {config.device} device here. Leave out device={config.device}.")
    data = gather(config, examination, parts)
    machine = open_machine(config.device, config.processes, config.nodes, config.precision)
    torch.set_num_threads(config.threads or max(1, available_cores() // config.processes))
    chance.begin(config.seed)
    classes = _with_groups(examination.description.classes, data.groups)
    network = build_network(config, classes, data.in_channels)
    method = build_method(config, network, data.labeled, data.pixels, data.images, resumed=resumed)
    machine.adopt(method, channels_last=config.model.channels_last)
    if config.model.compile:
        compile_encoders(method)
    method.train()
    return Ready(config, parts, data, machine, network, method)


def _told_of_the_run(train: Train) -> Train:
    """Have memory or processes that are lost on the way told in terms of the run."""

    def told(folder: Path, ready: Ready, listeners: Sequence[Listener], present: Callable[[], None], /) -> Outcome:
        try:
            with training_told(ready.config, ready.method, ready.network.spec.multiple, ready.machine, folder):
                return train(folder, ready, listeners, present)
        except ProcessLost as lost:
            raise ProcessLost(lost.what, f"Go on from the last checkpoint: ftcseg train --resume {folder}") from lost

    return told


@_told_of_the_run
def _train(folder: Path, ready: Ready, listeners: Sequence[Listener], present: Callable[[], None]) -> Outcome:
    config, data, machine, method = ready.config, ready.data, ready.machine, ready.method
    optim = Optim(method, config.optim, machine)
    guard = Guard(method, machine)
    keeping = KeeperParams(
        save_every=config.save_every,
        judge_every=config.evaluation.every,
        keep_at=config.kept_steps,
        identity={"config": _identity(config), "split": ready.parts[0].digest()},
        present=present,
    )
    views = view_params(config, ready.network.spec)
    maker = BatchMaker(data.labeled, data.unlabeled, method.views, views, config.seed)
    maker.on_rank(machine.rank, machine.world)
    plan = _plan(ready)
    began = time.monotonic()
    with _log_of(folder, machine) as log, Stop(machine.highest, machine.world) as stop:
        watchers: list[Listener] = [lambda _: present(), JsonLines(folder), Terminal(log), *listeners]
        unreadable = Unreadable(machine, plan.unlabeled, config.data.max_unreadable)
        every = config.log_every or config.steps
        journal = Journal(watchers, every=every, machine=machine, facts=method.facts, unreadable=unreadable)
        keeper = Keeper(folder, method, optim, guard, journal, keeping)
        clock = keeper.restore() or Clock(0, config.steps, maker.epoch_steps)
        maker.labels_first = method.labels_first(clock) * optim.accumulate
        journal(plan)
        judge = _judge(ready.network, data, config, machine, stop)
        stream = Stream(maker, config.data.workers, lambda text: journal(Noted(text)))
        clock = run_loop(method, stream, optim, keeper, guard, journal, clock, judge, stop)
        done = clock.step >= clock.total and not stop.asked
        machine.part()
        if machine.is_first:

            def asked() -> bool:
                present()  # files are written into whatever folder has the name: it must be this run's
                return stop.asked

            done = done and not asked()
            with evaluation_told(config, ready.network.spec.multiple, machine):
                done = done and finish(
                    folder, config, ready.network, method, data, stop=asked, sequences=data.sequences
                )
            present()
            _note(folder, status="done" if done else "stopped", steps=clock.step, seconds=time.monotonic() - began)
            if done:
                write_run_page([folder])
    return Outcome(folder, done, stop.exit_code, machine.is_first)


def _refuse_taken(folder: Path) -> None:
    if (folder / CONFIG).exists():
        raise UsageError(f"{folder} already holds a run. Continue it with --resume {folder}, or choose another --out.")


def _alone_in(folder: Path, machine: Machine) -> AbstractContextManager[RunLock | None]:
    """The first process holds the folder for all processes of the run."""
    return RunLock(folder) if machine.is_first else nullcontext()


def _presence(folder: Path, lock: RunLock | None) -> Callable[[], None]:
    """What raises RunGone once the folder is no longer this run's; only the first process looks."""

    def look() -> None:
        if lock is not None and not ((folder / CONFIG).is_file() and lock.is_mine()):
            raise RunGone(folder)

    return look


def _log_of(folder: Path, machine: Machine) -> TextIO:
    """The log to add to, after what a killed process left is swept away.

    The other processes write none: the folder may not be there yet, or never on their machine.
    """
    if not machine.is_first:
        return Path(os.devnull).open("a", encoding="utf-8")
    sweep(folder)
    return cast("TextIO", LogFile(folder / LOG))


def _lasting(dataset: str | Path) -> str:
    """A name stays a name; a path is found again from another folder."""
    return str(Path(dataset).resolve()) if Path(dataset).exists() else str(dataset)


def _plan(ready: Ready) -> RunPlanned:
    config, data = ready.config, ready.data
    return RunPlanned(
        method=config.method,
        classes=tuple(data.labeled.classes.names),
        labeled=len(data.labeled),
        unlabeled=len(data.unlabeled) if ready.method.views.unlabeled else 0,
        judged=len(data.judged),
        part=config.data.part or "val",
        steps=config.steps,
    )


def _judge(
    network: Network, data: Data, config: RunConfig, machine: Machine, stop: Stop
) -> Callable[[Method, Clock], Scores]:
    @evaluation_told(config, network.spec.multiple, machine)
    def judge(method: Method, _clock: Clock) -> Scores:
        found = evaluate(
            method.predictors(),
            data.judged,
            network.spec,
            data.groups,
            batch=config.evaluation.batch,
            rank=machine.rank,
            world=machine.world,
            stop=lambda: stop.asked,
            window=config.evaluation.window,
            max_images=config.evaluation.images,
        )
        if found is None:
            raise Interrupted
        return {name: scores.as_json() for name, scores in found.items()}

    return judge


def gather(config: RunConfig, examination: Examination, parts: Drawn) -> Data:
    """The split's images as datasets; masks of unlabelled ones are left behind here."""
    split, held = parts
    cache = DecodedCache(int(config.data.cache * 2**30)) if config.data.cache else None
    everything = Dataset(examination.description, examination.records, cache=cache)
    masked = everything.only(list(split.unlabeled))
    bare = replace(masked, records=[replace(record, mask=None) for record in masked.records])
    judged = everything.only(held.get(config.data.part or "val", [])).labeled()
    if not len(judged):
        raise UsageError(
            f"There is no labelled image to evaluate on in the part «{config.data.part}». "
            "Draw one with «ftcseg split DATASET --val 20%» and train with --split FOLDER."
        )
    if missing := [c.id for c in examination.description.classes if c.id not in split.counts]:
        remedy = "It was drawn from another set, or was edited: draw it again."
        raise LayoutError(f"The split says nothing about class {missing[0]} of the set.", remedy=remedy)
    counts = [split.counts[c.id] for c in examination.description.classes]
    pixels, images = (
        torch.tensor(told, dtype=torch.float32) for told in zip(*((c.pixels, c.images) for c in counts), strict=True)
    )
    labeled = replace(everything.only(list(split.labeled)), thin=split.thin, thin_seed=split.seed)
    return Data(
        labeled=labeled,
        unlabeled=bare,
        judged=judged,
        oracle=masked,
        groups={row.id: row.group for row in examination.classes},
        pixels=pixels,
        images=images,
        in_channels=_channels(examination),
        sequences=dict(zip((r.image for r in examination.records), examination.sequences.of, strict=True)),
    )


def facts_for(examination: Examination, parts: Drawn) -> Facts:
    """What of a set its settings depend on."""
    shapes = Counter(
        upright_shape(f.image.header)
        for f, pixels in zip(examination.facts, examination.pixels, strict=True)
        if pixels and f.image.header is not None
    )
    if not shapes:
        raise UsageError(f"{examination.description.name} has no usable mask to learn from. See «ftcseg doctor».")
    masked = {record.image for record in examination.records if record.mask is not None}
    part: Part = "val" if masked.intersection(parts[1].get("val", [])) else "test"
    classes = examination.description.classes
    return Facts(
        frame=shapes.most_common(1)[0][0],
        part=part,
        foreground=tuple(classes.foreground),
        background=tuple(c.id for c in classes if c.background),
        rarest=rarest(classes, {row.id: row.pixels for row in examination.classes}),
    )


def _split_of(config: RunConfig, examination: Examination) -> Drawn:
    if config.data.split is not None:
        return read_split(config.data.split)
    return drawn(examination, config.data.labels or "100%", seed=config.seed)


def _channels(examination: Examination) -> int:
    counts = Counter(f.image.channels for f in examination.facts if f.image.problem is None)
    return counts.most_common(1)[0][0]


def _with_groups(classes: ClassTable, groups: dict[int, Group]) -> ClassTable:
    return ClassTable(
        tuple(ClassInfo(c.id, c.name, background=c.background, group=groups[c.id], prompts=c.prompts) for c in classes)
    )


def _config_text(config: RunConfig, draft: Draft) -> str:
    why = {key: text for key, text in draft.why.items() if text}
    head = "# Every value of this run. «why» says where those came from that are not plain defaults.\n"
    return head + to_yaml({"config": as_mapping(config), "why": why})


def _identity(config: RunConfig) -> str:
    """By which a checkpoint knows its run. What is kept beside it changes nothing, and older runs never heard of it."""
    told = as_mapping(config)
    del told["keep_at"], told["foreground"]  # the second is opr.foreground by now
    del told["data"]["cache"], told["data"]["max_unreadable"]
    told["data"]["workers"] = 0  # they change no batch, and may be what a run died of
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _parts_of(method: Method) -> dict[str, Any]:
    """Where a checkpoint keeps what is asked for later: the networks that predict, and who makes pseudo-labels."""
    names = {id(module): name for name, module in method.named_modules()}
    labeler, thresholds = method.labeler()
    return {
        "predictors": {who: names[id(net)] for who, net in method.predictors().items()},
        "labeler": names[id(labeler)],
        "thresholds": names[id(thresholds)],
    }


def _versions() -> dict[str, str]:
    machine = f"{available_cores()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {"version": __version__, "torch": torch.__version__, "machine": machine}


def _set_of(note: Path) -> tuple[str, Path | None]:
    """The set that a run was started on and its root, as the run noted them."""
    told = read_json(note)
    dataset, root = (told.get("dataset"), told.get("root")) if isinstance(told, dict) else (None, None)
    if not isinstance(dataset, str) or not dataset or not isinstance(root, str | None):
        remedy = 'Write «"dataset": PATH» into it, or copy the run again.'
        raise LayoutError(f"{note} does not say which set the run was started on.", remedy=remedy)
    return dataset, Path(root) if root else None


def _note(folder: Path, *, status: str, steps: int, seconds: float) -> None:
    note = read_json(folder / RUN)
    before = note.get("seconds")
    spent = seconds + (before if isinstance(before, int | float) and math.isfinite(before) else 0.0)
    write_json(folder / RUN, {**note, "status": status, "steps": steps, "seconds": round(spent, 1)})
