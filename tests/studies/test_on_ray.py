"""A study on a Ray of two workers: the same numbers as without, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from ftcseg import api
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, on_ray
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.on_ray import Cluster, Seen
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.running import PlannedRun, run_study
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
    ask = Ask(
        datasets=(str(frames),), labels=("50%",), steps=STEPS, settings=SETTINGS, only=("supervised", "fixmatch")
    )
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
