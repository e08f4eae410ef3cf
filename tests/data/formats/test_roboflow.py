from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, labelled, tree, write

from ftcseg.data.formats import roboflow
from ftcseg.errors import LayoutError
from ftcseg.types import Record

TABLE = ("Pixel Value, Class", "0, background", "1, rope, old", "2, tyre")


def test_masks_lie_beside_images(tmp_path: Path) -> None:
    tree(tmp_path, "train/a b_jpg.rf.01.jpg", "train/a b_jpg.rf.01_mask.png", "train/c.jpg")
    tree(tmp_path, "valid/d.jpg", "valid/d_mask.png", "test/e.jpg")
    for part in ("train", "valid", "test"):
        write(tmp_path, f"{part}/_classes.csv", *TABLE)
    assert roboflow.can_read(tmp_path)
    found = roboflow.records(tmp_path)
    assert found.layout == "roboflow"
    assert found.records == [
        labelled("train/a b_jpg.rf.01.jpg", "train/a b_jpg.rf.01_mask.png"),
        Record("train/c.jpg"),
        labelled("valid/d.jpg", "valid/d_mask.png", "val"),
        Record("test/e.jpg", None, "test"),
    ]
    assert found.classes is not None
    assert found.classes.names == ["background", "rope, old", "tyre"]
    assert found.classes.foreground == [1, 2]
    assert found.coding is not None
    assert (found.coding.kind, dict(found.coding.values)) == ("ids", {0: 0, 1: 1, 2: 2})


def test_values_need_not_run_from_zero(tmp_path: Path) -> None:
    write(tree(tmp_path, "train/a.jpg"), "train/_classes.csv", TABLE[0], "3, tyre", "7, rope")
    coding = roboflow.records(tmp_path).coding
    assert coding is not None
    assert dict(coding.values) == {3: 0, 7: 1}


def test_tables_that_differ_are_refused(tmp_path: Path) -> None:
    tree(tmp_path, "train/a.jpg", "valid/b.jpg")
    write(tmp_path, "train/_classes.csv", *TABLE)
    write(tmp_path, "valid/_classes.csv", TABLE[0], "0, background")
    with pytest.raises(LayoutError, match="differ"):
        roboflow.records(tmp_path)


@pytest.mark.parametrize("line", ["rope", "1", "0, again", "-1, rope", "1.5, rope"])
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    write(tree(tmp_path, "train/a.jpg"), "train/_classes.csv", TABLE[0], "0, background", line)
    with pytest.raises(LayoutError, match="line 3"):
        roboflow.records(tmp_path)


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    assert not roboflow.can_read(tree(tmp_path, "train/a.jpg"))
    write(tmp_path, "train/_classes.csv", "filename, rope, tyre", "a.jpg, 0, 1")  # labels of whole images
    assert not roboflow.can_read(tmp_path)


def test_a_part_without_a_table_is_read_with_that_of_the_others(tmp_path: Path) -> None:
    write(tree(tmp_path, "train/a.jpg", "test/b.jpg"), "train/_classes.csv", *TABLE)
    assert [r.image for r in roboflow.records(tmp_path).records] == ["train/a.jpg", "test/b.jpg"]


def test_an_image_that_links_outwards_is_skipped(tmp_path: Path) -> None:
    tree(tmp_path, "secret.jpg")
    root = tree(tmp_path / "root", "train/ä.jpg")
    write(root, "train/_classes.csv", *TABLE)
    (root / "train/b.jpg").symlink_to(tmp_path / "secret.jpg")
    found = roboflow.records(root)
    assert found.records == [Record("train/ä.jpg")]
    assert finding(found, "unsafe-path").file == "train/b.jpg"
