from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_trees import finding, kinds, labelled, masks, parts, tree, write

from ftcseg.data.formats import ultralytics
from ftcseg.errors import LayoutError, MaskError, UnsafePathError
from ftcseg.types import Record, Shapes

NAMES = "names: {0: rope, 1: tyre}"


def polygons(root: Path, *lines: str) -> Shapes:
    write(root, "labels/x.txt", *lines)
    return Shapes("yolo", "labels/x.txt", "images/x.jpg")


def test_masks_lie_where_the_last_images_of_a_path_is_replaced(tmp_path: Path) -> None:
    tree(tmp_path, "images/train/images/a.jpg", "images/train/masks/a.png", "images/val/b c.jpg", "masks/val/b c.png")
    tree(tmp_path, "images/val/d.jpg")
    write(tmp_path, "data.yaml", "path: .", "train: images/train", "val: [images/val]", NAMES, "masks_dir: masks")
    assert ultralytics.can_read(tmp_path)
    found = ultralytics.records(tmp_path)
    assert found.layout == "ultralytics"
    assert found.records == [
        labelled("images/train/images/a.jpg", "images/train/masks/a.png"),
        labelled("images/val/b c.jpg", "masks/val/b c.png", "val"),
        Record("images/val/d.jpg", None, "val"),
    ]
    assert found.classes is not None
    assert found.classes.names == ["rope", "tyre"]
    assert found.coding is not None
    assert (found.coding.kind, dict(found.coding.values), found.coding.ignore) == ("ids", {0: 0, 1: 1}, {255})


