"""What a run will take, told before it starts: from runs like it that are finished, else from a few steps timed now."""

from __future__ import annotations

import math
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ftcseg import __version__
from ftcseg.config.build import view_params
from ftcseg.config.load import as_mapping, draft_for, flat, hardware_here
from ftcseg.config.resolve import resolve
from ftcseg.config.schema import RunConfig
from ftcseg.data.doctor import Examination
from ftcseg.data.drawing import drawn
from ftcseg.errors import DataError, FtcsegError
from ftcseg.evaluate.run import evaluate
from ftcseg.files import read_json, read_yaml, write_json
from ftcseg.finish import PICTURES, SCORES
from ftcseg.parallel import available_cores
from ftcseg.report.run_page import PICTURE_LIMIT
from ftcseg.studies.plan import Cell, digest
from ftcseg.studies.running import PlannedRun
from ftcseg.studies.sets import Sets, settled, size_of_copy
from ftcseg.train.guard import Guard, NotFinite
from ftcseg.train.loop import learn
from ftcseg.train.optim import Optim
from ftcseg.training import CONFIG, RUN, Drawn, Ready, facts_for, prepare
from ftcseg.types import Clock
from ftcseg.views.loader import BatchMaker

MEMORY = "estimates.json"
EFFORT_SECONDS = 120.0
"""For timing, in all; what is not reached is taken to be as slow as the slowest that was."""
SLOW_STEP = 15.0
"""A first step this slow, in seconds, is not repeated: what it warms up is little beside it."""
LIKE_IT = 4
"""Finished runs count up to so many times longer or shorter: what a run does once is not drawn out over its steps."""
LATE = 0.75
"""Share of a run by which every method does all that it does."""
JUDGED = 4  # images that are evaluated for the clock
CHECKPOINTS = 3  # last, last_good, best; each with the optimiser
CHECKPOINTS_SCORED = 2  # last and best
HEADER_BYTES = 150  # of a tensor in a safetensors file: its name, shape and place
KINDS_OF_PICTURES = 4  # input, truth, prediction, kept
RAW_BYTES = 3  # of a pixel that was not compressed at all

_NONSENSE = (KeyError, TypeError, ValueError, OverflowError, AttributeError)  # of JSON that says something else
_OF_THE_LENGTH = {
    *(
        "seed",
        "steps",
        "threads",
        "save_every",
        "log_every",
        "evaluation.every",
        "keep_at",
        "data.labels",
        "data.split",
    ),
    *("atc.momentum", "flexmatch.momentum", "freematch.momentum"),
    *("teaching.ema", "teaching.burn_in", "teaching.ramp", "opr.foreground", "foreground"),
}
"""Settings that change with a run's length, seed or labels, and not what one of its steps takes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run is expected to take, and from what that is concluded."""

    seconds: float
    bytes: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What was measured of a method on this machine, in seconds and bytes."""

    start: float
    """Building it."""
    early: float
    """A step while it learns from labels alone."""
    late: float
    """A step when it does everything."""
    image: float
    """Evaluating an image during training."""
    final: float
    """The same at the end, with boundaries and calibration."""
    method: int
    """Its parameters and buffers, as a file."""
    optimizer: int
    model: int
    """The network that a user gets."""


@dataclass(frozen=True, slots=True)
class Look:
    """A cell's run as it would be: its settings, and the images it is judged on."""

    config: RunConfig
    frame: tuple[int, int]
    judged: int
    audited: int

    def comparable(self) -> dict[str, Any]:
        """What a step costs by: equal here, equal time."""
        return _comparable(flat(as_mapping(self.config)))


