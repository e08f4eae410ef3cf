"""A study on a Ray of two workers: the same numbers as without, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftcseg import api
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, on_ray
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.on_ray import Cluster, Seen, Task, Told
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.running import PlannedRun, StudyStopped, Work, run_study
from ftcseg.studies.sets import Place

TINY = ("model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32", "evaluation.audit=false")
STEPS = 24
SETTINGS = (*TINY, "threads=1", "save_every=3", "evaluation.every=0")


def _numbers(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "methods" / "study.json").read_text())
    for result in told["results"]:
        del result["seconds"]
    return told


def _kill_one(runs: Path, killed: list[tuple[str, int]], over: threading.Event) -> None:
    """Kill the process that trains the first run found between two checkpoints."""
    while not killed and not over.wait(0.01):
        for state in runs.glob("*/checkpoints/last/state.json"):
            run = state.parents[2]
            try:
                step, holder = json.loads(state.read_text())["clock"]["step"], json.loads((run / ".lock").read_text())
            except (OSError, ValueError):
                continue
            if 0 < step < STEPS - 6 and holder["pid"] != os.getpid():
                os.kill(holder["pid"], signal.SIGKILL)
                killed.append((run.name, step))
                return


@pytest.mark.filterwarnings("ignore")  # of a large library, about itself
def test_a_worker_is_killed_and_the_study_ends_whole_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra «ray» is not installed")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # other tests run at the same time
    frames = api.simulate(tmp_path / "frames", 20, size=(96, 64), workers=1)
    ask = Ask(datasets=(str(frames),), labels=("50%",), steps=STEPS, settings=SETTINGS, only=("supervised", "fixmatch"))
    inquiries = [Inquiry("methods", STUDIES["methods"], ask, Place(tmp_path / name)) for name in ("here", "there")]
    run_study(inquiries[0])
    killed: list[tuple[str, int]] = []
    said: list[str] = []
    over = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(tmp_path / "there" / "runs", killed, over))
    killer.start()
    try:
        run_study(inquiries[1], runner=on_ray.on_ray(Cluster(workers=2, cpus_per_run=1)), say=said.append)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 1
    [(name, step)] = killed
    log = (tmp_path / "there" / "runs" / name / "log.txt").read_text()
    assert f"of {STEPS}" in log  # it went on, and did not begin again
    assert any("from step" in line for line in said)
    assert step > 0
    assert _numbers(tmp_path / "there") == _numbers(tmp_path / "here")
    assert not list((tmp_path / "there").glob(".seen-*"))


# ---------------------------------------------------------------- without a cluster


def _run(name: str, folder: Path, method: str = "supervised") -> PlannedRun:
    cell = Cell(row=name, method=method, dataset="nowhere/", labels="50%", seed=0, steps=2)
    return PlannedRun(cell, name, folder / name)


class Pretended:
    """A Ray that answers at once with what it was told to, and notes what it was asked."""

    exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)

    def __init__(self, answers: dict[str, list[Told]]) -> None:
        self.answers, self.asked, self.cancelled = answers, list[str](), list[str]()
        self.most = 0

    def remote(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            self.options = options
            return self.remote
        return SimpleNamespace(remote=lambda task: f"{task.run.cell.row} {len(self.asked)}")

    def wait(self, refs: list[str], **_: Any) -> tuple[list[str], list[str]]:
        self.most = max(self.most, len(refs))
        return refs[:1], refs[1:]

    def get(self, ref: str) -> Told:
        row = ref.split()[0]
        self.asked.append(row)
        answer = self.answers[row].pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self, ref: str, *, force: bool) -> None:
        assert not force
        self.cancelled.append(ref.split()[0])


DONE, STOPPED = Told("north", 0, 1.0), Told("north", 3, 1.0, stopped=True)


def _ended(ray: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> list[tuple[str, str]]:
    monkeypatch.setattr(on_ray, "_connected", lambda *_: nullcontext(0))
    monkeypatch.setattr(on_ray, "_check_nodes", lambda *_: None)
    work = Work([_run(name, folder) for name in ray.answers], Place(folder), say=said.append)
    ended = on_ray._run_all(Cluster(workers=2), ray, work)
    return [(one.run.cell.row, one.failure) for one in ended]


def test_a_user_error_is_reported_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Pretended({"a": [replace(DONE, failure="No such set.")], "b": [DONE], "c": [DONE]})
    assert _ended(ray, tmp_path, monkeypatch, []) == [("a", "No such set."), ("b", ""), ("c", "")]
    assert ray.asked == ["a", "b", "c"]
    assert ray.most == 2  # workers
    assert (ray.options["max_retries"], ray.options["retry_exceptions"]) == (3, False)


def test_a_run_that_was_stopped_goes_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray, said = Pretended({"a": [STOPPED, replace(DONE, since=3)], "b": [DONE]}), list[str]()
    assert _ended(ray, tmp_path, monkeypatch, said) == [("b", ""), ("a", "")]
    assert "it goes on elsewhere" in said[0]
    assert said[-1].endswith("done on north in 1 s, from step 3 on")


def test_stopped_again_and_again_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Pretended({"a": [STOPPED] * 4})
    [(_, failure)] = _ended(ray, tmp_path, monkeypatch, [])
    assert failure == "it was stopped again and again"


def test_a_worker_lost_too_often_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: Any = RuntimeError("The worker died unexpectedly.\nMore words.")
    ended = dict(_ended(Pretended({"a": [lost], "b": [DONE]}), tmp_path, monkeypatch, []))
    assert "lost 4 times (The worker died unexpectedly.)" in ended["a"]
    assert ended["b"] == ""


def test_ctrl_c_interrupts_what_runs_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: Any = KeyboardInterrupt()
    ray = Pretended({"a": [DONE], "b": [interrupted], "c": [DONE]})
    with pytest.raises(StudyStopped):
        _ended(ray, tmp_path, monkeypatch, [])
    assert ray.cancelled == ["c"]


def test_a_worker_sends_back_what_the_user_can_mend(tmp_path: Path) -> None:
    task = Task(_run("a", tmp_path), Place(tmp_path), 1, str(Path.cwd()), None)
    told = on_ray.train_one(task)
    assert "nowhere" in told.failure
    assert not told.stopped


def test_machines_that_see_other_files_or_run_another_program_are_refused(tmp_path: Path) -> None:
    version = on_ray._version()
    (tmp_path / "seen").write_text("token")
    good = on_ray.look(str(tmp_path / "seen"), (str(tmp_path),))
    assert (good.text, good.version, good.unseen) == ("token", version, ())
    on_ray._judge(good, "token", tmp_path)
    assert on_ray.look(str(tmp_path / "unseen"), ("/not/there",)).unseen == ("/not/there",)
    for seen, told in (
        (Seen("north", None, version, ()), "does not see the study's folder"),
        (Seen("north", "another", version, ()), "choose --out on storage that they share"),
        (Seen("north", "token", version, ("/data",)), "does not see /data"),
        (Seen("north", "token", "ftcseg 0", ()), "Install the same on all"),
    ):
        with pytest.raises(UsageError, match=f"north.*{told}"):
            on_ray._judge(seen, "token", tmp_path)


def test_cores_are_shared_among_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "available_cores", lambda: 8)
    told = [
        (Cluster(), 1, 8),
        (Cluster(workers=2), 4, 8),
        (Cluster(workers=3), 2, 6),
        (Cluster(cpus_per_run=3), 3, 6),
        (Cluster(workers=16), 1, 16),
    ]
    for cluster, cpus, offered in told:
        assert (cluster.cpus, cluster.local_cpus) == (cpus, offered)
    assert Cluster(address="auto").cpus == 1
    with pytest.raises(UsageError, match="--cpus-per-run 0"):
        Cluster(cpus_per_run=0)


def test_without_ray_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"ftcseg\[ray\]"):
        on_ray.on_ray(Cluster())
