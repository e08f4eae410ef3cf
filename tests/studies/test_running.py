"""Studies run what is missing and nothing else."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ftcseg import api
from ftcseg.cli import app, demo
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, find_study, sets
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.plan import Ask, Cell, grid
from ftcseg.studies.running import planned, run_study
from ftcseg.studies.sets import Place

TINY = ("model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32", "evaluation.audit=false")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setattr(sets, "FRAMES", 20)
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


def test_the_command_plans_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "FRAMES", 20)
    told = CliRunner().invoke(
        app, ["study", "methods", "--plan", "--only", "ftc", "--budget", "5steps", "--out", str(tmp_path)]
    )
    assert told.exit_code == 0
    assert "missing  ftc, 10% labels, seed 0" in told.output
    assert "1 of 1 runs are missing." in told.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("budget", ["soon", "0steps", "-3steps", "1.5 steps"])
def test_a_budget_that_is_none_is_told(budget: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["study", "methods", "--plan", "--budget", budget, "--out", str(tmp_path)])
    assert isinstance(told.exception, UsageError)
    assert "400steps" in str(told.exception)


def test_the_demo_is_three_rows_of_the_study_of_methods() -> None:
    ask, told = STUDIES["methods"].defaults, inspect.signature(demo.demo).parameters
    assert ask == Ask(labels=(demo.LABELS,), steps=told["steps"].default, settings=demo.SETTINGS)
    assert told["images"].default == sets.FRAMES


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="methods"):
        find_study("method")
