"""One finished run's numbers."""

from __future__ import annotations

from dataclasses import dataclass
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
