"""A study's answer on disk."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ftcseg import studies
from ftcseg.cli import study as study_command
from ftcseg.studies import STUDIES, Study, drawing, methods, running
from ftcseg.studies.answering import Inquiry, Stand, command, draw_figures, write_answer
from ftcseg.studies.figures import Bars, Value
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.sets import Place
from ftcseg.studies.tables import Answer, Table

SCORES = {"miou": 0.4, "groups": {}, "classes": []}
TABLE = Table("t", ("row", "mIoU"), (("a", "40.0"),))


def _bars(name: str, value: float = 1.0) -> Bars:
    return Bars(name=name, title=f"Title of {name}", label="y", groups=("g",), series=(("s", (Value(value),)),))


def _inquiry(folder: Path, ask: Ask | None = None) -> Inquiry:
    study = Study(
        line="what helps",
        paper="",
        read=lambda _ask, _evidence: Answer(()),
        defaults=Ask(settings=("a=1",)),
        options={"kind": "speckle", "images": "40"},
    )
    return Inquiry("demo", study, ask or Ask(), Place(folder))


def _result(folder: Path, seed: int) -> Result:
    cell = Cell(row="a", method="ftc", dataset="embedded", labels="10%", seed=seed, steps=5)
    return Result(cell, f"key{seed}", SCORES, SCORES, None, f"split{seed}", 1.5, run=folder / "runs" / f"ftc-key{seed}")


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_answer_is_numbers_tables_figures_and_a_page_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inquiry, evidence = _inquiry(tmp_path), Evidence([_result(tmp_path, 0)], {"cost": {"fps": 3}})
    answer = Answer(("Found.",), (TABLE,), ("A remark.",), (_bars("x"),))
    stand = Stand(3, 2, ("b: it cannot",))
    write_answer(inquiry, evidence, answer, stand)
    first = _files(inquiry.folder)
    assert set(first) == {"study.json", "table.md", "table.tex", "index.html", "figures/x.svg", "figures/x.png"}
    drawn: list[object] = []
    monkeypatch.setattr(drawing, "canvas_of", drawn.append)
    write_answer(inquiry, evidence, answer, stand)
    assert _files(inquiry.folder) == first
    assert not drawn
    told = json.loads(first["study.json"])
    assert told["runs"] == {"planned": 3, "missing": 2, "failures": ["b: it cannot"]}
    assert told["tables"][0]["rows"] == [["a", "40.0"]]
    assert told["measured"] == {"cost": {"fps": 3}}
    assert [r["key"] for r in told["results"]] == ["key0"]
    page = first["table.md"].decode()
    assert "[![Title of x](figures/x.png)](figures/x.svg)" in page
    assert "- 2 of 3 runs are missing.\n- Failed: b: it cannot\n" in page
    assert "splits split0." in page


def test_figures_that_are_no_longer_part_of_the_answer_go(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    draw_figures([_bars("x"), _bars("y")], folder)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    draw_figures([_bars("y")], folder)
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "y.png", "y.svg"]
    (folder / "notes.txt").unlink()
    draw_figures([], folder)
    assert not folder.exists()
    draw_figures([], folder)


def test_runs_are_linked_where_they_have_a_page(tmp_path: Path) -> None:
    results = [_result(tmp_path, seed) for seed in (0, 1)]
    results[1].run.mkdir(parents=True)
    (results[1].run / "report.html").write_text("x", encoding="utf-8")
    inquiry = _inquiry(tmp_path)
    write_answer(inquiry, Evidence(results), Answer(("x",)), Stand(2, 0))
    text = (inquiry.folder / "index.html").read_text(encoding="utf-8")
    assert "<li>a, 10% labels, seed 0</li>" in text
    assert '<li><a href="../runs/ftc-key1/report.html">a, 10% labels, seed 1</a></li>' in text


@pytest.mark.parametrize(
    "ask",
    [
        Ask(settings=methods.DEFAULTS.settings),
        Ask(settings=(*methods.DEFAULTS.settings, "b=[1, 2]"), only=("ftc", "cps"), seeds=(0, 1)),
        Ask(datasets=("my sets/harbour", "b"), labels=("2%", "5%"), steps=700, settings=("log_every=10",)),
        Ask(settings=methods.DEFAULTS.settings, ftc="ftc-paper", options={"kind": "fog cloud", "images": "40"}),
    ],
)
def test_the_command_can_be_typed_as_it_is_written(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"kind": "speckle", "images": "40"} if ask.options else {}
    study = replace(STUDIES["methods"], options=options)
    asked: list[Inquiry] = []

    def note(inquiry: Inquiry, **_: object) -> Answer:
        asked.append(inquiry)
        return Answer(())

    monkeypatch.setattr(running, "run_study", note)
    monkeypatch.setattr(studies, "STUDIES", {"methods": study})
    words = shlex.split(command(Inquiry("methods", study, ask, Place(tmp_path))))
    assert words[:3] == ["ftcseg", "study", "methods"]
    app = typer.Typer()
    app.command(cls=study_command.Spread)(study_command.study)
    told = CliRunner().invoke(app, words[2:])
    assert told.exit_code == 0, told.output
    assert asked[0].ask == ask


def test_the_command_leaves_out_what_goes_without_saying(tmp_path: Path) -> None:
    told = command(_inquiry(tmp_path, Ask(seeds=(0, 1), settings=("a=1", "b=2"), only=("M1 labels only",))))
    assert told == (
        "ftcseg study demo --dataset embedded --labels 10% --seeds 0 1 --budget 200steps --only 'M1 labels only' "
        "--set b=2"
    )
