"""Label Studio's JSON export: brush strokes, polygons, rectangles and ellipses.

root/
  export.json            [{"id": 1, "data": {"image": "/data/upload/1/0a1b2c3d-x.jpg"}, "annotations": [...]}, ...]
  images/x.jpg           images at the root, in images/ or data/, with or without the prefix of an upload

Classes are the labels in the order of classes.txt, else by name; background is 0, ignore and void are unknown. Regions
are drawn in the order of the file. Of several annotations of an image, the first that was not cancelled counts. A task
without annotation is unlabelled, one that was submitted without any region is nothing but background.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from ftcseg.data.annotated import classes_by_name, unlisted
from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    VOID_NAMES,
    Listed,
    Tally,
    files_in,
    found,
    is_background,
    legible,
    spelled,
    suffix,
    tell_missing,
    with_listed_parts,
)
from ftcseg.data.shapes import (
    Points,
    Region,
    blamed_on,
    box_points,
    drawn_coding,
    ellipse_points,
    fill_polygon,
    turned,
)
from ftcseg.errors import LayoutError, MaskError
from ftcseg.files import MAX_ANNOTATION_BYTES, TooDeep, inside, parse_json, read_text
from ftcseg.types import IGNORE, ClassTable, Finding, Found, Labels, Record, Shapes

LAYOUT = "label-studio"
_MOST_FILES = 50  # a root with more json files holds one per image
_LOOK_BYTES = 2**16
_ON = 128  # a brush's alpha fades out at its edge; from here on more than half of a pixel is covered
_CHANNELS = 4  # red, green, blue, alpha

_Value: TypeAlias = dict[str, Any]
_Stamp: TypeAlias = tuple[str, int, int]
"""Path, modification time and size: what a remembered file is recognised by."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One region: its label, its numbers, and the size of the image they belong to."""

    label: str
    value: _Value
    size: tuple[object, object]  # (height, width)
    turned: bool  # the whole image was rotated while it was annotated


@dataclass(frozen=True, slots=True)
class _Task:
    id: str
    url: str
    regions: tuple[_Drawn, ...] | None  # None: nobody has annotated it
    annotations: int


def can_read(root: Path) -> bool:
    """Whether a json file at the root begins as Label Studio's exports do."""
    return bool(_export_files(root))


def records(root: Path) -> Found:
    """All images that the exports list, and unlabelled ones lying beside them."""
    tally, listed, result = Tally(), Listed(root), dict[str, Record]()
    stamps = _export_files(root)
    classes = _classes(root, stamps, tally)
    key_of_classes = "\n".join(classes.names)
    for stamp in stamps:
        name = Path(stamp[0]).name
        for task in _parsed(stamp).values():
            path = _find(task.url, listed)
            if path is None:
                tell_missing(root, _names(task.url)[-1] or "?", name, f"Task {legible(task.id)}", tally)
                continue
            if path in result:
                detail = f"{path} belongs to more than one task; the first counts."
                tally.add(Finding("duplicate-image", name, detail, "Export each image once."), name)
                continue
            ref = None if task.regions is None else Shapes(LAYOUT, name, f"{task.id}\n{key_of_classes}")
            result[path] = Record(path, ref)
        _tell(_parsed(stamp), name, tally)
    images = with_listed_parts(root, [*result.values(), *unlisted(root, result, tally)], tally)
    return replace(found(LAYOUT, root, images, tally), classes=classes, coding=drawn_coding(classes))


def draw(root: Path, ref: Shapes, shape: tuple[int, int]) -> Labels:
    """The class ids of one image, drawn in the order of its regions; `ref.key` is the task and the class names."""
    number, *names = ref.key.split("\n")
    task = _parsed(_stamp(inside(root, ref.path))).get(number)
    if task is None:
        raise MaskError(f"{ref.path} no longer holds the task {legible(number)}.", remedy="Read the set again.")
    class_ids = {name: i for i, name in enumerate(names)}
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for i, region in enumerate(task.regions or (), 1):
        with blamed_on(f"{ref.path}, task {legible(number)}, region {i}"):
            _require_size(region, shape)
            _paint(labels, region.value, _class_id(region.label, class_ids))
    return labels


# ---------------------------------------------------------------- reading


def _export_files(root: Path) -> tuple[_Stamp, ...]:
    names = sorted(files_in(root, {".json"}))
    stamps = [_stamp(root / name) for name in names] if len(names) <= _MOST_FILES else []
    return tuple(stamp for stamp in stamps if _looks_like_export(stamp))