class Estimates:
    """Costs of a study's cells; each kind of run is timed once and remembered in the study's folder."""

    def __init__(self, sets: Sets, effort: float = EFFORT_SECONDS) -> None:
        self._sets = sets
        self._left = effort
        self._file = sets.place.folder / MEMORY
        self._known: dict[str, Timed] = _remembered(self._file)
        self._finished = list(_finished(sets.place.folder / "runs"))
        self._met: dict[str, Timed] = {}

    def of(self, cell: Cell) -> Cost:
        """What the whole run takes; an FtcsegError where it cannot even be built."""
        look = self.look(cell)
        alike = self._alike(cell, look)
        if alike:
            seconds = sum(one.seconds / one.steps for one in alike) / len(alike) * cell.steps
            size = max(_size_of(one.folder) for one in alike)
            return Cost(seconds, size, f"{len(alike)} finished run{'s' if len(alike) > 1 else ''} like it")
        timed, basis = self.timed(cell, look)
        return Cost(seconds_of(timed, look), bytes_of(timed, look), basis)

    def look(self, cell: Cell) -> Look:
        """The cell's settings as its run will resolve them; nothing is built."""
        found = self._sets.examined(cell.dataset, cell.seed)
        config, parts = _resolved(cell, found)
        masked = {record.image for record, pixels in zip(found.records, found.pixels, strict=True) if pixels}
        judged = len(masked.intersection(parts[1].get(config.data.part or "val", [])))
        audits = config.evaluation.audit and config.method != "supervised"
        audited = min(config.evaluation.audit_images, len(masked.intersection(parts[0].unlabeled))) if audits else 0
        return Look(config, facts_for(found, parts).frame, judged, audited)

    def timed(self, cell: Cell, look: Look) -> tuple[Timed, str]:
        """What its steps take on this machine, and from what that is known."""
        key = digest({"run": look.comparable(), "frame": look.frame, "cell": cell.dataset, **_machine()})
        if key in self._known:
            self._met[key] = self._known[key]
            return self._known[key], "steps timed before"
        if self._left <= 0 and self._met:
            return max(self._met.values(), key=lambda one: one.late), "the slowest of the others, not timed itself"
        began = time.monotonic()
        timed = measure(cell, self._sets.examined(cell.dataset, cell.seed))
        self._left -= time.monotonic() - began
        self._known[key] = self._met[key] = timed
        write_json(self._file, {name: asdict(one) for name, one in {**_remembered(self._file), **self._known}.items()})
        return timed, "steps timed now"

    def _alike(self, cell: Cell, look: Look) -> list[_Finished]:
        wanted = look.comparable()
        return [
            one
            for one in self._finished
            if one.images == look.judged
            and one.comparable == wanted
            and one.steps <= LIKE_IT * cell.steps
            and cell.steps <= LIKE_IT * one.steps
        ]


# ---------------------------------------------------------------- arithmetic


def seconds_of(timed: Timed, look: Look) -> float:
    """The whole run: start, steps, evaluations on the way, last and best at the end, the audit."""
    config = look.config
    early = min(config.teaching.burn_in, config.steps)
    train = early * timed.early + (config.steps - early) * timed.late
    return timed.start + train + looks(config) * judged_each(look) * timed.image + end_seconds(timed, look)


def end_seconds(timed: Timed, look: Look) -> float:
    """What a run does once, however long it is, after its last step."""
    return CHECKPOINTS_SCORED * look.judged * timed.final + look.audited * timed.image


