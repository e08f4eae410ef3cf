"""What a study asks for, and the runs and measurements it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ftcseg.data.drawing import Whole
from ftcseg.parallel import Progress, silent

EMBEDDED = "embedded"
"""The simulated sonar set that every study can run on without any data."""

Rows: TypeAlias = Mapping[str, tuple[str, tuple[str, ...]]]
"""By the name in the table: the method, and the settings of the row's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The question's frame: which data, how many labels, which seeds, how long, which rows."""

    datasets: tuple[str, ...] = (EMBEDDED,)
    labels: tuple[str, ...] = ("10%",)
    seeds: tuple[int, ...] = (0,)
    steps: int = 200
    settings: tuple[str, ...] = ()
    """`key=value` of every run."""
    only: tuple[str, ...] = ()
    """Names of rows; all of them where empty."""
    ftc: str = "ftc"
    """Which reading of FTC-Seg the rows that are FTC-Seg take: ftc, ftc-paper or ftc-released."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The study's own choices, such as the kind of corruption; `Study.options` says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is done to a set before a run sees it. The user's own files are never touched."""

    corrupt: str = ""
    """A kind of corruption, as in `ftcseg corrupt`; none where empty."""
    severity: int = 0
    parts: tuple[str, ...] = ("train",)
    """Parts whose images are corrupted; the others stay as they are."""
    long_tail: float | None = None
    """Images of the most and of the least frequent class, as a ratio, in the drawn lists."""
    by_sequence: Whole = False
    """Neighbouring frames stay on one side of the split."""
    val: str = ""
    """How much of the set is drawn anew to be judged by, such as 20%; where empty the set's own part judges."""


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
    prepared: Prepared | None = None

    def key(self, facts: str) -> str:
        """A hash of everything that determines the run; `facts` stands for the data, the program and its libraries."""
        told = {**asdict(self), "facts": facts}
        del told["row"]  # a name changes nothing
        if self.prepared is None:
            del told["prepared"]
        return digest(told)

    @property
    def title(self) -> str:
        """For people: what is running."""
        where = "" if self.dataset == EMBEDDED else f" of {Path(self.dataset).name}"
        return f"{self.row}, {self.labels} labels{where}, seed {self.seed}"


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What a measurement is given: finished runs, where a set is, and a folder of its own."""

    runs: tuple[Path, ...]
    source: str
    """The set: a folder or a name, with `root` to find it."""
    root: Path | None
    folder: Path
    """For pictures; the numbers are returned."""
    progress: Progress = silent
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Something that is measured on finished runs, or on a network that was never trained."""

    name: str
    """By which the study finds its numbers again; unique within the study."""
    take: Callable[[Bench], dict[str, Any]]
    """Returns plain numbers and words, ready for JSON. May write pictures into `Bench.folder`."""
    cells: tuple[Cell, ...] = ()
    """Runs it looks at; they must be among the study's cells."""
    dataset: str = EMBEDDED
    seed: int = 0
    """Of the simulated set, where that is the dataset."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else determines the numbers: they are taken anew when it changes."""


def digest(told: Mapping[str, Any]) -> str:
    """Sixteen letters that stand for all of this."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def grid(ask: Ask, rows: Rows, prepared: Prepared | None = None) -> list[Cell]:
    """Every row at every set, label amount and seed.

    Seeds go outermost, so that a study that is stopped early has whole tables of fewer seeds.
    """
    chosen = {row: rows[row] for row in rows if not ask.only or row in ask.only}
    return [
        Cell(
            row=row,
            method=method,
            dataset=dataset,
            labels=labels,
            seed=seed,
            steps=ask.steps,
            settings=(*ask.settings, *own),
            prepared=prepared,
        )
        for seed in ask.seeds
        for dataset in ask.datasets
        for labels in ask.labels
        for row, (method, own) in chosen.items()
    ]
