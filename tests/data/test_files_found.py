from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ftcseg.data.files_found import (
    IMAGE_SUFFIXES,
    Listed,
    Section,
    Tally,
    class_table,
    color_coding,
    found,
    holds,
    id_coding,
    listed_classes,
    masks_beside,
    pair,
    sections,
    tell_missing,
    text_lines,
    walk,
    with_listed_parts,
    without_ending,
    without_folder,
)
from ftcseg.errors import LayoutError, UnsafePathError
from ftcseg.types import Finding, MaskFile, Record


def tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def only(tally: Tally) -> Finding:
    (finding,) = tally.findings()
    return finding


# ---------------------------------------------------------------- listing


def test_files_are_listed_sorted_and_relative_to_the_root(tmp_path: Path) -> None:
    tree(tmp_path, "images/b.png", "images/a.JPG", "images/deep/er/c.tif", "images/notes.txt", "other/d.png")
    tally = Tally()
    assert walk(tmp_path, "images", IMAGE_SUFFIXES, tally) == ["images/a.JPG", "images/b.png", "images/deep/er/c.tif"]
    assert walk(tmp_path, "", IMAGE_SUFFIXES, tally)[-1] == "other/d.png"
    assert tally.findings() == ()


def test_litter_of_machines_is_skipped_in_silence(tmp_path: Path) -> None:
    litter = (".DS_Store", "._a.png", ".cache/x.png", "__MACOSX/a.png", "@eaDir/a.png", "Thumbs.db")
    tree(tmp_path, "a.png", *litter)
    tally = Tally()
    assert walk(tmp_path, "", IMAGE_SUFFIXES, tally) == ["a.png"]
    assert tally.findings() == ()