def looks(config: RunConfig) -> int:
    """Evaluations during training; the end always has one."""
    every = config.evaluation.every
    return 1 if not every else -(-config.steps // every)


def judged_each(look: Look) -> int:
    """Images of each of them."""
    most = look.config.evaluation.images
    return look.judged if most is None else min(most, look.judged)


def bytes_of(timed: Timed, look: Look) -> int:
    """What the finished run keeps: checkpoints, models, and pictures, these at their size before compression."""
    height, width = look.frame
    pictures = PICTURES * KINDS_OF_PICTURES * (height * width * RAW_BYTES + PICTURE_LIMIT)
    checkpoints = CHECKPOINTS * (timed.method + timed.optimizer) + len(look.config.kept_steps) * timed.method
    return checkpoints + timed.model + pictures


# ---------------------------------------------------------------- timing


def measure(cell: Cell, found: Examination) -> Timed:
    """Build the cell's method on its own data and time some of its steps and evaluations; nothing is written."""
    config, parts = _resolved(cell, found)
    began = time.perf_counter()
    ready = prepare(replace(config, processes=1, nodes=1), found, parts)
    start = time.perf_counter() - began
    optim = Optim(ready.method, config.optim, ready.machine)
    steps = _Steps(ready, optim)
    step = round(LATE * config.steps)
    clock = Clock(step, max(config.steps, step + 2), steps.maker.epoch_steps)
    late = early = steps(clock)
    if late < SLOW_STEP:  # the first one has warmed everything up
        late = early = steps(clock.tick())
        if config.teaching.burn_in:
            early = steps(replace(clock, step=0))
    if late < SLOW_STEP:
        _image_seconds(ready, boundary=False)  # warms up, too
    return Timed(
        start=start,
        early=early,
        late=late,
        image=_image_seconds(ready, boundary=False),
        final=_image_seconds(ready, boundary=True),
        method=_bytes(ready.method.state_dict()),
        optimizer=_bytes(optim.tensors()),
        model=_bytes(next(iter(ready.method.predictors().values())).state_dict()),
    )


class _Steps:
    """Real steps of a method, one at a time, with a clock beside them."""

    def __init__(self, ready: Ready, optim: Optim) -> None:
        self._ready, self._optim = ready, optim
        self._guard = Guard(ready.method, ready.machine)
        views = view_params(ready.config, ready.network.spec)
        self.maker = BatchMaker(ready.data.labeled, ready.data.unlabeled, ready.method.views, views, ready.config.seed)

    def __call__(self, clock: Clock) -> float:
        method, optim, guard = self._ready.method, self._optim, self._guard
        first = clock.step * optim.accumulate
        self.maker.labels_first = method.labels_first(clock) * optim.accumulate
        began = time.perf_counter()
        try:
            guard.remember()
            result = learn(method, [self.maker[first + n] for n in range(optim.accumulate)], optim, clock)
            guard.check_step(result, optim.collect())
            optim.step(method.pace(clock))
            guard.check_student()
            method.after_update(clock)
            guard.check_rest()
        except NotFinite:  # a step out of the blue may be; it took as long
            optim.drop()
        _finish_queue(self._ready.machine.device)
        return time.perf_counter() - began


def _image_seconds(ready: Ready, *, boundary: bool) -> float:
    config, judged = ready.config, ready.data.judged
    began = time.perf_counter()
    evaluate(
        ready.method.predictors(),
        judged,
        ready.network.spec,
        ready.data.groups,
        batch=config.evaluation.batch,
        window=config.evaluation.window,
        max_images=JUDGED,
        boundary=boundary,
    )
    _finish_queue(ready.machine.device)
    return (time.perf_counter() - began) / min(JUDGED, len(judged))


def _finish_queue(device: torch.device) -> None:
    if device.type == "cuda":  # which is handed work and does it later
        torch.cuda.synchronize(device)


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    """Of these tensors as a file; one that goes by two names is stored once."""
    distinct = {
        (tensor.data_ptr(), tensor.shape) if tensor.numel() else name: tensor for name, tensor in tensors.items()
    }
    return sum(tensor.numel() * tensor.element_size() + HEADER_BYTES for tensor in distinct.values())


# ---------------------------------------------------------------- settings and memory


def _resolved(cell: Cell, found: Examination) -> tuple[RunConfig, Drawn]:
    asked = [f"seed={cell.seed}", f"steps={cell.steps}", f"data.labels={cell.labels}", *cell.settings]
    draft = draft_for(cell.method, hardware_here(), asked)
    parts = drawn(found, cell.labels, seed=cell.seed)
    return resolve(draft, facts_for(found, parts)), parts


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _OF_THE_LENGTH}


@dataclass(frozen=True, slots=True)
class _Finished:
    folder: Path
    steps: int
    seconds: float
    images: int
    comparable: dict[str, Any]


