"""Mask files to class ids: any encoding in, int16 ids out, and nothing guessed in silence.

`read_stored` gives the numbers as they stand in the file (a palette mask its indices, a grey one of 4 bits 0-15, never
the shades these look like); `decode` looks them up in a MaskCoding; `read_labels` does both for a record and makes the
mask lie on its image.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ftcseg.data.formats import coco, cvat_xml, labelme, labelstudio, ultralytics
from ftcseg.data.images import (
    MAX_PIXELS,
    Header,
    deep_png_mode,
    few_bits_mode,
    is_tiff,
    opened,
    oriented,
    read_header,
    read_tiff_numbers,
    read_unturned,
    unreadable,
)
from ftcseg.errors import ImageError, MaskError
from ftcseg.files import inside
from ftcseg.types import IGNORE, ClassFiles, Color, Fit, Labels, MaskCoding, MaskRef, Shapes

DRAWERS: dict[str, Callable[[Path, Shapes, tuple[int, int]], Labels]] = {
    "coco": coco.draw,
    "cvat-xml": cvat_xml.draw,
    "label-studio": labelstudio.draw,
    "labelme": labelme.draw,
    "yolo": ultralytics.draw,
}
ON = 128
"""A channel at or above this is «on», below it «off»: SUIM's own rule for its impure colours."""
_STRETCH = {"1": 255, "L;2": 85, "L;4": 17}
"""What turns the numbers of a picture of few bits into shades of 0-255, by its mode: 1, 3 and 15 are white."""
_UNKNOWN = np.int16(-2)  # inside this file only: a stored value that no table knows
_MOST_NAMED = 5  # unknown values named in one message
_FARTHEST = 2**31  # no class id is beyond it
_COLORS_AT_ONCE = 2**14  # bounds the working memory where a mask holds very many shades


def read_stored(path: Path, max_pixels: int = MAX_PIXELS) -> NDArray[Any]:
    """The stored numbers of a mask file: (H, W) integers, or (H, W, 3) uint8 colours."""
    try:
        if path.suffix.lower() in (".npy", ".npz"):
            return _read_npy(path, max_pixels)
        if is_tiff(path):
            return _plain(read_tiff_numbers(path, max_pixels), path)
        with opened(path, max_pixels) as image:
            if image.mode in ("1", "L", "P", "I;16", "I;16B", "I", "RGB", "RGBA", "LA") and not deep_png_mode(path):
                array = np.asarray(image)  # a palette mask comes as its indices
                few_bits = few_bits_mode(path)
                if few_bits is not None:
                    array = array // np.uint8(_STRETCH[few_bits])
                return _plain(array.astype(np.uint8) if image.mode == "1" else array, path)
        return _plain(read_unturned(path, max_pixels)[0], path)
    except MaskError:
        raise
    except ImageError as error:
        raise MaskError(error.what, remedy=error.remedy, kind=error.kind) from error
    except Exception as error:  # as in images.opened: whatever a damaged file does to its decoder is no crash
        known = unreadable(path, error)
        raise MaskError(known.what, remedy=known.remedy, kind=known.kind) from error


def as_shades(stored: NDArray[Any], mode: str) -> NDArray[Any]:
    """Numbers of fewer than 8 bits as the shades of 0-255 they look like; those of every other mode as they are."""
    return stored * _STRETCH[mode] if mode in _STRETCH else stored


