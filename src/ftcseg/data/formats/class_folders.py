"""One folder of on/off masks for each class.

root/
  images/x.jpg
  masks/diver/x.png  masks/wreck/x.png   one picture per class; a class that is absent needs none
  classes.txt                            optional: the order of the classes

Folders may be named and split into parts as for images-masks. Where masks/ holds combined masks as well, as SUIM does,
those are read instead, and that is images-masks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    PART_NAMES,
    UNLABELLED_NAMES,
    Section,
    Tally,
    files_in,
    found,
    holds,
    is_background,
    is_file,
    listed_classes,
    pair,
    section_images,
    sections,
    stem,
    subfolders,
    tell_oracle,
    tell_pairing,
    walk,
    with_listed_parts,
    without_ending,
    without_folder,
)
from ftcseg.data.shapes import drawn_coding
from ftcseg.errors import LayoutError
from ftcseg.types import ClassFiles, ClassTable, Found, Part, Record

LAYOUT = "class-folders"
GLANCE = 20  # masks of a folder that can_read looks at before it decides

_Pictures = list[tuple[str, str]]
"""(class name, path of its picture)."""


def can_read(root: Path) -> bool:
    """Whether masks lie in folders that are not folders of images, and only there."""
    masked = [section for section in sections(root) if section.masks is not None]
    return any(_has_class_folders(root, s) for s in masked) and not any(_has_combined(root, s) for s in masked)


def records(root: Path) -> Found:
    """Every image with its pictures per class."""
    tally = Tally()
    listed = [image for section in sections(root) for image in _section(root, section, tally)]
    classes = _classes(root, {name for _, _, pictures in listed for name, _ in pictures}, tally)
    ids = {c.name: c.id for c in classes}
    result = []
    for image, part, pictures in listed:
        # Sorted: where classes overlap, the one with the higher id is painted last, whatever the disk's order.
        paths = tuple(sorted((ids[_spoken(name)], path) for name, path in pictures))
        result.append(Record(image, ClassFiles(paths) if paths else None, part))
    result = with_listed_parts(root, result, tally)
    return replace(found(LAYOUT, root, result, tally), classes=classes, coding=drawn_coding(classes))


def _places(masks: Path) -> list[str]:
    """Where class folders may lie below a mask folder: in it, and in its folders named after a part."""
    return ["", *(name for key, name in subfolders(masks).items() if key in PART_NAMES)]


def _has_combined(root: Path, section: Section) -> bool:
    masks = root / str(section.masks)
    return any(holds(masks / place, MASK_SUFFIXES) for place in _places(masks))


def _has_class_folders(root: Path, section: Section) -> bool:
    images, masks = root / section.images, root / str(section.masks)
    for place in _places(masks):
        mirrored = subfolders(images / place)
        for key, name in subfolders(masks / place).items():
            if key in mirrored or key in PART_NAMES or key in UNLABELLED_NAMES:
                continue
            some = islice(files_in(masks / place / name, MASK_SUFFIXES), GLANCE)
            if any(_has_image(images / place, stem(mask)) for mask in some):
                return True
    return False


def _has_image(folder: Path, name: str) -> bool:
    suffixes = [spelt for suffix in IMAGE_SUFFIXES for spelt in (suffix, suffix.upper())]
    return any(is_file(folder / (n + suffix)) for n in {name, without_ending(name)} for suffix in suffixes)


def _section(root: Path, section: Section, tally: Tally) -> list[tuple[str, Part, _Pictures]]:
    images = section_images(root, section, tally)
    pictures: dict[str, _Pictures] = {}
    above = len(f"{section.images}/") if section.images else 0
    index = {stem(image)[above:]: image for image in reversed(images)}
    orphans = []
    for mask in walk(root, section.masks, MASK_SUFFIXES, tally) if section.masks is not None else ():
        key = without_folder(stem(mask)[len(f"{section.masks}/") :])
        image = index.get(key) or index.get(without_ending(key))
        if image is None:
            orphans.append(mask)
        else:
            pictures.setdefault(image, []).append((mask.split("/")[-2], mask))
    pairing = pair(images, [], section.images)
    tell_pairing(images, replace(pairing, orphans=orphans), tally)
    twins = {images[i] for i in pairing.twins}
    result = []
    for image in (image for image in images if image not in twins):
        part, hidden = section.place_of(image.rpartition("/")[0])
        if hidden and image in pictures:
            tell_oracle(pictures.pop(image)[0][1], tally)
        result.append((image, part, pictures.get(image, [])))
    return result


def _spoken(folder: str) -> str:
    """The name of the class whose pictures lie in this folder."""
    return "background" if is_background(folder) else folder


def _classes(root: Path, folders: set[str], tally: Tally) -> ClassTable:
    """Background, which is what no picture claims, then the classes of classes.txt or the folders by name."""
    names = sorted({_spoken(folder) for folder in folders})
    listed = listed_classes(root, tally)
    if listed is not None:
        order = [_spoken(name) for name in listed.names]
        if strangers := [name for name in names if name not in order and name != "background"]:
            raise LayoutError(
                f"There are masks in a folder {strangers[0]!r}, which the list of class names does not contain.",
                remedy=f"Add it to the list ({', '.join(order[:10])}), or rename the folder.",
            )
        names = order
    return ClassTable.named("background", *(name for name in names if name != "background"))