def _finished(runs: Path) -> Iterator[_Finished]:
    """The finished runs of this machine."""
    here = f"{available_cores()} cores, {platform.machine()}, "
    for file in sorted(runs.glob(f"*/{RUN}")):
        try:
            note, folder = read_json(file), file.parent
            is_here = note.get("status") == "done" and str(note.get("machine")).startswith(here)
            if is_here and (folder / SCORES).is_file():
                settings = _comparable(flat(read_yaml(folder / CONFIG)["config"]))
                judged = int(read_json(folder / SCORES)["images"])
                steps, seconds = int(note["steps"]), float(note["seconds"])
                if steps > 0 and math.isfinite(seconds):
                    yield _Finished(folder, steps, seconds, judged, settings)
        except (FtcsegError, *_NONSENSE):  # a run that says nothing sound of itself tells nothing about others
            continue


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _machine() -> dict[str, object]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    told = {"host": platform.node(), "cores": available_cores(), "machine": platform.machine(), "device": device}
    return {**told, "versions": f"{__version__} {torch.__version__}"}


def _remembered(file: Path) -> dict[str, Timed]:
    """What was timed before; a file that cannot be read is as good as none."""
    try:
        known = {key: Timed(**told) for key, told in read_json(file).items()}
    except (DataError, *_NONSENSE):
        return {}
    return {key: timed for key, timed in known.items() if all(map(_is_amount, asdict(timed).values()))}


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


# ---------------------------------------------------------------- the whole plan


@dataclass(frozen=True, slots=True)
class Line:
    """A planned run and what it still takes; `cost` is None where it is done or cannot be told, and why."""

    run: PlannedRun
    state: str
    cost: Cost | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """All that a study still takes."""

    lines: list[Line]
    copies: int
    """Bytes of sets that have to be made for it."""
    free: int
    """Bytes on the disk of its folder."""

    @property
    def costs(self) -> list[Cost]:
        """Of the runs that are missing."""
        distinct = {line.run.run: line.cost for line in self.lines if line.cost is not None}
        return list(distinct.values())

    @property
    def seconds(self) -> float:
        """Of all runs, one after the other."""
        return sum(cost.seconds for cost in self.costs)

    @property
    def bytes(self) -> int:
        """Of all that will be written and stay."""
        return self.copies + sum(cost.bytes for cost in self.costs)

    @property
    def fits(self) -> bool:
        """Whether it all fits, with room for a run's newest files beside those they replace."""
        return self.bytes + max((cost.bytes for cost in self.costs), default=0) <= self.free


def outlook(runs: Sequence[PlannedRun], sets: Sets) -> Outlook:
    """What the missing ones of these runs take; nothing is trained, and no run folder is made."""
    estimates = Estimates(sets)
    lines = [_line(one, estimates) for one in runs]
    copies: dict[Path, int] = {}
    for one in runs:
        folder, prepared = sets.copy_of(one.cell), settled(one.cell.prepared)
        if folder is not None and prepared is not None and not one.done and not folder.is_dir():
            copies[folder] = size_of_copy(sets.examined(one.cell.dataset, one.cell.seed), prepared.parts)
    return Outlook(lines, sum(copies.values()), _free(sets.place.folder))


def _line(one: PlannedRun, estimates: Estimates) -> Line:
    if one.done:
        return Line(one, "done")
    state = "missing" if one.step is None else f"begun at step {one.step}"
    try:
        whole = estimates.of(one.cell)
    except FtcsegError as error:
        return Line(one, state, problem=str(error))
    seconds = whole.seconds * (1 - min(one.step or 0, one.cell.steps) / one.cell.steps)
    there = _size_of(one.run) if one.run.is_dir() else 0
    return Line(one, state, Cost(seconds, max(0, whole.bytes - there), whole.basis))


def _free(folder: Path) -> int:
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    return shutil.disk_usage(there).free
