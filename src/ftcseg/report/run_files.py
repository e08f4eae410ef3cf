"""A run folder, read: what its files say, and a sentence for each that is missing or broken.

Runs are looked at while they still train and after they died, so that no file is trusted to be there, whole or of the
right shape. Whatever is not a finite number becomes None here, and n/a on the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from ftcseg.errors import DataError, UsageError
from ftcseg.files import parse_json, read_json, read_text, read_yaml
from ftcseg.types import GROUPS

Facts: TypeAlias = Mapping[str, Any]
"""A JSON object as it came; values are looked at with `number`, `numbers` and `mapping`."""

SUPERVISED = "supervised"
"""The method that learns from labels only: the line to beat, and one without pseudo-labels to report."""
UNREAD_SHOWN = 20
MAX_LOG_BYTES = 512 * 2**20
SHOWS = {
    "config.yaml": "the settings and their reasons",
    "split.json": "which images were labelled, and whether runs may be compared",
    "run.json": "the method, the time it took, versions and machine",
    "scores.json": "the scores of the checkpoints",
    "metrics.jsonl": "losses and scores over time",
    "pseudo.jsonl": "thresholds and kept pseudo-labels over time",
    "audit.json": "what the pseudo-labels were worth; «ftcseg audit RUN» writes it",
    "pictures/index.json": "pictures",
}
"""The files of a run and what each would show."""
_PSEUDO = ("pseudo.jsonl", "audit.json")
_REQUIRED = ("config.yaml", "scores.json")


Ends: TypeAlias = tuple[float, float] | None
"""Both ends of an interval, None where there is none."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which ends the scores lie, had other images or sequences been drawn; `share` of the draws do."""

    units: int
    share: float
    miou: Ends
    groups: Mapping[str, Ends]
    ious: tuple[Ends, ...]
    warning: str


@dataclass(frozen=True, slots=True)
class Score:
    """What one network of one checkpoint reached; shares between 0 and 1, None where there was nothing to judge."""

    checkpoint: str
    predictor: str
    miou: float | None
    groups: Mapping[str, float | None]
    ious: tuple[float | None, ...]
    pixel_accuracy: float | None
    ece: float | None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """By what was drawn anew: images, sequences."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its folder tells it. `name` is what the page calls it; no two runs of a page share one."""

    folder: Path
    name: str
    config: Facts  # dotted key -> value
    why: Facts  # dotted key -> reason
    split: Facts
    about: Facts  # run.json
    results: Facts  # scores.json
    model: Facts  # model/config.json
    audit: Facts
    pictures: tuple[Facts, ...]
    log: tuple[Facts, ...]  # metrics.jsonl by step
    pseudo: tuple[Facts, ...]  # pseudo.jsonl by step
    problems: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method's name, or "unknown"."""
        return str(self.about.get("method") or self.config.get("method") or "unknown")

    @property
    def learns_unlabeled(self) -> bool:
        """Whether there are pseudo-labels to speak of."""
        return self.method != SUPERVISED

    @property
    def split_hash(self) -> str | None:
        """Which images were labelled, as one number; None where nobody wrote it down."""
        digest = self.split.get("hash")
        return str(digest) if digest else None

    @property
    def scores(self) -> list[Score]:
        """Every judged network of every checkpoint; of each checkpoint the first is the one a user gets."""
        return [
            _score(checkpoint, predictor, mapping(facts))
            for checkpoint, predictors in mapping(self.results.get("checkpoints")).items()
            for predictor, facts in mapping(predictors).items()
        ]

    def score(self, checkpoint: str) -> Score | None:
        """The score of a checkpoint ("last", "best") that a user gets."""
        return next((s for s in self.scores if s.checkpoint == checkpoint), None)

    @property
    def last(self) -> Score | None:
        """The score that is compared: of the last checkpoint, which nobody picked."""
        return self.score("last")

    @property
    def classes(self) -> list[str]:
        """Class names by id, from whichever file knows them: scores, model, split."""
        names = self.results.get("classes")
        if isinstance(names, list) and names:
            return [str(mapping(n).get("name", n)) for n in names]
        known = mappings(self.model.get("classes")) or mappings(self.split.get("classes"))
        return [str(c.get("name", i)) for i, c in enumerate(known)]

    @property
    def groups(self) -> list[str | None]:
        """The group of each class id, from the scores or the model; None where neither says."""
        told = self.results.get("groups")
        listed = told if isinstance(told, list) else [c.get("group") for c in mappings(self.model.get("classes"))]
        padded = [*listed, *[None] * len(self.classes)]
        return [group if group in GROUPS else None for group in padded[: len(self.classes)]]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """All runs, each with a name of its own: what somebody called it, its method, its folder, its number."""
    runs = [read_run(folder) for folder in folders]
    names = [run.name for run in runs]
    named = [replace(r, name=f"{r.name} ({r.folder.resolve().name})") if names.count(r.name) > 1 else r for r in runs]
    again = [run.name for run in named]
    return [replace(r, name=f"{r.name} #{i + 1}") if again.count(r.name) > 1 else r for i, r in enumerate(named)]


