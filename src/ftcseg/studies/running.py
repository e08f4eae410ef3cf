"""A plan to finished runs: what is there stays, what was begun goes on, what is missing starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ftcseg import api
from ftcseg.errors import FtcsegError, NotWritten, UsageError
from ftcseg.files import read_json, write_json
from ftcseg.parallel import Progress, silent
from ftcseg.studies.answering import Inquiry, Stand, write_answer
from ftcseg.studies.plan import Bench, Cell, Measure, digest
from ftcseg.studies.results import Evidence, read_result
from ftcseg.studies.sets import Place, Sets
from ftcseg.studies.tables import Answer
from ftcseg.train.checkpoint import STATE_FILE
from ftcseg.train.events import Listener
from ftcseg.train.keeper import FOLDER, RESUMABLE
from ftcseg.train.lock import RunInUse, RunLock
from ftcseg.training import CONFIG, Outcome

NUMBERS = "numbers.json"
_LOOK_AGAIN = 2.0  # seconds between two looks at a run that another process trains


class StudyStopped(FtcsegError):
    """A run was asked to stop; the same command goes on."""

    exit_code = 130

    def __init__(self, exit_code: int = 130) -> None:
        super().__init__("The study was stopped; the same command goes on where it was.")
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A cell, where its run is or will be."""

    cell: Cell
    key: str
    run: Path

    @property
    def done(self) -> bool:
        """Whether the run is finished and its scores can be read."""
        file = self.run / "run.json"
        note = read_json(file) if (self.run / "scores.json").is_file() and file.is_file() else {}
        return isinstance(note, dict) and note.get("status") == "done"

    @property
    def step(self) -> int | None:
        """Where a run that was begun would go on; None where there is none."""
        if not (self.run / CONFIG).is_file():
            return None
        states = [self.run / FOLDER / name / STATE_FILE for name in RESUMABLE]
        return max((_step_in(state) for state in states if state.is_file()), default=0)


def _step_in(state: Path) -> int:
    """The step of a checkpoint; 0 where it does not tell: whether it is whole is found out by going on from it."""
    told = read_json(state)
    clock = told.get("clock") if isinstance(told, dict) else None
    step = clock.get("step") if isinstance(clock, dict) else None
    return step if type(step) is int else 0


@dataclass(frozen=True, slots=True)
class PlannedMeasure:
    """A measurement and where its numbers are or will be."""

    measure: Measure
    key: str
    folder: Path
    runs: tuple[Path, ...]

    @property
    def done(self) -> bool:
        """Whether the numbers are there."""
        return (self.folder / NUMBERS).is_file()


@dataclass(frozen=True, slots=True)
class Planned:
    """Everything a study takes, in order."""

    runs: list[PlannedRun]
    measures: list[PlannedMeasure]

    @property
    def missing(self) -> int:
        """Runs that are not finished."""
        return sum(not one.done for one in self.runs)


def planned(inquiry: Inquiry) -> Planned:
    """The runs and measurements of a study, each with what is there of it."""
    study, ask, place = inquiry.study, inquiry.ask, inquiry.place
    sets = Sets(place)
    runs = []
    for cell in study.plan(ask):
        key = sets.key(cell)
        runs.append(PlannedRun(cell, key, place.folder / "runs" / f"{cell.method}-{key}"))
    by_cell = {one.cell: one for one in runs}
    measures = []
    for measure in study.measures(ask):
        looked_at = [by_cell[cell] for cell in measure.cells]
        told = {"name": measure.name, "told": dict(measure.told), "runs": [one.key for one in looked_at]}
        key = digest({**told, "facts": sets.facts(measure.dataset, measure.seed)})
        folder = place.folder / "measures" / f"{measure.name.replace(' ', '-')}-{key}"
        measures.append(PlannedMeasure(measure, key, folder, tuple(one.run for one in looked_at)))
    return Planned(runs, measures)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The missing runs of a study, where they belong, and how to speak of them."""

    runs: Sequence[PlannedRun]
    place: Place
    names: Mapping[Path, str] = field(default_factory=dict)
    """What a run goes by, such as «[3/12] ftc, 2% labels, seed 0»."""
    listeners: Callable[[], Sequence[Listener]] = tuple
    say: Callable[[str], None] = lambda _: None

    def name(self, one: PlannedRun) -> str:
        """For people."""
        return self.names.get(one.run, one.cell.title)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that needs nothing more; `failure` is empty where it is finished."""

    run: PlannedRun
    failure: str = ""


Runner: TypeAlias = Callable[[Work], Iterator[Ended]]
"""How missing runs are run: tells of each when it has ended, in whatever order that happens."""


