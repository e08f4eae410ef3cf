from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, labelled, masks, parts, tree, write

from ftcseg.data.formats import colors
from ftcseg.errors import LayoutError
from ftcseg.types import Record


def test_camvid_with_a_csv_table(tmp_path: Path) -> None:
    tree(tmp_path, "train/a.png", "train_labels/a_L.png", "val/b.png", "val_labels/b_L.png", "test/c.png")
    write(tmp_path, "class_dict.csv", "name,r,g,b", "Animal,64,128,64", '"Car, parked", 64, 0, 128', "Void,0,0,0")
    assert colors.can_read(tmp_path)
    found = colors.records(tmp_path)
    assert found.layout == "camvid"
    assert found.records == [
        labelled("train/a.png", "train_labels/a_L.png"),
        labelled("val/b.png", "val_labels/b_L.png", "val"),
        Record("test/c.png", None, "test"),
    ]
    assert found.classes is not None
    assert found.classes.names == ["Animal", "Car, parked"]
    assert found.coding is not None
    assert found.coding.kind == "colors"
    assert dict(found.coding.colors) == {(64, 128, 64): 0, (64, 0, 128): 1}
    assert found.coding.ignore_colors == {(0, 0, 0)}


def test_camvid_with_a_text_table(tmp_path: Path) -> None:
    tree(tmp_path, "images/a b.png", "labels/a b_L.png")
    write(tmp_path, "label_colors.txt", "64 128 64\tAnimal", "0 0 192\t\tSign Symbol")
    found = colors.records(tmp_path)
    assert masks(found) == {"images/a b.png": "labels/a b_L.png"}
    assert found.classes is not None
    assert found.classes.names == ["Animal", "Sign Symbol"]


def test_parts_may_be_listed(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.png", "images/b.png", "labels/a.png")
    write(tmp_path, "label_colors.txt", "1 2 3 x")
    write(tmp_path, "val.txt", "b.png")
    assert parts(colors.records(tmp_path)) == {"images/a.png": "train", "images/b.png": "val"}


@pytest.mark.parametrize("row", ["Car,1,2", "Car,1,2,256", "Car,1,2,x", "Car,1,2,3,4", "Car"])
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    write(tree(tmp_path, "images/a.png"), "class_dict.csv", "name,r,g,b", "Bus,9,9,9", row)
    with pytest.raises(LayoutError, match="line 3"):
        colors.records(tmp_path)


def test_a_table_without_images_is_another_layout(tmp_path: Path) -> None:
    write(tmp_path, "class_dict.csv", "name,r,g,b", "Car,1,2,3")
    assert not colors.can_read(tmp_path)


def test_a_mask_that_links_outwards_is_an_error(tmp_path: Path) -> None:
    tree(tmp_path, "secret.png")
    root = tree(tmp_path / "root", "images/a.png", "labels/keep.txt")
    write(root, "class_dict.csv", "name,r,g,b", "Car,1,2,3")
    (root / "labels/a.png").symlink_to(tmp_path / "secret.png")
    found = colors.records(root)
    assert found.records == [Record("images/a.png")]
    assert finding(found, "unsafe-path").file == "labels/a.png"
