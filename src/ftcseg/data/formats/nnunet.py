"""nnU-Net's raw sets of pictures.

root/
  dataset.json                `labels`: {"background": 0, "rope": 1, "ignore": 2}, or the old {"0": "background"}
  imagesTr/case_0000.png      one file per case: the channels of a picture lie in one file
  labelsTr/case.png           a case without labels is unlabelled
  imagesTs/  labelsTs/        optional: the test part
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    Tally,
    class_table,
    found,
    id_coding,
    is_file,
    pair,
    stem,
    tell_pairing,
    walk,
)
from ftcseg.errors import LayoutError
from ftcseg.files import inside, read_json
from ftcseg.types import ClassTable, Found, MaskCoding, MaskFile, Part, Record

LAYOUT = "nnunet"
SPEC = "dataset.json"
FOLDERS: tuple[tuple[str, str, Part], ...] = (("imagesTr", "labelsTr", "train"), ("imagesTs", "labelsTs", "test"))
FIRST_CHANNEL, CHANNEL = "_0000", re.compile(r"_(?!0000)\d{4}$")


def can_read(root: Path) -> bool:
    """Whether there are training images, and labels or a description of them."""
    return (root / "imagesTr").is_dir() and (is_file(root / SPEC) or (root / "labelsTr").is_dir())


def records(root: Path) -> Found:
    """Every case, with the classes of dataset.json."""
    spec = read_json(inside(root, SPEC))
    labels = spec.get("labels") if isinstance(spec, dict) else None
    if not isinstance(labels, dict) or not labels:
        raise LayoutError(f"{SPEC} has no «labels».", remedy='Write {"labels": {"background": 0, "rope": 1}, ...}.')
    ending = str(spec.get("file_ending", ""))
    if ending and ending not in MASK_SUFFIXES:
        raise LayoutError(
            f"{SPEC} says that files end in {ending!r}; volumes are not read.",
            remedy="Save slices as PNG or TIFF pictures.",
        )
    classes, coding = _classes(labels)
    tally = Tally()
    listed = [r for images, masks, part in FOLDERS for r in _cases(root, images, masks, part, tally)]
    return replace(found(LAYOUT, root, listed, tally), classes=classes, coding=coding)


def _cases(root: Path, images: str, masks: str, part: Part, tally: Tally) -> list[Record]:
    if not (root / images).is_dir():
        return []
    listed = walk(root, images, IMAGE_SUFFIXES, tally)
    cases = [stem(image).removesuffix(FIRST_CHANNEL) for image in listed]
    firsts = {case for case, image in zip(cases, listed, strict=True) if stem(image) != case}
    if others := [image for image in listed if (name := stem(image)) not in firsts and CHANNEL.sub("", name) in firsts]:
        raise LayoutError(
            f"{others[0]} is a second channel file of its case; channels in several files are not supported.",
            remedy="Stack the channels of each case into one multi-channel TIFF, case_0000.tif.",
            kind="channel-files",
        )
    labels = walk(root, masks, MASK_SUFFIXES, tally) if (root / masks).is_dir() else []
    # `pair` drops a suffix, so each case gets one.
    pairing = pair([f"{case}." for case in cases], labels, images, masks)
    tell_pairing(listed, pairing, tally)
    return [
        Record(image, MaskFile(mask) if mask is not None else None, part)
        for image, mask in zip(listed, pairing.masks, strict=True)
    ]


def _classes(labels: dict[str, Any]) -> tuple[ClassTable, MaskCoding]:
    """Classes by value; «ignore» is none of them, and 0 is always the background."""
    names: dict[int, str] = {}
    for key, entry in labels.items():
        name, value = (entry, key) if isinstance(entry, str) else (key, entry)
        if isinstance(value, list):
            raise LayoutError(
                f"{SPEC}: {name[:80]!r} is a region, made of several labels; regions overlap and are not supported.",
                remedy="Give each stored value a name of its own.",
            )
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,5}", str(value)) or int(value) in names:
            raise LayoutError(
                f"{SPEC}: {name[:80]!r} has the label {str(value)[:80]!r}.",
                remedy="Labels are different whole numbers from 0 on.",
            )
        names[int(value)] = name
    ignore = {value for value, name in names.items() if name == "ignore"}
    table = class_table({value: name for value, name in names.items() if value not in ignore}, SPEC)
    table = ClassTable(tuple(replace(c, background=(c.values or (c.id,)) == (0,)) for c in table))
    return table, id_coding(table, ignore)