def meant(stored: NDArray[Any], mode: str, coding: MaskCoding) -> NDArray[Any]:
    """What a coding means by the numbers of a picture of few bits: these themselves, or the shades they look like.

    Colours mean shades. So do ids that are such shades, if none of them but 0 fits into so few bits: beside masks of 0
    and 255, one of 4 bits holds 0 and 15.
    """
    if mode not in _STRETCH:
        return stored
    known = coding.values.keys() | coding.ignore
    numbers = np.arange(1, 255 // _STRETCH[mode] + 1)
    ids_are_shades = known.isdisjoint(numbers.tolist()) and not known.isdisjoint(as_shades(numbers, mode).tolist())
    return as_shades(stored, mode) if coding.kind in ("colors", "bits") or ids_are_shades else stored


def _plain(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """One channel as (H, W), colour as (H, W, 3); alpha says nothing about the class and is left behind."""
    if array.ndim == 3 and array.shape[2] in (1, 2):
        array = array[:, :, 0]
    if array.ndim == 3 and array.shape[2] == 4:
        array = array[:, :, :3]
    if array.ndim not in (2, 3) or (array.ndim == 3 and (array.shape[2] != 3 or array.dtype != np.uint8)):
        shape = "x".join(map(str, array.shape))
        remedy = "A mask is one channel of class ids, or RGB colours."
        raise MaskError(f"{path.name} holds {shape} {array.dtype} numbers.", remedy=remedy, kind="mask-shape")
    return _integers(array, path)


def _integers(array: NDArray[Any], path: Path) -> NDArray[Any]:
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            raise MaskError(f"{path.name} holds NaN or infinity in {bad:,} pixels.", remedy="Write ids.", kind="nan")
        if (array != np.rint(array)).any():
            raise MaskError(f"{path.name} holds fractions.", remedy="A mask holds whole class ids.", kind="mask-shape")
    if array.dtype.itemsize > 2 and (array.max() > _FARTHEST or array.min() < -_FARTHEST):
        remedy = "A mask holds class ids."
        raise MaskError(f"{path.name} holds numbers beyond {_FARTHEST:,}.", remedy=remedy, kind="mask-shape")
    return array.astype(np.int64) if array.dtype.kind == "f" else array


def _read_npy(path: Path, max_pixels: int) -> NDArray[Any]:
    """An array file, its header judged before its numbers are read; never unpickled."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            array = _read_npy_stream(file, path, path.stat().st_size, max_pixels)
    else:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise MaskError(
                    f"{path.name} holds {len(members)} arrays.", remedy="Save one array a file.", kind="mask-shape"
                )
            with archive.open(members[0]) as file:
                array = _read_npy_stream(file, path, members[0].file_size, max_pixels)
    if array.ndim == 3 and array.shape[2] not in (1, 3):
        # A picture of two or four channels has alpha; an array rather has one plane per class.
        shape = "x".join(map(str, array.shape))
        remedy = "Save one plane of class ids (numpy.argmax over the last axis makes one of scores)."
        raise MaskError(f"{path.name} holds {shape} numbers.", remedy=remedy, kind="mask-shape")
    return _plain(array, path)


def _read_npy_stream(file: IO[bytes], path: Path, size: int, max_pixels: int) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise MaskError(
            f"{path.name} is of an unknown npy version.", remedy="Save it with numpy.save.", kind="unreadable"
        )
    shape, fortran, dtype = readers[version](file)
    if dtype.hasobject or dtype.kind not in "buif":
        remedy = "Objects are never unpickled; save an integer array."
        raise MaskError(f"{path.name} holds {dtype} objects.", remedy=remedy, kind="unsafe-npy")
    text = "x".join(map(str, shape))[:80]
    if len(shape) not in (2, 3) or min(shape) < 1:
        remedy = "A mask is one plane of class ids, or RGB colours."
        raise MaskError(f"{path.name} is {text or 'a single number'}.", remedy=remedy, kind="mask-shape")
    count = math.prod(shape)
    if count > 4 * max_pixels:
        raise MaskError(
            f"{path.name} is {text}; the limit is {max_pixels:,} pixels.", remedy="Tile it.", kind="oversized"
        )
    wanted = count * dtype.itemsize
    data = file.read(wanted) if wanted <= size else b""  # nothing is reserved for what is not there
    if len(data) != wanted:
        raise MaskError(f"{path.name} ends too early.", remedy="Copy it again.", kind="unreadable")
    flat = np.frombuffer(data, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def decode(stored: NDArray[Any], coding: MaskCoding, name: str, weights: NDArray[np.int64] | None = None) -> Labels:
    """Class ids of stored numbers; a number no table knows raises MaskError with its count and the line to add.

    `weights` says how many pixels each stored number stands for, where a histogram is decoded instead of a mask.
    """
    if coding.kind in ("ids", "drawn"):
        return _decode_ids(_one_channel(stored, name), coding, name, weights)
    return _decode_colors(stored, coding, name, weights)


def _one_channel(stored: NDArray[Any], name: str) -> NDArray[Any]:
    if stored.ndim == 2:
        return stored
    first = stored[:, :, 0]
    if (stored == first[:, :, None]).all():
        return first  # grey ids saved as RGB
    remedy = "Give the colours of each class («colors:») in dataset.yaml, or export ids."
    raise MaskError(f"{name} holds colours where the other masks hold ids.", remedy=remedy, kind="mixed-encoding")


def _decode_ids(stored: NDArray[Any], coding: MaskCoding, name: str, weights: NDArray[np.int64] | None) -> Labels:
    table = dict(coding.values) | dict.fromkeys(coding.ignore, IGNORE)
    if stored.dtype in (np.uint8, np.uint16):
        labels: Labels = _ids_of(np.arange(np.iinfo(stored.dtype).max + 1), table, coding.tolerance)[stored]
    else:
        values, inverse = np.unique(stored, return_inverse=True)
        labels = _ids_of(values, table, coding.tolerance)[inverse].reshape(stored.shape)
    unknown = labels == _UNKNOWN
    if unknown.any():
        raise _unknown_values(stored[unknown], None if weights is None else weights[unknown], table, name)
    return labels


def _ids_of(values: NDArray[Any], table: dict[int, int], tolerance: int) -> Labels:
    """The class id of each value; with a tolerance, of the nearest known one (JPEG ringing, anti-aliasing)."""
    if not table:
        return np.full(len(values), _UNKNOWN)
    known = np.array(sorted(table))
    ids = np.array([table[value] for value in sorted(table)], dtype=np.int16)
    wide = values.astype(np.int64)
    above = np.searchsorted(known, wide).clip(max=len(known) - 1)
    below = (above - 1).clip(min=0)
    nearest = np.where(np.abs(wide - known[below]) <= np.abs(wide - known[above]), below, above)
    found: Labels = np.where(np.abs(wide - known[nearest]) <= tolerance, ids[nearest], _UNKNOWN)
    return found


def _unknown_values(
    stored: NDArray[Any], weights: NDArray[np.int64] | None, table: dict[int, int], name: str
) -> MaskError:
    values, inverse = np.unique(stored, return_inverse=True)
    counts = np.bincount(inverse, weights=weights).astype(np.int64)
    order = np.argsort(-counts, kind="stable")[:_MOST_NAMED]
    shown = ", ".join(f"value {values[i]} in {counts[i]:,} pixels" for i in order)
    more = f" and {len(values) - len(order)} more" if len(values) > len(order) else ""
    first, new_id = int(values[order[0]]), max(table.values(), default=-1) + 1
    remedy = (
        f"If {first} is a class of its own, add «{new_id}: {{name: NAME, values: [{first}]}}» under classes in"
        f" dataset.yaml; if it means «unknown», add «ignore: [{first}]» under masks."
    )
    return MaskError(
        f"{name} holds {shown}{more}; known values are {spans(table)}.", remedy=remedy, kind="unknown-value"
    )


def spans(values: Iterable[int]) -> str:
    """Integers as people write them: `0-11, 255`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def pack_colors(colors: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """(..., 3) colours as one number each, 0xRRGGBB."""
    wide = colors.astype(np.uint32)
    packed: NDArray[np.uint32] = ((wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]).astype(np.uint32)
    return packed


def unpack_color(packed: int) -> Color:
    """The (r, g, b) of 0xRRGGBB."""
    return (packed >> 16) & 255, (packed >> 8) & 255, packed & 255


def _decode_colors(stored: NDArray[Any], coding: MaskCoding, name: str, weights: NDArray[np.int64] | None) -> Labels:
    if stored.ndim == 2:  # an RGB set whose picture happens to be grey only
        if stored.dtype != np.uint8:
            remedy = "Export every mask in the same encoding."
            raise MaskError(f"{name} holds ids where the others hold colours.", remedy=remedy, kind="mixed-encoding")
        stored = np.repeat(stored[:, :, None], 3, axis=2)
    if coding.kind == "bits":
        stored = np.where(stored >= ON, np.uint8(255), np.uint8(0))
    packed = pack_colors(stored)
    values, inverse = np.unique(packed, return_inverse=True)
    table = dict(coding.colors) | dict.fromkeys(coding.ignore_colors, IGNORE)
    ids = _color_ids(values, table, coding.tolerance)
    if (ids == _UNKNOWN).any():
        counts = np.bincount(inverse.ravel(), weights=None if weights is None else weights.ravel()).astype(np.int64)
        worst = int(np.argmax(np.where(ids == _UNKNOWN, counts, 0)))
        text = "#{:02x}{:02x}{:02x}".format(*unpack_color(int(values[worst])))
        unknown = int((ids == _UNKNOWN).sum())
        remedy = (
            f"If {text} is a class, add «colors: ['{text}']» to it in dataset.yaml; if colours are impure, set"
            " «tolerance: N» under masks; if it means «unknown», add it to «ignore_colors»."
        )
        what = f"{name} holds colour {text} in {counts[worst]:,} pixels ({unknown} unknown colours in all)."
        raise MaskError(what, remedy=remedy, kind="unknown-value")
    return ids[inverse].reshape(packed.shape)


def _color_ids(packed: NDArray[np.uint32], table: dict[Color, int], tolerance: int) -> Labels:
    """The class id of each colour; with a tolerance, of the known one that no channel is farther from."""
    found: Labels = np.full(len(packed), _UNKNOWN)
    if not table:
        return found
    known = np.array(sorted(table), dtype=np.int16)
    ids = np.array([table[color] for color in sorted(table)], dtype=np.int16)
    for start in range(0, len(packed), _COLORS_AT_ONCE):
        some = packed[start : start + _COLORS_AT_ONCE]
        colors = np.stack([some >> 16 & 255, some >> 8 & 255, some & 255], axis=1).astype(np.int16)
        off = np.abs(colors[:, None] - known).max(axis=2)
        nearest = off.argmin(axis=1)
        near = off[np.arange(len(some)), nearest] <= tolerance
        found[start : start + len(some)][near] = ids[nearest[near]]
    return found


def upright_shape(header: Header) -> tuple[int, int]:
    """(H, W) of an image after its EXIF orientation is applied."""
    swap = header.orientation >= 5
    return (header.width, header.height) if swap else (header.height, header.width)


def read_labels(
    root: Path,
    ref: MaskRef,
    image: Header,
    coding: MaskCoding,
    *,
    max_pixels: int = MAX_PIXELS,
    first_row: int | None = None,
) -> Labels:
    """(H, W) class ids lying on the upright image; `first_row` is where a known too tall mask begins to lie on it."""
    shape = upright_shape(image)
    if isinstance(ref, Shapes):
        return decode(DRAWERS[ref.kind](root, ref, shape), coding, ref.path)
    if isinstance(ref, ClassFiles):
        return decode(stack_class_files(root, ref, shape, image, max_pixels), coding, ref.paths[0][1])
    path = inside(root, ref.path)
    mode, orientation = _mode_and_orientation(path, max_pixels)
    stored = lie_on(meant(read_stored(path, max_pixels), mode, coding), orientation, image)
    if first_row is not None and stored.shape[0] > shape[0]:
        stored = stored[first_row : first_row + shape[0]]
    return fit_to(decode(stored, coding, path.name), shape, coding.fit, path.name)


def stack_class_files(root: Path, ref: ClassFiles, shape: tuple[int, int], image: Header, max_pixels: int) -> Labels:
    """Ids from one on/off picture per class; a pixel claimed twice goes to the later class."""
    labels: Labels = np.zeros(shape, dtype=np.int16)
    for class_id, name in ref.paths:
        path = inside(root, name)
        mode, orientation = _mode_and_orientation(path, max_pixels)
        stored = lie_on(_one_channel(read_stored(path, max_pixels), name), orientation, image)
        if stored.shape != shape:
            raise _mismatch(path.name, stored.shape, shape)
        labels[as_shades(stored, mode) >= ON if stored.max(initial=0) > 1 else stored >= 1] = class_id
    return labels


def _mode_and_orientation(path: Path, max_pixels: int) -> tuple[str, int]:
    if path.suffix.lower() in (".npy", ".npz"):
        return "npy", 1
    try:
        header = read_header(path, max_pixels)
    except ImageError as error:
        raise MaskError(error.what, remedy=error.remedy, kind=error.kind) from error
    return header.mode, header.orientation


def lie_on(stored: NDArray[Any], own_orientation: int, image: Header) -> NDArray[Any]:
    """Turn a mask the way its image is turned.

    A mask with an orientation of its own follows it. One without, and of the image's stored size, was drawn on the
    stored pixels and turns with them; one of the upright size was drawn on the picture as people see it.
    """
    if own_orientation != 1:
        return oriented(stored, own_orientation)
    if image.orientation != 1 and stored.shape[:2] == (image.height, image.width):
        return oriented(stored, image.orientation)
    return stored


def fit_to(labels: Labels, shape: tuple[int, int], fit: Fit, name: str) -> Labels:
    """The labels at exactly `shape`, by the rule the user chose; without one a difference is an error."""
    if labels.shape == shape:
        return labels
    height, width = shape
    rows, columns = labels.shape
    if fit == "resize":
        ys = np.minimum((np.arange(height) + 0.5) * rows / height, rows - 1).astype(np.intp)
        xs = np.minimum((np.arange(width) + 0.5) * columns / width, columns - 1).astype(np.intp)
        resized: Labels = labels[ys][:, xs]
        return resized
    if fit == "refuse" or rows < height or columns != width:
        raise _mismatch(name, labels.shape, shape)
    start = {"crop-top": 0, "crop-center": (rows - height) // 2, "crop-bottom": rows - height}[fit]
    return np.ascontiguousarray(labels[start : start + height])


def _mismatch(name: str, mask: tuple[int, ...], image: tuple[int, int]) -> MaskError:
    surplus = mask[0] - image[0]
    remedy = (
        f"It has {surplus} rows too many: «fit: crop-top» under masks in dataset.yaml crops it from the top (keeps its"
        f" first {image[0]} rows), crop-center keeps the middle ones, crop-bottom the last."
        if surplus > 0 and mask[1] == image[1]
        else "Export it again at the image's size, or set «fit: resize» under masks in dataset.yaml."
    )
    what = f"{name} is {mask[1]}x{mask[0]}, its image {image[1]}x{image[0]}."
    return MaskError(what, remedy=remedy, kind="size-mismatch")
