"""A path, a file or a name to a list of records, and whatever is already known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ftcseg.data import describe
from ftcseg.data.describe import Description
from ftcseg.data.formats import (
    cityscapes,
    class_folders,
    coco,
    colors,
    cvat_xml,
    images_masks,
    labelme,
    labelstudio,
    lists,
    manifest,
    nnunet,
    roboflow,
    ultralytics,
    voc,
)
from ftcseg.data.sets import SETS, locate, recognise
from ftcseg.data.sets.sheet import Sheet
from ftcseg.errors import LayoutError, UsageError, unknown_name
from ftcseg.files import inside, read_yaml
from ftcseg.types import ClassTable, Found, MaskFile, Part, Record


class Reader(Protocol):
    """What every module under formats/ offers."""

    def can_read(self, root: Path, /) -> bool:
        """A quick look: is this folder laid out like this?"""
        ...

    def records(self, root: Path, /) -> Found:
        """Every image below the root."""
        ...


READERS: Mapping[str, Reader] = {
    # Tried in this order: what announces itself by a file of its own comes before what is guessed from folder names.
    "manifest": manifest,
    "lists": lists,
    "coco": coco,
    "label-studio": labelstudio,
    "cvat-xml": cvat_xml,
    "nnunet": nnunet,
    "ultralytics": ultralytics,
    "roboflow": roboflow,
    "voc": voc,
    "cityscapes": cityscapes,
    "labelme": labelme,
    "camvid": colors,
    "class-folders": class_folders,
    "images-masks": images_masks,
}
LAYOUTS: Mapping[str, Reader] = {
    **READERS,
    "cvat-mask": voc,
    "acdc": cityscapes,
    "ultralytics-polygons": ultralytics,
}
DESCRIPTION = "dataset.yaml"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a set is, its records, and what a dataset.yaml or a named set already says of it."""

    name: str
    root: Path
    found: Found
    description: Description | None = None
    sheet: Sheet | None = None
    reader_classes: ClassTable | None = None
    """The classes as the layout's reader numbers them, where dataset.yaml may call them otherwise."""


def open_source(path: str | Path, root: Path | None = None) -> Source:
    """Whatever a user may call a dataset: a folder, a dataset.yaml, a manifest, or the name of a set."""
    given = Path(path)
    try:
        if given.is_dir():
            own = given / DESCRIPTION
            return _described(own) if own.is_file() else _folder(given)
        if given.is_file():
            return _file(given)
    except OSError as error:  # a folder above that may not be entered, a name too long for the disk
        where = str(error.filename or given)
        raise UsageError(f"{where[:200]} cannot be read: {error.strerror}. Check the path.") from error
    if str(path) in SETS:
        return _named(str(path), root)
    if given.suffix or len(given.parts) > 1:
        raise UsageError(f"There is no file or folder {given}. Check the path, or give the name of a set: {_names()}.")
    raise unknown_name("set or folder", str(path), SETS)


def _names() -> str:
    return ", ".join(SETS)


def _file(path: Path) -> Source:
    if path.suffix in (".yaml", ".yml"):
        data = read_yaml(path)
        if isinstance(data, dict) and "ftcseg" in data:
            return _described(path)
        if isinstance(data, dict) and "names" in data:
            return _folder(path.parent, layout="ultralytics")
    if path.suffix in (".jsonl", ".yaml", ".yml", ".json"):
        return Source(path.stem, path.parent, manifest.read_manifest(path.parent, path))
    remedy = "Give the folder that holds the images, a dataset.yaml or a manifest (.jsonl)."
    raise LayoutError(f"{path} is not something a set can be read from.", remedy=remedy)


def _folder(root: Path, layout: str | None = None) -> Source:
    found = _read(root, layout)
    return _recognised(Source(root.resolve().name, root, found))


def _read(root: Path, layout: str | None) -> Found:
    if layout is not None:
        if layout not in LAYOUTS:
            raise unknown_name("layout", layout, LAYOUTS)
        return LAYOUTS[layout].records(root)
    try:
        if not any(root.iterdir()):
            raise LayoutError(
                f"{root} is empty.", remedy="Put images in it, with masks in a masks/ folder beside them."
            )
        for reader in READERS.values():
            if reader.can_read(root):
                found = reader.records(root)
                if found.records or found.findings:
                    return found
    except PermissionError as error:
        where = error.filename or root
        raise LayoutError(f"{where} may not be read.", remedy="Give yourself read access, or copy it.") from error
    remedy = "Expected images/ with masks/ beside it, or one of: " + ", ".join(READERS) + "."
    raise LayoutError(f"No images were found under {root}.", remedy=remedy)


def _recognised(source: Source) -> Source:
    """Fill in what is known of a set whose files are named like one of ours."""
    records = source.found.records
    masks = [r.mask.path for r in records if isinstance(r.mask, MaskFile)]
    sheet = recognise([r.image for r in records], masks)
    if sheet is None or sheet.layout != source.found.layout:
        return source
    return _with_sheet(source, sheet)


def _with_sheet(source: Source, sheet: Sheet) -> Source:
    masks = [r.mask.path for r in source.found.records if isinstance(r.mask, MaskFile)]
    coding = sheet.coding_for(masks[0]) if masks else sheet.coding
    found = replace(source.found, records=sheet.assigned(source.found.records), classes=sheet.classes, coding=coding)
    return replace(source, name=sheet.name, found=found, sheet=sheet)


def _named(name: str, root: Path | None) -> Source:
    sheet = SETS[name]
    folder = locate(name, root)
    return _with_sheet(Source(name, folder, _read(folder, sheet.layout)), sheet)


def _described(path: Path) -> Source:
    description = describe.load(path)
    sheet = None
    if description.set_name is not None:
        if description.set_name not in SETS:
            raise unknown_name("set", description.set_name, SETS)
        sheet = SETS[description.set_name]
    if description.manifest is not None:
        found = manifest.read_manifest(description.root, inside(description.root, description.manifest))
    else:
        found = _read(description.root, description.layout)
    reader_classes = found.classes
    records = sheet.assigned(found.records) if sheet else found.records
    records = _with_parts(records, describe.part_lists(description))
    found = replace(found, records=records, classes=description.classes, coding=description.coding)
    return Source(description.name, description.root, found, description, sheet, reader_classes)


def _with_parts(records: list[Record], lists_of: Mapping[Part, list[str]]) -> list[Record]:
    part_of = {image: part for part, images in lists_of.items() for image in images}
    missing = part_of.keys() - {r.image for r in records}
    if missing:
        name = sorted(missing)[0]
        raise LayoutError(f"A part list names {name!r}, which is no image of the set.", remedy="Correct the list.")
    return [replace(r, part=part_of.get(r.image, r.part)) for r in records] if part_of else records
