"""One finished run's numbers, and many of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftcseg.data.split_files import read_split
from ftcseg.files import read_json
from ftcseg.studies.plan import Cell


@dataclass(frozen=True, slots=True)
class Result:
    """A cell and what came of it. Scores are shares from 0 to 1; None where a class is absent."""

    cell: Cell
    key: str
    last: dict[str, Any]
    """Scores of the first predictor at the end: miou, groups, classes."""
    best: dict[str, Any]
    """The same of the checkpoint that scored best during training."""
    audit: dict[str, Any] | None
    split: str
    seconds: float

    def miou(self, checkpoint: str = "last") -> float:
        """Mean IoU at the end or at its best."""
        return float((self.last if checkpoint == "last" else self.best)["miou"])

    def group(self, name: str) -> float | None:
        """Mean IoU of the head, middle or tail classes at the end."""
        value = self.last["groups"].get(name)
        return None if value is None else float(value)

    def as_json(self) -> dict[str, Any]:
        """For study.json."""
        return {
            "row": self.cell.row,
            "method": self.cell.method,
            "dataset": self.cell.dataset,
            "labels": self.cell.labels,
            "seed": self.cell.seed,
            "steps": self.cell.steps,
            "settings": list(self.cell.settings),
            "key": self.key,
            "split": self.split,
            "seconds": self.seconds,
            "last": self.last,
            "best": self.best,
            "audit": self.audit,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a study has so far: finished runs, and measurements by name, with the folder of their pictures."""

    results: Sequence[Result]
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)

    def of(self, row: str, dataset: str | None = None, labels: str | None = None) -> list[Result]:
        """The runs of a row, in the order of their seeds; of one set and label amount where those are given."""
        found = [r for r in self.results if r.cell.row == row]
        found = [r for r in found if dataset is None or r.cell.dataset == dataset]
        return sorted((r for r in found if labels is None or r.cell.labels == labels), key=lambda r: r.cell.seed)

    def rows(self) -> list[str]:
        """Names of the rows that have runs, in the order of the plan."""
        return list(dict.fromkeys(r.cell.row for r in self.results))


def matched(
    ours: Sequence[Result], theirs: Sequence[Result], value: Callable[[Result], float | None]
) -> tuple[list[float], list[float]]:
    """A number of both over the runs they share: same set, labels and seed. Runs without the number are left out."""
    other = {_place(r): value(r) for r in theirs}
    pairs = [(value(r), other.get(_place(r))) for r in ours]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return [a for a, _ in both], [b for _, b in both]


def read_result(cell: Cell, key: str, run: Path) -> Result:
    """The numbers of a finished run folder."""
    scores = read_json(run / "scores.json")
    who = scores["predictor"]
    found = scores["checkpoints"]
    last = found["last"][who]
    best = found.get("best", found["last"])[who]
    audit = read_json(run / "audit.json") if (run / "audit.json").is_file() else None
    split, _ = read_split(run)
    return Result(cell, key, last, best, audit, split.digest()[:16], float(read_json(run / "run.json")["seconds"]))


def _place(result: Result) -> tuple[str, str, int]:
    return result.cell.dataset, result.cell.labels, result.cell.seed
