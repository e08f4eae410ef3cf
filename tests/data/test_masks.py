"""Masks of every encoding come back as the class ids they were written from; what is none is told exactly."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

from ftcseg.data.doctor import count_classes
from ftcseg.data.formats import coco
from ftcseg.data.images import Header, read_image
from ftcseg.data.masks import decode, fit_to, lie_on, read_labels, read_stored, spans
from ftcseg.data.scan import examine
from ftcseg.errors import MaskError
from ftcseg.types import IGNORE, ClassFiles, Color, Labels, MaskCoding, MaskFile, MaskRef, Record, Shapes

ORIENTATION = 0x0112
Draw = Callable[[st.SearchStrategy[Any]], Any]
Written = tuple[MaskRef, MaskCoding]


def ids(*values: int, **options: Any) -> MaskCoding:
    return MaskCoding("ids", values={v: i for i, v in enumerate(values)}, **options)


def upright(array: NDArray[Any]) -> Header:
    """The header of an image that this mask lies on."""
    return Header("PNG", "L", array.shape[1], array.shape[0])


def refused(path: Path, kind: str) -> MaskError:
    with pytest.raises(MaskError) as caught:
        read_stored(path)
    assert caught.value.kind == kind
    assert path.name in caught.value.what
    assert caught.value.remedy
    return caught.value


# ---------------------------------------------------------------- every encoding, there and back


def values_for(labels: Labels, draw: Draw, most: int) -> tuple[NDArray[np.int64], MaskCoding]:
    """The labels under numbers chosen at random, several for one class now and then, and how to read them."""
    count = int(labels.max(initial=0)) + 1
    pool = draw(st.lists(st.integers(0, most), min_size=count + 3, max_size=count + 3, unique=True))
    table = dict(zip(pool[:count], range(count), strict=True)) | {pool[count]: draw(st.integers(0, count - 1))}
    ignored = pool[count + 1 :]
    spelt = {c: [v for v, k in table.items() if k == c] for c in range(count)} | {IGNORE: ignored}
    turn = np.arange(labels.size).reshape(labels.shape)
    stored = np.vectorize(lambda c, t: spelt[c][t % len(spelt[c])], otypes=[np.int64])(labels, turn)
    return stored, MaskCoding("ids", values=table, ignore=frozenset(ignored))


def colors_for(labels: Labels, draw: Draw, grid: int) -> tuple[NDArray[np.uint8], MaskCoding]:
    """The labels in colours whose channels are multiples of `grid`, and how to read them."""
    count = int(labels.max(initial=0)) + 1
    channel = st.integers(0, 255 // grid).map(lambda n: n * grid)
    pool: list[Color] = draw(st.lists(st.tuples(channel, channel, channel), min_size=count + 1, unique=True))
    stored = np.array([*pool[:count], pool[count]], dtype=np.uint8)[labels]  # IGNORE is -1, the last one
    return stored, MaskCoding(
        "colors", colors={c: i for i, c in enumerate(pool[:count])}, ignore_colors=frozenset({pool[count]})
    )


def save_png(folder: Path, image: Image.Image) -> MaskFile:
    image.save(folder / "m.png")
    return MaskFile("m.png")


def grey8(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 255)
    return save_png(folder, Image.fromarray(stored.astype(np.uint8))), coding


def grey_png(stored: NDArray[Any], bits: int) -> bytes:
    """A grey PNG of so few bits a pixel, put together by hand."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    spread = np.unpackbits(stored.astype(np.uint8)[:, :, None], axis=2)[:, :, 8 - bits :]
    rows = np.packbits(spread.reshape(len(stored), -1), axis=1)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    head = struct.pack(">IIBBBBB", stored.shape[1], stored.shape[0], bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def palette(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 255)
    image = Image.fromarray(stored.astype(np.uint8), "P")
    image.putpalette(draw(st.binary(min_size=768, max_size=768)))
    return save_png(folder, image), coding


def palette_tiff(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 255)
    image = Image.fromarray(stored.astype(np.uint8), "P")
    image.putpalette(draw(st.binary(min_size=768, max_size=768)))
    image.save(folder / "m.tif")
    return MaskFile("m.tif"), coding


def one_bit(labels: Labels, draw: Draw, folder: Path) -> Written:
    suffix = draw(st.sampled_from(["png", "tif"]))
    Image.fromarray(labels == 1).save(folder / f"m.{suffix}")
    return MaskFile(f"m.{suffix}"), ids(0, 1)


def few_bits(labels: Labels, draw: Draw, folder: Path) -> Written:
    bits = 4 if labels.max(initial=0) > 2 else draw(st.sampled_from([2, 4]))
    stored = np.where(labels == IGNORE, 2**bits - 1, labels)
    (folder / "m.png").write_bytes(grey_png(stored, bits))
    return MaskFile("m.png"), ids(*range(2**bits - 1), ignore=frozenset({2**bits - 1}))


def binary255(labels: Labels, draw: Draw, folder: Path) -> Written:
    return save_png(folder, Image.fromarray((labels * 255).astype(np.uint8))), ids(0, 255)


def grey16(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 65535)
    if draw(st.booleans()):
        return save_png(folder, Image.fromarray(stored.astype(np.uint16))), coding
    tifffile.imwrite(folder / "m.tif", stored.astype(np.uint16), compression=draw(st.sampled_from([None, "zlib"])))
    return MaskFile("m.tif"), coding


def grey_in_rgb(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 255)
    return save_png(folder, Image.fromarray(np.repeat(stored[:, :, None], 3, axis=2).astype(np.uint8))), coding


def grey_and_alpha(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = values_for(labels, draw, 255)
    alpha = draw(hnp.arrays(np.uint8, labels.shape))
    return save_png(folder, Image.fromarray(np.stack([stored, alpha], axis=2).astype(np.uint8), "LA")), coding


def rgb(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = colors_for(labels, draw, 1)
    suffix = draw(st.sampled_from(["png", "bmp", "tif"]))
    Image.fromarray(stored).save(folder / f"m.{suffix}")
    return MaskFile(f"m.{suffix}"), coding


def rgba(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = colors_for(labels, draw, 1)
    alpha = draw(hnp.arrays(np.uint8, (*labels.shape, 1)))
    return save_png(folder, Image.fromarray(np.concatenate([stored, alpha], axis=2))), coding


def rgb_with_noise(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, exact = colors_for(labels, draw, 25)  # so 12 off is still nearest to its own
    off = draw(hnp.arrays(np.int16, stored.shape, elements=st.integers(-12, 12)))
    noisy = (stored + off).clip(0, 255).astype(np.uint8)
    coding = MaskCoding("colors", colors=exact.colors, ignore_colors=exact.ignore_colors, tolerance=12)
    return save_png(folder, Image.fromarray(noisy)), coding


def bits_with_noise(labels: Labels, draw: Draw, folder: Path) -> Written:
    corners: list[Color] = [(r, g, b) for r in (0, 255) for g in (0, 255) for b in (0, 255)]
    pure = np.array(corners, dtype=np.int16)[labels]  # IGNORE is white, the last corner
    off = draw(hnp.arrays(np.int16, pure.shape, elements=st.integers(0, 127)))
    noisy = np.where(pure == 255, 255 - off, off).astype(np.uint8)  # 128-255 is on, 0-127 is off
    colors = {c: i for i, c in enumerate(corners[:7])}
    coding = MaskCoding("bits", colors=colors, ignore_colors=frozenset({(255, 255, 255)}))
    return save_png(folder, Image.fromarray(noisy)), coding


def shades_with_noise(labels: Labels, draw: Draw, folder: Path) -> Written:
    off = draw(hnp.arrays(np.int16, labels.shape, elements=st.integers(-9, 9)))
    stored = (np.where(labels == IGNORE, 255, labels * 20) + off).clip(0, 255).astype(np.uint8)
    coding = MaskCoding("ids", values={i * 20: i for i in range(12)}, ignore=frozenset({255}), tolerance=9)
    return save_png(folder, Image.fromarray(stored)), coding


def npy(labels: Labels, draw: Draw, folder: Path) -> Written:
    dtype = draw(st.sampled_from(["int8", "int64", "int32", "uint8", "<u2", ">u2", ">i4", "uint64", "float32"]))
    stored, coding = values_for(labels, draw, 127)
    array = np.asarray(stored.astype(dtype), order=draw(st.sampled_from("CF")))
    array = array[:, :, None] if draw(st.booleans()) else array
    if draw(st.booleans()):
        np.save(folder / "m.npy", array)
        return MaskFile("m.npy"), coding
    draw(st.sampled_from([np.savez, np.savez_compressed]))(folder / "m.npz", mask=array)
    return MaskFile("m.npz"), coding


def npy_minus_one(labels: Labels, draw: Draw, folder: Path) -> Written:
    np.save(folder / "m.npy", labels.astype(draw(st.sampled_from(["int8", "int16", "int64", "float64"]))))
    return MaskFile("m.npy"), MaskCoding("ids", values={i: i for i in range(12)}, ignore=frozenset({-1}))


def npy_bool(labels: Labels, draw: Draw, folder: Path) -> Written:
    np.save(folder / "m.npy", labels == 1)
    return MaskFile("m.npy"), ids(0, 1)


def npy_colors(labels: Labels, draw: Draw, folder: Path) -> Written:
    stored, coding = colors_for(labels, draw, 1)
    np.save(folder / "m.npy", stored)
    return MaskFile("m.npy"), coding


def class_files(labels: Labels, draw: Draw, folder: Path) -> Written:
    on = draw(st.sampled_from([1, 128, 255]))
    off = draw(st.integers(0, 127)) if on > 1 else 0
    paths = []
    for class_id in sorted(set(labels[labels > 0].tolist())):
        Image.fromarray(np.where(labels == class_id, on, off).astype(np.uint8)).save(folder / f"{class_id}.png")
        paths.append((class_id, f"{class_id}.png"))
    if not paths:
        Image.fromarray(np.zeros(labels.shape, np.uint8)).save(folder / "1.png")
        paths = [(1, "1.png")]
    return ClassFiles(tuple(paths)), MaskCoding("drawn", values={i: i for i in range(12)})


def coco_file(labels: Labels, folder: Path, shape_of: Callable[[NDArray[np.bool_]], Any]) -> Written:
    """A COCO file with one object per class; unknown pixels are boxes without an outline."""
    height, width = labels.shape
    present = sorted(set(labels[labels > 0].tolist()))
    objects = [{"id": c, "image_id": 5, "category_id": c, "segmentation": shape_of(labels == c)} for c in present]
    unknown = np.argwhere(labels == IGNORE).tolist()
    objects += [
        {"id": 100 + i, "image_id": 5, "category_id": 1, "bbox": [x, y, 1, 1]} for i, (y, x) in enumerate(unknown)
    ]
    image = {"id": 5, "file_name": "a.png", "height": height, "width": width}
    categories = [{"id": c, "name": f"class {c}"} for c in range(1, 12)]
    text = json.dumps({"images": [image], "annotations": objects, "categories": categories})
    (folder / "labels.json").write_text(text)
    Image.fromarray(np.zeros(labels.shape, np.uint8)).save(folder / "a.png")
    coding = coco.records(folder).coding
    assert coding is not None
    return Shapes("coco", "labels.json", "5"), coding


def coco_runs(labels: Labels, draw: Draw, folder: Path) -> Written:
    def runs(region: NDArray[np.bool_]) -> dict[str, Any]:
        column_wise = region.T.ravel()
        edges = np.flatnonzero(np.diff(np.concatenate([[False], column_wise])))
        counts = np.diff(np.concatenate([[0], edges, [column_wise.size]]))
        return {"size": list(region.shape), "counts": counts.tolist()}

    return coco_file(labels, folder, runs)


def coco_polygons(labels: Labels, draw: Draw, folder: Path) -> Written:
    def squares(region: NDArray[np.bool_]) -> list[list[int]]:
        return [[x, y, x + 1, y, x + 1, y + 1, x, y + 1] for y, x in np.argwhere(region).tolist()]

    return coco_file(labels, folder, squares)


ENCODINGS: dict[Callable[[Labels, Draw, Path], Written], tuple[int, bool]] = {
    # How many classes it can tell apart here, and whether it can say «unknown».
    grey8: (12, True),
    palette: (12, True),
    palette_tiff: (12, True),
    one_bit: (2, False),
    few_bits: (12, True),
    binary255: (2, False),
    grey16: (12, True),
    grey_in_rgb: (12, True),
    grey_and_alpha: (12, True),
    rgb: (12, True),
    rgba: (12, True),
    rgb_with_noise: (12, True),
    bits_with_noise: (7, True),
    shades_with_noise: (12, True),
    npy: (12, True),
    npy_minus_one: (12, True),
    npy_bool: (2, False),
    npy_colors: (12, True),
    class_files: (12, False),
    coco_runs: (12, True),
    coco_polygons: (12, True),
}


@pytest.mark.parametrize("write", ENCODINGS, ids=lambda write: write.__name__)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_labels_in_any_encoding_come_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, write: Callable[[Labels, Draw, Path], Written], data: st.DataObject
) -> None:
    classes, can_ignore = ENCODINGS[write]
    element = st.integers(IGNORE if can_ignore else 0, classes - 1)
    labels = data.draw(hnp.arrays(np.int16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=element))
    folder = tmp_path_factory.mktemp("mask")
    try:
        ref, coding = write(labels, data.draw, folder)
        read = read_labels(folder, ref, upright(labels), coding)
        assert read.dtype == np.int16
        np.testing.assert_array_equal(read, labels)
        # What doctor counts from the histogram of stored values is what the mask holds.
        Image.fromarray(np.zeros(labels.shape, np.uint8)).save(folder / "a.png")
        seen = examine(folder, Record("a.png", ref)).mask
        assert seen is not None
        held = Counter(labels[labels != IGNORE].tolist())
        assert count_classes(seen, coding, "mask") == held
    finally:
        shutil.rmtree(folder)


def test_three_hundred_classes_fit_into_16_bits(tmp_path: Path) -> None:
    labels = np.arange(300, dtype=np.int16).reshape(15, 20)
    save_png(tmp_path, Image.fromarray(labels.astype(np.uint16)))
    read = read_labels(tmp_path, MaskFile("m.png"), upright(labels), ids(*range(300)))
    np.testing.assert_array_equal(read, labels)


# ---------------------------------------------------------------- by hand


def test_a_palette_mask_is_its_indices_whatever_their_colours(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 3], [3, 1]], dtype=np.uint8), "P")
    image.putpalette([255, 255, 255, 9, 9, 9, 0, 0, 0, 255, 255, 255])  # 0 and 3 are both white
    save_png(tmp_path, image)
    assert read_stored(tmp_path / "m.png").tolist() == [[0, 3], [3, 1]]
    assert read_labels(tmp_path, MaskFile("m.png"), Header("PNG", "L", 2, 2), ids(0, 1, 2, 3)).tolist() == [
        [0, 3],
        [3, 1],
    ]


def test_an_unknown_value_is_told_with_its_count_and_the_line_to_add(tmp_path: Path) -> None:
    stored = np.array([[0, 38, 38], [1, 38, 7]], dtype=np.uint8)
    save_png(tmp_path, Image.fromarray(stored))
    with pytest.raises(MaskError) as caught:
        read_labels(tmp_path, MaskFile("m.png"), upright(stored), ids(*range(3), ignore=frozenset({255})))
    error = caught.value
    assert error.kind == "unknown-value"
    assert error.what == "m.png holds value 38 in 3 pixels, value 7 in 1 pixels; known values are 0-2, 255."
    assert "«3: {name: NAME, values: [38]}»" in error.remedy
    assert "«ignore: [38]»" in error.remedy


def test_of_many_unknown_values_the_commonest_are_named() -> None:
    stored = np.repeat(np.arange(10, 20), np.arange(1, 11))[None].astype(np.uint8)  # 10 once ... 19 ten times
    with pytest.raises(
        MaskError, match=r"value 19 in 10 pixels, value 18 in 9 .* value 15 in 6 pixels and 5 more; known"
    ):
        decode(stored, ids(0, 1), "m.png")


def test_an_unknown_value_in_a_histogram_counts_its_pixels() -> None:
    with pytest.raises(MaskError, match="value 9 in 1,234,567 pixels"):
        decode(np.array([[0, 9]]), ids(0), "m.png", weights=np.array([[5, 1_234_567]]))


def test_an_unknown_colour_is_told_with_its_count_and_the_line_to_add() -> None:
    stored = np.array([[[255, 0, 0], [255, 0, 0], [1, 2, 3], [0, 0, 0]]], dtype=np.uint8)
    with pytest.raises(MaskError) as caught:
        decode(stored, MaskCoding("colors", colors={(0, 0, 0): 0}), "m.png")
    assert caught.value.kind == "unknown-value"
    assert caught.value.what == "m.png holds colour #ff0000 in 2 pixels (2 unknown colours in all)."
    assert "«colors: ['#ff0000']»" in caught.value.remedy


def test_no_table_at_all_makes_everything_unknown() -> None:
    for coding in (MaskCoding("ids"), MaskCoding("ids", tolerance=3)):
        with pytest.raises(MaskError, match="value 0 in 4 pixels; known values are none"):
            decode(np.zeros((2, 2), np.uint8), coding, "m.png")
    for coding in (MaskCoding("colors"), MaskCoding("colors", tolerance=3)):
        with pytest.raises(MaskError, match="colour #000000 in 4 pixels"):
            decode(np.zeros((2, 2, 3), np.uint8), coding, "m.png")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_a_value_between_two_known_ones_goes_to_the_nearer(dtype: type[Any]) -> None:
    # Known are 0, 100 and 110; 104 is nearer to 100; 105 is as near to either and goes to the lower one.
    stored = np.array([[0, 3, 97, 104, 105, 106, 113]], dtype=dtype)
    assert decode(stored, ids(0, 100, 110, tolerance=5), "m.png").tolist() == [[0, 0, 1, 1, 1, 2, 2]]
    with pytest.raises(MaskError, match="value 6 in 1 pixels"):
        decode(np.array([[6]], dtype=dtype), ids(0, 100, 110, tolerance=5), "m.png")


def test_a_colour_between_two_known_ones_goes_to_the_nearer() -> None:
    coding = MaskCoding("colors", colors={(0, 0, 0): 0, (20, 0, 0): 1}, tolerance=15)
    stored = np.array([[[9, 0, 0], [11, 0, 0], [20, 15, 15]]], dtype=np.uint8)
    assert decode(stored, coding, "m.png").tolist() == [[0, 1, 1]]
    with pytest.raises(MaskError, match="#141000"):
        decode(np.array([[[20, 16, 0]]], dtype=np.uint8), coding, "m.png")


def test_bits_are_cut_at_128() -> None:
    coding = MaskCoding("bits", colors={(0, 0, 0): 0, (255, 0, 0): 4})
    assert decode(np.array([[[127, 127, 0], [128, 0, 127]]], dtype=np.uint8), coding, "m").tolist() == [[0, 4]]


def test_colours_among_ids_and_ids_among_colours_are_told_apart() -> None:
    colored = np.array([[[1, 2, 3]]], dtype=np.uint8)
    for stored, coding in (
        (colored, ids(0, 1)),
        (np.array([[300]], np.uint16), MaskCoding("colors", colors={(0, 0, 0): 0})),
    ):
        with pytest.raises(MaskError) as caught:
            decode(stored, coding, "m.png")
        assert caught.value.kind == "mixed-encoding"


def test_ignore_is_stronger_than_a_class() -> None:
    coding = MaskCoding("ids", values={0: 0, 255: 1}, ignore=frozenset({255}))
    assert decode(np.array([[0, 255]], np.uint8), coding, "m").tolist() == [[0, IGNORE]]


def test_where_class_files_overlap_the_later_class_is_on_top(tmp_path: Path) -> None:
    for name, row in (("a", [255, 255, 0]), ("b", [0, 128, 127])):
        Image.fromarray(np.array([row], np.uint8)).save(tmp_path / f"{name}.png")
    ref = ClassFiles(((1, "a.png"), (2, "b.png")))
    coding = MaskCoding("drawn", values={0: 0, 1: 1, 2: 2})
    assert read_labels(tmp_path, ref, Header("PNG", "L", 3, 1), coding).tolist() == [[1, 2, 0]]


def test_a_class_file_of_another_size_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(MaskError) as caught:
        read_labels(tmp_path, ClassFiles(((1, "a.png"),)), Header("PNG", "L", 3, 1), MaskCoding("drawn"))
    assert caught.value.kind == "size-mismatch"


@pytest.mark.parametrize(
    ("values", "text"), [([], "none"), ([3], "3"), ([0, 1, 2, 255], "0-2, 255"), ([-1, 5, 4], "-1, 4-5")]
)
def test_spans_are_written_as_people_do(values: list[int], text: str) -> None:
    assert spans(values) == text


def test_a_jpeg_mask_needs_a_tolerance_and_then_comes_back(tmp_path: Path) -> None:
    labels = np.zeros((40, 56), np.int16)
    labels[5:21, 9:30] = 1
    labels[18:35, 25:50] = 2
    Image.fromarray((labels * 127).astype(np.uint8)).save(tmp_path / "m.jpg", quality=90)
    with pytest.raises(MaskError, match=r"m\.jpg holds value"):
        read_labels(tmp_path, MaskFile("m.jpg"), upright(labels), ids(0, 127, 254))
    read = read_labels(tmp_path, MaskFile("m.jpg"), upright(labels), ids(0, 127, 254, tolerance=63))
    np.testing.assert_array_equal(read, labels)


def test_a_jpeg_mask_in_colour_comes_back_too(tmp_path: Path) -> None:
    labels = np.zeros((40, 56), np.int16)
    labels[5:21, 9:30] = 1
    palette = np.array([[0, 0, 0], [250, 120, 10]], np.uint8)
    Image.fromarray(palette[labels]).save(tmp_path / "m.jpg", quality=90, subsampling=0)
    coding = MaskCoding("colors", colors={(0, 0, 0): 0, (250, 120, 10): 1}, tolerance=120)
    np.testing.assert_array_equal(read_labels(tmp_path, MaskFile("m.jpg"), upright(labels), coding), labels)


# ---------------------------------------------------------------- size


TALL = np.arange(535, dtype=np.int16)[:, None].repeat(3, axis=1)
"""A mask of 535 rows, each holding its number: 55 more than its image has."""


@pytest.mark.parametrize(("fit", "first"), [("crop-top", 0), ("crop-center", 27), ("crop-bottom", 55)])
def test_a_mask_that_is_too_tall_is_cropped_as_told(fit: Any, first: int) -> None:
    read = fit_to(TALL, (480, 3), fit, "m.bmp")
    assert read.shape == (480, 3)
    assert read[0].tolist() == [first] * 3
    assert read[-1].tolist() == [first + 479] * 3


def test_without_a_rule_a_mask_that_is_too_tall_is_refused_with_the_rules() -> None:
    with pytest.raises(MaskError) as caught:
        fit_to(TALL, (480, 3), "refuse", "w_r_1_.bmp")
    assert caught.value.kind == "size-mismatch"
    assert caught.value.what == "w_r_1_.bmp is 3x535, its image 3x480."
    for words in ("55 rows too many", "fit: crop-top", "first 480 rows", "crop-center", "crop-bottom"):
        assert words in caught.value.remedy


@pytest.mark.parametrize("fit", ["refuse", "crop-top", "crop-center", "crop-bottom"])
def test_a_crop_cannot_add_rows_or_change_the_width(fit: Any) -> None:
    for shape in ((536, 3), (480, 4), (480, 2)):
        with pytest.raises(MaskError) as caught:
            fit_to(TALL, shape, fit, "m.bmp")
        assert caught.value.kind == "size-mismatch"


def test_resizing_takes_the_nearest_pixel_and_never_mixes() -> None:
    labels = np.array([[0, 9], [5, IGNORE]], dtype=np.int16)
    assert fit_to(labels, (4, 3), "resize", "m").tolist() == [[0, 9, 9], [0, 9, 9], [5, -1, -1], [5, -1, -1]]
    # Down to half: the pixel at the middle of each pair's span, (0 + 0.5) * 2 = 1.
    assert fit_to(np.arange(8, dtype=np.int16).reshape(1, 8), (1, 4), "resize", "m").tolist() == [[1, 3, 5, 7]]


def test_a_mask_known_to_begin_27_rows_early_is_cropped_there(tmp_path: Path) -> None:
    stored = (TALL % 200).astype(np.uint8)
    save_png(tmp_path, Image.fromarray(stored))
    read = read_labels(tmp_path, MaskFile("m.png"), Header("JPEG", "RGB", 3, 480), ids(*range(200)), first_row=27)
    assert read.shape == (480, 3)
    assert (read[0, 0], read[-1, 0]) == (27, (27 + 479) % 200)


# ---------------------------------------------------------------- orientation


DRAWN = np.arange(24, dtype=np.uint8).reshape(4, 6)
TURNED = np.rot90(DRAWN, -1)  # orientation 6 asks for a quarter turn clockwise
LYING = Header("JPEG", "RGB", 6, 4, orientation=6)  # stored 6 wide and 4 high, seen 4 wide and 6 high


def with_orientation(path: Path, orientation: int) -> None:
    if path.suffix == ".tif":
        tifffile.imwrite(path, DRAWN, extratags=[(ORIENTATION, "H", 1, orientation, True)])
    else:
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        Image.fromarray(DRAWN).save(path, exif=exif)


def labels_of(folder: Path, name: str, image: Header) -> list[list[int]]:
    read = read_labels(folder, MaskFile(name), image, ids(*range(24)))
    return read.tolist()


def test_a_mask_drawn_on_the_stored_pixels_turns_with_them(tmp_path: Path) -> None:
    save_png(tmp_path, Image.fromarray(DRAWN))
    assert labels_of(tmp_path, "m.png", LYING) == TURNED.tolist()


def test_a_mask_drawn_on_the_upright_picture_stays(tmp_path: Path) -> None:
    save_png(tmp_path, Image.fromarray(np.ascontiguousarray(TURNED)))
    assert labels_of(tmp_path, "m.png", LYING) == TURNED.tolist()


@pytest.mark.parametrize("name", ["m.png", "m.tif"])
def test_a_mask_with_an_orientation_of_its_own_is_turned_once(tmp_path: Path, name: str) -> None:
    with_orientation(tmp_path / name, 6)
    assert labels_of(tmp_path, name, LYING) == TURNED.tolist()
    assert labels_of(tmp_path, name, Header("PNG", "L", 4, 6)) == TURNED.tolist()


def test_a_half_turn_is_taken_along_although_the_size_says_nothing(tmp_path: Path) -> None:
    save_png(tmp_path, Image.fromarray(DRAWN))
    assert labels_of(tmp_path, "m.png", Header("JPEG", "RGB", 6, 4, orientation=3)) == DRAWN[::-1, ::-1].tolist()


def test_an_array_file_turns_with_its_image(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", DRAWN)
    assert labels_of(tmp_path, "m.npy", LYING) == TURNED.tolist()


def test_class_files_turn_with_their_image(tmp_path: Path) -> None:
    Image.fromarray((DRAWN > 12).astype(np.uint8)).save(tmp_path / "a.png")
    read = read_labels(tmp_path, ClassFiles(((1, "a.png"),)), LYING, MaskCoding("drawn", values={0: 0, 1: 1}))
    assert read.tolist() == (TURNED > 12).astype(int).tolist()


def test_without_orientation_nothing_turns() -> None:
    assert lie_on(DRAWN, 1, Header("PNG", "L", 6, 4)) is DRAWN


# ---------------------------------------------------------------- files that are no masks


class Payload:
    """Unpickled, it would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    objects = np.array([[Payload(owned)]], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", mask=objects)
    for name in ("a.npy", "a.npz"):
        assert "never unpickled" in refused(tmp_path / name, "unsafe-npy").remedy
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Payload(owned)))
    refused(tmp_path / "b.npy", "unreadable")
    assert not owned.exists()


@pytest.mark.parametrize("dtype", ["U3", "M8[s]", "c8", "V4", [("a", "i4"), ("b", "f8")]])
def test_what_is_no_number_is_refused(tmp_path: Path, dtype: Any) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2), dtype=dtype))
    refused(tmp_path / "a.npy", "unsafe-npy")


def npy_header(shape: str, dtype: str = "|u1", data: bytes = b"", version: int = 1) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("(1000000000, 1000000000)", "oversized"),
        (f"({10**200}, {10**200})", "oversized"),
        (f"({10**400}, 1)", "oversized"),
        ("(9000, 9000)", "unreadable"),  # within the limit, but 648 MB that are not there
        ("(-1, 5)", "mask-shape"),
        ("(0, 5)", "mask-shape"),
        ("(5,)", "mask-shape"),
        ("()", "mask-shape"),
        ("(2, 2, 2, 2)", "mask-shape"),
        ("('a', 5)", "unreadable"),
        ("(((", "unreadable"),
        ("9" * 9990, "unreadable"),
    ],
)
def test_a_header_that_lies_is_refused_before_memory_is_reserved(tmp_path: Path, shape: str, kind: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy_header(shape, "<f8", bytes(64)))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(path, "mask.npy")
    tracemalloc.start()
    for name in ("a.npy", "a.npz"):
        assert len(refused(tmp_path / name, kind).what) < 300
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**21


def test_a_truncated_array_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((50, 50)))
    whole = (tmp_path / "a.npy").read_bytes()
    for length in (0, 5, 9, 60, 130, len(whole) - 1):
        (tmp_path / "a.npy").write_bytes(whole[:length])
        refused(tmp_path / "a.npy", "unreadable")


def test_an_npz_holds_one_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    assert "2 arrays" in refused(tmp_path / "a.npz", "mask-shape").what
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 no archive")
    refused(tmp_path / "b.npz", "unreadable")


def test_a_damaged_npz_is_told(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", np.arange(10_000).reshape(100, 100))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[100:900] = bytes(800)
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "unreadable")


def test_an_encrypted_npz_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", np.zeros((2, 2)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for signature, flags_at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags_at] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "unreadable")


def test_nan_and_fractions_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0, np.nan, np.inf, 1]]))
    assert "in 2 pixels" in refused(tmp_path / "a.npy", "nan").what
    np.save(tmp_path / "a.npy", np.array([[0, 0.5]]))
    assert "fractions" in refused(tmp_path / "a.npy", "mask-shape").what
    tifffile.imwrite(tmp_path / "a.tif", np.array([[0, np.nan]], dtype=np.float32))
    refused(tmp_path / "a.tif", "nan")


@pytest.mark.parametrize("value", [2**63, -(2**63), 2**40, 1e300])
def test_numbers_beyond_all_ids_are_told(tmp_path: Path, value: float) -> None:
    np.save(tmp_path / "a.npy", np.array([[0, value]], dtype=np.uint64 if value == 2**63 else None))
    assert "beyond 2,147,483,648" in refused(tmp_path / "a.npy", "mask-shape").what


@pytest.mark.parametrize("shape", [(4, 4, 2), (4, 4, 4), (4, 4, 5), (2, 4, 4)])
def test_one_plane_per_class_is_not_taken_for_a_picture(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    refused(tmp_path / "a.npy", "mask-shape")


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_hold_the_numbers_that_were_stored(tmp_path: Path, bits: int) -> None:
    every = np.arange(2**bits)[None].repeat(2, 0)
    (tmp_path / "m.png").write_bytes(grey_png(every, bits))
    assert read_stored(tmp_path / "m.png").tolist() == every.tolist()
    # As a picture they are shades, from black to white.
    assert read_image(tmp_path / "m.png")[0, [0, -1], 0].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("bits", "stored", "coding", "expected"),
    [
        (4, [0, 1, 15], ids(*range(16)), [0, 1, 15]),
        (4, [0, 5, 15], ids(0, 5, 15), [0, 1, 2]),
        (4, [0, 1, 15], ids(*range(256)), [0, 1, 15]),  # both would do; a stored number is an id first
        (2, [0, 1, 3], ids(0, 1, ignore=frozenset({3, 255})), [0, 1, IGNORE]),
        (4, [0, 15, 15], ids(0, 255), [0, 1, 1]),  # no number of 4 bits but 0 is known, and white is
        (2, [0, 1, 3], ids(0, 85, 170, 255), [0, 1, 3]),
        (1, [0, 1, 1], ids(0, 255), [0, 1, 1]),
        (4, [0, 1, 15], MaskCoding("colors", colors={(0, 0, 0): 0, (17, 17, 17): 1, (255, 255, 255): 2}), [0, 1, 2]),
        (1, [0, 1, 1], MaskCoding("bits", colors={(0, 0, 0): 0, (255, 255, 255): 1}), [0, 1, 1]),
    ],
)
def test_few_bits_are_ids_unless_the_table_knows_them_as_shades(
    tmp_path: Path, bits: int, stored: list[int], coding: MaskCoding, expected: list[int]
) -> None:
    row = np.array([stored])
    (tmp_path / "m.png").write_bytes(grey_png(row, bits))
    assert read_labels(tmp_path, MaskFile("m.png"), upright(row), coding).tolist() == [expected]
    Image.fromarray(np.zeros((1, 3), np.uint8)).save(tmp_path / "a.png")
    seen = examine(tmp_path, Record("a.png", MaskFile("m.png"))).mask
    assert seen is not None
    assert count_classes(seen, coding, "mask") == Counter(c for c in expected if c != IGNORE)


def test_an_unknown_number_of_few_bits_is_told_as_it_is_stored(tmp_path: Path) -> None:
    row = np.array([[0, 7, 7]])
    (tmp_path / "m.png").write_bytes(grey_png(row, 4))
    with pytest.raises(MaskError, match="value 7 in 2 pixels"):
        read_labels(tmp_path, MaskFile("m.png"), upright(row), ids(0, 1, 2))


@pytest.mark.parametrize(("bits", "stored"), [(1, [0, 1, 0]), (2, [0, 3, 1]), (4, [0, 15, 7]), (4, [0, 1, 0])])
def test_an_on_off_picture_of_few_bits_is_on_where_it_is_bright(tmp_path: Path, bits: int, stored: list[int]) -> None:
    (tmp_path / "m.png").write_bytes(grey_png(np.array([stored]), bits))
    ref = ClassFiles(((2, "m.png"),))
    assert read_labels(tmp_path, ref, upright(np.zeros((1, 3))), ids(0, 1, 2)).tolist() == [[0, 2, 0]]


def test_16_bit_colours_are_not_cut_to_8(tmp_path: Path) -> None:
    # Pillow would keep the high byte only, and every id below 256 would become 0.
    tifffile.imwrite(tmp_path / "a.tif", np.ones((2, 2, 3), np.uint16), photometric="rgb")
    refused(tmp_path / "a.tif", "mask-shape")
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(np.ones((2, 2, 3), np.uint16)))
    refused(tmp_path / "a.png", "mask-shape")


def test_what_is_no_picture_is_told_like_an_image(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no mask")
    (tmp_path / "folder.png").mkdir()
    frames = [Image.fromarray(np.full((4, 4), i, np.uint8)) for i in (0, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    for name, kind in (
        ("empty.png", "empty-file"),
        ("text.png", "unreadable"),
        ("folder.png", "missing"),
        ("none.png", "missing"),
        ("none.npy", "missing"),
        ("moving.gif", "animated"),
    ):
        refused(tmp_path / name, kind)
