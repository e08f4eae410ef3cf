"""The nouns of the package. Shapes and meanings are written here once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ftcseg.errors import UsageError

if TYPE_CHECKING:  # the data layer must not pay for importing torch
    from torch import Tensor

IGNORE = -1
"""The class id of a pixel nobody knows. Class ids are int16, so every id from 0 to 32767 stays free for classes."""

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.float32]
"""(H, W, C) image at the depth of its file: uint8, uint16 or float32."""

Labels: TypeAlias = NDArray[np.int16]
"""(H, W) class ids, IGNORE where nobody knows."""

Part: TypeAlias = Literal["train", "val", "test"]
PARTS: tuple[Part, ...] = ("train", "val", "test")

Group: TypeAlias = Literal["background", "head", "middle", "tail"]
GROUPS: tuple[Group, ...] = ("background", "head", "middle", "tail")

Color: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class MaskFile:
    """A mask stored as one picture or array; `path` is relative to the set's root, with forward slashes."""

    path: str


@dataclass(frozen=True, slots=True)
class ClassFiles:
    """A mask stored as one on/off picture per class: (class id, path) pairs, later ones painted over earlier ones."""

    paths: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Shapes:
    """A mask drawn from an annotation file: polygons or run lengths. `kind` names the reader that draws it."""

    kind: str
    path: str
    key: str


MaskRef: TypeAlias = MaskFile | ClassFiles | Shapes


@dataclass(frozen=True, slots=True)
class Record:
    """One image of a set. Without a mask it is simply unlabelled. Paths are relative to the set's root."""

    image: str
    mask: MaskRef | None = None
    part: Part = "train"


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """One class. `values` and `colors` are how masks spell it; without any, its own id is its value."""

    id: int
    name: str
    values: tuple[int, ...] = ()
    colors: tuple[Color, ...] = ()
    background: bool = False
    group: Group | None = None
    prompts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassTable:
    """The classes of a set, ids 0..n-1 without holes."""

    classes: tuple[ClassInfo, ...]

    def __post_init__(self) -> None:
        if [c.id for c in self.classes] != list(range(len(self.classes))):
            ids = ", ".join(str(c.id) for c in self.classes)
            raise UsageError(
                f"Class ids must run from 0 without holes; these are {ids}. Use «values:» for other mask values."
            )

    @classmethod
    def named(cls, *names: str, background: int | None = 0) -> ClassTable:
        """`ClassTable.named("background", "bottle", "can")`; pass background=None where every class is foreground."""
        return cls(tuple(ClassInfo(i, name, background=i == background) for i, name in enumerate(names)))

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[ClassInfo]:
        return iter(self.classes)

    def __getitem__(self, class_id: int) -> ClassInfo:
        return self.classes[class_id]

    @property
    def names(self) -> list[str]:
        """Class names by id."""
        return [c.name for c in self.classes]

    @property
    def foreground(self) -> list[int]:
        """Ids of all classes that are not background."""
        return [c.id for c in self.classes if not c.background]


CodingKind: TypeAlias = Literal["ids", "colors", "bits", "drawn"]
Fit: TypeAlias = Literal["refuse", "crop-top", "crop-bottom", "crop-center", "resize"]


@dataclass(frozen=True, slots=True)
class MaskCoding:
    """How a mask's stored numbers become class ids.

    ids     stored integers, looked up in `values` (8-bit grey, palette index, 1-bit, 16-bit, npy)
    colors  RGB, looked up in `colors`, each channel allowed to be off by `tolerance`
    bits    RGB, each channel cut at 128 first (SUIM's impure colours), then looked up in `colors`
    drawn   class ids drawn from polygons, run lengths or one file per class; then looked up in `values`
    """

    kind: CodingKind
    values: Mapping[int, int] = field(default_factory=dict)
    """Stored integer -> class id. A stored integer in neither `values` nor `ignore` is an error."""
    colors: Mapping[Color, int] = field(default_factory=dict)
    tolerance: int = 0
    ignore: frozenset[int] = frozenset()
    """Stored integers that become IGNORE."""
    ignore_colors: frozenset[Color] = frozenset()
    fit: Fit = "refuse"
    """What to do with a mask of another size than its image; anything but refuse is the user's explicit choice."""


