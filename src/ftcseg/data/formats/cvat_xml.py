"""CVAT for images 1.1: one XML file for all images.

root/
  annotations.xml        <image name width height> with <polygon>, <box>, <ellipse> and <mask>
  images/x.jpg           images as exported with them: in images/, images/<subset>/ or at the root

Classes are the labels in the order of <meta>, after background; a label called background is 0, one called ignore or
void is unknown. Shapes are drawn by z_order, then in the order of the file. A mask's run lengths go along the rows of
its own box. An image without any shape is unlabelled, not empty: CVAT lists images whether somebody has seen them or
not. XML that declares a document type or entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from ftcseg.data.annotated import unlisted
from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    PART_NAMES,
    VOID_NAMES,
    Listed,
    Tally,
    class_table,
    files_in,
    found,
    is_background,
    suffix,
    tell_missing,
)
from ftcseg.data.shapes import (
    blamed_on,
    box_points,
    decode_box_runs,
    drawn_coding,
    ellipse_points,
    fill_polygon,
    turned,
)
from ftcseg.errors import LayoutError, MaskError
from ftcseg.files import MAX_ANNOTATION_BYTES, MAX_DEPTH, inside
from ftcseg.types import IGNORE, ClassTable, Finding, Found, Labels, Record, Shapes

LAYOUT = "cvat-xml"
_MOST_FILES = 50  # a root with more XML files holds one per image, and that is not CVAT's
_LOOK_BYTES = 2**14
_NO_AREA = frozenset({"polyline", "points", "cuboid", "skeleton"})
_FARTHEST = 1e12

_Values: TypeAlias = Mapping[str, str]
"""The attributes of one shape, as they are written."""
_Stamp: TypeAlias = tuple[str, int, int]
"""Path, modification time and size: what a remembered file is recognised by."""


@dataclass(frozen=True, slots=True)
class _Shape:
    tag: str
    values: _Values


@dataclass(slots=True)
class _Image:
    name: str
    subset: str
    size: tuple[str, str]  # (height, width)
    shapes: list[_Shape] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    labels: tuple[str, ...]  # in the order of <meta>, then those that are used without standing there, by name
    images: dict[str, _Image]
    twice: list[str]
    without_area: int


def can_read(root: Path) -> bool:
    """Whether an XML file at the root begins as CVAT's do."""
    return bool(_annotation_files(root))


def records(root: Path) -> Found:
    """All images that the annotation files list, and unlabelled ones lying beside them."""
    tally, listed, result = Tally(), Listed(root), dict[str, Record]()
    stamps = _annotation_files(root)
    classes = _classes(stamps)
    for stamp in stamps:
        file, name, folders = _parsed(stamp), Path(stamp[0]).name, ["images/*/", "images/", "*/", "", "data/"]
        for image in file.images.values():
            path = _find(image, folders, listed)
            if path is None:
                tell_missing(root, image.name, name, "<image>", tally)
            elif path in result:
                _tell_twice(name, path, tally)
            else:
                part = PART_NAMES.get(image.subset.casefold(), "train")
                result[path] = Record(path, Shapes(LAYOUT, name, image.name) if image.shapes else None, part)
        _tell(file, name, tally)
    images = [*result.values(), *unlisted(root, result, tally)]
    return replace(found(LAYOUT, root, images, tally), classes=classes, coding=drawn_coding(classes))


def draw(root: Path, ref: Shapes, shape: tuple[int, int]) -> Labels:
    """The class ids of one image, drawn by z_order and then in the order of the file."""
    image = _parsed(_stamp(inside(root, ref.path))).images.get(ref.key)
    if image is None:
        raise MaskError(f"{ref.path} no longer lists the image {ref.key!r}.", remedy="Read the set again.")
    if image.size != (str(shape[0]), str(shape[1])):
        raise MaskError(
            f"{ref.path}: {image.name} was annotated at {image.size[1]}x{image.size[0]} pixels,"
            f" but the image has {shape[1]}x{shape[0]}.",
            remedy="Use the images that were annotated.",
            kind="size-mismatch",
        )
    class_ids = {c.name: c.id for c in _classes(_annotation_files(root))}
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for number, item in sorted(enumerate(image.shapes, 1), key=lambda entry: (_z_order(entry[1]), entry[0])):
        with blamed_on(f"{ref.path}, shape {number} of {image.name}"):
            _PAINTERS[item.tag](labels, item.values, _value(item, class_ids))
    return labels


