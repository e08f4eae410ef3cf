"""Ultralytics: data.yaml with masks beside the images, or with polygons in text files.

root/
  data.yaml               train: images/train, val: images/val, names: [a, b] or {0: a, 1: b}, masks_dir: masks
  images/train/x.jpg      folders, or lists of images (train: train.txt)
  masks/train/x.png       the last «images» of a path becomes masks_dir; the value 255 is unknown
  labels/train/x.txt      without masks_dir: `class x y x y x y ...` a line, in fractions of width and height

Polygons are drawn by falling area, so that small things stay visible. An empty text file is an image of nothing but
background; an image without any file is unlabelled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    MASK_SUFFIXES,
    MAX_CLASSES,
    Listed,
    Tally,
    class_table,
    files_in,
    found,
    id_coding,
    is_folder,
    pair,
    suffix,
    tell_missing,
    tell_pairing,
    text_lines,
    walk,
)
from ftcseg.data.shapes import Points, blamed_on, fill_polygon, polygon_area
from ftcseg.errors import DataError, LayoutError, MaskError, UnsafePathError
from ftcseg.files import inside, read_yaml
from ftcseg.types import ClassInfo, ClassTable, Finding, Found, Labels, MaskCoding, MaskFile, Part, Record, Shapes

SPEC = "data.yaml"
DEFAULT_MASKS, POLYGONS = "masks", "labels"
UNKNOWN = 255
OVERSHOOT = 0.01  # exporters round; a coordinate further outside the image was never a fraction of it
HELD_OUT_FIRST: tuple[Part, ...] = ("test", "val", "train")  # an image in two parts stays held out


def can_read(root: Path) -> bool:
    """Whether a YAML file at the root names classes and images."""
    return _spec(root) is not None


def records(root: Path) -> Found:
    """Every image of every part, with masks or polygons."""
    name = _spec(root)
    if name is None:
        raise LayoutError(f"{root} has no {SPEC} with «names» and «train».", remedy="Add it.")
    spec = read_yaml(inside(root, name))
    names = _names(spec["names"], name)
    tally = Tally()
    parts = _parts(root, spec, name, tally)
    masks_dir = str(spec.get("masks_dir") or "").strip("/")
    # «train: train» means train/images, but train/masks lies below it, too.
    images = sorted(image for image in parts if f"/{masks_dir or DEFAULT_MASKS}/" not in f"/{image}")
    outlines = [] if masks_dir else _beside(root, images, POLYGONS, {".txt"}, tally)
    if any(outlines):
        classes, coding = _drawn(names, name)
        listed = [
            Record(image, Shapes("yolo", path, image) if path else None, parts[image])
            for image, path in zip(images, outlines, strict=True)
        ]
        return replace(found("ultralytics-polygons", root, listed, tally), classes=classes, coding=coding)
    masks = _beside(root, images, masks_dir or DEFAULT_MASKS, MASK_SUFFIXES, tally)
    listed = [
        Record(image, MaskFile(mask) if mask else None, parts[image]) for image, mask in zip(images, masks, strict=True)
    ]
    classes = class_table(names, name)
    coding = id_coding(classes, {UNKNOWN} - names.keys())
    return replace(found("ultralytics", root, listed, tally), classes=classes, coding=coding)


def draw(root: Path, ref: Shapes, shape: tuple[int, int]) -> Labels:
    """Class k is drawn as k + 1 and 0 is what no polygon covers; the coding says which classes those are."""
    polygons = []
    for number, line in text_lines(root, ref.path):
        with blamed_on(f"{ref.path}, line {number}"):
            polygons.append(_polygon(line, shape))
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for value, points in sorted(polygons, key=lambda polygon: -polygon_area(polygon[1])):
        fill_polygon(labels, points, value)
    return labels


def _polygon(line: str, shape: tuple[int, int]) -> tuple[int, Points]:
    try:
        numbers = np.array(line.split(), dtype=np.float64)
    except ValueError as error:
        raise _bad_line(f"{line[:80]!r} holds something that is no number.") from error
    if len(numbers) == 5:
        raise _bad_line("Four numbers after the class are a box, not a polygon.")
    points = numbers[1:]
    if len(points) < 6 or len(points) % 2 or not np.isfinite(numbers).all():
        raise _bad_line(f"A class and three or more points are expected; these are {len(numbers)} numbers.")
    if points.min() < -OVERSHOOT or points.max() > 1 + OVERSHOOT:
        raise _bad_line(f"Coordinates run from {points.min():g} to {points.max():g}; they are fractions from 0 to 1.")
    if numbers[0] != int(numbers[0]) or not 0 <= numbers[0] < np.iinfo(np.int16).max:
        raise _bad_line(f"{numbers[0]:g} is no class number.")
    height, width = shape
    return int(numbers[0]) + 1, np.clip(points, 0, 1).reshape(-1, 2) * (width, height)


def _bad_line(what: str) -> MaskError:
    return MaskError(what, remedy="Export segmentation polygons again.", kind="bad-shape")


def _spec(root: Path) -> str | None:
    """data.yaml, or another YAML file that says the same: people rename it after their set."""
    names = sorted(files_in(root, {".yaml", ".yml"}), key=lambda name: (name != SPEC, name))
    return next((name for name in names if _is_spec(root, name)), None)


def _is_spec(root: Path, name: str) -> bool:
    try:
        data = read_yaml(inside(root, name))
    except DataError:
        return name == SPEC  # `records` will say what is wrong with it
    return isinstance(data, dict) and "names" in data and not data.keys().isdisjoint(HELD_OUT_FIRST)


def _names(given: Any, source: str) -> dict[int, str]:
    pairs = dict(enumerate(given)) if isinstance(given, list) else given
    fine = isinstance(pairs, dict) and all(
        isinstance(k, int) and 0 <= k < MAX_CLASSES and isinstance(v, str | int) and not isinstance(v, bool)
        for k, v in pairs.items()
    )
    if not fine:
        raise LayoutError(
            f"«names» in {source} is no list of class names and no table of numbers and names.",
            remedy="Write «names: [a, b]» or «names: {0: a, 1: b}»; put yes, no, on and off in quotes.",
        )
    return {k: str(v) for k, v in pairs.items()}


def _drawn(names: dict[int, str], source: str) -> tuple[ClassTable, MaskCoding]:
    """Classes and coding of drawn polygons: a background is added in front where the names have none."""
    plain = class_table(names, source)
    if not any(c.background for c in plain):
        plain = class_table({0: "background", **{k + 1: name for k, name in names.items()}}, source)
        return plain, replace(id_coding(plain), kind="drawn")
    shifted = [
        ClassInfo(c.id, c.name, ((0,) if c.background else ()) + (k + 1,), background=c.background)
        for c, k in zip(plain, sorted(names), strict=True)
    ]
    table = ClassTable(tuple(shifted))
    return table, replace(id_coding(table), kind="drawn")


def _parts(root: Path, spec: dict[str, Any], source: str, tally: Tally) -> dict[str, Part]:
    """The part of every image that the specification names."""
    base = _existing(root, PurePosixPath(str(spec.get("path") or ".")))
    if base is None:  # mostly a path on somebody else's machine
        detail = f"«path: {str(spec['path'])[:200]}» is no folder below the root; the root is taken instead."
        tally.add(Finding("path-ignored", source, detail, "Write «path: .», or remove it.", severity="note"))
        base = ""
    parts: dict[str, Part] = {}
    for part in HELD_OUT_FIRST:
        entries = spec.get(part) or []
        for entry in (str(e).replace("\\", "/") for e in (entries if isinstance(entries, list) else [entries])):
            # Roboflow writes ../train/images for train/images.
            place = _existing(root, PurePosixPath(base, entry), PurePosixPath(base, entry.removeprefix("../")))
            if place is None:
                tell_missing(root, entry, source, f"«{part}»", tally)
                continue
            for image in _images(root, base, place, tally):
                if parts.setdefault(image, part) != part:
                    detail = f"It is for {part}, too; it is used for {parts[image]} only."
                    tally.add(Finding("part-overlap", image, detail, "Give each image to one part."))
    return parts


def _existing(root: Path, *paths: PurePosixPath) -> str | None:
    """The first of the paths that is there and safe, "" for the root itself."""
    for name in map(str, paths):
        try:
            if name == "." or inside(root, name).exists():
                return "" if name == "." else name
        except (OSError, UnsafePathError):  # `tell_missing` tells the two apart
            continue
    return None


def _images(root: Path, base: str, place: str, tally: Tally) -> list[str]:
    """The images of a folder, or those that a list names."""
    if suffix(place) != ".txt":
        return walk(root, place, IMAGE_SUFFIXES, tally)
    listed, images = Listed(root), []
    for number, line in text_lines(root, place):
        # A leading dot means the folder of the list, anything else is relative to the set.
        name = str(PurePosixPath(PurePosixPath(place).parent if line.startswith("./") else base, line))
        image = listed.find_safe(name)
        if image is None:
            tell_missing(root, name, place, f"Line {number}", tally)
        else:
            images.append(image)
    return images


def _beside(
    root: Path, images: list[str], folder: str, suffixes: set[str] | frozenset[str], tally: Tally
) -> list[str | None]:
    """For each image, the file of its name after the last «images» of its path has become `folder`."""
    expected, tops = [], set()
    for image in images:
        head, here, tail = f"/{image}".rpartition("/images/")
        top = f"{head}/{folder}".lstrip("/")
        expected.append(f"{top}/{tail}" if here else image)
        tops.add(top)
    there = [path for top in tops if is_folder(root / top) for path in walk(root, top, suffixes, tally)]
    pairing = pair(expected, sorted(set(there)))
    tell_pairing(images, pairing, tally)
    return pairing.masks
