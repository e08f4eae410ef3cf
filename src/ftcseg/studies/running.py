"""A plan to finished runs: what is there stays, what was begun goes on, what is missing starts."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ftcseg import __version__, api
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.errors import FtcsegError
from ftcseg.files import read_json, write_json, write_text
from ftcseg.studies import Study
from ftcseg.studies.plan import EMBEDDED, Ask, Cell
from ftcseg.studies.results import Result, read_result
from ftcseg.studies.tables import Answer, latex, markdown
from ftcseg.train.events import Listener

FRAMES = 240  # of the embedded set, as in the demo


class StudyStopped(FtcsegError):
    """A run was asked to stop; the same command goes on."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell, where its run is or will be, and whether it is finished."""

    cell: Cell
    key: str
    run: Path
    done: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a study keeps its things, and where named sets are kept."""

    folder: Path
    root: Path | None = None


def planned(study: Study, ask: Ask, place: Place) -> list[Planned]:
    """The runs of a study, in order, each with what is there of it."""
    facts = {}
    plans = []
    for cell in study.plan(ask):
        source = data_of(cell, place)
        if source not in facts:
            facts[source] = facts_of(examine_set(source, root=place.root))
        key = cell.key(facts[source])
        run = place.folder / "runs" / f"{cell.method}-{key}"
        plans.append(Planned(cell, key, run, is_done(run)))
    return plans


def run_study(
    name: str,
    study: Study,
    ask: Ask,
    place: Place,
    *,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Run what is missing, one run at a time, and write the answer; it is rewritten after every run."""
    plans = planned(study, ask, place)
    failures: list[str] = []
    for number, plan in enumerate(plans, 1):
        if not is_done(plan.run):
            say(f"\n[{number}/{len(plans)}] {plan.cell.title}")
            try:
                _run(plan, place, listeners())
            except StudyStopped:
                raise
            except FtcsegError as error:  # one method that cannot run must not cost the others
                failures.append(f"{plan.cell.title}: {error}")
                say(f"failed: {error}")
                continue
        answer = write_answer(name, study, ask, place, plans, failures)
    return write_answer(name, study, ask, place, plans, failures) if failures else answer


def write_answer(
    name: str, study: Study, ask: Ask, place: Place, plans: Sequence[Planned], failures: Sequence[str] = ()
) -> Answer:
    """study.json, table.md and table.tex from the runs that are finished."""
    results = [read_result(plan.cell, plan.key, plan.run) for plan in plans if is_done(plan.run)]
    answer = study.read(ask, results)
    missing = len(plans) - len(results)
    notes = [f"{missing} of {len(plans)} runs are missing."] if missing else []
    notes += [f"Failed: {failure}" for failure in failures]
    notes.append(_recipe(name, ask, results))
    write_json(
        place.folder / "study.json",
        {"study": name, "ask": asdict(ask), "finding": answer.finding, "results": [r.as_json() for r in results]},
    )
    write_text(place.folder / "table.md", markdown(answer, f"Study: {name}", notes))
    write_text(place.folder / "table.tex", "\n".join(map(latex, answer.tables)))
    return answer


def data_of(cell: Cell, place: Place) -> str:
    """The set a cell runs on; the embedded one is simulated from the cell's seed when it is first needed."""
    if cell.dataset != EMBEDDED:
        return cell.dataset
    folder = place.folder / "data" / f"sonar-{FRAMES}-seed{cell.seed}"
    api.simulate(folder, FRAMES, seed=cell.seed)
    return str(folder)


def facts_of(found: Examination) -> str:
    """What besides its settings determines a run: the images, their masks, the program."""
    digest = hashlib.sha256(f"{__version__} {torch.__version__}".encode())
    for record, facts, pixels in zip(found.records, found.facts, found.pixels, strict=True):
        told = [record.image, record.part, facts.image.digest, sorted((pixels or {}).items())]
        digest.update(json.dumps(told).encode())
    return digest.hexdigest()


def is_done(run: Path) -> bool:
    """Whether a run is finished and its scores can be read."""
    note = run / "run.json"
    return (run / "scores.json").is_file() and note.is_file() and read_json(note).get("status") == "done"


def _run(plan: Planned, place: Place, listeners: Sequence[Listener]) -> None:
    cell = plan.cell
    if (plan.run / "config.yaml").is_file():
        outcome = api.resume(plan.run, listeners=listeners)
    else:
        shutil.rmtree(plan.run, ignore_errors=True)  # what a crash before the first step left
        outcome = api.train(
            data_of(cell, place),
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


def _recipe(name: str, ask: Ask, results: Sequence[Result]) -> str:
    splits = ", ".join(dict.fromkeys(r.split for r in results)) or "none yet"
    settings = "".join(f" --set {text}" for text in ask.settings)
    seeds = "".join(f" --seeds {seed}" for seed in ask.seeds)
    labels = "".join(f" --labels {amount}" for amount in ask.labels)
    only = "".join(f" --only {row}" for row in ask.only)
    command = f"ftcseg study {name} --dataset {ask.dataset}{labels}{seeds} --budget {ask.steps}steps{only}{settings}"
    return f"Made by `{command}`; splits {splits}."