def test_links_that_leave_the_root_are_reported_once_and_skipped(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", "x.png", "y.png")
    root = tree(tmp_path / "root", "images/a.png")
    (root / "images/z.png").symlink_to(outside / "x.png")
    (root / "images/b.png").symlink_to(outside / "y.png")
    (root / "images/folder").symlink_to(outside)
    tally = Tally()
    assert walk(root, "images", IMAGE_SUFFIXES, tally) == ["images/a.png"]
    finding = only(tally)
    assert (finding.kind, finding.severity, finding.count) == ("unsafe-path", "error", 3)
    assert finding.file == "images/b.png"  # the first by name, whatever the order of the disk


def test_a_folder_that_is_itself_a_link_outwards_is_not_read(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", "x.png")
    root = tree(tmp_path / "root", "a.txt")
    (root / "images").symlink_to(outside)
    tally = Tally()
    assert walk(root, "images", IMAGE_SUFFIXES, tally) == []
    assert only(tally).kind == "unsafe-path"


def test_links_within_the_root_are_followed_and_loops_end(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "images/a.png", "pool/b.png")
    (root / "images/up").symlink_to(root)
    (root / "images/here").symlink_to(root / "images")
    (root / "images/more").symlink_to(root / "pool")
    (root / "pool/back").symlink_to(root / "images")
    (root / "images/c.png").symlink_to(root / "pool/b.png")
    tally = Tally()
    assert walk(root, "images", IMAGE_SUFFIXES, tally) == ["images/a.png", "images/c.png", "images/more/b.png"]
    assert only(tally).kind == "linked-folder"
    assert only(tally).count == 3  # up, here, more/back


def test_two_links_to_each_folder_below_do_not_multiply(tmp_path: Path) -> None:
    # 2^30 paths lead to the last folder.
    for i in range(30):
        (tmp_path / f"d{i}").mkdir()
        for name in "ab":
            (tmp_path / f"d{i}" / name).symlink_to(tmp_path / f"d{i + 1}")
    tree(tmp_path, "d30/x.png")
    assert len(walk(tmp_path, "d0", IMAGE_SUFFIXES, Tally())) == 1


def test_links_to_nothing_and_to_themselves_are_reported(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    tally = Tally()
    assert walk(tmp_path, "", IMAGE_SUFFIXES, tally) == []
    assert (only(tally).kind, only(tally).count) == ("broken-link", 2)


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
def test_a_pipe_named_like_a_picture_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    tally = Tally()
    assert walk(tmp_path, "", IMAGE_SUFFIXES, tally) == []
    assert not holds(tmp_path, IMAGE_SUFFIXES)


@pytest.mark.skipif(sys.platform != "linux", reason="only there names are bytes")
def test_a_name_that_is_no_text_is_reported(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))).touch()
    tally = Tally()
    assert walk(tmp_path, "", IMAGE_SUFFIXES, tally) == []
    assert only(tally).kind == "bad-name"
    assert only(tally).file.isascii()


def test_unicode_and_the_longest_names_are_kept(tmp_path: Path) -> None:
    names = sorted(["тест 図.png", "é.png", "e" * 251 + ".png", "new\nline.png", "a  b .png"])
    tree(tmp_path, *names)
    assert walk(tmp_path, "", IMAGE_SUFFIXES, Tally()) == names


def test_a_missing_folder_is_a_finding(tmp_path: Path) -> None:
    tally = Tally()
    assert walk(tmp_path, "nowhere", IMAGE_SUFFIXES, tally) == []
    assert only(tally).kind == "unreadable-folder"


def test_a_quick_look_goes_as_deep_as_told(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/c.png")
    assert not holds(tmp_path, IMAGE_SUFFIXES, 1)
    assert holds(tmp_path, IMAGE_SUFFIXES, 2)


# ---------------------------------------------------------------- pairing


def test_masks_are_found_by_path_without_suffix_or_ending() -> None:
    images = ["images/a.png", "images/b.jpg", "images/c.png", "images/seq/a.png"]
    masks = ["masks/a.png", "masks/b_mask.npy", "masks/seq/a-gt.bmp"]
    pairing = pair(images, masks, "images", "masks")
    assert pairing.masks == ["masks/a.png", "masks/b_mask.npy", None, "masks/seq/a-gt.bmp"]
    assert pairing.orphans == []


def test_an_image_may_itself_end_like_a_mask() -> None:
    assert pair(["a_mask.png"], ["a_mask.png"]).masks == ["a_mask.png"]


def test_twins_rivals_copies_and_orphans_are_told_apart() -> None:
    pairing = pair(["a.jpg", "a.png", "b.png"], ["RO/a.bmp", "a.bmp", "a_mask.bmp", "c.bmp", "seq/d.bmp"])
    assert pairing.masks == ["a.bmp", None, None]
    assert pairing.twins == [1]
    assert pairing.rivals == ["a_mask.bmp"]
    assert pairing.copies == ["RO/a.bmp"]
    assert pairing.orphans == ["c.bmp", "seq/d.bmp"]


def test_names_lose_only_their_own_endings() -> None:
    assert [without_ending(n) for n in ("x_mask", "x-gt", "x_L", "mask", "x_masked", "x_labelTrainIds")] == [
        *("x", "x", "x", "mask", "x_masked", "x")
    ]
    assert [without_folder(n) for n in ("x", "RO/x", "train/RO/x")] == ["x", "x", "train/x"]


def test_masks_beside_their_images_are_told_from_images() -> None:
    assert masks_beside(["a.jpg", "a_mask.png", "lone_mask.png"]) == (["a.jpg", "lone_mask.png"], ["a_mask.png"])


def test_a_million_pairs_take_seconds_and_little_memory() -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    images = [f"images/cruise_{i // 1000:04d}/frame_{i:07d}.png" for i in range(1_000_000)]
    masks = [f"masks/cruise_{i // 1000:04d}/frame_{i:07d}_mask.png" for i in range(0, 1_000_000, 2)]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    pairing = pair(images, masks, "images", "masks")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kilobytes on Linux
    assert sum(mask is not None for mask in pairing.masks) == 500_000
    assert time.perf_counter() - start < 30
    assert sys.platform != "linux" or used < 500_000


# ---------------------------------------------------------------- sections


def test_sections_are_found_at_the_root_and_in_parts(tmp_path: Path) -> None:
    tree(tmp_path, "Images/a.png", "GT/a.png", "TEST/imgs/b.png", "test/notes.txt", "valid/c.png", "unlabeled/d.png")
    assert sections(tmp_path) == [
        Section("Images", "GT"),
        Section("valid", None, "val"),
        Section("TEST/imgs", None, "test"),
        Section("unlabeled", None, "train"),
    ]


def test_masks_of_a_part_may_lie_in_a_folder_beside_it(tmp_path: Path) -> None:
    tree(tmp_path, "train/seq/a.jpg", "train_masks/seq/a.png", "Val/b.jpg", "ValAnnot/b.png")
    assert sections(tmp_path) == [Section("train", "train_masks", "train"), Section("Val", "ValAnnot", "val")]


def test_a_part_is_told_by_the_first_folder_below_the_images() -> None:
    section = Section("images", "masks")
    assert section.place_of("images/Validation/seq") == ("val", False)
    assert section.place_of("images/seq/val") == ("train", False)
    assert section.place_of("images/Unlabelled/x") == ("train", True)
    assert Section("test/images", None, "test").place_of("test/images/train") == ("test", False)


# ---------------------------------------------------------------- text files


def test_listed_files_are_found_and_unsafe_names_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "images/a b.png")
    tree(tmp_path, "secret.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "fine.png").symlink_to(root / "images/a b.png")
    listed = Listed(root)
    assert listed.find("./images//a b.png") == "images/a b.png"
    assert listed.find("images\\a b.png") == "images/a b.png"
    assert listed.find("fine.png") == "fine.png"
    assert listed.find("images/none.png") is None
    outside = ("../secret.png", "images/../../secret.png", "link.png", str(tmp_path / "secret.png"))
    for name in (*outside, "x" * 300 + ".png", "a\0b", "", "."):
        with pytest.raises(UnsafePathError):
            listed.find(name)
        assert listed.find_safe(name) is None


def test_missing_and_unsafe_names_are_counted_apart(tmp_path: Path) -> None:
    tally = Tally()
    for i, name in enumerate(("a.png", "b.png", "../c.png"), 1):
        tell_missing(tmp_path, name, "val.txt", f"Line {i}", tally)
    missing, unsafe = tally.findings()
    assert (missing.kind, missing.file, missing.count) == ("missing-file", "val.txt", 2)
    assert "Line 1: 'a.png'" in missing.detail
    assert (unsafe.kind, unsafe.severity) == ("unsafe-path", "error")
    assert "Line 3" in unsafe.detail


def test_a_text_file_that_links_outwards_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token\n")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/labels.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(UnsafePathError):
        text_lines(tmp_path / "root", "labels.txt")
    tally = Tally()
    assert listed_classes(tmp_path / "root", tally) is None
    assert "token" not in only(tally).detail


# ---------------------------------------------------------------- lists of parts


def as_records(*images: str) -> list[Record]:
    return [Record(image, MaskFile(f"masks/{image}")) for image in images]


@pytest.mark.parametrize("line", ["images/x-7.png", "images/x-7", "x-7.png", "x-7", "7"])
def test_a_list_may_give_path_name_stem_or_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "val_ids.txt").write_text(f"{line}\n\n")
    tally = Tally()
    records = with_listed_parts(tmp_path, as_records("images/x-7.png", "images/x-17.png"), tally)
    assert [r.part for r in records] == ["val", "train"]
    assert tally.findings() == ()


@pytest.mark.parametrize("line", ["nobody.png", "../../etc/passwd", "7", "x"])
def test_a_list_that_names_strangers_or_several_is_not_used(tmp_path: Path, line: str) -> None:
    (tmp_path / "test.txt").write_text(f"{line}\nimages/a/x_7.png\n")
    tally = Tally()
    records = with_listed_parts(tmp_path, as_records("images/a/x_7.png", "images/b/x_7.png"), tally)
    assert {r.part for r in records} == {"train"}
    assert (only(tally).kind, only(tally).file) == ("list-ignored", "test.txt")


def test_an_image_in_two_lists_stays_held_out(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\nb\n")
    (tmp_path / "val.txt").write_text("b\n")
    tally = Tally()
    records = with_listed_parts(tmp_path, as_records("images/a.png", "images/b.png"), tally)
    assert [r.part for r in records] == ["train", "val"]
    assert only(tally).kind == "part-overlap"


def test_a_binary_list_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "val.txt").write_bytes(b"\xff\xfe\x00")
    tally = Tally()
    assert with_listed_parts(tmp_path, as_records("a.png"), tally) == as_records("a.png")
    assert only(tally).kind == "list-ignored"


# ---------------------------------------------------------------- classes


def test_class_names_come_one_a_line_or_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("background\nrope ladder\n")
    plain = listed_classes(tmp_path, Tally())
    assert plain is not None
    assert plain.names == ["background", "rope ladder"]
    assert [c.background for c in plain] == [True, False]
    (tmp_path / "classes.txt").write_text("10 rope\n0: background\n")
    numbered = listed_classes(tmp_path, Tally())
    assert numbered is not None
    assert [(c.name, c.values) for c in numbered] == [("background", ()), ("rope", (10,))]
    assert dict(id_coding(numbered).values) == {0: 0, 10: 1}


@pytest.mark.parametrize("text", ["", "a\na\n", "1 a\n1 b\n", "a.png\nb.png\n", "\x1b[2J\n", "x\n" * 40_000])
def test_a_file_that_lists_no_classes_is_not_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.txt").write_text(text)
    tally = Tally()
    assert listed_classes(tmp_path, tally) is None
    assert (only(tally).kind, only(tally).file) == ("class-names-ignored", "labels.txt")


def test_colours_put_background_first_and_void_aside() -> None:
    entries = [("car", (1, 2, 3)), ("Void", (0, 0, 0)), ("background", (9, 9, 9)), ("car", (4, 5, 6))]
    classes, coding = color_coding(entries, "table")
    assert classes.names == ["background", "car"]
    assert classes[1].colors == ((1, 2, 3), (4, 5, 6))
    assert dict(coding.colors) == {(1, 2, 3): 1, (9, 9, 9): 0, (4, 5, 6): 1}
    assert coding.ignore_colors == {(0, 0, 0)}


def test_one_colour_for_two_classes_is_refused() -> None:
    with pytest.raises(LayoutError, match="both 'a' and 'b'"):
        color_coding([("a", (1, 1, 1)), ("b", (1, 1, 1))], "table")


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(LayoutError, match="2 classes, 1 of them different"):
        class_table({0: "a", 1: "a"}, "table")


def test_nothing_found_is_an_error_unless_findings_say_why(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="no images"):
        found("voc", tmp_path, [], Tally())
    tally = Tally()
    tell_missing(tmp_path, "a.png", "val.txt", "Line 1", tally)
    assert found("voc", tmp_path, [], tally).findings == tally.findings()
