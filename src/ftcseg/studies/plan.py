"""What a study asks for, and the runs it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

EMBEDDED = "embedded"
"""The simulated sonar set that every study can run on without any data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The question's frame: which data, how many labels, which seeds, how long, which rows."""

    dataset: str = EMBEDDED
    labels: tuple[str, ...] = ("10%",)
    seeds: tuple[int, ...] = (0,)
    steps: int = 200
    settings: tuple[str, ...] = ()
    """`key=value` of every run."""
    only: tuple[str, ...] = ()
    """Names of rows; all of them where empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a study."""

    row: str
    """The name it goes by in the table."""
    method: str
    dataset: str
    labels: str
    seed: int
    steps: int
    settings: tuple[str, ...] = ()

    def key(self, facts: str) -> str:
        """A hash of everything that determines the run; `facts` stands for the data, the program and its libraries."""
        told = {**asdict(self), "facts": facts}
        del told["row"]  # a name changes nothing
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """For people: what is running."""
        return f"{self.row}, {self.labels} labels, seed {self.seed}"


def grid(ask: Ask, rows: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[Cell]:
    """Every row at every label amount and seed; a row is (method, settings of its own).

    Seeds go outermost, so that a study that is stopped early has whole tables of fewer seeds.
    """
    chosen = {row: rows[row] for row in rows if not ask.only or row in ask.only}
    return [
        Cell(
            row=row,
            method=method,
            dataset=ask.dataset,
            labels=labels,
            seed=seed,
            steps=ask.steps,
            settings=(*ask.settings, *own),
        )
        for seed in ask.seeds
        for labels in ask.labels
        for row, (method, own) in chosen.items()
    ]
