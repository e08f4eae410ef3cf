"""Label Studio exports written by hand; brush strokes are spelt bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ftcseg.data.formats import labelstudio
from ftcseg.data.formats.labelstudio import decode_brush
from ftcseg.errors import DataError, LayoutError, MaskError
from ftcseg.types import Shapes

# Two values of four channels: the first pixel all off, in one repeated chunk; the second 10, 20, 30 and alpha 255.
HEAD = f"{8:032b} 00111 0010 0011 0111 1111"  # 8 values of 7 + 1 bits; counters of 3, 4, 8 or 16 bits
OFF = "1 00 011 00000000"  # repeated, counter of 3 bits, 3 + 1 times, the value 0
ON = "0 00 011 00001010 00010100 00011110 11111111"  # as they are, counter of 3 bits, 3 + 1 of them
STROKE = f"{HEAD} {OFF} {ON}"


def packed(bits: str) -> bytes:
    digits = bits.replace(" ", "")
    digits += "0" * (-len(digits) % 8)
    return bytes(int(digits[i : i + 8], 2) for i in range(0, len(digits), 8))


def region(value: dict[str, Any], label: str = "fish", kind: str = "polygonlabels", **more: object) -> dict[str, Any]:
    size = {"original_width": 5, "original_height": 4, "image_rotation": 0}
    return {"id": "x", "type": kind, "value": {**value, kind: [label]}, **size, **more}


# In percent of 5 x 4 pixels: columns 1-3, rows 1-2.
BOX = region({"points": [[20, 25], [80, 25], [80, 75], [20, 75]], "closed": True})
CORNER = region({"x": 0, "y": 0, "width": 40, "height": 50, "rotation": 0}, "crab", "rectanglelabels")


def task(*regions: object, number: int = 1, image: str = "/data/upload/3/0a1b2c3d-a.png") -> dict[str, Any]:
    return {"id": number, "annotations": [{"id": 9, "result": regions}], "data": {"image": image}, "meta": {}}


def write(root: Path, *tasks: object) -> None:
    (root / "images").mkdir(exist_ok=True)
    (root / "images/a.png").touch()
    (root / "export.json").write_text(json.dumps(tasks))


def drawn(root: Path, *regions: object, shape: tuple[int, int] = (4, 5)) -> list[list[int]]:
    write(root, task(*regions))
    return labelstudio.draw(root, Shapes("label-studio", "export.json", "1\nbackground\ncrab\nfish"), shape).tolist()


def test_labels_are_classes_by_name_and_images_are_found_without_their_prefix(tmp_path: Path) -> None:
    write(tmp_path, task(BOX, CORNER))
    assert labelstudio.can_read(tmp_path)
    found = labelstudio.records(tmp_path)
    assert (found.layout, found.findings) == ("label-studio", ())
    assert found.classes is not None
    assert found.classes.names == ["background", "crab", "fish"]
    (record,) = found.records
    assert record.image == "images/a.png"
    assert isinstance(record.mask, Shapes)
    assert labelstudio.draw(tmp_path, record.mask, (4, 5)).tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 2, 2, 0],
        [0, 2, 2, 2, 0],
        [0, 0, 0, 0, 0],
    ]


def test_unlisted_images_beside_listed_ones_are_unlabelled(tmp_path: Path) -> None:
    write(tmp_path, task(BOX))
    (tmp_path / "images/z.png").touch()
    found = labelstudio.records(tmp_path)
    assert [(r.image, r.mask is None) for r in found.records] == [("images/a.png", False), ("images/z.png", True)]
    assert [(f.kind, f.count) for f in found.findings] == [("unlisted-image", 1)]


def test_later_regions_cover_earlier_ones(tmp_path: Path) -> None:
    assert drawn(tmp_path, CORNER, BOX)[1] == [1, 2, 2, 2, 0]
    assert drawn(tmp_path, BOX, {**CORNER, "value": {**CORNER["value"], "rectanglelabels": ["void"]}})[1][:2] == [
        -1,
        -1,
    ]


def test_a_brush_stroke_bit_by_bit() -> None:
    assert decode_brush(packed(STROKE), 1, 2).tolist() == [[False, True]]


def test_a_brush_stroke_is_drawn(tmp_path: Path) -> None:
    item = region({"format": "rle", "rle": list(packed(STROKE))}, kind="brushlabels")
    item |= {"original_width": 2, "original_height": 1}
    assert drawn(tmp_path, item, shape=(1, 2)) == [[0, 2]]


def test_alpha_is_on_from_the_middle(tmp_path: Path) -> None:
    faint, firm = "0 00 011" + "00000000" * 3 + "01111111", "0 00 011" + "00000000" * 3 + "10000000"
    assert decode_brush(packed(f"{HEAD} {faint} {firm}"), 1, 2).tolist() == [[False, True]]


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 5), st.integers(1, 5))), st.data())
def test_any_chunks_come_back(wanted: NDArray[np.bool_], data: st.DataObject) -> None:
    values = np.repeat(wanted.reshape(-1).astype(int) * 255, 4).tolist()
    bits, rest = f"{len(values):032b} 00111 0001 0010 0011 0110", values  # counters of 2, 3, 4 or 7 bits
    while rest:
        count = data.draw(st.integers(1, min(4, len(rest))))
        chunk, rest = rest[:count], rest[count:]
        same = len(set(chunk)) == 1 and data.draw(st.booleans())
        choice = data.draw(st.integers(0, 3))
        bits += f"{same:b}{choice:02b}{count - 1:0{[2, 3, 4, 7][choice]}b}"
        bits += "".join(f"{v:08b}" for v in (chunk[:1] if same else chunk))
    assert decode_brush(packed(bits), *wanted.shape).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (packed(STROKE)[:-3], "break off"),
        (b"", "break off"),
        (packed(HEAD.replace("00111", "01111", 1) + OFF), "values of 16 bits"),
        (packed(f"{2**32 - 1:032b} 00111"), "4,294,967,295 values"),
        (packed(f"{HEAD} {OFF} 1 01 1111 11111111"), "over the end"),
        (None, "no list of bytes"),
    ],
)
def test_strokes_that_do_not_fit_are_refused(data: bytes | None, said: str) -> None:
    with pytest.raises(MaskError, match=said):
        decode_brush(data, 1, 2)


def test_an_ellipse_and_a_turned_rectangle(tmp_path: Path) -> None:
    ellipse = region({"x": 50, "y": 37.5, "radiusX": 44, "radiusY": 20, "rotation": 0}, kind="ellipselabels")
    assert drawn(tmp_path, ellipse) == [[0] * 5, [2] * 5, [0] * 5, [0] * 5]
    # 2.8 x 0.8 pixels at (2.9, 0.1), turned by a right angle about that corner: column 2, rows 0-2.
    flat = {"x": 58, "y": 2.5, "width": 56, "height": 20, "rotation": 90}
    assert drawn(tmp_path, region(flat, kind="rectanglelabels")) == [[0, 0, 2, 0, 0]] * 3 + [[0] * 5]


def test_choices_and_key_points_are_not_drawn(tmp_path: Path) -> None:
    choice = {"type": "choices", "value": {"choices": ["good"]}}
    point = region({"x": 1, "y": 1, "width": 0.5}, kind="keypointlabels")
    assert drawn(tmp_path, choice, point, {"type": "relation"}) == [[0] * 5] * 4


def test_tasks_nobody_did_are_unlabelled_and_empty_ones_are_background(tmp_path: Path) -> None:
    undone = {"id": 1, "annotations": [], "data": {"image": "a.png"}}
    cancelled = {"id": 2, "annotations": [{"was_cancelled": True, "result": [BOX]}], "data": {"image": "b.png"}}
    twice = {"id": 3, "annotations": [{"result": []}, {"result": [BOX]}], "data": {"photo": "s3://reef/c.png?v=1"}}
    write(tmp_path, undone, cancelled, twice)
    for name in ("b.png", "c.png"):
        (tmp_path / name).touch()
    found = labelstudio.records(tmp_path)
    assert [r.mask is None for r in found.records] == [True, True, False]
    assert {f.kind: f.count for f in found.findings} == {"no-annotation": 2, "several-annotations": 1}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/data/local-files/?d=reef/a%20b.png", "reef/a b.png"),
        ("/data/local-files/?d=home/me/reef/c.png", "c.png"),
        ("https://x.org/photos/c.png?token=1", "images/c.png"),
        ("data/upload/1/deadbeef-c.png", "data/deadbeef-c.png"),
        ("c.png", "c.png"),
        ("http://[x/c.png", "c.png"),
    ],
)
def test_images_are_found_by_their_links(tmp_path: Path, url: str, path: str) -> None:
    write(tmp_path, task(BOX, image=url))
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).touch()
    assert labelstudio.records(tmp_path).records[0].image == path


@pytest.mark.parametrize(
    "url", ["../../secret.png", "/data/local-files/?d=../../secret.png", "file:///etc/secret.png", ""]
)
def test_links_never_leave_the_root(tmp_path: Path, url: str) -> None:
    (tmp_path / "secret.png").touch()
    root = tmp_path / "a/b"
    root.mkdir(parents=True)
    write(root, task(BOX, image=url))
    found = labelstudio.records(root)
    assert found.records == []
    assert [f.kind for f in found.findings] == ["missing-file"]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (region({"points": [[0, 0], [1, 1]]}), "three or more points"),
        (region({"points": [[0, 0], [1, float("nan")], [1, 1]]}), "not a finite number"),
        (region({"points": "0,0"}), "numbers are incomplete"),
        (region({"points": [1, 2, 3]}), "three or more points"),
        (region({"x": 1, "width": 3}), "numbers are incomplete"),
        (region({"rle": [1, 2, 999]}), "no list of bytes"),
        (region({"points": [[0, 0]]}, "bird"), "no label 'bird'"),
        (region({"points": [[0, 0]]}, original_width=9), "drawn on 9x4 pixels, but the image has 5x4"),
        (region({"points": [[0, 0]]}, image_rotation=90), "rotated while it was annotated"),
        ({**BOX, "value": {"points": [[0, 0]]}}, "no label ''"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, item: object, said: str) -> None:
    with pytest.raises(MaskError, match=rf"export\.json, task 1, region 2: .*{said}"):
        drawn(tmp_path, BOX, item)


@pytest.mark.parametrize("text", ['[{"annotations": [], "data": 3}]', '[{"annotations": [], "data"', "[" * 99_999])
def test_broken_exports_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "export.json").write_text('[{"annotations": [], "data": {}}, ' + text)
    with pytest.raises(DataError):
        labelstudio.records(tmp_path)
    (tmp_path / "export.json").write_text('[{"annotations": [], "data": 3}]')
    with pytest.raises(LayoutError, match="no list of tasks"):
        labelstudio.records(tmp_path)


def test_other_json_is_not_label_studios(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"images": [], "annotations": [], "categories": []}')
    (tmp_path / "b.json").write_text('["annotations"]')
    assert not labelstudio.can_read(tmp_path)
    assert not labelstudio.can_read(tmp_path / "nowhere")