def read_run(folder: Path) -> Run:
    """One run; UsageError where the folder is none."""
    if not any((folder / name).is_file() for name in _REQUIRED):
        raise UsageError(f"{folder} is no run: it holds neither {' nor '.join(_REQUIRED)}. «ftcseg train» makes one.")
    problems: list[str] = []
    config = mapping(_read(folder, "config.yaml", problems))
    about = mapping(_read(folder, "run.json", problems))
    settings = flat(mapping(config.get("config")))
    method = str(about.get("method") or settings.get("method") or "")
    return Run(
        folder=folder,
        name=_name(folder, about, method),
        config=settings,
        why=mapping(config.get("why")),
        split=mapping(_read(folder, "split.json", problems)),
        about=about,
        results=mapping(_read(folder, "scores.json", problems)),
        model=mapping(_read(folder, "model/config.json", problems, needed=False)),
        audit=mapping(_read(folder, "audit.json", problems, needed=method != SUPERVISED)),
        pictures=mappings(_read(folder, "pictures/index.json", problems)),
        log=_read_steps(folder, "metrics.jsonl", problems),
        pseudo=_read_steps(folder, "pseudo.jsonl", problems, needed=method != SUPERVISED),
        problems=tuple(problems),
    )


def number(value: object) -> float | None:
    """A finite number, or None for anything else; True is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond every float
        return None


def numbers(value: object) -> tuple[float | None, ...]:
    """The numbers of a list, switches counting as 0 and 1; nothing of anything else."""
    values = value if isinstance(value, list) else []
    return tuple(number(int(v)) if isinstance(v, bool) else number(v) for v in values)


def mapping(value: object) -> Facts:
    """A JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> tuple[Facts, ...]:
    """The JSON objects of a list."""
    return tuple(v for v in value if isinstance(v, dict)) if isinstance(value, list) else ()


def at(values: Sequence[float | None], place: int) -> float | None:
    """The value at a place, None beyond the end."""
    return values[place] if place < len(values) else None


def miou_in(entry: Facts) -> float | None:
    """The mIoU in a line of the log, of the first network, which is the one a user gets."""
    return number(_first_scores(entry).get("miou"))


def tail_miou_in(entry: Facts) -> float | None:
    """The same of tail classes."""
    return number(mapping(_first_scores(entry).get("groups")).get("tail"))


