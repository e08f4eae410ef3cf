"""What a fact sheet says about a named set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from ftcseg.types import ClassTable, MaskCoding, Part, Record

Layout: TypeAlias = Literal["images-masks", "voc", "cityscapes", "acdc"]


@dataclass(frozen=True, slots=True)
class Download:
    """The public archive of a set, proved by its own checksum or by the digest of what it holds."""

    url: str
    checksum: str | None = None
    """Of the archive: `sha256:…` or `md5:…`."""
    size: int | None = None
    subfolder: str | None = None
    """The folder in the archive that becomes the set's own; the rest is left out."""
    tree: str | None = None
    """`archives.tree_digest` of what was unpacked, for an archive that is packed anew whenever it is asked for."""
    tree_of: tuple[str, ...] = ()
    """The subfolders the digest covers; none means all."""


@dataclass(frozen=True, slots=True)
class LongTail:
    """A tail made on purpose: the commonest class gets `ratio` times the images of the rarest."""

    labeled: int
    unlabeled: int
    ratio: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The facts of one named set: how it is spelt, where it lies, how to get it, what is wrong with it."""

    name: str
    title: str
    classes: ClassTable
    coding: MaskCoding
    other_codings: tuple[tuple[str, MaskCoding], ...] = ()
    """(end of a mask's name, its coding) for sets that ship the same masks spelt in more than one way."""
    layout: Layout
    folders: tuple[str, ...]
    """Where it is looked for below the data root; the first is where a download goes."""
    marks: tuple[str, ...] = ()
    """Paths of which a folder holds at least one if it is this set; none where nobody here has seen it."""

    frames: int
    train: int
    val: int
    test: int = 0
    parts: str
    """Who decides which image is for training and which for validation."""
    part_of: Callable[[str], Part] | None = None
    """Image path -> part; None where the layout says it (lists or folders)."""
    long_tail: LongTail | None = None

    images: re.Pattern[str] | None = None
    """What the name of every image looks like; None where it cannot be told from other sets."""
    masks: re.Pattern[str] | None = None
    """The same for masks: a copy with converted masks is no longer spelt as this sheet says."""

    source: str
    """The web page."""
    licence: str
    cite: str
    obtain: str
    """One sentence: how to get it."""
    download: Download | None = None
    defects: tuple[str, ...] = ()
    mask_rows: Mapping[str, int] = field(default_factory=dict)
    """Stem -> the row of its too tall mask that lies on the first row of the image."""

    def assigned(self, records: Iterable[Record]) -> list[Record]:
        """The records, each in the part this set's official lists put it in."""
        if self.part_of is None:
            return list(records)
        return [replace(record, part=self.part_of(record.image)) for record in records]

    def coding_for(self, mask: str) -> MaskCoding:
        """How this mask file spells its classes."""
        return next((coding for ending, coding in self.other_codings if mask.endswith(ending)), self.coding)

    def looks_like(self, images: Iterable[str], masks: Iterable[str] = ()) -> bool:
        """Whether every file is named as in this set; folders do not matter, and no images at all are no set."""
        names = [PurePosixPath(image).name for image in images]
        if self.images is None or not names or not all(map(self.images.fullmatch, names)):
            return False
        return self.masks is None or all(self.masks.fullmatch(PurePosixPath(mask).name) for mask in masks)


def stored_ids(count: int, *ignored: int) -> MaskCoding:
    """Masks that store the class id itself, and some values that mean «unknown»."""
    return MaskCoding("ids", values={i: i for i in range(count)}, ignore=frozenset(ignored))