def one_by_one(work: Work) -> Iterator[Ended]:
    """Here, one run after the other. What another process trains is left to it, and looked at again at the end."""
    waiting, told = list(work.runs), set[Path]()
    while waiting:
        busy = []
        for one in waiting:
            if one.done:  # by another process, meanwhile
                yield Ended(one)
                continue
            try:
                _refuse_busy(one.run)
                work.say(f"\n{work.name(one)}")
                run_cell(one, work.place, work.listeners())
            except RunInUse as error:
                busy.append(one)
                if one.run not in told:
                    work.say(f"\n{work.name(one)}: {_who(error)}; it is left there and looked at again at the end")
                told.add(one.run)
            except (StudyStopped, NotWritten):  # a disk without room costs every run: stop before the next is begun
                raise
            except FtcsegError as error:  # one method that cannot run must not cost the others
                yield Ended(one, str(error))
            else:
                yield Ended(one)
        if len(busy) == len(waiting):
            time.sleep(_LOOK_AGAIN)
        waiting = busy


def run_study(
    inquiry: Inquiry,
    *,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = silent,
    runner: Runner = one_by_one,
) -> Answer:
    """Run what is missing and write the answer; it is rewritten after every run."""
    plan = planned(inquiry)
    failures: list[str] = []
    names = {one.run: f"[{n}/{len(plan.runs)}] {one.cell.title}" for n, one in enumerate(plan.runs, 1)}
    missing = {one.run: one for one in plan.runs if not one.done}  # rows of one run run it once
    for ended in runner(Work(list(missing.values()), inquiry.place, names, listeners, say)):
        if ended.failure:
            failures.append(f"{ended.run.cell.title}: {ended.failure}")
            say(f"failed: {ended.failure}")
        else:
            answer_so_far(inquiry, plan, failures)
    for wanted in plan.measures:
        if wanted.done or not all((run / "scores.json").is_file() for run in wanted.runs):
            continue
        say(f"\nmeasuring {wanted.measure.name}")
        try:
            take(wanted, inquiry.place, progress)
        except NotWritten:
            raise
        except FtcsegError as error:
            failures.append(f"{wanted.measure.name}: {error}")
            say(f"failed: {error}")
    return answer_so_far(inquiry, plan, failures)


def answer_so_far(inquiry: Inquiry, plan: Planned, failures: Sequence[str] = ()) -> Answer:
    """Read what is finished, and write the answer it gives."""
    evidence = gathered(plan)
    answer = inquiry.study.read(inquiry.ask, evidence)
    write_answer(inquiry, evidence, answer, Stand(len(plan.runs), plan.missing, tuple(failures)))
    return answer


def gathered(plan: Planned) -> Evidence:
    """The numbers of all that is finished."""
    results = [read_result(one.cell, one.key, one.run) for one in plan.runs if one.done]
    measured = {one.measure.name: read_json(one.folder / NUMBERS) for one in plan.measures if one.done}
    return Evidence(results, measured, {one.measure.name: one.folder for one in plan.measures if one.done})


def run_cell(plan: PlannedRun, place: Place, listeners: Sequence[Listener] = (), settings: Sequence[str] = ()) -> None:
    """Start a run, or go on with it; `settings` are for a new one and give way to the cell's own."""
    config = plan.run / CONFIG
    try:
        outcome = (
            api.resume(plan.run, listeners=listeners) if config.is_file() else _begin(plan, place, listeners, settings)
        )
    except RunInUse:
        raise
    except UsageError:
        if not config.is_file():
            raise
        outcome = api.resume(plan.run, listeners=listeners)  # another process began it a moment ago
    if not outcome.finished:
        raise StudyStopped(outcome.exit_code or StudyStopped.exit_code)


def _begin(plan: PlannedRun, place: Place, listeners: Sequence[Listener], settings: Sequence[str]) -> Outcome:
    cell, ground = plan.cell, Sets(place).ground(plan.cell)
    # Quoted, since a folder may be called whatever its owner likes.
    lists = [] if ground.split is None else [f"data.split={json.dumps(str(ground.split))}"]
    return api.train(
        ground.source,
        method=cell.method,
        labels=cell.labels if ground.split is None else None,
        seed=cell.seed,
        steps=cell.steps,
        out=plan.run,
        settings=(*settings, *cell.settings, *lists),
        root=place.root,
        listeners=listeners,
    )


def _refuse_busy(run: Path) -> None:
    """RunInUse where another process holds the folder, before minutes are spent on building what it trains already."""
    with RunLock(run):
        pass


def _who(error: RunInUse) -> str:
    """«in use by process 7 on north»."""
    return "in use by " + str(error).partition(" is in use by ")[2].partition(". ")[0]


def take(plan: PlannedMeasure, place: Place, progress: Progress = silent) -> dict[str, Any]:
    """Take a measurement and keep its numbers."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    source = Sets(place).source(plan.measure.dataset, plan.measure.seed)
    numbers = plan.measure.take(Bench(plan.runs, source, place.root, plan.folder, progress))
    write_json(plan.folder / NUMBERS, numbers)
    return numbers
