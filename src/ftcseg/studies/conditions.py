"""Noise and long tail apart and together: what a fixed threshold drops of each class in a 2x2 of conditions.

One network that is finished, one threshold. The long-tailed list is the run's own unlabelled images; the balanced one
is drawn from it by cutting head classes down to the tail (readings D3 and D4); each is shown as it is and corrupted,
with the same masks. I = CL - OL - CB + OB is what both drop together beyond what each drops alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftcseg.config.load import VARIANTS
from ftcseg.data.drawing import candidates_of
from ftcseg.data.split import LEVELS, Balance, balance
from ftcseg.errors import FtcsegError, UsageError, unknown_name
from ftcseg.evaluate.bootstrap import Interval, bootstrap_statistic
from ftcseg.evaluate.filtering import (
    BY,
    CELLS,
    LISTS,
    PIXELS,
    Condition,
    Filtered,
    filtered_pixels,
    filtered_rate,
    interaction,
)
from ftcseg.evaluate.run import chosen
from ftcseg.methods import find_method
from ftcseg.studies.finished import FinishedRun, open_run
from ftcseg.studies.paper_main import paper_set
from ftcseg.studies.plan import Ask, Bench, Cell, Measure, Rows, grid
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, calibration_rows
from ftcseg.studies.statistics import Summary, summary
from ftcseg.views.corrupt import KINDS, SEVERITIES

CHOICES: Mapping[str, str] = {
    "method": "m2",  # the baseline of M1 to M5, or a method's name such as unimatch-v2
    "balance": "image",
    "tau": "0.95",
    "images": "all",  # or so many, evenly through the list
    "kind": "speckle",
    "severity": "5",
    "kinds": "speckle,scattering,fog",
}
"""The options of the studies of these conditions, with their defaults."""
PAPER: Mapping[tuple[str, str], tuple[float, float, float]] = {
    ("flsmd", "speckle"): (0.89, 1.83, 2.92),
    ("suim", "scattering"): (1.04, 1.56, 1.22),
    ("acdc-driving", "fog"): (-0.11, 1.55, 2.23),
}
"""The paper's I in points at LEVELS_SHOWN, by set and corruption."""
LEVELS_SHOWN = (1, 3, 5)
"""Severities of the paper's mild, medium and severe."""
RANGE = "+1.2 to +2.9"
"""Of the paper's three sets, in points; it is the range of its severe column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options that measurements depend on."""

    balance: str
    tau: float
    images: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Square:
    """The four conditions of one network: pixels of every group and class, and of the tail in every image."""

    tail: Mapping[str, NDArray[np.int64]]  # by truth and by prediction: (images, 4, 2), cells in the order of CELLS
    classes: Mapping[str, NDArray[np.int64]]  # by truth and by prediction: (classes, 4, 2)
    names: tuple[str, ...]
    groups: tuple[str, ...]
    sequences: tuple[int, ...]
    about: Mapping[str, Any]
    """How the balanced list came out."""

    def rates(self, group: str, by: str = "truth") -> dict[str, float | None]:
        """The filtered rate of a group in each cell, all its pixels together."""
        members = [i for i, own in enumerate(self.groups) if own == group]
        total = self.classes[by][members].sum(axis=0)
        return {cell: filtered_rate(total[i]) for i, cell in enumerate(CELLS)}

    def together(self, group: str = "tail", by: str = "truth") -> float | None:
        """I of a group."""
        members = [i for i, own in enumerate(self.groups) if own == group]
        return _formed(self.classes[by][members].sum(axis=0))

    def class_rate(self, class_id: int, cell: str) -> float | None:
        """The filtered rate of a class by truth."""
        return filtered_rate(self.classes["truth"][class_id, CELLS.index(cell)])

    def class_together(self, class_id: int) -> float | None:
        """I of a class by truth."""
        return _formed(self.classes["truth"][class_id])

    def interval(self, by: str = "truth", *, over_sequences: bool = False) -> Interval | None:
        """I of the tail with its interval over images or over sequences."""
        return bootstrap_statistic(self.tail[by], interaction, self.sequences if over_sequences else None)


