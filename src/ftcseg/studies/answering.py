"""A study's answer on disk: numbers, tables, figures and a page. No dates: the same results give the same bytes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

import torch

from ftcseg import __version__
from ftcseg.files import write_json, write_text
from ftcseg.studies import Study
from ftcseg.studies.drawing import draw
from ftcseg.studies.figures import Figure
from ftcseg.studies.page import Story, study_page
from ftcseg.studies.plan import EMBEDDED, Ask
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.sets import Place
from ftcseg.studies.tables import Answer, Table, latex, markdown

FIGURES = "figures"
_DRAWN = (".svg", ".png")


@dataclass(frozen=True, slots=True)
class Stand:
    """How far a study is."""

    runs: int
    missing: int
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A study by its name, what is asked of it, and where."""

    name: str
    study: Study
    ask: Ask
    place: Place

    @property
    def folder(self) -> Path:
        """Of the answer."""
        return self.place.folder / self.name


def write_answer(inquiry: Inquiry, evidence: Evidence, answer: Answer, stand: Stand) -> None:
    """study.json, table.md, table.tex, figures/ and index.html; cheap enough for after every run."""
    folder = inquiry.folder
    story = _story(inquiry, evidence, stand)
    write_json(folder / "study.json", _numbers(inquiry, evidence, answer, stand))
    write_text(folder / "table.md", markdown(answer, f"Study: {inquiry.name}", _notes(inquiry, evidence, stand)))
    write_text(folder / "table.tex", "\n".join(map(latex, answer.tables)))
    draw_figures(answer.figures, folder / FIGURES)
    write_text(folder / "index.html", study_page(inquiry.name, answer, story, folder / FIGURES))


def draw_figures(figures: Sequence[Figure], folder: Path) -> None:
    """Draw what is new or changed, and remove what is no longer part of the answer."""
    names = [figure.name for figure in figures]
    assert len({name.casefold() for name in names}) == len(names), f"figures share a file: {names}"
    wanted = {path.name for figure in figures for path in draw(figure, folder)}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix in _DRAWN and path.name not in wanted:
            path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def recipe(inquiry: Inquiry, results: Sequence[Result]) -> str:
    """The command that made it, and the splits it was made on."""
    return f"Made by `{command(inquiry)}`; splits {_splits(results)}."


def command(inquiry: Inquiry) -> str:
    """What to type for the same answer."""
    study, ask = inquiry.study, inquiry.ask
    given = study.defaults.settings if ask.datasets == (EMBEDDED,) else ()  # other sets do without them
    told: dict[str, Sequence[object]] = {
        "--dataset": ask.datasets,
        "--labels": ask.labels,
        "--seeds": ask.seeds,
        "--budget": [f"{ask.steps}steps"],
        "--only": ask.only,
        "--ftc": [ask.ftc] if ask.ftc != study.defaults.ftc else [],
        "--option": [f"{key}={value}" for key, value in ask.options.items() if study.options.get(key) != value],
        "--set": [text for text in ask.settings if text not in given],
    }
    words = [word for option, values in told.items() if values for word in (option, *map(str, values))]
    return shlex.join(["ftcseg", "study", inquiry.name, *words])


def _notes(inquiry: Inquiry, evidence: Evidence, stand: Stand) -> list[str]:
    """What stands under the Markdown tables."""
    missing = [f"{stand.missing} of {stand.runs} runs are missing."] if stand.missing else []
    failed = [f"Failed: {failure}" for failure in stand.failures]
    return [*missing, *failed, recipe(inquiry, evidence.results), f"ftcseg {__version__}, torch {torch.__version__}."]


def _numbers(inquiry: Inquiry, evidence: Evidence, answer: Answer, stand: Stand) -> dict[str, Any]:
    """What study.json holds."""
    return {
        "study": inquiry.name,
        "ask": asdict(inquiry.ask),
        "command": command(inquiry),
        "versions": {"ftcseg": __version__, "torch": str(torch.__version__)},
        "runs": {"planned": stand.runs, "missing": stand.missing, "failures": list(stand.failures)},
        "finding": answer.finding,
        "tables": [_table(table) for table in answer.tables],
        "remarks": answer.remarks,
        "figures": [figure.name for figure in answer.figures],
        "results": [r.as_json() for r in evidence.results],
        "measured": dict(evidence.measured),
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "headings": table.headings,
        "rows": table.rows,
        "paper_columns": sorted(table.paper),
        "best": sorted(table.best),
        "second": sorted(table.second),
    }


def _story(inquiry: Inquiry, evidence: Evidence, stand: Stand) -> Story:
    ask, results = inquiry.ask, evidence.results
    facts = [
        ("data", ", ".join(PurePath(dataset).name for dataset in ask.datasets)),
        ("seeds", ", ".join(map(str, ask.seeds))),
        ("steps of a run", f"{ask.steps:,}"),
        ("splits", _splits(results)),
        ("versions", f"ftcseg {__version__}, torch {torch.__version__}"),
    ]
    return Story(
        question=inquiry.study.line,
        paper=inquiry.study.paper,
        command=command(inquiry),
        facts=facts,
        runs=[(result.cell.title, _report(inquiry, result)) for result in results],
        planned=stand.runs,
        missing=stand.missing,
        failures=stand.failures,
    )


def _report(inquiry: Inquiry, result: Result) -> str | None:
    """The address of a run's own page, as seen from the answer; None where there is none."""
    file = result.run / "report.html"
    return PurePath(os.path.relpath(file, inquiry.folder)).as_posix() if file.is_file() else None


def _splits(results: Sequence[Result]) -> str:
    return ", ".join(dict.fromkeys(r.split for r in results)) or "none yet"
