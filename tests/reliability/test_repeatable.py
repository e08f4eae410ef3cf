"""The same command twice gives the same bytes, whatever the run is called and however many processes load for it.

Everything is done here and in a process with another hash seed of Python, so that no order of a set passes for a rule.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from small_runs import Starter, settings
from typer.testing import CliRunner

from ftcseg import api
from ftcseg.cli import app

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "trials"))
from repeat import LEFT_OUT, RULES, Row, compare

Command: TypeAlias = Callable[..., None]
STEPS = 3
MAY_DIFFER = {*RULES, *LEFT_OUT}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repeat")


@pytest.fixture(scope="module")
def frames(place: Path) -> Path:
    """16 small frames of three classes."""
    return api.simulate(place / "sonar", 16, size=(96, 96), classes=3, imbalance=1.0, workers=1)


def here(*argv: object) -> None:
    """A command in this process, whose hash seed Python drew."""
    found = CliRunner().invoke(app, [str(word) for word in argv])
    assert found.exit_code == 0, found.output


@pytest.fixture(scope="module")
def there(place: Path) -> Iterator[Command]:
    """A command in another process, whose hash seed is 1."""
    (place / "there").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1")
        starter = Starter(place / "there")

    def run(*argv: object) -> None:
        assert starter.run(*argv) == 0, starter.said

    yield run
    starter.close()


@pytest.fixture(scope="module")
def runs(place: Path, frames: Path, there: Command) -> list[Path]:
    """The same run three times: with none, one and two loader processes, under other names in other places."""
    found = [place / "here" / "first", place / "elsewhere" / "much deeper" / "second", place / "here" / "third"]
    for workers, (run, command) in enumerate(zip(found, (here, there, here), strict=True)):
        told = settings("evaluation.every=2", f"data.workers={workers}")
        command("train", frames, "--labels", 6, "--steps", STEPS, "--out", run, *told)
    return found


def different(rows: list[Row]) -> dict[str, str]:
    return {row.file: row.told for row in rows if not row.same}


@pytest.mark.parametrize("other", [1, 2])
def test_name_place_hash_seed_and_loader_processes_change_no_byte(runs: list[Path], other: int) -> None:
    rows = compare(runs[0], runs[other])
    assert different(rows) == {}
    assert {row.file for row in rows if row.told != "same bytes"} <= MAY_DIFFER
    compared = {row.file for row in rows if row.told == "same bytes"}
    weights = {f"checkpoints/{name}/model.safetensors" for name in ("last", "best", "last_good")}
    assert weights | {"model/model.safetensors", "scores.json", "audit.json", "pseudo.jsonl", "split.json"} <= compared


def test_no_place_of_this_machine_gets_into_weights_or_scores(runs: list[Path], place: Path) -> None:
    # run.json says where the set lies, so that a run can be resumed; report.html shows the command.
    told = {
        path.relative_to(runs[0]).as_posix()
        for path in runs[0].rglob("*")
        if path.is_file() and str(place).encode() in path.read_bytes()
    }
    assert told == {"run.json", "report.html"}


def test_a_difference_is_found_and_told(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    lines[0]["timing"]["seconds"] += 1
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert different(compare(runs[0], copy)) == {}
    before, lines[0]["losses"]["loss"] = lines[0]["losses"]["loss"], 0.5
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    weights = load_file(copy / "model" / "model.safetensors")
    name = next(name for name, values in sorted(weights.items()) if values.dtype == np.float32 and values.ndim)
    weights[name].flat[0] += 2  # of whatever it was, the difference is 2
    save_file(weights, copy / "model" / "model.safetensors", {"format": "pt"})
    (copy / "test.txt").unlink()
    assert different(compare(runs[0], copy)) == {
        "metrics.jsonl": f"0/losses/loss: '{before}' and '0.5'",
        "model/model.safetensors": f"1 of {len(weights)} tensors differ, by up to 2, the first of them {name}",
        "test.txt": f"is not in {copy}",
    }


def test_predictions_and_splits_come_out_alike(runs: list[Path], frames: Path, place: Path, there: Command) -> None:
    for number, command in enumerate((here, there)):
        masks, split = place / f"masks-{number}", place / f"split-{number}"
        command("predict", runs[0], frames / "images", "--out", masks, "--workers", number + 1)
        command("split", frames, "--labels", 4, "--val", "20%", "--out", split)
    rows = [*compare(place / "masks-0", place / "masks-1"), *compare(place / "split-0", place / "split-1")]
    assert {row.told for row in rows} == {"same bytes"}
    assert len(rows) == 16 * 4 + 3 + 5  # four files an image, three about all of them; the lists and split.json


def test_a_study_answers_alike_from_the_same_runs(frames: Path, place: Path, there: Command) -> None:
    out, first = place / "studies", place / "first-answer"
    asked = ["study", "methods", "--dataset", frames, "--only", "supervised", "--labels", 6]
    asked += ["--seeds", 0, "--budget", "2steps", "--out", out, *settings("evaluation.every=0")]
    here(*asked)
    shutil.move(out / "methods", first)
    there(*asked)
    rows = compare(first, out / "methods")
    assert {row.told for row in rows} == {"same bytes"}
    assert {"index.html", "table.md", "study.json"} <= {row.file for row in rows}


def test_a_simulated_set_does_not_depend_on_how_many_simulate(frames: Path, place: Path) -> None:
    again = api.simulate(place / "again" / "sonar", 16, size=(96, 96), classes=3, imbalance=1.0, workers=2)
    rows = compare(frames, again)
    assert {row.told for row in rows} == {"same bytes"}
    assert len(rows) >= 32