def flat(nested: Facts, above: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys: {"opr": {"count": 16}} is {"opr.count": 16}."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _first_scores(entry: Facts) -> Facts:
    return mapping(next(iter(mapping(entry.get("scores")).values()), None))


def _name(folder: Path, about: Facts, method: str) -> str:
    """A title somebody chose; the folder's own name says less than the method's."""
    title, place = about.get("title"), folder.resolve().name
    return str(title) if title and title != place else method or place


def _score(checkpoint: str, predictor: str, facts: Facts) -> Score:
    return Score(
        checkpoint=checkpoint,
        predictor=predictor,
        miou=number(facts.get("miou")),
        groups={str(group): number(value) for group, value in mapping(facts.get("groups")).items()},
        ious=tuple(number(c.get("iou")) for c in mappings(facts.get("classes"))),
        pixel_accuracy=number(facts.get("pixel_accuracy")),
        ece=number(facts.get("ece")),
        bounds={
            over: bounds
            for over, told in mapping(facts.get("intervals")).items()
            if (bounds := _bounds(mapping(told))) is not None
        },
    )


def _bounds(told: Facts) -> Bounds | None:
    units, share, classes = number(told.get("units")), number(told.get("share")), told.get("classes")
    if units is None or share is None:
        return None
    return Bounds(
        units=int(units),
        share=share,
        miou=_ends(told.get("miou")),
        groups={str(group): _ends(value) for group, value in mapping(told.get("groups")).items()},
        ious=tuple(map(_ends, classes)) if isinstance(classes, list) else (),
        warning=str(told.get("warning") or ""),
    )


def _ends(value: object) -> Ends:
    ends = numbers(value)
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None


def _read(folder: Path, name: str, problems: list[str], *, needed: bool = True) -> object:
    path = folder / name
    if not path.is_file():
        problems += [f"No {name}: it would show {SHOWS[name]}."] if needed else []
        return None
    try:
        return read_yaml(path) if path.suffix == ".yaml" else read_json(path)
    except DataError as error:
        problems.append(str(error))
        return None


def _read_steps(folder: Path, name: str, problems: list[str], *, needed: bool = True) -> tuple[Facts, ...]:
    """The lines of a log in the order of their steps; what a resumed run wrote again counts."""
    path = folder / name
    if not path.is_file():
        problems += [f"No {name}: it would show {SHOWS[name]}."] if needed else []
        return ()
    try:
        lines = read_text(path, MAX_LOG_BYTES).split("\n")
    except DataError as error:
        problems.append(str(error))
        return ()
    steps: dict[tuple[int, str], Facts] = {}
    broken = 0
    for line in filter(str.strip, lines):
        try:
            entry = mapping(parse_json(line))
        except ValueError:
            entry = {}
        step = number(entry.get("step"))
        if step is None:
            broken += 1
        else:
            steps[int(step), str(entry.get("kind", "scores" in entry))] = entry
    if broken:
        problems.append(f"{name}: {broken} of its lines could not be read and are left out.")
    problems += _mishaps(Counter(kind for _, kind in steps))
    problems += _unread(entry for (_, kind), entry in sorted(steps.items()) if kind == "unreadable")
    return tuple(steps[key] for key in sorted(steps))


def _unread(entries: Iterable[Facts]) -> list[str]:
    """The unlabelled images that could not be read in training."""
    lists = (entry.get("files") for entry in entries)
    names = [str(name) for files in lists if isinstance(files, list) for name in files]
    if not names:
        return []
    more = f" and {len(names) - UNREAD_SHOWN} more (metrics.jsonl lists them)" if len(names) > UNREAD_SHOWN else ""
    told = ", ".join(names[:UNREAD_SHOWN])
    return [f"{len(names)} unlabelled images could not be read, and others took their place: {told}{more}."]


def _mishaps(kinds: Mapping[str, int]) -> list[str]:
    """What the log says went wrong in training."""
    words = {
        "skipped": "steps were skipped because something in them was not finite.",
        "rolled back": "times the run went back to an earlier checkpoint because nothing finite came of it.",
    }
    return [f"{kinds[kind]} {text}" for kind, text in words.items() if kinds.get(kind)]
