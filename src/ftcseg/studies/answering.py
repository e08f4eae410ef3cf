"""A study's answer on disk: numbers, tables, figures and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ftcseg.files import write_json, write_text
from ftcseg.studies import Study
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.sets import Place
from ftcseg.studies.tables import Answer, latex, markdown


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
    """study.json, table.md and table.tex; figures and the page beside them."""
    folder = inquiry.folder
    notes = [f"{stand.missing} of {stand.runs} runs are missing."] if stand.missing else []
    notes += [f"Failed: {failure}" for failure in stand.failures]
    notes.append(recipe(inquiry, evidence.results))
    told = {
        "study": inquiry.name,
        "ask": asdict(inquiry.ask),
        "finding": answer.finding,
        "results": [r.as_json() for r in evidence.results],
        "measured": dict(evidence.measured),
    }
    write_json(folder / "study.json", told)
    write_text(folder / "table.md", markdown(answer, f"Study: {inquiry.name}", notes))
    write_text(folder / "table.tex", "\n".join(map(latex, answer.tables)))


def recipe(inquiry: Inquiry, results: Sequence[Result]) -> str:
    """The command that made it, and the splits it was made on."""
    study, ask = inquiry.study, inquiry.ask
    splits = ", ".join(dict.fromkeys(r.split for r in results)) or "none yet"
    words = [f"ftcseg study {inquiry.name}", "--dataset", *ask.datasets, "--labels", *ask.labels]
    words += ["--seeds", *map(str, ask.seeds), "--budget", f"{ask.steps}steps"]
    words += ["--only", *ask.only] if ask.only else []
    words += ["--ftc", ask.ftc] if ask.ftc != study.defaults.ftc else []
    words += [f"--option {key}={value}" for key, value in ask.options.items() if study.options.get(key) != value]
    words += [f"--set {text}" for text in ask.settings if text not in study.defaults.settings]
    return f"Made by `{' '.join(words)}`; splits {splits}."