def _stamp(path: Path) -> _Stamp:
    try:
        stat = path.stat()
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}.", remedy="Put it back.") from error
    return str(path), stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=256)
def _looks_like_export(stamp: _Stamp) -> bool:
    try:
        with Path(stamp[0]).open("rb") as file:
            head = file.read(_LOOK_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:
        return False
    return head.startswith(b"[") and b'"annotations"' in head and (b'"result"' in head or b'"data"' in head)


@lru_cache(maxsize=16)
def _parsed(stamp: _Stamp) -> dict[str, _Task]:
    path = Path(stamp[0])
    try:
        tasks = parse_json(read_text(path, MAX_ANNOTATION_BYTES), _compact)
    except TooDeep as error:
        raise LayoutError(f"{path} is nested too deeply.", remedy="Is it the right file?", kind="too-deep") from error
    except ValueError as error:
        raise LayoutError(f"{path} is not valid JSON ({error}).", remedy="Export it again.") from error
    if not isinstance(tasks, list) or not all(isinstance(task, _Task) for task in tasks):
        raise LayoutError(f"{path} is no list of tasks.", remedy="Export «JSON» rather than «JSON-MIN».")
    return {task.id: task for task in tasks}


def _compact(entry: dict[str, Any]) -> Any:
    """Called by the parser for each object as soon as it is read, so that long lists of numbers never pile up."""
    if isinstance(entry.get("rle"), list):
        try:
            entry["rle"] = bytes(entry["rle"])
        except (TypeError, ValueError):
            entry["rle"] = None  # refused when it is drawn
    if isinstance(entry.get("data"), dict) and isinstance(entry.get("annotations"), list):
        return _task(entry)
    return entry


def _task(entry: dict[str, Any]) -> _Task:
    texts = [v for v in entry["data"].values() if isinstance(v, str)]
    given = entry["data"].get("image")
    url = given if isinstance(given, str) else next((t for t in texts if suffix(_names(t)[0]) in IMAGE_SUFFIXES), "")
    done = [a for a in entry["annotations"] if isinstance(a, dict) and not a.get("was_cancelled")]
    regions = tuple(_regions(done[0].get("result"))) if done else None
    return _Task(spelled(entry.get("id")), url, regions, len(done))


def _regions(results: Any) -> Iterator[_Drawn]:
    for item in results if isinstance(results, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        if not isinstance(value, dict) or value.keys().isdisjoint(("rle", "points", "radiusX", "width")):
            continue  # a choice, a text, a relation: nothing to draw
        # `brushlabels`, `polygonlabels`, or plain `labels`; without any, the region was drawn and never named.
        names = next((v for k, v in value.items() if k.endswith("labels") and isinstance(v, list) and v), [""])
        # A key point has a width, too, but no area.
        if "keypointlabels" not in value:
            size = item.get("original_height"), item.get("original_width")
            yield _Drawn(str(names[0]), value, size, bool(item.get("image_rotation")))


def _classes(root: Path, stamps: tuple[_Stamp, ...], tally: Tally) -> ClassTable:
    regions = (r for stamp in stamps for task in _parsed(stamp).values() for r in task.regions or ())
    return classes_by_name(root, {r.label for r in regions}, tally)


def _names(url: str) -> list[str]:
    """What the image may be called: as its link says, only its last part, and that without an upload's prefix."""
    path = unquote(url)
    if "://" in url or "?" in url:
        with contextlib.suppress(ValueError):  # it only looked like a link
            parts = urlsplit(url)
            path = (parse_qs(parts.query).get("d") or [unquote(parts.path)])[0]
    path = path.replace("\\", "/").lstrip("/")
    last = path.rpartition("/")[2]
    return list(dict.fromkeys([path, last, re.sub(r"^[0-9a-f]{8}-", "", last)]))


def _find(url: str, listed: Listed) -> str | None:
    tries = (folder + name for name in _names(url) if name for folder in ("", "images/", "data/"))
    return next((path for name in tries if (path := listed.find_safe(name)) is not None), None)


def _tell(tasks: Mapping[str, _Task], name: str, tally: Tally) -> None:
    bare = sum(task.regions is None for task in tasks.values())
    if bare:
        detail = "Tasks without annotation are taken as unlabelled."
        tally.add(Finding("no-annotation", name, detail, "Submit them if nothing is in them.", bare, "note"), name)
    several = sum(task.annotations > 1 for task in tasks.values())
    if several:
        detail = "Tasks have several annotations; the first that was not cancelled counts."
        tally.add(Finding("several-annotations", name, detail, "Delete the others.", several), name)


# ---------------------------------------------------------------- drawing


def _require_size(region: _Drawn, shape: tuple[int, int]) -> None:
    if region.turned:
        raise _bad_region("The image was rotated while it was annotated.")
    if region.size != shape:
        raise MaskError(
            f"It was drawn on {legible(region.size[1])}x{legible(region.size[0])} pixels, "
            f"but the image has {shape[1]}x{shape[0]}.",
            remedy="Use the image that was annotated.",
            kind="size-mismatch",
        )


def _class_id(label: str, class_ids: Mapping[str, int]) -> int:
    if is_background(label):
        return 0
    if label.casefold() in VOID_NAMES:
        return IGNORE
    if label not in class_ids:
        raise MaskError(f"There is no label {label!r}.", remedy="Name the region, or read again.", kind="unknown-value")
    return class_ids[label]


def _paint(labels: Labels, value: _Value, class_id: int) -> None:
    if "rle" in value:
        labels[decode_brush(value["rle"], *labels.shape)] = class_id
    else:
        fill_polygon(labels, _outline(value, labels.shape), class_id)


def _outline(value: _Value, shape: tuple[int, ...]) -> Points:
    """The outline in pixels; Label Studio counts in percent of the image's width and height."""
    scale = np.array([shape[1], shape[0]]) / 100
    try:
        rotation = float(value.get("rotation") or 0)
        with np.errstate(over="ignore", invalid="ignore"):  # absurd points are judged when they are drawn
            if "points" in value:
                points = np.array(value["points"], dtype=np.float64)
                return points * scale if points.ndim == 2 and points.shape[1] == 2 else points
            x, y = np.array([value["x"], value["y"]], dtype=np.float64) * scale
            if "radiusX" in value:
                radii = np.array([value["radiusX"], value["radiusY"]], dtype=np.float64) * scale
                return turned(ellipse_points(x, y, *radii), (x, y), rotation)
            width, height = np.array([value["width"], value["height"]], dtype=np.float64) * scale
            return turned(box_points(x, y, x + width, y + height), (x, y), rotation)  # about its first corner
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _bad_region("Its numbers are incomplete.") from error


def decode_brush(data: bytes | None, height: int, width: int) -> Region:
    """The region of a brush stroke, where its alpha is on.

    The bytes are one stream of bits, the highest first: 32 for the number of values, 5 for the length of a value less
    one, 4 x 4 for four lengths of a counter less one; then chunks of a bit that says «repeated», 2 bits that choose a
    counter length, the counter less one, and one value, or as many values as counted. Values are red, green, blue and
    alpha of each pixel, row by row.
    """
    if not isinstance(data, bytes):
        raise _bad_region("Its run lengths are no list of bytes.")
    stream = _Bits(data)
    size, bits = stream.read(32), stream.read(5) + 1
    if size != height * width * _CHANNELS or bits != 8:
        raise _bad_region(f"Its run lengths are for {size:,} values of {bits} bits, not 4 of 8 bits for each pixel.")
    lengths = [stream.read(4) + 1 for _ in range(4)]
    values = np.zeros(size, dtype=np.uint8)
    start = 0
    while start < size:
        is_repeated = stream.read(1)
        count = stream.read(lengths[stream.read(2)]) + 1
        if start + count > size:
            raise _bad_region("Its run lengths run over the end of the image.")
        values[start : start + count] = stream.read(8) if is_repeated else stream.read_bytes(count)
        start += count
    return values.reshape(height, width, _CHANNELS)[:, :, -1] >= _ON


class _Bits:
    """Reads whole numbers of any length from a stream of bits."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> int:
        end = self._move(size)
        window = int.from_bytes(self._data[(end - size) >> 3 : (end + 7) >> 3], "big")
        return (window >> (-end % 8)) & ((1 << size) - 1)

    def read_bytes(self, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        end = self._move(8 * count)
        start = end - 8 * count
        bits = np.unpackbits(np.frombuffer(self._data[start >> 3 : (end + 7) >> 3], dtype=np.uint8))
        return np.packbits(bits[start % 8 : start % 8 + 8 * count])

    def _move(self, size: int) -> int:
        self._at += size
        if self._at > 8 * len(self._data):
            raise _bad_region("Its run lengths break off.")
        return self._at


def _bad_region(what: str) -> MaskError:
    return MaskError(what, remedy="Draw it again in Label Studio.", kind="bad-shape")
