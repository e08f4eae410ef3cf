"""One finished run's numbers, and many of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from ftcseg.data.split_files import read_split
from ftcseg.errors import unknown_name
from ftcseg.evaluate.metrics import mean as mean_of
from ftcseg.evaluate.metrics import share
from ftcseg.evaluate.per_image import COUNTS, PerImage, read_counts
from ftcseg.files import read_json
from ftcseg.studies.plan import Cell

Told = TypeVar("Told")

BACKGROUND, STUDENT = "background", "student"


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
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Class names by group: background, head, middle, tail."""
    run: Path = Path()
    """The run's folder; where it lies is not part of the result."""
    trained: float | None = None
    """Mean IoU at the end of the network that was trained: the student, where the first predictor is a teacher."""

    def miou(self, checkpoint: str = "last") -> float:
        """Mean IoU at the end or at its best."""
        return float(self._at(checkpoint)["miou"])

    def group(self, name: str) -> float | None:
        """Mean IoU of the head, middle or tail classes at the end."""
        value = self.last["groups"].get(name)
        return None if value is None else float(value)

    def iou(self, class_name: str, checkpoint: str = "last") -> float | None:
        """IoU of one class; None where it is neither there nor predicted."""
        return _number(self._class(class_name, checkpoint)["iou"])

    def precision(self, class_name: str, checkpoint: str = "last") -> float | None:
        """Of the pixels called so, the share that is; None where none is called so."""
        return _number(self._class(class_name, checkpoint)["precision"])

    def recall(self, class_name: str, checkpoint: str = "last") -> float | None:
        """Of the pixels that are, the share that is called so; None where none is."""
        return _number(self._class(class_name, checkpoint)["recall"])

    def group_precision(self, name: str, checkpoint: str = "last") -> float | None:
        """The mean precision of a group's classes, of those that have one."""
        return mean_of(self.precision(member, checkpoint) for member in self.members.get(name, ()))

    def group_recall(self, name: str, checkpoint: str = "last") -> float | None:
        """The mean recall of a group's classes, of those that have one."""
        return mean_of(self.recall(member, checkpoint) for member in self.members.get(name, ()))

    def rarest(self) -> str | None:
        """The foreground class with the fewest true pixels among the judged images, and at least one; ties by id."""
        hidden = self.members.get(BACKGROUND, ())
        there = [c for c in self.last["classes"] if c["pixels"] > 0 and c["name"] not in hidden]
        return str(min(there, key=lambda c: (c["pixels"], c["id"]))["name"]) if there else None

    def rate(
        self,
        kind: str,
        group: str = "global",
        by: Literal["truth", "prediction"] = "truth",
        mean: Literal["micro", "macro"] = "micro",
    ) -> float | None:
        """A rate of the pseudo-labels: accuracy, filtered, correct_kept or raw_accuracy, of a group or "global".

        None where the run has no audit, or where the group has no pixel to judge.
        """
        if self.audit is None:
            return None
        side: dict[str, dict[str, Any]] = self.audit[f"by_{by}"][mean]
        if group not in side:
            raise unknown_name("group", group, side)
        if kind not in side[group]:
            raise unknown_name("rate of pseudo-labels", kind, side[group])
        return _number(side[group][kind])

    def kept_miou(self) -> float | None:
        """Mean IoU of the pseudo-labels that were kept; None without an audit."""
        return None if self.audit is None else _number(self.audit["kept_miou"])

    def taught_wrong(self) -> float | None:
        """Of the object pixels in unlabelled images, the share that is kept under a wrong name; None without an audit.

        What is dropped teaches nothing; this teaches that an object is something else, mostly background.
        """
        if self.audit is None:
            return None
        hidden = self.members.get(BACKGROUND, ())
        objects = [c["counts"] for c in self.audit["by_truth"]["classes"] if c["name"] not in hidden]
        return share(sum(c["kept"] - c["correct_kept"] for c in objects), sum(c["pixels"] for c in objects))

    def counts(self, checkpoint: str = "last") -> PerImage | None:
        """What every judged image holds of each class, read when asked for; None where the run kept no counts."""
        file = self.run / COUNTS
        return read_counts(file, checkpoint) if file.is_file() else None

    def _at(self, checkpoint: str) -> dict[str, Any]:
        if checkpoint not in ("last", "best"):
            raise unknown_name("checkpoint", checkpoint, ("last", "best"))
        return self.last if checkpoint == "last" else self.best

    def _class(self, name: str, checkpoint: str) -> dict[str, Any]:
        classes: list[dict[str, Any]] = self._at(checkpoint)["classes"]
        for score in classes:
            if score["name"] == name:
                return score
        raise unknown_name("class", name, (score["name"] for score in classes))

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
            "trained": self.trained,
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
    ours: Sequence[Result], theirs: Sequence[Result], value: Callable[[Result], Told | None]
) -> tuple[list[Told], list[Told]]:
    """A value of both over the runs they share: same set, labels and seed. Runs without the value are left out."""
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
    return Result(
        cell=cell,
        key=key,
        last=last,
        best=best,
        audit=audit,
        split=split.digest()[:16],
        seconds=float(read_json(run / "run.json")["seconds"]),
        members=_members(run, scores),
        run=run,
        trained=_number(found["last"].get(STUDENT, last)["miou"]),
    )


def _members(run: Path, scores: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Class names by group, as the scores tell them; older runs wrote them into the model only."""
    told: list[str | None] | None = scores.get("groups")
    if told is None:
        classes = read_json(run / "model" / "config.json")["classes"]
        told = [c["group"] or (BACKGROUND if c["background"] else None) for c in classes]
    found: dict[str, tuple[str, ...]] = {}
    for name, group in zip(scores["classes"], told, strict=True):
        if group is not None:
            found[group] = (*found.get(group, ()), name)
    return found


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _place(result: Result) -> tuple[str, str, int]:
    return result.cell.dataset, result.cell.labels, result.cell.seed