# ---------------------------------------------------------------- plan


def plan(ask: Ask) -> list[Cell]:
    """One network per set, label amount and seed."""
    return grid(ask, rows(ask))


def rows(ask: Ask) -> Rows:
    """The network whose pseudo-labels are looked at."""
    name = option(ask, "method")
    if name.casefold() == "m2":
        return {BASELINE: calibration_rows(ask)[BASELINE]}
    find_method(VARIANTS.get(name, name), also=("m2", *VARIANTS))
    return {name: (name, ())}


def choices(ask: Ask) -> Choices:
    """The options, checked before anything is trained."""
    level, text, count = option(ask, "balance"), option(ask, "tau"), option(ask, "images")
    if level not in LEVELS:
        raise unknown_name("level of balance", level, LEVELS)
    try:
        tau = float(text)
    except ValueError:
        tau = -1.0
    if not 0 <= tau <= 1:
        raise UsageError(f"A threshold of {text!r} has no meaning. Give a confidence from 0 to 1, such as 0.95.")
    return Choices(balance=level, tau=tau, images=None if count == "all" else whole(ask, "images"))


def option(ask: Ask, key: str) -> str:
    """What was chosen, or the default."""
    return ask.options.get(key, CHOICES[key])


def whole(ask: Ask, key: str) -> int:
    """An option that counts something."""
    text = option(ask, key)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--option {key}={text} is no number of at least 1.")
    return int(text)


def condition_measure(cell: Cell, told: Choices, kind: str, severity: int) -> Measure:
    """What is dropped in one condition, whichever study asks: the images as they are belong to every kind."""
    if kind and kind not in KINDS:
        raise unknown_name("corruption", kind, KINDS)
    if kind and severity not in SEVERITIES:
        raise UsageError(
            f"There is no severity {severity}. Choose {SEVERITIES[0]} (mild) to {SEVERITIES[-1]} (severe)."
        )
    said = {"balance": told.balance, "tau": told.tau, "images": told.images, "kind": kind, "severity": severity}
    return Measure(
        name=measure_name(cell, kind, severity),
        take=partial(take, told=told, condition=Condition(kind=kind, severity=severity, seed=cell.seed)),
        cells=(cell,),
        dataset=cell.dataset,
        seed=cell.seed,
        told=said,
    )


def measure_name(cell: Cell, kind: str, severity: int) -> str:
    """Unique among the cells of a study, and the same in every study."""
    return f"filtered {kind or 'original'} {severity} {cell.key('')[:8]}"


# ---------------------------------------------------------------- measure


def take(bench: Bench, *, told: Choices, condition: Condition) -> dict[str, Any]:
    """Pixels and dropped pixels of one condition, from both lists."""
    run = open_run(bench.runs[0], bench.source, bench.root)
    images = chosen(run.unlabeled(), told.images)
    names = {record.image for record in images.records}
    candidates = [c for c in candidates_of(run.examination, redraw_val=False)[0] if c.id in names]
    images = images.only([c.id for c in candidates])  # without those whose masks cannot be used
    cut = balance(candidates, run.groups, condition.seed, level=told.balance)
    found = filtered_pixels(
        run.labeler(),
        images,
        cut,
        run.spec,
        condition,
        tau=told.tau,
        stop=bench.stop,
        progress=bench.progress,
    )
    if found is None:
        raise FtcsegError("The measurement was stopped; the same command takes it again.")
    return as_json(run, found, cut)


