"""The command line of studies: several values in a row, rows that are none, budgets, the plan."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ftcseg import api
from ftcseg.cli import study
from ftcseg.cli.study import plan_lines, spread
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, running
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.estimate import Cost, Line, Outlook
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.running import Planned, PlannedRun, one_by_one
from ftcseg.studies.tables import Answer

SEVERAL = ("--dataset", "--labels", "--seeds", "--only")
app = typer.Typer()
app.callback()(lambda: None)  # with one command alone typer would leave its name out
app.command("study", cls=study.Spread)(study.study)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Inquiry]:
    """What the command hands on, instead of running it."""
    found: list[Inquiry] = []

    def note(inquiry: Inquiry, **_: Any) -> Answer:
        found.append(inquiry)
        return Answer(("found",))

    monkeypatch.setattr(running, "run_study", note)
    return found


def _run(*words: str) -> Any:
    return CliRunner().invoke(app, ["study", *words])


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ("methods --seeds 0 1 2", "methods --seeds 0 --seeds 1 --seeds 2"),
        ("methods --seeds 0 1 --plan", "methods --seeds 0 --seeds 1 --plan"),
        ("methods --seeds=0 1", "methods --seeds=0 --seeds 1"),
        ("methods --seeds 0 --seeds 1", "methods --seeds 0 --seeds 1"),
        ("methods --seeds -1 0", "methods --seeds -1 --seeds 0"),
        ("methods --out x y", "methods --out x y"),
        ("--plan methods --only a b", "--plan methods --only a --only b"),
        ("methods --only a -- b", "methods --only a -- b"),
        ("methods --seeds --plan", "methods --seeds --plan"),
        ("methods --only=-x y", "methods --only=-x --only y"),
        ("", ""),
    ],
)
def test_the_option_is_repeated_before_each_of_its_values(given_: str, meant: str) -> None:
    assert spread(given_.split(), SEVERAL) == meant.split()


@given(
    st.lists(
        st.tuples(st.sampled_from(SEVERAL), st.lists(st.text("ab0%. ", min_size=1, max_size=4), min_size=1, max_size=3))
    )
)
def test_values_in_a_row_mean_what_repeated_options_mean(groups: list[tuple[str, list[str]]]) -> None:
    row = ["name", *(word for option, values in groups for word in (option, *values))]
    repeated = ["name", *(word for option, values in groups for value in values for word in (option, value))]
    assert spread(row, SEVERAL) == repeated
    assert spread(repeated, SEVERAL) == repeated


def test_the_command_takes_them_as_the_issue_writes_them(asked: list[Inquiry]) -> None:
    words = "methods --dataset a b --labels 2% 5% 10% --seeds 0 1 2 --budget 20steps --only ftc cps --set x=1 y=2"
    told = _run(*words.split())
    assert told.exit_code == 0, told.output
    ask = asked[0].ask
    assert (ask.datasets, ask.labels, ask.seeds) == (("a", "b"), ("2%", "5%", "10%"), (0, 1, 2))
    assert (ask.only, ask.steps, ask.settings) == (("ftc", "cps"), 20, ("x=1", "y=2"))


def test_a_value_said_twice_counts_once(asked: list[Inquiry]) -> None:
    _run("methods", "--seeds", "0", "0", "1", "--labels", "2%", "2.0%", "--only", "ftc", "ftc")
    assert (asked[0].ask.seeds, asked[0].ask.labels, asked[0].ask.only) == ((0, 1), ("2%",), ("ftc",))


def test_the_name_comes_first() -> None:
    told = _run("--only", "ftc", "methods")  # is «methods» a row or the study?
    assert isinstance(told.exception, UsageError)
    assert "ftcseg study NAME --only" in str(told.exception)


@pytest.mark.parametrize("seed", ["x", "1.5", "-1", "4294967296", "²"])
def test_a_seed_that_is_none_is_told(seed: str) -> None:
    told = _run("methods", "--seeds", "0", seed)
    assert isinstance(told.exception, UsageError)
    assert repr(seed) in str(told.exception)
    assert "--seeds 0 1 2" in str(told.exception)


def test_an_unknown_row_lists_the_rows() -> None:
    told = _run("methods", "--only", "supervised", "nonsense")
    assert isinstance(told.exception, UsageError)
    assert str(told.exception).startswith("This study has no row 'nonsense'. Its rows: ")
    assert "'supervised'" in str(told.exception)


def test_a_row_that_is_there_on_demand_only_may_be_asked_for(asked: list[Inquiry]) -> None:
    assert "semivl" not in {cell.row for cell in STUDIES["methods"].plan(Ask())}
    _run("methods", "--only", "semivl")
    assert asked[0].ask.only == ("semivl",)


@pytest.mark.parametrize("budget", ["soon", "-3steps", "1.5 steps", "steps", "20 hours", "400", "minutes"])
def test_a_budget_that_is_none_shows_the_three_forms(budget: str) -> None:
    told = _run("methods", "--budget", budget)
    assert isinstance(told.exception, UsageError)
    for form in ("400steps", "20minutes", "paper"):
        assert form in str(told.exception)


@pytest.mark.parametrize("words", ["--workers 2", "--address auto", "--cpus-per-run 1"])
def test_options_of_ray_need_ray(words: str) -> None:
    told = _run("methods", *words.split())
    assert isinstance(told.exception, UsageError)
    assert "--on ray" in str(told.exception)


def test_an_unknown_place_and_no_workers_at_all_are_told() -> None:
    assert isinstance(_run("methods", "--on", "moon").exception, UsageError)
    pytest.importorskip("ray", reason="the extra «ray» is not installed")
    assert isinstance(_run("methods", "--on", "ray", "--workers", "0").exception, UsageError)


def test_one_run_at_a_time_is_the_default() -> None:
    assert study._runner("here", None, None, None) is one_by_one


# ---------------------------------------------------------------- the plan


def _planned(row: str, folder: Path) -> PlannedRun:
    cell = Cell(row=row, method="ftc", dataset="embedded", labels="2%", seed=0, steps=10)
    return PlannedRun(cell, row, folder / row)


def test_the_plan_adds_up(tmp_path: Path) -> None:
    runs = [_planned(row, tmp_path) for row in ("a", "b", "c")]
    lines = [
        Line(runs[0], "done"),
        Line(runs[1], "begun at step 4", Cost(90.0, 50_000_000, "2 finished runs like it")),
        Line(runs[2], "missing", Cost(5400.0, 60_000_000, "steps timed now")),
    ]
    measure: Any = SimpleNamespace(measure=SimpleNamespace(name="flops"), done=False)
    told = plan_lines(Planned(runs, [measure]), Outlook(lines, copies=1_000_000_000, free=2_000_000_000))
    assert told[0].split() == ["done", "a,", "2%", "labels,", "seed", "0", "a"]
    assert "begun at step 4  b, 2% labels, seed 0" in told[1]
    assert "2 min" in told[1]
    assert "50 MB" in told[1]
    assert "1.5 h" in told[2]
    assert told[3] == "3 of 3 runs are missing."
    # 90 + 5400 s; a gigabyte of copies and 110 MB of runs
    assert told[4].startswith("Estimated time: 1.5 h, one run after the other (1 from 2 finished runs like it; 1 from")
    assert told[5] == "Estimated disk: 1.1 GB in all; 2.0 GB are free there."
    assert told[6] == "missing  measurement: flops"


def test_a_full_disk_is_told_before_anything_starts(tmp_path: Path) -> None:
    run = _planned("a", tmp_path)
    lines = [Line(run, "missing", Cost(1.0, 600, "x"))]
    # 600 bytes stay, and as many again while the newest is written beside the one it replaces.
    assert Outlook(lines, copies=0, free=1200).fits
    assert not Outlook(lines, copies=1, free=1200).fits
    assert any("will not fit" in line for line in plan_lines(Planned([run], []), Outlook(lines, 1, 1200)))


def test_rows_of_one_run_cost_it_once(tmp_path: Path) -> None:
    lines = [Line(_planned("a", tmp_path), "missing", Cost(1.0, 5, "x"))] * 2
    assert Outlook(lines, 0, 100).seconds == 1.0


def test_the_plan_of_a_new_study_trains_nothing_and_makes_no_run_folder(tmp_path: Path) -> None:
    frames = api.simulate(tmp_path / "frames", 12, size=(96, 64), workers=1)
    tiny = ["model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32"]
    words = ["methods", "--plan", "--only", "ftc", "supervised", "--budget", "5steps", "--labels", "50%"]
    told = _run(*words, "--dataset", str(frames), "--out", str(tmp_path / "out"), "--set", *tiny)
    assert told.exit_code == 0, told.exception
    lines = told.output.splitlines()
    assert lines[0].startswith("missing  supervised, 50% labels of frames, seed 0")
    assert lines[2] == "2 of 2 runs are missing."
    assert "2 from steps timed now" in lines[3]
    assert lines[4].startswith("Estimated disk: ")
    assert not (tmp_path / "out" / "runs").exists()
    assert (
        "2 from steps timed before"
        in _run(*words, "--dataset", str(frames), "--out", str(tmp_path / "out"), "--set", *tiny).output
    )
