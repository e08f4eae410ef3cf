"""Pascal VOC, and CVAT's «Segmentation mask 1.1», which is VOC with a colour table of its own.

root/                                 or root/VOC2012, root/VOCdevkit/VOC2012
  JPEGImages/x.jpg
  SegmentationClass/x.png             VOC: palette indices 0-20, 255 unknown; CVAT: RGB
  ImageSets/Segmentation/val.txt      stems; also train, trainval, test, CVAT's default
  labelmap.txt                        CVAT: `name:r,g,b:parts:actions` a line

An image without a mask is unlabelled; one in no list is for training. VOC's class names are assumed only where files or
folder are named as in VOC: other sets borrow the layout.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ftcseg.data.files_found import (
    PART_NAMES,
    Section,
    Tally,
    color_coding,
    found,
    is_file,
    listed_classes,
    section_records,
    stem,
    subfolders,
    tell_missing,
    text_lines,
)
from ftcseg.data.sets import voc
from ftcseg.errors import LayoutError
from ftcseg.types import PARTS, ClassTable, Color, Found, MaskCoding, MaskFile, Part, Record

IMAGES, MASKS, LISTS, LABELMAP = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation", "labelmap.txt"
DEVKIT = "VOCdevkit"


def can_read(root: Path) -> bool:
    """Whether there are VOC's folders, or CVAT's table beside its masks."""
    return _home(root) is not None


def records(root: Path) -> Found:
    """Every image of JPEGImages, in the part that the lists give it."""
    home = _home(root)
    if home is None or not (root / home / IMAGES).is_dir():
        raise LayoutError(
            f"{root} holds masks in {MASKS}, but no images in {IMAGES}.",
            remedy="Export again with «Save images», or copy the images there.",
            kind="no-images",
        )
    tally = Tally()
    listed = section_records(root, Section(home + IMAGES, home + MASKS), tally)
    listed = _with_parts(root, home, listed, tally)
    if is_file(root / home / LABELMAP):
        classes, coding = _labelmap(root, home + LABELMAP)
        return replace(found("cvat-mask", root, listed, tally), classes=classes, coding=coding)
    own = listed_classes(root / home, tally)
    result = found("voc", root, listed, tally)
    if own is None and _is_voc(home, listed):
        return replace(result, classes=voc.SHEET.classes, coding=voc.SHEET.coding)
    return replace(result, classes=own)


def _home(root: Path) -> str | None:
    """The folder of VOC's folders, relative to the root; of several years the latest."""
    years = [f"{name}/" for name in subfolders(root).values() if _is_year(name)]
    years += [f"{DEVKIT}/{name}/" for name in subfolders(root / DEVKIT).values() if _is_year(name)]
    for home in ("", *sorted(years, reverse=True)):
        folder = root / home
        if (folder / MASKS).is_dir() and ((folder / IMAGES).is_dir() or is_file(folder / LABELMAP)):
            return home
    return None


def _is_year(name: str) -> bool:
    return re.fullmatch(r"VOC20\d\d", name) is not None


def _is_voc(home: str, records: list[Record]) -> bool:
    masks = [record.mask.path for record in records if isinstance(record.mask, MaskFile)]
    return _is_year(home.rstrip("/").rpartition("/")[2]) or voc.SHEET.looks_like([r.image for r in records], masks)


def _with_parts(root: Path, home: str, records: list[Record], tally: Tally) -> list[Record]:
    folder = root / home / LISTS
    sources = sorted(path.name for path in folder.glob("*.txt")) if folder.is_dir() else []
    stems = {stem(record.image).removeprefix(f"{home}{IMAGES}/"): i for i, record in enumerate(records)}
    parts: dict[int, Part] = {}
    # Held-out parts first: trainval.txt must not take back what val.txt has taken out.
    for name in sorted(sources, key=lambda name: -PARTS.index(_part(name))):
        source = f"{home}{LISTS}/{name}"
        for number, line in text_lines(root, source):
            if line in stems:
                parts.setdefault(stems[line], _part(name))
            else:
                tell_missing(root, line, source, f"Line {number}", tally)
    return [replace(record, part=parts.get(i, record.part)) for i, record in enumerate(records)]


def _part(name: str) -> Part:
    return PART_NAMES.get(stem(name).casefold(), "train")


def _labelmap(root: Path, source: str) -> tuple[ClassTable, MaskCoding]:
    entries: list[tuple[str, Color]] = []
    for number, line in text_lines(root, source):
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([^:]+):(\d{1,3}),(\d{1,3}),(\d{1,3})(:.*)?", line)
        if match is None or max(color := (int(match[2]), int(match[3]), int(match[4]))) > 255:
            raise LayoutError(
                f"{source}, line {number}: {line[:120]!r} is no «name:r,g,b:parts:actions».",
                remedy="Export it again, or mend the line.",
            )
        entries.append((match[1].strip(), color))
    return color_coding(entries, source)