def as_json(run: FinishedRun, found: Filtered, cut: Balance) -> dict[str, Any]:
    """The counts as plain numbers: classes in total, and the tail image by image."""
    tail = [c for c, group in run.groups.items() if group == "tail"]
    classes, sequences = run.spec.classes, run.sequences()
    known = list(dict.fromkeys(sequences[name] for name in found.names))
    place = {name: i for i, name in enumerate(known)}
    kept = {candidate.id for candidate in cut.kept}
    with_tail = [name for i, name in enumerate(found.names) if found.counts[0, i, 0][tail, PIXELS].sum()]
    return {
        "classes": [{"name": c.name, "group": run.groups.get(c.id, "")} for c in classes],
        "sequences": [place[sequences[name]] for name in found.names],
        "totals": {
            by: {of: found.counts[i, :, side].sum(axis=0).tolist() for i, of in enumerate(LISTS)}
            for side, by in enumerate(BY)
        },
        "tail": {
            by: {of: found.counts[i, :, side][:, tail].sum(axis=1).tolist() for i, of in enumerate(LISTS)}
            for side, by in enumerate(BY)
        },
        "balance": {
            "images": len(found.names),
            "kept": len(kept),
            "with_tail": len(with_tail),
            "with_tail_kept": sum(name in kept for name in with_tail),
            "reached": {classes[c].name: multiple for c, multiple in cut.reached.items()},
            "missed": [classes[c].name for c in cut.missed],
        },
    }


def square(original: Mapping[str, Any], corrupted: Mapping[str, Any]) -> Square:
    """Two measurements of one network as the four conditions."""

    def cells(what: str, by: str) -> NDArray[np.int64]:
        found = [told[what][by][of] for told in (original, corrupted) for of in ("balanced", "long")]
        return np.stack([np.asarray(counts, dtype=np.int64) for counts in found], axis=1)

    return Square(
        tail={by: cells("tail", by) for by in BY},
        classes={by: cells("totals", by) for by in BY},
        names=tuple(c["name"] for c in original["classes"]),
        groups=tuple(c["group"] for c in original["classes"]),
        sequences=tuple(original["sequences"]),
        about=original["balance"],
    )


def squares(ask: Ask, evidence: Evidence, dataset: str, labels: str, kind: str, severity: int) -> dict[int, Square]:
    """The finished squares of one set and label amount, by seed."""
    found = {}
    for cell in plan(ask):
        names = (measure_name(cell, "", 0), measure_name(cell, kind, severity))
        if (cell.dataset, cell.labels) == (dataset, labels) and all(name in evidence.measured for name in names):
            found[cell.seed] = square(*(evidence.measured[name] for name in names))
    return found


# ---------------------------------------------------------------- read


def paper_value(dataset: str, kind: str, severity: int) -> float | None:
    """What the paper prints of this set, corruption and severity, in points."""
    told = PAPER.get((paper_set(dataset) or "", kind))
    return told[LEVELS_SHOWN.index(severity)] if told is not None and severity in LEVELS_SHOWN else None


def over(found: Mapping[int, Square], value: Callable[[Square], float | None]) -> Summary | None:
    """A number over the squares' seeds; None where none has it."""
    values = [number for one in found.values() if (number := value(one)) is not None]
    return summary(values) if values else None


def span(found: Interval | None, scale: float = 100.0) -> str:
    """«-0.3 to +1.2»."""
    return "n/a" if found is None else f"{scale * found.low:+.2f} to {scale * found.high:+.2f}"


def list_remarks(found: Mapping[int, Square], level: str) -> list[str]:
    """What the two lists leave to be seen at all."""
    about = next(iter(found.values())).about
    kept = f"{about['with_tail_kept']} of {about['with_tail']} images with tail pixels"
    remarks = [
        f"The balanced list holds {about['kept']} of {about['images']} images and {kept}. By truth, a tail class's "
        "rate differs between the lists only through the tail images left out: network and masks are the same."
    ]
    if level == "pixel":
        remarks.append(
            "At the pixel level every tail pixel stays in both lists, so that by truth I is 0 by construction; by "
            "prediction it need not be."
        )
    if about["missed"]:
        remarks.append(
            f"Head classes that could not be brought to the tail's frequency: {', '.join(about['missed'])}; further "
            "cuts would lose a class or widen the gap."
        )
    return remarks


def _formed(cells: NDArray[np.int64]) -> float | None:
    value = float(interaction(cells[None].astype(np.float64))[0])
    return None if np.isnan(value) else value