# ---------------------------------------------------------------- reading


def _annotation_files(root: Path) -> tuple[_Stamp, ...]:
    try:
        names = _xml_names(str(root), root.stat().st_mtime_ns)
    except OSError:
        return ()
    stamps = [_stamp(root / name) for name in names] if len(names) <= _MOST_FILES else []
    return tuple(stamp for stamp in stamps if _looks_like_cvat(stamp))


@lru_cache(maxsize=64)
def _xml_names(folder: str, _changed: int) -> tuple[str, ...]:
    """Remembered until the folder changes: drawing asks for it once per image."""
    return tuple(sorted(files_in(Path(folder), {".xml"})))


def _stamp(path: Path) -> _Stamp:
    try:
        stat = path.stat()
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}.", remedy="Put it back.") from error
    return str(path), stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=256)
def _looks_like_cvat(stamp: _Stamp) -> bool:
    try:
        with Path(stamp[0]).open("rb") as file:
            return b"<annotations" in file.read(_LOOK_BYTES)
    except OSError:
        return False


@lru_cache(maxsize=64)
def _parsed(stamp: _Stamp) -> _File:
    path = Path(stamp[0])
    if stamp[2] > MAX_ANNOTATION_BYTES:
        raise LayoutError(f"{path} is {stamp[2]:,} bytes.", remedy="Export smaller jobs.", kind="too-large")
    try:
        return _collected(path)
    except DefusedXmlException as error:
        raise LayoutError(
            f"{path} declares a document type or entities ({type(error).__name__}), as attacks do and CVAT does not.",
            remedy="Export it again.",
            kind="unsafe-xml",
        ) from error
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an encoding nobody knows
        raise LayoutError(f"{path} is not valid XML ({error}).", remedy="Export it again.") from error
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}.", remedy="Check that it may be read.") from error


def _elements(path: Path) -> Iterator[Element]:
    """The children of <annotations>, each dropped again when the next is asked for."""
    depth = 0
    top: Element | None = None
    with path.open("rb") as file:
        for event, element in iterparse(file, events=("start", "end"), forbid_dtd=True):
            depth += 1 if event == "start" else -1
            top = element if top is None else top
            if depth > MAX_DEPTH:
                raise LayoutError(f"{path} is nested too deeply.", remedy="Is it the right file?", kind="too-deep")
            if event == "end" and depth == 1:
                yield element
                top.clear()


def _collected(path: Path) -> _File:
    labels, images, twice, without_area = list[str](), dict[str, _Image](), list[str](), 0
    for element in _elements(path):
        if element.tag == "meta":
            labels += [name.text or "" for name in element.iterfind(".//labels/label/name")]
        elif element.tag == "track":
            raise LayoutError(f"{path} is CVAT's format for video.", remedy="Export «CVAT for images 1.1».")
        elif element.tag == "image":
            without_area += sum(child.tag in _NO_AREA for child in element)
            image = _image(element)
            if images.setdefault(image.name, image) is not image:
                twice.append(image.name)
    used = {shape.values.get("label", "") for image in images.values() for shape in image.shapes}
    return _File(tuple(dict.fromkeys([*labels, *sorted(used - {""})])), images, twice, without_area)


def _image(element: Element) -> _Image:
    shapes = [_Shape(child.tag, dict(child.attrib)) for child in element if child.tag in _PAINTERS]
    size = element.get("height", ""), element.get("width", "")
    return _Image(element.get("name", ""), element.get("subset", ""), size, shapes)


@lru_cache(maxsize=64)
def _classes(stamps: tuple[_Stamp, ...]) -> ClassTable:
    labels = dict.fromkeys(label for stamp in stamps for label in _parsed(stamp).labels)
    plain = [label for label in labels if not is_background(label) and label.casefold() not in VOID_NAMES]
    return class_table(dict(enumerate(["background", *plain])), "<labels>")


def _find(image: _Image, folders: list[str], listed: Listed) -> str | None:
    """The path of a listed image relative to the root, None where it is missing or leads out."""
    if image.name.startswith(("/", "\\")):
        return None  # behind a folder it would look relative
    # Frames of a video are listed without the suffix that they are exported with.
    endings = ("",) if suffix(image.name) in IMAGE_SUFFIXES else (".PNG", ".png", ".jpg", ".jpeg")
    for i, folder in enumerate(folders):
        for ending in endings:
            path = listed.find_safe(folder.replace("*", image.subset or ".") + image.name + ending)
            if path is not None:
                folders.insert(0, folders.pop(i))  # where one was, the others are: a miss costs much more than a hit
                return path
    return None


