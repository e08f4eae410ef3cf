"""A plan to finished runs: what is there stays, what was begun goes on, what is missing starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftcseg import api
from ftcseg.errors import FtcsegError
from ftcseg.files import read_json, write_json
from ftcseg.parallel import Progress, silent
from ftcseg.studies.answering import Inquiry, Stand, write_answer
from ftcseg.studies.plan import Bench, Cell, Measure, digest
from ftcseg.studies.results import Evidence, read_result
from ftcseg.studies.sets import Place, Sets
from ftcseg.studies.tables import Answer
from ftcseg.train.events import Listener

NUMBERS = "numbers.json"


class StudyStopped(FtcsegError):
    """A run was asked to stop; the same command goes on."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A cell, where its run is or will be."""

    cell: Cell
    key: str
    run: Path

    @property
    def done(self) -> bool:
        """Whether the run is finished and its scores can be read."""
        note = self.run / "run.json"
        return (self.run / "scores.json").is_file() and note.is_file() and read_json(note).get("status") == "done"


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


def run_study(
    inquiry: Inquiry,
    *,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = silent,
) -> Answer:
    """Run what is missing, one run at a time, and write the answer; it is rewritten after every run."""
    plan = planned(inquiry)
    failures: list[str] = []
    for number, one in enumerate(plan.runs, 1):
        if one.done:
            continue
        say(f"\n[{number}/{len(plan.runs)}] {one.cell.title}")
        try:
            run_cell(one, inquiry.place, listeners())
        except StudyStopped:
            raise
        except FtcsegError as error:  # one method that cannot run must not cost the others
            failures.append(f"{one.cell.title}: {error}")
            say(f"failed: {error}")
            continue
        answer_so_far(inquiry, plan, failures)
    for wanted in plan.measures:
        if wanted.done or not all((run / "scores.json").is_file() for run in wanted.runs):
            continue
        say(f"\nmeasuring {wanted.measure.name}")
        try:
            take(wanted, inquiry.place, progress)
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


def run_cell(plan: PlannedRun, place: Place, listeners: Sequence[Listener]) -> None:
    """Start a run, or go on with it."""
    cell = plan.cell
    if (plan.run / "config.yaml").is_file():
        outcome = api.resume(plan.run, listeners=listeners)
    else:
        shutil.rmtree(plan.run, ignore_errors=True)  # what a crash before the first step left
        outcome = api.train(
            Sets(place).source(cell.dataset, cell.seed),
            method=cell.method,
            labels=cell.labels,
            seed=cell.seed,
            steps=cell.steps,
            out=plan.run,
            settings=cell.settings,
            root=place.root,
            listeners=listeners,
        )
    if not outcome.finished:
        raise StudyStopped("The study was stopped; the same command goes on where it was.")


def take(plan: PlannedMeasure, place: Place, progress: Progress = silent) -> dict[str, Any]:
    """Take a measurement and keep its numbers."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    source = Sets(place).source(plan.measure.dataset, plan.measure.seed)
    numbers = plan.measure.take(Bench(plan.runs, source, place.root, plan.folder, progress))
    write_json(plan.folder / NUMBERS, numbers)
    return numbers
