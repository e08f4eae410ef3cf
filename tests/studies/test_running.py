"""Studies run what is missing and nothing else."""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_sets import shrink

from ftcseg import api
from ftcseg.cli import demo
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, find_study, sets
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.running import StudyStopped, planned, run_cell, run_study
from ftcseg.studies.sets import Place
from ftcseg.train.events import Listener
from ftcseg.train.lock import RunLock
from ftcseg.training import Outcome

TINY = ("model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32", "evaluation.audit=false")
STEPS = 12


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    shrink(monkeypatch, 20)
    return Ask(labels=("50%",), steps=3, settings=TINY, only=("supervised", "fixmatch"))


def _methods(ask: Ask, folder: Path) -> Inquiry:
    return Inquiry("methods", STUDIES["methods"], ask, Place(folder))


def test_a_cell_is_known_by_everything_but_its_name() -> None:
    cell = Cell(row="a", method="ftc", dataset="x", labels="2%", seed=0, steps=10)
    assert cell.key("facts") == Cell(row="b", method="ftc", dataset="x", labels="2%", seed=0, steps=10).key("facts")
    others = [
        Cell(row="a", method="cps", dataset="x", labels="2%", seed=0, steps=10),
        Cell(row="a", method="ftc", dataset="x", labels="5%", seed=0, steps=10),
        Cell(row="a", method="ftc", dataset="x", labels="2%", seed=1, steps=10),
        Cell(row="a", method="ftc", dataset="x", labels="2%", seed=0, steps=11),
        Cell(row="a", method="ftc", dataset="x", labels="2%", seed=0, steps=10, settings=("tau=0.9",)),
    ]
    assert len({cell.key("facts"), cell.key("other facts"), *(other.key("facts") for other in others)}) == 7


def test_a_grid_goes_seed_by_seed() -> None:
    cells = grid(Ask(labels=("2%", "5%"), seeds=(0, 1)), {"a": ("ftc", ()), "b": ("ftc", ("opr.layers=0",))})
    assert [(c.seed, c.labels, c.row) for c in cells[:5]] == [
        (0, "2%", "a"),
        (0, "2%", "b"),
        (0, "5%", "a"),
        (0, "5%", "b"),
        (1, "2%", "a"),
    ]
    assert cells[1].settings == ("opr.layers=0",)


def test_a_study_runs_what_is_missing_and_its_answer_is_the_same_again(ask: Ask, tmp_path: Path) -> None:
    said: list[str] = []
    run_study(_methods(ask, tmp_path), say=said.append)
    assert [text.strip() for text in said] == [
        "[1/2] supervised, 50% labels, seed 0",
        "[2/2] fixmatch, 50% labels, seed 0",
    ]
    first = (tmp_path / "methods" / "study.json").read_bytes(), (tmp_path / "methods" / "table.md").read_bytes()
    said.clear()
    run_study(_methods(ask, tmp_path), say=said.append)
    assert not said
    assert (
        (tmp_path / "methods" / "study.json").read_bytes(),
        (tmp_path / "methods" / "table.md").read_bytes(),
    ) == first
    results = json.loads(first[0])["results"]
    assert [r["row"] for r in results] == ["supervised", "fixmatch"]
    assert results[0]["split"] == results[1]["split"]
    assert "1 of 1 methods" in first[1].decode() or "0 of 1 methods" in first[1].decode()


