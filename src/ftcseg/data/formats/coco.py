"""COCO json: polygons and run lengths, as CVAT, Label Studio, FiftyOne, Datumaro and Roboflow export them.

    annotations/instances_train2017.json    images in train2017/, train/, images/train/, images/ or at the root
    train/_annotations.coco.json            images beside it
    labels.json                             images in data/

Classes are 0 for background, then the categories by ascending id, over all files together. Where objects overlap, the
larger is drawn first, so small things stay visible; equal ones go by annotation id. An object with a box but no outline
makes the pixels of its box unknown. An image that no annotation mentions is unlabelled, not empty.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ftcseg.data.annotated import unlisted
from ftcseg.data.files_found import (
    PART_NAMES,
    Listed,
    Tally,
    class_table,
    found,
    is_background,
    legible,
    spelled,
    tell_missing,
)
from ftcseg.data.shapes import (
    Points,
    blamed_on,
    box_points,
    decode_runs,
    drawn_coding,
    fill_polygon,
    polygon_area,
    uncompressed,
)
from ftcseg.errors import LayoutError, MaskError
from ftcseg.files import MAX_ANNOTATION_BYTES, TooDeep, inside, parse_json, read_text, relative
from ftcseg.types import IGNORE, ClassTable, Finding, Found, Labels, Part, Record, Shapes

LAYOUT = "coco"
_PART_FILES = ("_annotations.coco.json", "labels.json", "annotations.json")  # names looked for in train/, val/ ...
_MOST_FILES = 50  # a root with more json files holds one per image, and that is not COCO
_LOOK_BYTES = 2**16
_KEYS = (b'"images"', b'"annotations"', b'"categories"')
_HELD_OUT_FIRST: tuple[Part, ...] = ("test", "val", "train")

T = TypeVar("T")
Stamp: TypeAlias = tuple[str, int, int]
"""Path, modification time and size: what a remembered file is recognised by."""


@dataclass(frozen=True, slots=True)
class _Image:
    id: str
    name: str
    size: tuple[int, int] | None  # (height, width), None where the file does not tell


@dataclass(frozen=True, slots=True)
class _Runs:
    size: tuple[int, int]
    counts: str | bytes  # compressed text, or int64 numbers


@dataclass(frozen=True, slots=True)
class _Object:
    """One annotation, its coordinates packed as float64: a set with a million objects has to fit."""

    id: int
    image: str
    category: int
    shape: _Runs | tuple[bytes, ...] | None  # None: it is neither
    box: tuple[float, ...]

    @property
    def is_box_only(self) -> bool:
        return self.shape == () and len(self.box) == 4 and self.box[2] > 0 and self.box[3] > 0


@dataclass(frozen=True, slots=True)
class _File:
    images: dict[str, _Image]
    objects: dict[str, list[_Object]]
    categories: list[tuple[int, str, str]]  # id, name, supercategory


@dataclass(frozen=True, slots=True)
class _Stroke:
    area: float
    order: int
    value: int
    where: str
    outlines: list[Points] = field(default_factory=list)
    runs: NDArray[np.int64] | None = None


def can_read(root: Path) -> bool:
    """Whether an annotation file of this kind lies where exporters put it; only its ends are read."""
    return bool(_annotation_files(root))


def records(root: Path) -> Found:
    """All images the annotation files list, and unlabelled ones lying beside them."""
    tally, listed, result = Tally(), Listed(root), list[Record]()
    stamps = _annotation_files(root)
    classes, _ = _classes(stamps)
    seen: set[str] = set()
    for stamp in sorted(stamps, key=lambda s: _HELD_OUT_FIRST.index(_part(relative(root, Path(s[0]))))):
        for record in _listed_records(root, stamp, listed, tally):
            if record.image in seen:
                detail = (
                    f"{record.image} is listed more than once; the entry of the held-out part, or the first, counts."
                )
                tally.add(Finding("duplicate-image", _name(root, stamp), detail, "List each image once."))
            else:
                seen.add(record.image)
                result.append(record)
    _tell_boxes(root, stamps, tally)
    result += unlisted(root, seen, tally)
    answer = found(LAYOUT, root, result, tally)
    return replace(answer, classes=classes, coding=drawn_coding(classes))


def draw(root: Path, ref: Shapes, shape: tuple[int, int]) -> Labels:
    """The class ids of one image, drawn larger objects first."""
    file = _parsed(_stamp(inside(root, ref.path)))
    image = file.images.get(ref.key)
    if image is None:
        raise MaskError(
            f"{ref.path} no longer lists an image with the id {legible(ref.key)}.", remedy="Read the set again."
        )
    with blamed_on(f"{ref.path}, {image.name}"):
        _require_size(image.size or shape, shape)
    _, class_ids = _classes(_annotation_files(root))
    strokes = []
    for obj in file.objects.get(ref.key, ()):
        where = f"{ref.path}, annotation {obj.id} of {image.name}"
        with blamed_on(where):
            strokes.append(_stroke(obj, class_ids, shape, where))
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for stroke in sorted(strokes, key=lambda s: (-s.area, s.order)):
        with blamed_on(stroke.where):
            if stroke.runs is not None:
                labels[decode_runs(stroke.runs, *shape)] = stroke.value
            for outline in stroke.outlines:
                fill_polygon(labels, outline, stroke.value)
    return labels


# ---------------------------------------------------------------- finding the files


def _annotation_files(root: Path) -> tuple[Stamp, ...]:
    """The annotation files of a set, in the order of their names."""
    folder = _json_files(root / "annotations")
    # COCO's own annotations/ also holds captions, key points and stuff for the very same images.
    folder = [p for p in folder if p.name.startswith("instances")] or folder
    parts = [root / part / name for part in PART_NAMES for name in _PART_FILES]
    candidates = dict.fromkeys([*folder, *_json_files(root), *parts])
    stamps = [_stamp(path) for path in candidates if path.is_file()]
    return tuple(sorted(stamp for stamp in stamps if _looks_like_coco(stamp)))


def _json_files(folder: Path) -> list[Path]:
    try:
        names = _json_names(str(folder), folder.stat().st_mtime_ns)
    except OSError:
        return []
    return [folder / name for name in names] if len(names) <= _MOST_FILES else []


@lru_cache(maxsize=64)
def _json_names(folder: str, _changed: int) -> tuple[str, ...]:
    """Remembered until the folder changes: drawing asks for it once per image."""
    return tuple(path.name for path in Path(folder).iterdir() if path.suffix.lower() == ".json")


@lru_cache(maxsize=256)
def _looks_like_coco(stamp: Stamp) -> bool:
    """Two of the three great keys near the beginning or the end; their order differs between tools."""
    try:
        with Path(stamp[0]).open("rb") as file:
            ends = file.read(_LOOK_BYTES)
            if stamp[2] > 2 * _LOOK_BYTES:
                file.seek(-_LOOK_BYTES, 2)
            ends += file.read(_LOOK_BYTES)
    except OSError:
        return False
    return ends.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and sum(key in ends for key in _KEYS) >= 2


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}.", remedy="Put it back.") from error
    return str(path), stat.st_mtime_ns, stat.st_size


def _name(root: Path, stamp: Stamp) -> str:
    return relative(root, Path(stamp[0]))


def _part(path: str) -> Part:
    """train, val or test as a word of the path: `instances_val2017.json`, `valid/_annotations.coco.json`."""
    words = re.split(r"[^a-z]+", path.lower())
    return next((PART_NAMES[word] for word in words if word in PART_NAMES), "train")


# ---------------------------------------------------------------- reading one


@lru_cache(maxsize=64)
def _parsed(stamp: Stamp) -> _File:
    path = Path(stamp[0])
    text = read_text(path, MAX_ANNOTATION_BYTES)
    try:
        top = parse_json(text, _compact)
    except TooDeep as error:
        raise LayoutError(f"{path} is nested too deeply.", remedy="Is it the right file?", kind="too-deep") from error
    except ValueError as error:
        raise LayoutError(f"{path} is not valid JSON ({error}).", remedy="Export it again.") from error
    images: dict[str, _Image] = {}
    for image in _entries(path, top, "images", _Image):
        if images.setdefault(image.id, image) is not image:
            raise LayoutError(f"{path} gives the id {legible(image.id)} to two images.", remedy="Export it again.")
    objects: dict[str, list[_Object]] = {}
    for obj in _entries(path, top, "annotations", _Object):
        objects.setdefault(obj.image, []).append(obj)
    categories = [_category(path, entry) for entry in _entries(path, top, "categories", dict)]
    return _File(images, objects, categories)


def _compact(entry: dict[str, Any]) -> Any:
    """Called by the parser for each object as soon as it is read, so that its many small numbers never pile up."""
    try:
        if "image_id" in entry:
            return _object(entry)
        if "file_name" in entry:
            size = (int(entry["height"]), int(entry["width"])) if "height" in entry and "width" in entry else None
            return _Image(spelled(entry["id"]), str(entry["file_name"]), size)
        if "counts" in entry:
            counts, (height, width) = entry["counts"], entry["size"]
            return _Runs((int(height), int(width)), counts if isinstance(counts, str) else array("q", counts).tobytes())
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # refused with its place in the file, or, within an annotation, when it is drawn
    return entry


def _object(entry: dict[str, Any]) -> _Object:
    shape = entry.get("segmentation", [])
    if isinstance(shape, list):
        nested = [shape] if shape and isinstance(shape[0], int | float) else shape  # some tools forget a bracket
        try:
            shape = tuple(array("d", outline).tobytes() for outline in nested)
        except (TypeError, OverflowError):
            shape = None
    elif not isinstance(shape, _Runs):
        shape = None
    number = entry.get("id")
    return _Object(
        number if isinstance(number, int) else 0,
        spelled(entry["image_id"]),
        int(entry["category_id"]),
        shape,
        tuple(float(v) for v in entry.get("bbox") or ()),
    )


def _entries(path: Path, top: Any, key: str, kind: type[T]) -> Iterator[T]:
    entries = top.get(key) if isinstance(top, dict) else None
    if not isinstance(entries, list):
        raise LayoutError(
            f"{path} has no list called {key!r}.", remedy="A COCO file lists images, annotations and categories."
        )
    for i, entry in enumerate(entries):
        if not isinstance(entry, kind):
            raise LayoutError(
                f"{path}: {key}[{i}] is not what COCO puts there.",
                remedy="Export instance segmentation with image_id, category_id and segmentation.",
            )
        yield entry


def _category(path: Path, entry: dict[str, Any]) -> tuple[int, str, str]:
    number, name = entry.get("id"), entry.get("name")
    if not isinstance(number, int) or not isinstance(name, str):
        raise LayoutError(
            f"{path}: the category {str(entry)[:80]} lacks a whole number «id» or a «name».", remedy="Add them."
        )
    return number, name, str(entry.get("supercategory", ""))


@lru_cache(maxsize=64)
def _classes(stamps: tuple[Stamp, ...]) -> tuple[ClassTable, dict[int, int]]:
    """The classes of all files together, and the class id of each category id."""
    files = [(Path(stamp[0]), _parsed(stamp)) for stamp in stamps]
    names: dict[int, str] = {}
    for path, file in files:
        for number, name, _ in file.categories:
            if names.setdefault(number, name) != name:
                raise LayoutError(
                    f"Category {number} is {names[number]!r} in one annotation file and {name!r} in {path.name}.",
                    remedy="Give every file the same categories.",
                    kind="class-conflict",
                )
    used = {obj.category for _, file in files for objects in file.objects.values() for obj in objects}
    groups = {group for _, file in files for number, _, group in file.categories if number != 0}
    if names.get(0) in groups and 0 not in used:
        del names[0]  # Roboflow's category 0 is the name of the project, over all the others
    kept = [number for number in sorted(names) if not is_background(names[number])]
    class_ids = dict.fromkeys(names, 0) | {number: i for i, number in enumerate(kept, 1)}
    return class_table(dict(enumerate(["background", *(names[number] for number in kept)])), "«categories»"), class_ids


# ---------------------------------------------------------------- records


def _listed_records(root: Path, stamp: Stamp, listed: Listed, tally: Tally) -> Iterator[Record]:
    file, name = _parsed(stamp), _name(root, stamp)
    part, folders, bare = _part(name), _image_folders(root, name), 0
    for image in file.images.values():
        path = _find(image.name, folders, listed)
        if path is None:
            tell_missing(root, image.name, name, f"Image {legible(image.id)}", tally)
            continue
        bare += image.id not in file.objects
        yield Record(path, Shapes(LAYOUT, name, image.id) if image.id in file.objects else None, part)
    if bare:
        detail = "Images without any annotation are taken as unlabelled, not as empty."
        remedy = "If nothing is in them, add an annotation with an empty segmentation, or list them in a manifest."
        tally.add(Finding("no-annotation", name, detail, remedy, bare, "note"), name)
    orphans = sum(len(objects) for image, objects in file.objects.items() if image not in file.images)
    if orphans:
        detail = "Annotations belong to images that the file does not list."
        tally.add(Finding("annotation-without-image", name, detail, "Export it again.", orphans), name)


def _image_folders(root: Path, name: str) -> list[str]:
    """Where the images of one annotation file may lie, relative to the root, the most particular place first."""
    beside = f"{name.rpartition('/')[0]}/"
    word = Path(name).stem.removeprefix("instances_")  # train2017
    inner = [f"{folder}/{word}" for folder in ("images", "data")]
    places = [beside, f"{beside}data", f"{beside}images", word, _part(name), *inner, "images", "data", ""]
    return [f"{p.strip('/')}/".lstrip("/") for p in dict.fromkeys(places) if (root / p.strip("/")).is_dir()]


def _find(name: str, folders: list[str], listed: Listed) -> str | None:
    """The path of a listed image relative to the root, None where it is missing or leads out."""
    if name.startswith(("/", "\\")):
        return None  # behind a folder it would look relative
    for i, folder in enumerate(folders):
        path = listed.find_safe(folder + name)
        if path is not None:
            folders.insert(0, folders.pop(i))  # where one was, the others are: a miss costs much more than a hit
            return path
    return None


def _tell_boxes(root: Path, stamps: tuple[Stamp, ...], tally: Tally) -> None:
    for stamp in stamps:
        objects = [obj for group in _parsed(stamp).objects.values() for obj in group]
        boxes = sum(obj.is_box_only for obj in objects)
        if boxes:
            detail = "Objects have a box but no outline; the pixels of their boxes are taken as unknown."
            remedy = "Export instance segmentation rather than object detection."
            severity: Literal["warning", "error"] = "error" if boxes == len(objects) else "warning"
            tally.add(Finding("box-only", _name(root, stamp), detail, remedy, boxes, severity), stamp[0])


# ---------------------------------------------------------------- drawing


def _stroke(obj: _Object, class_ids: dict[int, int], shape: tuple[int, int], where: str) -> _Stroke:
    value = class_ids.get(obj.category)
    if value is None:
        raise MaskError(f"There is no category {obj.category}.", remedy="Add it to «categories».", kind="unknown-value")
    if obj.shape is None:
        raise MaskError(
            "Its segmentation is neither polygons nor run lengths.", remedy="Export it again.", kind="bad-shape"
        )
    if isinstance(obj.shape, _Runs):
        _require_size(obj.shape.size, shape)
        counts = obj.shape.counts
        runs = uncompressed(counts) if isinstance(counts, str) else np.frombuffer(counts, dtype=np.int64)
        return _Stroke(float(runs[1::2].sum()), obj.id, value, where, runs=runs)
    if obj.is_box_only:
        left, top, width, height = obj.box
        outline = box_points(left, top, left + width, top + height)
        return _Stroke(math.inf, obj.id, IGNORE, where, [outline])  # beneath whatever has an outline
    flat = [np.frombuffer(outline) for outline in obj.shape]
    if any(len(numbers) % 2 for numbers in flat):
        raise MaskError("A polygon lists an x without a y.", remedy="Export it again.", kind="bad-shape")
    outlines = [numbers.reshape(-1, 2) for numbers in flat]
    return _Stroke(sum(map(polygon_area, outlines)), obj.id, value, where, outlines)


def _require_size(stated: tuple[int, int], shape: tuple[int, int]) -> None:
    if stated != shape:
        raise MaskError(
            f"It was annotated at {stated[1]}x{stated[0]} pixels, but the image has {shape[1]}x{shape[0]}.",
            remedy="Use the images that were annotated, or export the annotations at their size.",
            kind="size-mismatch",
        )