def _tell(file: _File, name: str, tally: Tally) -> None:
    for image in file.twice:
        _tell_twice(name, image, tally)
    bare = sum(not image.shapes for image in file.images.values())
    if bare:
        detail = "Images without any shape are taken as unlabelled, not as empty."
        remedy = "If nothing is in them, draw a shape labelled «background» in each, or list them in a manifest."
        tally.add(Finding("no-annotation", name, detail, remedy, bare, "note"), name)
    if file.without_area:
        detail = "Lines, points, cuboids and skeletons have no area; they are left out."
        remedy = "Draw polygons or masks where pixels are meant."
        tally.add(Finding("shape-ignored", name, detail, remedy, file.without_area), name)


def _tell_twice(name: str, image: str, tally: Tally) -> None:
    detail = f"{image} is listed more than once; the first entry counts."
    tally.add(Finding("duplicate-image", name, detail, "Export each task on its own."), name)


# ---------------------------------------------------------------- drawing


def _value(item: _Shape, class_ids: Mapping[str, int]) -> int:
    label = item.values.get("label", "")
    if is_background(label):
        return 0
    if label.casefold() in VOID_NAMES:
        return IGNORE
    if label not in class_ids:
        raise MaskError(f"There is no label {label!r}.", remedy="Give it a label in CVAT.", kind="unknown-value")
    return class_ids[label]


def _z_order(item: _Shape) -> int:
    text = item.values.get("z_order", "0")
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 0


def _polygon(labels: Labels, values: _Values, value: int) -> None:
    try:
        points = np.array([pair.split(",") for pair in values["points"].split(";")], dtype=np.float64)
    except (KeyError, ValueError) as error:
        raise _bad_shape("Its points are not «x,y;x,y;...».") from error
    fill_polygon(labels, points, value)


def _box(labels: Labels, values: _Values, value: int) -> None:
    left, top, right, bottom = _numbers(values, "xtl", "ytl", "xbr", "ybr")
    middle = (left + right) / 2, (top + bottom) / 2
    fill_polygon(labels, turned(box_points(left, top, right, bottom), middle, _rotation(values)), value)


def _ellipse(labels: Labels, values: _Values, value: int) -> None:
    x, y, radius_x, radius_y = _numbers(values, "cx", "cy", "rx", "ry")
    fill_polygon(labels, turned(ellipse_points(x, y, radius_x, radius_y), (x, y), _rotation(values)), value)


def _mask(labels: Labels, values: _Values, value: int) -> None:
    left, top, width, height = (int(number) for number in _numbers(values, "left", "top", "width", "height"))
    # Judged before anything is unpacked: the box could claim any size.
    if min(left, top) < 0 or min(width, height) < 1 or left + width > labels.shape[1] or top + height > labels.shape[0]:
        raise _bad_shape(f"The box of a mask ({width}x{height} at {left}, {top}) leaves the image.")
    try:
        counts = np.array(values["rle"].split(","), dtype=np.int64)
    except (KeyError, ValueError, OverflowError) as error:
        raise _bad_shape("Its run lengths are not «n, n, ...».") from error
    labels[top : top + height, left : left + width][decode_box_runs(counts, height, width)] = value


_PAINTERS: Mapping[str, Callable[[Labels, _Values, int], None]] = {
    "polygon": _polygon,
    "box": _box,
    "ellipse": _ellipse,
    "mask": _mask,
}


def _rotation(values: _Values) -> float:
    return _numbers(values, "rotation")[0] if "rotation" in values else 0.0


def _numbers(values: _Values, *names: str) -> list[float]:
    try:
        numbers = [float(values[name]) for name in names]
    except (KeyError, ValueError) as error:
        raise _bad_shape(f"It lacks one of the numbers {', '.join(names)}.") from error
    if not all(abs(number) < _FARTHEST for number in numbers):  # so written, it also catches NaN
        raise _bad_shape(f"One of the numbers {', '.join(names)} is no place in an image.")
    return numbers


def _bad_shape(what: str) -> MaskError:
    return MaskError(what, remedy="Draw it again in CVAT, or export again.", kind="bad-shape")