def test_what_stopped_half_way_is_gone_on_with(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = planned(_methods(ask, tmp_path))
    assert [plan.done for plan in plans.runs] == [False, False]
    run_study(_methods(ask, tmp_path))
    whole = (tmp_path / "methods" / "study.json").read_bytes()
    for file in ("scores.json", "audit.json"):
        (plans.runs[1].run / file).unlink(missing_ok=True)
    started = []
    monkeypatch.setattr(api, "train", lambda *a, **k: started.append(a))
    run_study(_methods(ask, tmp_path))
    assert not started  # it was resumed
    changed, before = json.loads((tmp_path / "methods" / "study.json").read_bytes()), json.loads(whole)
    for told in (changed, before):
        for result in told["results"]:
            del result["seconds"]
    assert changed == before


def test_one_method_that_fails_does_not_cost_the_others(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = api.train

    def sometimes(*args: object, **kwargs: object) -> object:
        if kwargs["method"] == "supervised":
            raise UsageError("It cannot.")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "train", sometimes)
    run_study(_methods(ask, tmp_path))
    page = (tmp_path / "methods" / "table.md").read_text(encoding="utf-8")
    assert "Failed: supervised, 50% labels, seed 0: It cannot." in page
    assert "1 of 2 runs are missing." in page


# ---------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Inquiry:
    """A finished study of two runs on twenty frames; only to be read."""
    folder = tmp_path_factory.mktemp("whole")
    frames = api.simulate(folder / "frames", 20, size=(96, 64), workers=1)
    asked = Ask(
        datasets=(str(frames),),
        labels=("50%",),
        steps=STEPS,
        settings=(*TINY, "threads=1", "save_every=3", "evaluation.every=0"),
        only=("supervised", "fixmatch"),
    )
    inquiry = _methods(asked, folder)
    run_study(inquiry)
    return inquiry


def _elsewhere(whole: Inquiry, folder: Path) -> Inquiry:
    return replace(whole, place=Place(folder))


def _numbers(inquiry: Inquiry) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((inquiry.folder / "study.json").read_text())
    for result in told["results"]:
        del result["seconds"]
    return told


def test_a_run_that_another_process_trains_is_left_to_it(whole: Inquiry, tmp_path: Path) -> None:
    """The other one finishes it while we train the next."""
    inquiry, said = _elsewhere(whole, tmp_path), list[str]()
    theirs, theirs_done = planned(inquiry).runs[0].run, planned(whole).runs[0].run
    other = RunLock(theirs)
    other.__enter__()

    def next_begins() -> list[Listener]:
        shutil.copytree(theirs_done, theirs, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
        other.__exit__(None, None, None)
        return []

    run_study(inquiry, listeners=next_begins, say=said.append)
    assert f"in use by process {os.getpid()}" in said[0]
    assert said[0].strip().startswith("[1/2] supervised")
    assert [text.strip() for text in said[1:]] == ["[2/2] fixmatch, 50% labels of frames, seed 0"]
    assert _numbers(inquiry) == _numbers(whole)


def test_a_run_whose_process_gave_up_is_trained_after_all(whole: Inquiry, tmp_path: Path) -> None:
    inquiry, said = _elsewhere(whole, tmp_path), list[str]()
    other = RunLock(planned(inquiry).runs[0].run)
    other.__enter__()
    run_study(inquiry, listeners=lambda: other.__exit__(None, None, None) or [], say=said.append)
    assert [text.strip()[:5] for text in said] == ["[1/2]", "[2/2]", "[1/2]"]
    assert _numbers(inquiry) == _numbers(whole)


def test_a_run_begun_by_another_process_a_moment_ago_is_not_begun_again(
    whole: Inquiry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inquiry = _elsewhere(whole, tmp_path)
    [one, _] = planned(inquiry).runs
    done = planned(whole).runs[0].run

    def beaten(*_args: object, **_kwargs: object) -> None:
        shutil.copytree(done, one.run, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
        raise UsageError("already holds a run")

    monkeypatch.setattr(api, "train", beaten)
    run_cell(one, inquiry.place)
    assert one.done


def test_a_stop_ends_with_the_code_of_its_signal(
    whole: Inquiry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inquiry = _elsewhere(whole, tmp_path)
    monkeypatch.setattr(api, "train", lambda *_, **__: Outcome(tmp_path, finished=False, exit_code=143))
    with pytest.raises(StudyStopped) as stopped:
        run_study(inquiry)
    assert stopped.value.exit_code == 143


def test_where_a_begun_run_stands(whole: Inquiry, tmp_path: Path) -> None:
    assert planned(whole).runs[0].step == STEPS
    assert planned(_elsewhere(whole, tmp_path)).runs[0].step is None


def test_rows_of_one_run_are_run_once(whole: Inquiry, tmp_path: Path) -> None:
    study = STUDIES["methods"]

    def twice(ask: Ask) -> list[Cell]:
        return [replace(cell, row=row) for cell in study.plan(replace(ask, only=("supervised",))) for row in "ab"]

    ask = replace(whole.ask, steps=2, only=())
    inquiry, said = Inquiry("methods", replace(study, plan=twice), ask, Place(tmp_path)), list[str]()
    run_study(inquiry, say=said.append)
    assert len(said) == 1
    assert [r["row"] for r in _numbers(inquiry)["results"]] == ["a", "b"]


def test_killed_at_any_moment_a_study_ends_with_the_same_numbers(whole: Inquiry, tmp_path: Path) -> None:
    ask = whole.ask
    words = ["methods", "--dataset", *ask.datasets, "--labels", *ask.labels, "--budget", f"{ask.steps}steps"]
    words += [word for row in ask.only for word in ("--only", row)]
    words += [word for text in ask.settings for word in ("--set", text)]
    ended: list[bytes] = []
    for kill in (signal.SIGKILL, signal.SIGINT):
        command = [sys.executable, "-m", "ftcseg", "study", *words, "--out", str(tmp_path)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)  # its first line is the plan of a run
        assert process.stderr is not None
        process.stderr.readline()
        time.sleep(random.random() / 2)  # any moment will do
        process.send_signal(kill)
        ended.append(process.stderr.read())
        process.stderr.close()
        code = process.wait(60)
        assert code in (0, -kill, 128 + kill), ended[-1].decode()
    begun = {one.run: one.step for one in planned(_elsewhere(whole, tmp_path)).runs}
    assert any(step is not None for step in begun.values())
    inquiry, said = _elsewhere(whole, tmp_path), list[str]()
    finished = sum(one.done for one in planned(inquiry).runs)
    run_study(inquiry, say=said.append)
    assert len(said) == 2 - finished
    assert _numbers(inquiry) == _numbers(whole)


def test_the_demo_is_three_rows_of_the_study_of_methods() -> None:
    ask, told = STUDIES["methods"].defaults, inspect.signature(demo.demo).parameters
    assert ask == Ask(labels=(demo.LABELS,), steps=told["steps"].default, settings=demo.SETTINGS)
    assert told["images"].default == sets.FRAMES


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="methods"):
        find_study("method")