def test_another_name_of_the_mask_folder_and_of_the_file(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.jpg", "seg/a.png", "masks/a.png")
    write(tmp_path, "harbour8.yaml", "train: images", "names: [rope]", "masks_dir: seg")
    assert masks(ultralytics.records(tmp_path)) == {"images/a.jpg": "seg/a.png"}


def test_lists_of_images_are_read_and_bad_lines_told(tmp_path: Path) -> None:
    tree(tmp_path, "secret.jpg")
    root = tree(tmp_path / "root", "images/a.jpg", "images/b.jpg", "masks/a.png")
    write(root, "data.yaml", "train: train.txt", "names: [rope]", "masks_dir: masks")
    write(root, "train.txt", "./images/a.jpg", "images/b.jpg", "../secret.jpg", "/etc/passwd", "images/none.jpg")
    found = ultralytics.records(root)
    assert masks(found) == {"images/a.jpg": "masks/a.png", "images/b.jpg": None}
    unsafe, missing = finding(found, "unsafe-path"), finding(found, "missing-file")
    assert (unsafe.file, unsafe.count, unsafe.severity) == ("train.txt", 2, "error")
    assert "Line 3" in unsafe.detail
    assert missing.count == 1


def test_the_path_of_another_machine_is_told_and_the_root_taken(tmp_path: Path) -> None:
    tree(tmp_path, "train/images/a.jpg", "train/labels/a.txt")
    # Both lines as Roboflow and Ultralytics users really have them.
    write(tmp_path, "data.yaml", "path: /content/datasets/rope", "train: ../train/images", NAMES)
    found = ultralytics.records(tmp_path)
    assert [r.image for r in found.records] == ["train/images/a.jpg"]
    assert kinds(found) == {"path-ignored"}


def test_a_part_outside_the_root_is_an_error(tmp_path: Path) -> None:
    tree(tmp_path, "away/x.jpg")
    root = tree(tmp_path / "root", "images/a.jpg")
    write(root, "data.yaml", "train: images", "val: ../../away", "test: images/none", NAMES)
    found = ultralytics.records(root)
    assert parts(found) == {"images/a.jpg": "train"}
    assert "«val»" in finding(found, "unsafe-path").detail
    assert "«test»" in finding(found, "missing-file").detail


def test_an_image_of_two_parts_stays_held_out(tmp_path: Path) -> None:
    tree(tmp_path, "images/train/a.jpg", "images/val/b.jpg")
    write(tmp_path, "data.yaml", "train: images", "val: images/val", NAMES)
    found = ultralytics.records(tmp_path)
    assert parts(found) == {"images/train/a.jpg": "train", "images/val/b.jpg": "val"}
    assert finding(found, "part-overlap").count == 1


def test_polygon_files_are_used_without_masks_dir(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.jpg", "images/b.jpg", "labels/a.txt")
    write(tmp_path, "data.yaml", "train: images", NAMES)
    found = ultralytics.records(tmp_path)
    assert found.layout == "ultralytics-polygons"
    assert found.records == [
        Record("images/a.jpg", Shapes("yolo", "labels/a.txt", "images/a.jpg")),
        Record("images/b.jpg"),
    ]
    assert found.classes is not None
    assert found.classes.names == ["background", "rope", "tyre"]
    assert found.coding is not None
    assert (found.coding.kind, dict(found.coding.values)) == ("drawn", {0: 0, 1: 1, 2: 2})


def test_a_background_among_the_names_is_what_no_polygon_covers(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.jpg", "labels/a.txt")
    write(tmp_path, "data.yaml", "train: images", "names: [rope, background]")
    found = ultralytics.records(tmp_path)
    assert found.classes is not None
    assert [(c.name, c.values, c.background) for c in found.classes] == [
        ("rope", (1,), False),
        ("background", (0, 2), True),
    ]
    assert found.coding is not None
    assert dict(found.coding.values) == {0: 1, 1: 0, 2: 1}


def test_small_polygons_are_drawn_over_large_ones(tmp_path: Path) -> None:
    # On 4 x 8 pixels: class 0 fills the left half, class 1 the two pixels in its corner, written first.
    ref = polygons(tmp_path, "1 0 0 0.25 0 0.25 0.25 0 0.25", "0 0 0 0.5 0 0.5 1 0 1")
    expected = np.array([[2, 2, 1, 1, 0, 0, 0, 0], *[[1, 1, 1, 1, 0, 0, 0, 0]] * 3])
    labels = ultralytics.draw(tmp_path, ref, (4, 8))
    assert labels.dtype == np.int16
    np.testing.assert_array_equal(labels, expected)


def test_an_empty_polygon_file_is_background(tmp_path: Path) -> None:
    assert not ultralytics.draw(tmp_path, polygons(tmp_path), (3, 5)).any()


@pytest.mark.parametrize(
    "line",
    [
        "0 0.5 0.5 0.2 0.2",  # a box
        "0 0.1 0.1 0.2 0.2 0.3",
        "0 0.1 0.1 0.2 0.2",
        "0 10 10 20 10 20 20",
        "0 nan 0 1 0 1 1",
        "-1 0 0 1 0 1 1",
        "0.5 0 0 1 0 1 1",
        "40000 0 0 1 0 1 1",
        "inf 0 0 1 0 1 1",
        "rope 0 0 1 0 1 1",
    ],
)
def test_a_line_that_is_no_polygon_is_refused_with_file_and_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(MaskError, match=r"labels/x\.txt, line 2"):
        ultralytics.draw(tmp_path, polygons(tmp_path, "0 0 0 1 0 1 1", line), (4, 4))


def test_drawing_does_not_leave_the_root(tmp_path: Path) -> None:
    write(tmp_path, "secret.txt", "0 0 0 1 0 1 1")
    with pytest.raises(UnsafePathError):
        ultralytics.draw(tmp_path / "root", Shapes("yolo", "../secret.txt", "x"), (4, 4))


@pytest.mark.parametrize(
    "names", ["names: rope", "names: [yes, no]", "names: {a: b}", "names: [[a]]", "names: {40000: a}"]
)
def test_names_that_are_none_are_refused(tmp_path: Path, names: str) -> None:
    write(tree(tmp_path, "images/a.jpg"), "data.yaml", "train: images", names)
    with pytest.raises(LayoutError, match="names"):
        ultralytics.records(tmp_path)


def test_a_broken_specification_is_told_rather_than_passed_over(tmp_path: Path) -> None:
    write(tree(tmp_path, "images/a.jpg"), "data.yaml", "train: [images")
    assert ultralytics.can_read(tmp_path)
    with pytest.raises(LayoutError, match="not valid YAML"):
        ultralytics.records(tmp_path)


@pytest.mark.parametrize("text", ["", "a: 1", "[1, 2]", "names: [a]"])
def test_other_yaml_files_are_left_alone(tmp_path: Path, text: str) -> None:
    write(tree(tmp_path, "images/a.jpg"), "data.yaml", text)
    assert not ultralytics.can_read(tmp_path)


def test_a_mask_folder_outside_the_root_is_not_read(tmp_path: Path) -> None:
    tree(tmp_path, "away/a.png")
    root = tree(tmp_path / "root", "images/a.jpg")
    write(root, "data.yaml", "train: images", NAMES, "masks_dir: ../away")
    found = ultralytics.records(root)
    assert masks(found) == {"images/a.jpg": None}
    assert finding(found, "unsafe-path").severity == "error"
