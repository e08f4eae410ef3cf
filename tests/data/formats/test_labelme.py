"""LabelMe files written by hand; the expected pixels are counted on paper."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ftcseg.data.formats import labelme
from ftcseg.errors import DataError, LayoutError, MaskError
from ftcseg.types import IGNORE, Shapes

BOX = [[1, 1], [4, 1], [4, 3], [1, 3]]  # columns 1-3, rows 1-2 of a 4 x 5 image
CORNER = [[0, 0], [2, 0], [2, 2], [0, 2]]  # columns 0-1, rows 0-1
NAMES = "background\ncrab\nfish"


def shape(label: str, points: object, kind: str | None = "polygon", **more: object) -> dict[str, Any]:
    return {"label": label, "points": points, "shape_type": kind, "group_id": None, **more}


def write(root: Path, name: str, *shapes: object, picture: str | None = None, **more: object) -> None:
    picture = picture or f"{Path(name).stem}.png"
    top = {"version": "5.4.1", "flags": {}, "shapes": shapes, "imagePath": picture, "imageData": "iVBORw0KGgo=" * 9}
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps({**top, "imageHeight": 4, "imageWidth": 5, **more}))


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def drawn(root: Path, *shapes: object, **more: object) -> list[list[int]]:
    write(root, "x.json", *shapes, **more)
    return labelme.draw(root, Shapes("labelme", "x.json", NAMES), (4, 5)).tolist()


def png(region: list[list[int]]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(np.array(region, dtype=bool)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_each_image_has_its_own_file_and_classes_go_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png", "c.png")
    write(tmp_path, "a.json", shape("fish", BOX), shape("_background_", BOX), shape("__ignore__", BOX))
    write(tmp_path, "b.json", shape("crab", BOX))
    assert labelme.can_read(tmp_path)
    found = labelme.records(tmp_path)
    assert (found.layout, found.findings) == ("labelme", ())
    assert found.classes is not None
    assert found.classes.names == ["background", "crab", "fish"]
    assert [(r.image, r.mask.path if isinstance(r.mask, Shapes) else None) for r in found.records] == [
        ("a.png", "a.json"),
        ("b.png", "b.json"),
        ("c.png", None),
    ]
    mask = found.records[0].mask
    assert isinstance(mask, Shapes)
    assert labelme.draw(tmp_path, mask, (4, 5))[1].tolist() == [0, -1, -1, -1, 0]
    assert found.coding is not None
    assert (dict(found.coding.values), found.coding.ignore) == ({0: 0, 1: 1, 2: 2}, {IGNORE})


def test_later_shapes_cover_earlier_ones(tmp_path: Path) -> None:
    assert drawn(tmp_path, shape("fish", BOX), shape("crab", CORNER)) == [
        [1, 1, 0, 0, 0],
        [1, 1, 2, 2, 0],
        [0, 2, 2, 2, 0],
        [0, 0, 0, 0, 0],
    ]
    assert drawn(tmp_path, shape("crab", CORNER), shape("fish", BOX))[1] == [1, 2, 2, 2, 0]


def test_background_erases_and_ignore_makes_unknown(tmp_path: Path) -> None:
    assert drawn(tmp_path, shape("fish", BOX), shape("background", CORNER))[1] == [0, 0, 2, 2, 0]
    assert drawn(tmp_path, shape("fish", BOX), shape("__ignore__", CORNER))[1] == [-1, -1, 2, 2, 0]


@pytest.mark.parametrize("corners", [[[1, 1], [4, 3]], [[4, 3], [1, 1]], [[4, 1], [1, 3]], BOX])
def test_a_rectangle_may_be_pulled_from_any_corner(tmp_path: Path, corners: list[list[int]]) -> None:
    assert drawn(tmp_path, shape("fish", corners, "rectangle")) == drawn(tmp_path, shape("fish", BOX))


def test_a_circle_is_its_centre_and_a_point_on_its_edge(tmp_path: Path) -> None:
    circle = shape("crab", [[1.5, 1.5], [1.5, 2.5]], "circle")
    assert drawn(tmp_path, circle) == [[0, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_a_mask_covers_its_corners_inclusively(tmp_path: Path) -> None:
    item = shape("fish", [[1, 2], [3, 3]], "mask", mask=png([[1, 0, 1], [0, 1, 0]]))
    assert drawn(tmp_path, item) == [[0] * 5, [0] * 5, [0, 2, 0, 2, 0], [0, 0, 2, 0, 0]]


@pytest.mark.parametrize(
    ("corners", "mask"),
    [
        ([[1, 2], [3, 3]], png([[1]])),
        ([[3, 2], [5, 3]], png([[1, 0, 1], [0, 1, 0]])),
        ([[-1, 2], [1, 3]], png([[1, 0, 1], [0, 1, 0]])),
        ([[1e99, 2], [1e99, 3]], png([[1], [1]])),
        ([[float("nan"), 2], [3, 3]], png([[1]])),
        ([[1, 2], [3, 3]], "no picture"),
        ([[1, 2], [3, 3]], ""),
        ([[1, 2], [3, 3]], None),
        ([[1, 2]], png([[1]])),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(tmp_path: Path, corners: object, mask: object) -> None:
    with pytest.raises(MaskError, match=r"x\.json, shape 1: A mask"):
        drawn(tmp_path, shape("fish", corners, "mask", mask=mask))


def test_files_of_old_versions_have_polygons_only(tmp_path: Path) -> None:
    assert drawn(tmp_path, {"label": "fish", "points": BOX})[1] == [0, 2, 2, 2, 0]
    assert drawn(tmp_path, shape("fish", BOX, None))[1] == [0, 2, 2, 2, 0]


def test_lines_and_points_are_left_out_and_counted(tmp_path: Path) -> None:
    touch(tmp_path, "x.png")
    line, dot = shape("rope", [[0, 0], [1, 1]], "linestrip"), shape("rope", [[1, 1]], "point")
    assert drawn(tmp_path, line, dot, shape("fish", BOX))[1] == [0, 2, 2, 2, 0]
    found = labelme.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "fish"]
    assert [(f.kind, f.count) for f in found.findings] == [("shape-ignored", 2)]


def test_classes_txt_fixes_the_order_and_names_every_label(tmp_path: Path) -> None:
    touch(tmp_path, "x.png")
    write(tmp_path, "x.json", shape("fish", BOX))
    (tmp_path / "classes.txt").write_text("__ignore__\n_background_\nwreck\nfish\n")
    found = labelme.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "wreck", "fish"]
    (tmp_path / "classes.txt").write_text("wreck\n")
    with pytest.raises(LayoutError, match="label 'fish' is used"):
        labelme.records(tmp_path)


def test_parts_come_from_folders_and_lists(tmp_path: Path) -> None:
    touch(tmp_path, "train/a.png", "valid/b.png", "images/test/c.png", "unlabelled/d.png", "e.png")
    for name in ("train/a.json", "valid/b.json", "images/test/c.json", "unlabelled/d.json", "e.json"):
        write(tmp_path, name, shape("fish", BOX))
    (tmp_path / "test.txt").write_text("e.png\n")
    found = labelme.records(tmp_path)
    assert {r.image: (r.part, r.mask is not None) for r in found.records} == {
        "train/a.png": ("train", True),
        "valid/b.png": ("val", True),
        "images/test/c.png": ("test", True),
        "unlabelled/d.png": ("train", False),
        "e.png": ("test", True),
    }
    assert [f.kind for f in found.findings] == ["oracle-masks"]


@pytest.mark.parametrize("pointed", ["../images/x.png", "..\\images\\x.png"])
def test_a_json_elsewhere_points_to_its_image(tmp_path: Path, pointed: str) -> None:
    touch(tmp_path, "images/x.png")
    write(tmp_path, "labels/x.json", shape("fish", BOX), picture=pointed)
    (record,) = labelme.records(tmp_path).records
    assert isinstance(record.mask, Shapes)
    assert record.mask.path == "labels/x.json"


def test_of_two_json_files_for_one_image_the_first_by_name_counts(tmp_path: Path) -> None:
    touch(tmp_path, "x.png")
    write(tmp_path, "x.json", shape("fish", BOX))
    write(tmp_path, "copy.json", shape("fish", BOX), picture="x.png")
    found = labelme.records(tmp_path)
    assert [f.kind for f in found.findings] == ["ambiguous"]


@pytest.mark.parametrize("pointed", ["../../secret.png", "/etc/passwd", "C:\\x.png"])
def test_image_paths_that_lead_out_are_reported_and_skipped(tmp_path: Path, pointed: str) -> None:
    touch(tmp_path, "a.png")
    write(tmp_path, "x.json", shape("fish", BOX), picture=pointed)
    found = labelme.records(tmp_path)
    assert [(r.image, r.mask) for r in found.records] == [("a.png", None)]
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.file) == ("unsafe-path", "error", "x.json")


def test_a_json_without_image_is_reported(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write(tmp_path, "x.json", shape("fish", BOX))
    assert [f.kind for f in labelme.records(tmp_path).findings] == ["missing-file"]


def test_a_json_without_shapes_is_an_image_of_background(tmp_path: Path) -> None:
    assert drawn(tmp_path) == [[0] * 5] * 4


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (shape("fish", [[0, 0], [1, 1]]), "three or more points"),
        (shape("fish", [[0, 0], [1, float("nan")], [1, 1]]), "not a finite number"),
        (shape("fish", [[0, 0, 0], [1, 1, 1]]), "no list of x and y"),
        (shape("fish", "0,0"), "no list of x and y"),
        (shape("fish", {"a": 1}), "no list of x and y"),
        (shape("fish", [[10**400, 0]]), "no list of x and y"),
        (shape("fish", [[1, 1]], "rectangle"), "two corners"),
        (shape("fish", [[1, 1]], "circle"), "its centre and a point"),
        (shape("fish", [[1, 1], [float("nan"), 1]], "circle"), "radius nan"),
        (shape("fish", BOX, "spline"), "type 'spline' cannot be drawn"),
        ({**shape("fish", BOX), "shape_type": ["polygon"]}, "cannot be drawn"),
        (shape("bird", BOX), "label 'bird' is none of background, crab, fish"),
        ("polygon", "label 'None'"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, item: object, said: str) -> None:
    with pytest.raises(MaskError, match=rf"x\.json, shape 2: .*{said}"):
        drawn(tmp_path, shape("fish", BOX), item)


def test_huge_coordinates_are_cut_off(tmp_path: Path) -> None:
    far = [[-1e15, 1], [1e15, 1], [1e15, 3], [-1e15, 3]]
    assert drawn(tmp_path, shape("fish", far)) == [[0] * 5, [2] * 5, [2] * 5, [0] * 5]


def test_another_image_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    with pytest.raises(MaskError, match=r"x\.json was drawn on 9x4 pixels, but the image has 5x4"):
        drawn(tmp_path, imageWidth=9)


def test_a_broken_file_keeps_its_image_and_says_so_when_drawn(tmp_path: Path) -> None:
    touch(tmp_path, "x.png", "y.png")
    write(tmp_path, "y.json", shape("fish", BOX))
    (tmp_path / "x.json").write_text('{"shapes": [')
    record = labelme.records(tmp_path).records[0]
    assert isinstance(record.mask, Shapes)
    with pytest.raises(DataError, match="not valid JSON"):
        labelme.draw(tmp_path, record.mask, (4, 5))


def test_other_json_is_not_labelme(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"images": [], "annotations": [], "categories": []}')
    assert not labelme.can_read(tmp_path)
    assert not labelme.can_read(tmp_path / "nowhere")
