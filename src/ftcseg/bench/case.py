"""What is to be measured, in plain values that travel to another process, and the frames it is measured on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ftcseg import api
from ftcseg.config.load import PRESETS, VARIANTS
from ftcseg.data import describe
from ftcseg.data.describe import Description
from ftcseg.data.simulate import SimParams, class_table
from ftcseg.errors import UsageError
from ftcseg.files import cache_folder
from ftcseg.methods import METHODS, offered
from ftcseg.nets.encoders.table import ENCODERS
from ftcseg.parallel import Progress, silent
from ftcseg.types import ClassTable, MaskCoding

SIZE = (154, 238)
"""Of views unless asked otherwise: a sonar frame of 320x480 at short side 160, in patches of 14."""
FRAMES, LABELS = 20, 8
"""Simulated frames, and how many of them count as labelled."""
ENLARGED = 2
"""Frames are that much larger than the views that are cut from them, as FLSMD's are."""
PLAIN = "plain"
"""What «--against» calls the step as a textbook writes it."""
_LEAST_FRAME = (96, 64)  # that can be simulated
_MOST_SIMULATED = 12  # classes there are shapes for, background included


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration whose step is timed."""

    method: str = "ftc"
    encoder: str | None = None
    """None is the preset's."""
    head: str | None = None
    """None is DPT for DINOv2 and the preset's for others."""
    size: tuple[int, int] | None = None
    """(height, width) of views; None is SIZE on simulated frames, and what training would choose on a set."""
    batch: tuple[int, int] = (4, 4)
    """Labelled and unlabelled images of a step."""
    settings: tuple[str, ...] = ()
    dataset: str | None = None
    """None is simulated frames."""
    root: str | None = None
    classes: int | None = None
    """Of the simulated frames; more than there are shapes for are named and stay absent."""
    seed: int = 0
    plain: bool = False
    """The step as a textbook writes it (plain_step.py)."""

    def overrides(self) -> list[str]:
        """The settings of the run whose step is taken. Weights are random: a step takes as long with any."""
        told = [f"seed={self.seed}", "model.weights=null", *_network(self.encoder, self.head)]
        told += [f"data.labeled_batch={self.batch[0]}", f"data.unlabeled_batch={self.batch[1]}"]
        if self.dataset is None or _is_embedded(self.dataset):
            told.append(f"data.labels={LABELS}")
        if self.size is not None:
            told += [f"data.crop=[{self.size[0]}, {self.size[1]}]", f"data.short_side={min(self.size)}"]
        return [*told, *self.settings]

    def as_json(self) -> dict[str, Any]:
        """Every value, plain. Frames of our own are no set of the user's: their place is nobody's business."""
        told = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}
        return told | ({"dataset": None} if self.dataset and _is_embedded(self.dataset) else {})


def from_json(values: Mapping[str, Any]) -> Case:
    """The case that these values were."""
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return Case(**plain)


def placed(case: Case, progress: Progress = silent) -> Case:
    """The same case on frames that exist: simulated ones are made once and kept with the other remembered things."""
    if case.dataset is not None:
        return case
    size = case.size or SIZE
    frame = (max(_LEAST_FRAME[0], ENLARGED * size[0]), max(_LEAST_FRAME[1], ENLARGED * size[1]))
    classes = 8 if case.classes is None else case.classes
    folder = _frames_folder() / f"{frame[0]}x{frame[1]}-{classes}-classes"
    if not (folder / "dataset.yaml").is_file():
        _simulate(folder, frame, classes, progress)
    return replace(case, dataset=str(folder), size=size)


def differing(case: Case, words: Sequence[str]) -> Case:
    """The case that «--against» names: another method, the plain step, or settings laid over the case's own."""
    for word in words:
        if "=" in word:
            case = replace(case, settings=(*case.settings, word))
        elif word == PLAIN:
            case = replace(case, plain=True)
        elif word in (*METHODS, *VARIANTS, *PRESETS, *offered()):
            case = replace(case, method=word)
        else:
            raise UsageError(
                f"{word!r} is nothing to compare with. Name a method («ftcseg methods» lists them), «{PLAIN}», or "
                "settings such as opr.layers=0."
            )
    return case


def parse_batch(text: str) -> tuple[int, int]:
    """`4+4` as (4, 4): labelled and unlabelled."""
    sides = text.split("+")
    if len(sides) != 2 or not all(side.strip().isdecimal() and int(side) > 0 for side in sides):
        raise UsageError(f"{text!r} is no batch. Write labelled and unlabelled images, such as 4+4.")
    return int(sides[0]), int(sides[1])


def _network(encoder: str | None, head: str | None) -> list[str]:
    told = [] if encoder is None else [f"model.encoder={encoder}"]
    info = ENCODERS.get(encoder or "")
    if head is None and info is not None and info.family == "dinov2":
        head = "dpt"  # the paper's; the CPU preset's fusion head is made for stages of different sizes
    return told if head is None else [*told, f"model.head={head}", "model.features=null"]


def _frames_folder() -> Path:
    return cache_folder() / "bench"


def _is_embedded(dataset: str) -> bool:
    return Path(dataset).is_relative_to(_frames_folder())


def _simulate(folder: Path, frame: tuple[int, int], classes: int, progress: Progress) -> None:
    """Frames with as many classes as there are shapes, and a description that may name more."""
    shown = min(classes, _MOST_SIMULATED)
    if classes < 2:
        raise UsageError(f"{classes} classes are no task. Ask for at least 2.")
    api.simulate(folder / "frames", FRAMES, classes=shown, size=frame, progress=progress)
    named = class_table(SimParams(classes=shown)).names
    table = ClassTable.named(*named, *(f"absent {number}" for number in range(shown, classes)))
    coding = MaskCoding("ids", values={c.id: c.id for c in table})
    root = folder / "frames"
    describe.save(Description("simulated", root, "images-masks", table, coding), folder / "dataset.yaml")
