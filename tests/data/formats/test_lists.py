from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, kinds, labelled, masks, parts, tree, write

from ftcseg.data.formats import lists
from ftcseg.types import Record


def test_lists_say_what_is_labelled(tmp_path: Path) -> None:
    tree(tmp_path, "JPEGImages/a.jpg", "JPEGImages/b.jpg", "JPEGImages/c.jpg", "Seg/a.png", "Seg/c.png")
    write(tmp_path, "labeled.txt", "JPEGImages/a.jpg Seg/a.png")
    write(tmp_path, "unlabeled.txt", "", "JPEGImages/b.jpg", "")
    write(tmp_path, "val.txt", "./JPEGImages/c.jpg\tSeg/c.png")
    assert lists.can_read(tmp_path)
    found = lists.records(tmp_path)
    assert found.layout == "lists"
    assert found.records == [
        labelled("JPEGImages/c.jpg", "Seg/c.png", "val"),
        labelled("JPEGImages/a.jpg", "Seg/a.png"),
        Record("JPEGImages/b.jpg"),
    ]
    assert found.findings == ()


@pytest.mark.parametrize("name", ["labelled.txt", "unlabelled.txt", "splits/labeled.txt", "splits/unlabelled.txt"])
def test_both_spellings_and_a_folder_of_splits_will_do(tmp_path: Path, name: str) -> None:
    tree(tmp_path, "a.jpg", "a.png")
    write(tmp_path, name, "a.jpg a.png")
    assert lists.can_read(tmp_path)
    assert [r.image for r in lists.records(tmp_path).records] == ["a.jpg"]


def test_a_list_of_validation_images_alone_is_another_layout(tmp_path: Path) -> None:
    write(tree(tmp_path, "images/a.jpg"), "val.txt", "a")
    assert not lists.can_read(tmp_path)


def test_masks_of_unlabelled_images_are_not_read_and_need_not_exist(tmp_path: Path) -> None:
    tree(tmp_path, "a.jpg", "b.jpg", "masks/a.png")
    write(tmp_path, "unlabeled.txt", "a.jpg masks/a.png", "b.jpg masks/none.png")
    found = lists.records(tmp_path)
    assert found.records == [Record("a.jpg"), Record("b.jpg")]
    oracle = finding(found, "oracle-masks")
    assert (oracle.count, oracle.severity) == (2, "note")
    assert "not read" in oracle.detail


def test_spaces_in_names_are_read_where_files_leave_one_way(tmp_path: Path) -> None:
    tree(tmp_path, "my images/a b.jpg", "my masks/a b.png", "my images/c d.jpg")
    write(tmp_path, "labeled.txt", "my images/a b.jpg my masks/a b.png")
    write(tmp_path, "unlabeled.txt", "my images/c d.jpg")
    assert lists.records(tmp_path).records == [
        labelled("my images/a b.jpg", "my masks/a b.png"),
        Record("my images/c d.jpg"),
    ]


def test_a_line_with_two_readings_is_left_out(tmp_path: Path) -> None:
    # "a" + "b c" and "a b" + "c" both exist.
    tree(tmp_path, "a", "b c", "a b", "c")
    write(tmp_path, "labeled.txt", "a b c")
    found = lists.records(tmp_path)
    assert found.records == []
    assert finding(found, "ambiguous").file == "labeled.txt"


def test_unsafe_and_missing_lines_are_told_by_number_and_skipped(tmp_path: Path) -> None:
    tree(tmp_path, "secret.png")
    root = tree(tmp_path / "root", "a.jpg", "a.png")
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    lines = ["a.jpg a.png", "../secret.png a.png", "a.jpg ../secret.png", "/etc/passwd", "out.png", "none.jpg none.png"]
    write(root, "labeled.txt", *lines, "a.jpg gone.png")
    found = lists.records(root)
    assert masks(found) == {"a.jpg": "a.png"}
    unsafe = finding(found, "unsafe-path")
    assert (unsafe.file, unsafe.count, unsafe.severity) == ("labeled.txt", 4, "error")
    assert "Line 2" in unsafe.detail
    assert "../secret.png" in unsafe.detail
    missing = finding(found, "missing-file")
    assert (missing.file, missing.count) == ("labeled.txt", 2)


def test_a_labelled_line_without_mask_is_told(tmp_path: Path) -> None:
    write(tree(tmp_path, "a.jpg"), "labeled.txt", "a.jpg")
    found = lists.records(tmp_path)
    assert found.records == [Record("a.jpg")]
    assert kinds(found) == {"labelled-without-mask"}


def test_an_image_in_two_lists_stays_held_out(tmp_path: Path) -> None:
    tree(tmp_path, "a.jpg", "a.png")
    for name in ("labeled.txt", "test.txt"):
        write(tmp_path, name, "a.jpg a.png")
    found = lists.records(tmp_path)
    assert parts(found) == {"a.jpg": "test"}
    assert finding(found, "part-overlap").count == 1


def test_a_line_of_nothing_but_gaps_costs_no_time(tmp_path: Path) -> None:
    write(tree(tmp_path, "a.jpg"), "unlabeled.txt", "a.jpg", "x " * 1_000_000 + "y")
    found = lists.records(tmp_path)
    assert found.records == [Record("a.jpg")]
    assert finding(found, "unsafe-path").count == 1  # too long for a path


def test_windows_lists_are_read(tmp_path: Path) -> None:
    tree(tmp_path, "images/ä.jpg", "masks/ä.png")
    (tmp_path / "labeled.txt").write_bytes("\ufeffimages\\ä.jpg masks\\ä.png\r\n".encode())
    assert lists.records(tmp_path).records == [labelled("images/ä.jpg", "masks/ä.png")]