Severity: TypeAlias = Literal["note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing doctor noticed. `file` is one example, `count` how many files share it."""

    kind: str
    file: str
    detail: str
    remedy: str
    count: int = 1
    severity: Severity = "warning"


@dataclass(frozen=True, slots=True)
class Found:
    """What a format reader found under a root: its records, and whatever the format itself says about classes."""

    layout: str
    records: list[Record]
    classes: ClassTable | None = None
    coding: MaskCoding | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One image with its mask, decoded. `labels` is None for an unlabelled image."""

    id: str
    image: Pixels
    labels: Labels | None


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What a method asks to be shown."""

    unlabeled: bool = True
    strong: int = 1
    """Strong views of each unlabelled image, each with a box for CutMix."""
    cutmix: bool = True
    """Whether those boxes are drawn; they are empty otherwise."""
    partner: bool = False
    """Another crop of the same unlabelled image, in as many views."""
    filters: tuple[str, ...] = ()
    """Further views of each weak view, by their names in views/filters.py."""
    labeled_strong: bool = False
    """The labelled images look as strong views do, and come with boxes too."""
    labeled_partner: bool = False
    """A second draw of labelled images, to paste from."""
    paste: float = 0.0
    """Chance that an unlabelled image gets a labelled object, before its strong views are made of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Labeled:
    """Labelled images as the student sees them."""

    images: Tensor  # (B, C, H, W) float, normalised
    labels: Tensor  # (B, H, W) int64 class ids, IGNORE in padding and where nobody knows
    ids: tuple[str, ...]
    boxes: Tensor | None = None  # (B, H, W) bool, where ViewPlan.labeled_strong asks for them
    partner: Labeled | None = None  # where ViewPlan.labeled_partner asks for one


@dataclass(frozen=True, slots=True, eq=False)
class Unlabeled:
    """Unlabelled images in one weak and some strong views, all of the same geometry. There is no mask here, ever."""

    weak: Tensor  # (B, C, H, W) float, normalised
    strong: tuple[Tensor, ...]  # each (B, C, H, W)
    boxes: tuple[Tensor, ...]  # each (B, H, W) bool, one per strong view: True where CutMix pastes the partner
    valid: Tensor  # (B, H, W) bool, False in padding
    ids: tuple[str, ...]
    filtered: Mapping[str, Tensor] = field(default_factory=dict)  # ViewPlan.filters, each (B, C, H, W)
    partner: Unlabeled | None = None  # where ViewPlan.partner asks for one
    pasted: Tensor | None = None  # (B, H, W) int64, what ViewPlan.paste put into the strong views; IGNORE elsewhere


@dataclass(frozen=True, slots=True, eq=False)
class SemiBatch:
    """What one training step gets; `unlabeled` is None for methods that use labels only."""

    labeled: Labeled
    unlabeled: Unlabeled | None = None
    skipped: tuple[str, ...] = ()  # unlabelled files that could not be read and were replaced by the next in order

    @property
    def ids(self) -> tuple[str, ...]:
        """The files of this batch, for the report of a step that went wrong."""
        return self.labeled.ids + (self.unlabeled.ids if self.unlabeled is not None else ())


@dataclass(frozen=True, slots=True, eq=False)
class PseudoLabels:
    """A teacher's opinion of every pixel."""

    labels: Tensor  # (B, H, W) int64 class ids
    conf: Tensor  # (B, H, W) float, probability of that class
    valid: Tensor  # (B, H, W) bool, False in padding


@dataclass(frozen=True, slots=True, eq=False)
class PseudoCounts:
    """Pseudo-labelled pixels per predicted class in one step."""

    seen: Tensor  # (num_classes,) int64, all valid pixels
    kept: Tensor  # (num_classes,) int64, those the threshold let through
    conf: Tensor  # (num_classes,) float, sum of confidences over seen pixels


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """The loss to descend, its parts for the log, and what happened to the pseudo-labels."""

    loss: Tensor
    parts: Mapping[str, Tensor]
    pseudo: PseudoCounts | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """Where a run is. `step` counts finished updates; an epoch is one pass over the unlabelled images."""

    step: int = 0
    total: int = 1
    epoch_steps: int = 1

    @property
    def epoch(self) -> int:
        """The epoch the next step belongs to."""
        return self.step // self.epoch_steps

    @property
    def progress(self) -> float:
        """Share of the run that is done, 0 to 1."""
        return self.step / max(1, self.total)

    def tick(self) -> Clock:
        """One step later."""
        return replace(self, step=self.step + 1)
