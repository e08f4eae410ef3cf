"""A short run of every method of the table: it ends, its files agree with each other, and it can be looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import SMALL, lines_of

from ftcseg import api
from ftcseg.files import read_json
from ftcseg.inference import audit_run, evaluate_run
from ftcseg.methods import METHODS

STEPS = 5
RULES = {"cps": "flexmatch", "fixmatch": "freematch", "unimatch-v1": "atc"}
"""So that each rule has been through a checkpoint and an audit."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("methods-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("every") / "sonar", 15, size=(96, 96), classes=4, workers=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_and_its_files_agree(method: str, frames: Path, tmp_path: Path) -> None:
    rule = [f"thresholds={RULES[method]}"] if method in RULES else []
    told = [*SMALL, "model.head=fusion", "evaluation.every=0", "opr.layers=1", *rule]
    run = api.train(frames, method=method, labels=4, steps=STEPS, out=tmp_path / "run", settings=told).folder
    assert read_json(run / "run.json")["status"] == "done"
    trained = [line for line in lines_of(run) if line["kind"] == "train"]
    assert [line["step"] for line in trained] == list(range(1, STEPS + 1))
    assert (run / "report.html").is_file()
    scores = read_json(run / "scores.json")
    again = evaluate_run(run, frames, checkpoint="last")
    first = scores["predictor"]
    assert list(scores["checkpoints"]["last"]) == list(again["checkpoints"]["last"])
    assert again["miou"] == pytest.approx(scores["checkpoints"]["last"][first]["miou"])
    for who, found in again["checkpoints"]["last"].items():
        assert found["miou"] == pytest.approx(scores["checkpoints"]["last"][who]["miou"]), who
    assert (run / "audit.json").is_file() == (method != "supervised")
    if method != "supervised":
        audit, later = read_json(run / "audit.json"), audit_run(run)
        assert later["thresholds"] == audit["thresholds"]
        assert later["by_truth"] == audit["by_truth"]
