"""What the readers of annotation files share: images that no file lists, and classes that are known by name only."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    PART_NAMES,
    UNLABELLED_NAMES,
    VOID_NAMES,
    Tally,
    class_table,
    is_background,
    listed_classes,
    walk,
)
from ftcseg.errors import LayoutError
from ftcseg.types import ClassTable, Finding, Part, Record


def unlisted(root: Path, listed: Collection[str], tally: Tally) -> list[Record]:
    """Images that no file lists but that lie beside listed ones, or in a folder called unlabeled."""
    folders = {path.rpartition("/")[0] for path in listed}
    extra = []
    for image in walk(root, "", IMAGE_SUFFIXES, tally):
        folder = image.rpartition("/")[0]
        is_pile = not UNLABELLED_NAMES.isdisjoint(_words(folder))
        if image not in listed and (folder in folders or is_pile):
            extra.append(Record(image, None, "train" if is_pile else _part(folder)))
    if extra:
        detail = "Images that are not listed but lie beside listed ones are taken as unlabelled."
        remedy = "Nothing to do; move them away if they are not meant."
        tally.add(Finding("unlisted-image", extra[0].image, detail, remedy, len(extra), "note"))
    return extra


def classes_by_name(root: Path, labels: Collection[str], tally: Tally) -> ClassTable:
    """Background and the labels that were met, in the order of classes.txt or of the alphabet."""
    met = sorted(label for label in labels if label and not is_special(label))
    listed = listed_classes(root, tally)
    names = met if listed is None else [name for name in listed.names if not is_special(name)]
    if strangers := [label for label in met if label not in names]:
        raise LayoutError(
            f"The label {strangers[0]!r} is used, but the list of class names does not contain it.",
            remedy=f"Add it to the list ({', '.join(names[:10])}), or correct the label.",
            kind="unknown-value",
        )
    return class_table(dict(enumerate(["background", *names])), "the labels")


def is_special(label: str) -> bool:
    """Whether a label stands for background or for «unknown» rather than for a class of its own."""
    return is_background(label) or label.casefold() in VOID_NAMES


def _part(folder: str) -> Part:
    return next((PART_NAMES[word] for word in _words(folder) if word in PART_NAMES), "train")


def _words(folder: str) -> list[str]:
    """`images/train2017` as images, train: numbers and signs part words."""
    return re.split(r"[^a-z_]+|(?<=[a-z])(?=\d)", folder.casefold())
