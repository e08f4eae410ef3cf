"""LabelMe: a json file for each image.

root/
  x.jpg  x.json          polygon, rectangle, circle and mask; lines and points have no area and are left out
  classes.txt            optional: the order of the classes, a name a line

The json lies beside its image and is named like it, or says where it is (`imagePath`). Classes are the labels in the
order of classes.txt, else by name; «background» and «_background_» are 0, «__ignore__» is unknown. Shapes are drawn in
the order of the file, as LabelMe shows them: later ones cover earlier ones. A json without shapes is an image of
nothing but background; an image without json is unlabelled.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from ftcseg.data.annotated import classes_by_name
from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    PART_NAMES,
    UNLABELLED_NAMES,
    VOID_NAMES,
    Tally,
    files_in,
    found,
    is_background,
    legible,
    stem,
    subfolders,
    tell_missing,
    tell_oracle,
    walk,
    with_listed_parts,
)
from ftcseg.data.shapes import Points, blamed_on, box_points, drawn_coding, fill_circle, fill_polygon
from ftcseg.errors import DataError, LayoutError, MaskError
from ftcseg.files import inside, read_json
from ftcseg.types import IGNORE, Finding, Found, Labels, Part, Record, Shapes

LAYOUT = "labelme"
GLANCE, MANY = 3, 200  # json files of a folder, and folders, that can_read looks at
_LOOK_BYTES = 2**14
_NO_AREA = frozenset({"line", "linestrip", "point", "points"})

_Shape: TypeAlias = dict[str, Any]


def can_read(root: Path) -> bool:
    """Whether json files of LabelMe's kind lie at the root or at most two folders below: `images/train/x.json`."""
    names = (f / name for f in islice(_folders(root, 2), MANY) for name in islice(files_in(f, {".json"}), GLANCE))
    return any(_looks_like_labelme(path) for path in names)


def records(root: Path) -> Found:
    """Every image below the root, labelled where a json file belongs to it."""
    tally = Tally()
    images = walk(root, "", IMAGE_SUFFIXES, tally)
    labels: set[str] = set()
    owners = _owners(root, images, labels, tally)
    classes = classes_by_name(root, labels, tally)
    key = "\n".join(classes.names)  # one string for all records: whoever draws one mask need not read all files
    listed = []
    for image in images:
        file, folders = owners.get(image), image.casefold().split("/")[:-1]
        if file is not None and not UNLABELLED_NAMES.isdisjoint(folders):
            tell_oracle(file, tally)
            file = None
        part: Part = next((PART_NAMES[name] for name in folders if name in PART_NAMES), "train")
        listed.append(Record(image, None if file is None else Shapes(LAYOUT, file, key), part))
    listed = with_listed_parts(root, listed, tally)
    return replace(found(LAYOUT, root, listed, tally), classes=classes, coding=drawn_coding(classes))


def draw(root: Path, ref: Shapes, shape: tuple[int, int]) -> Labels:
    """The class ids of one image, drawn in the order of its file; `ref.key` lists the class names by id."""
    data = _read(root, ref.path)
    height, width = data.get("imageHeight") or shape[0], data.get("imageWidth") or shape[1]
    if (height, width) != shape:
        raise MaskError(
            f"{ref.path} was drawn on {legible(width)}x{legible(height)} pixels, "
            f"but the image has {shape[1]}x{shape[0]}.",
            remedy="Use the image that was annotated.",
            kind="size-mismatch",
        )
    class_ids = {name: i for i, name in enumerate(ref.key.split("\n"))}
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for number, item in enumerate(_shapes(data), 1):
        with blamed_on(f"{ref.path}, shape {number}"):
            if _kind(item) not in _NO_AREA:
                _painter(_kind(item))(labels, item, _value(str(item.get("label")), class_ids))
    return labels


# ---------------------------------------------------------------- files


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    for name in subfolders(folder).values() if depth else ():
        yield from _folders(folder / name, depth - 1)


def _looks_like_labelme(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_LOOK_BYTES)
            file.seek(max(0, path.stat().st_size - _LOOK_BYTES))
            ends = head + file.read(_LOOK_BYTES)
    except OSError:
        return False
    # `shapes` stands near the beginning; what follows it may be very long (the image itself, in base64).
    return b'"shapes"' in head and (b'"imagePath"' in ends or b'"imageHeight"' in ends)


def _read(root: Path, name: str) -> dict[str, Any]:
    data = read_json(inside(root, name))
    if not isinstance(data, dict) or not isinstance(data.get("shapes"), list):
        raise LayoutError(f"{name} has no list of «shapes».", remedy="Save it again in LabelMe, or take it away.")
    return data


def _shapes(data: dict[str, Any]) -> list[_Shape]:
    return [item if isinstance(item, dict) else {} for item in data["shapes"]]


def _kind(item: _Shape) -> str:
    return str(item.get("shape_type") or "polygon")  # the first versions knew nothing else and did not say so


