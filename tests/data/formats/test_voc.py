from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, kinds, labelled, masks, parts, tree, write

from ftcseg.data.formats import voc
from ftcseg.errors import LayoutError
from ftcseg.types import Record

LISTS = "ImageSets/Segmentation"


def voc_set(root: Path) -> Path:
    stems = ("2007_000001", "2007_000002", "2007_000003", "2008_000004")
    tree(root, *(f"JPEGImages/{s}.jpg" for s in stems), *(f"SegmentationClass/{s}.png" for s in stems[:3]))
    write(root, f"{LISTS}/train.txt", "2007_000001")
    write(root, f"{LISTS}/val.txt", "2007_000002")
    write(root, f"{LISTS}/trainval.txt", "2007_000001", "2007_000002", "2007_000003")
    return root


def test_lists_give_the_parts_and_the_rest_is_unlabelled(tmp_path: Path) -> None:
    assert voc.can_read(voc_set(tmp_path))
    found = voc.records(tmp_path)
    assert found.layout == "voc"
    assert found.records == [
        labelled("JPEGImages/2007_000001.jpg", "SegmentationClass/2007_000001.png"),
        labelled("JPEGImages/2007_000002.jpg", "SegmentationClass/2007_000002.png", "val"),
        labelled("JPEGImages/2007_000003.jpg", "SegmentationClass/2007_000003.png"),
        Record("JPEGImages/2008_000004.jpg"),
    ]
    assert found.findings == ()


def test_voc_itself_has_its_21_classes_and_255_is_unknown(tmp_path: Path) -> None:
    found = voc.records(voc_set(tmp_path))
    assert found.classes is not None
    assert len(found.classes) == 21
    assert found.classes.names[::20] == ["background", "tvmonitor"]
    assert found.coding is not None
    assert found.coding.kind == "ids"
    assert dict(found.coding.values) == {i: i for i in range(21)}
    assert found.coding.ignore == {255}


def test_a_set_that_borrows_the_layout_is_not_given_vocs_classes(tmp_path: Path) -> None:
    tree(tmp_path, "JPEGImages/weld.jpg", "SegmentationClass/weld.png")
    assert voc.records(tmp_path).classes is None
    write(tmp_path, "class_names.txt", "background", "crack")
    classes = voc.records(tmp_path).classes
    assert classes is not None
    assert classes.names == ["background", "crack"]


@pytest.mark.parametrize("home", ["VOC2012", "VOCdevkit/VOC2012"])
def test_the_devkit_is_found_below_and_the_latest_year_taken(tmp_path: Path, home: str) -> None:
    tree(tmp_path, f"{home}/JPEGImages/000007.jpg", f"{home}/SegmentationClass/000007.png")
    tree(tmp_path, "VOC2007/JPEGImages/old.jpg", "VOC2007/SegmentationClass/old.png")
    write(tmp_path, f"{home}/{LISTS}/test.txt", "000007")
    found = voc.records(tmp_path)
    image, mask = f"{home}/JPEGImages/000007.jpg", f"{home}/SegmentationClass/000007.png"
    assert found.records == [labelled(image, mask, "test")]
    assert found.classes is not None


def test_listed_stems_without_image_are_counted_and_unsafe_ones_told(tmp_path: Path) -> None:
    write(voc_set(tmp_path), f"{LISTS}/val.txt", "2007_000002", "gone1", "gone2", "../../../etc/passwd")
    found = voc.records(tmp_path)
    missing, unsafe = finding(found, "missing-file"), finding(found, "unsafe-path")
    assert (missing.file, missing.count) == (f"{LISTS}/val.txt", 2)
    assert (unsafe.file, unsafe.severity) == (f"{LISTS}/val.txt", "error")
    assert "Line 4" in unsafe.detail


def test_cvat_gives_colours_with_background_first(tmp_path: Path) -> None:
    tree(tmp_path, "JPEGImages/dive 1/f 1.png", "SegmentationClass/dive 1/f 1.png", "JPEGImages/f2.png")
    write(tmp_path, "labelmap.txt", "# label:color_rgb:parts:actions", "rope:250,50,83::", "background:0,0,0::")
    write(tmp_path, f"{LISTS}/Validation.txt", "dive 1/f 1")
    write(tmp_path, f"{LISTS}/default.txt", "f2")
    found = voc.records(tmp_path)
    assert found.layout == "cvat-mask"
    assert found.classes is not None
    assert found.classes.names == ["background", "rope"]
    assert found.coding is not None
    assert found.coding.kind == "colors"
    assert dict(found.coding.colors) == {(0, 0, 0): 0, (250, 50, 83): 1}
    assert parts(found) == {"JPEGImages/dive 1/f 1.png": "val", "JPEGImages/f2.png": "train"}
    assert masks(found)["JPEGImages/f2.png"] is None


def test_cvat_without_saved_images_says_what_to_do(tmp_path: Path) -> None:
    write(tree(tmp_path, "SegmentationClass/a.png"), "labelmap.txt", "background:0,0,0::")
    assert voc.can_read(tmp_path)
    with pytest.raises(LayoutError, match="Save images"):
        voc.records(tmp_path)


@pytest.mark.parametrize("line", ["rope", "rope:1,2::", "rope:1,2,256::", "rope:-1,2,3::", ":1,2,3::"])
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    tree(tmp_path, "JPEGImages/a.png", "SegmentationClass/a.png")
    write(tmp_path, "labelmap.txt", "background:0,0,0::", line)
    with pytest.raises(LayoutError, match="line 2"):
        voc.records(tmp_path)


def test_empty_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "JPEGImages").mkdir()
    assert not voc.can_read(tmp_path)
    (tmp_path / "SegmentationClass").mkdir()
    with pytest.raises(LayoutError, match="no images"):
        voc.records(tmp_path)


def test_an_image_that_links_outwards_is_skipped(tmp_path: Path) -> None:
    tree(tmp_path, "secret.jpg")
    root = voc_set(tmp_path / "root")
    (root / "JPEGImages/evil.jpg").symlink_to(tmp_path / "secret.jpg")
    found = voc.records(root)
    assert len(found.records) == 4
    assert kinds(found) == {"unsafe-path"}