def _owners(root: Path, images: list[str], labels: set[str], tally: Tally) -> dict[str, str]:
    """The json file of each image that has one; the labels met on the way are added to `labels`."""
    by_stem = {stem(image): image for image in reversed(images)}
    known, owners = set(images), dict[str, str]()
    for name in walk(root, "", {".json"}, tally):
        try:
            data = _read(root, name)
        except DataError:
            if stem(name) in by_stem:  # not LabelMe's, or broken: an image's own file says what is wrong when drawn
                owners.setdefault(by_stem[stem(name)], name)
            continue
        pointed = posixpath.normpath(
            posixpath.join(posixpath.dirname(name), str(data.get("imagePath")).replace("\\", "/"))
        )
        image = by_stem.get(stem(name)) or (pointed if pointed in known else None)
        if image is None:
            tell_missing(root, pointed, name, "«imagePath»", tally)
        elif owners.setdefault(image, name) != name:
            detail = f"{image} has another json file, {owners[image]}, which is used."
            tally.add(Finding("ambiguous", name, detail, "Keep one json file for each image."))
        else:
            _note_labels(_shapes(data), name, labels, tally)
    return owners


def _note_labels(shapes: list[_Shape], name: str, labels: set[str], tally: Tally) -> None:
    without_area = sum(_kind(item) in _NO_AREA for item in shapes)
    if without_area:
        detail = "Lines and points have no area; they are left out."
        tally.add(Finding("shape-ignored", name, detail, "Draw polygons where pixels are meant.", without_area))
    labels.update(str(item["label"]) for item in shapes if "label" in item and _kind(item) not in _NO_AREA)


# ---------------------------------------------------------------- drawing


def _value(label: str, class_ids: Mapping[str, int]) -> int:
    if is_background(label):
        return 0
    if label.casefold() in VOID_NAMES:
        return IGNORE
    if label not in class_ids:
        raise MaskError(
            f"The label {label!r} is none of {', '.join(class_ids)}.",
            remedy="Read the set again.",
            kind="unknown-value",
        )
    return class_ids[label]


def _painter(kind: str) -> Callable[[Labels, _Shape, int], None]:
    if kind not in _PAINTERS:
        raise MaskError(
            f"Shapes of the type {kind!r} cannot be drawn.",
            remedy=f"Known are {', '.join(_PAINTERS)}.",
            kind="bad-shape",
        )
    return _PAINTERS[kind]


def _polygon(labels: Labels, item: _Shape, value: int) -> None:
    fill_polygon(labels, _points(item), value)


def _rectangle(labels: Labels, item: _Shape, value: int) -> None:
    points = _points(item)  # two opposite corners, or all four
    if len(points) < 2:
        raise _bad_shape("A rectangle needs two corners.")
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    fill_polygon(labels, box_points(left, top, right, bottom), value)


def _circle(labels: Labels, item: _Shape, value: int) -> None:
    points = _points(item)
    if len(points) != 2:
        raise _bad_shape("A circle needs its centre and a point on its edge.")
    (x, y), (edge_x, edge_y) = points.tolist()  # plain numbers, whose difference may be infinite without a warning
    fill_circle(labels, (x, y), math.hypot(edge_x - x, edge_y - y), value)


def _mask(labels: Labels, item: _Shape, value: int) -> None:
    """A picture in base64 that covers the pixels from its first corner to its second, both included."""
    points = _points(item)
    if len(points) != 2 or not np.isfinite(points).all():
        raise _bad_shape("A mask needs two corners.")
    (left, top), (right, bottom) = np.clip(points, -1, max(labels.shape)).astype(int)
    part = labels[max(top, 0) : bottom + 1, max(left, 0) : right + 1]
    try:
        with Image.open(io.BytesIO(base64.b64decode(str(item.get("mask")), validate=True)), formats=["PNG"]) as picture:
            if picture.size != part.shape[::-1] or min(left, top) < 0:  # told by the header, before it is unpacked
                raise _bad_shape(f"A mask of {picture.size} pixels does not fit its corners within the image.")
            region = np.asarray(picture) > 0
    except (binascii.Error, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _bad_shape("A mask's picture cannot be read.") from error
    if region.ndim != 2:
        raise _bad_shape("A mask's picture has colours.")
    part[region] = value


_PAINTERS: Mapping[str, Callable[[Labels, _Shape, int], None]] = {
    "polygon": _polygon,
    "rectangle": _rectangle,
    "circle": _circle,
    "mask": _mask,
}


def _points(item: _Shape) -> Points:
    try:
        points = np.array(item["points"], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _bad_shape("Its points are no list of x and y.") from error
    if points.ndim != 2 or points.shape[1] != 2:
        raise _bad_shape("Its points are no list of x and y.")
    return points


def _bad_shape(what: str) -> MaskError:
    return MaskError(what, remedy="Draw it again in LabelMe.", kind="bad-shape")
