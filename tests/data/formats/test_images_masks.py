from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, kinds, labelled, masks, parts, tree, write

from ftcseg.data.formats import class_folders, images_masks
from ftcseg.errors import LayoutError
from ftcseg.types import Record


def test_images_find_their_masks_and_the_rest_is_unlabelled(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.png", "images/b.jpg", "images/seq 1/c.png", "masks/a.png", "masks/seq 1/c_mask.npy")
    assert images_masks.can_read(tmp_path)
    found = images_masks.records(tmp_path)
    assert found.layout == "images-masks"
    assert found.records == [
        labelled("images/a.png", "masks/a.png"),
        Record("images/b.jpg"),
        labelled("images/seq 1/c.png", "masks/seq 1/c_mask.npy"),
    ]
    assert (found.classes, found.coding, found.findings) == (None, None, ())


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("Images/a.PNG", "Masks/a.png"),
        ("img/a.png", "labels/a_L.png"),
        ("frames/a.png", "gt/a_gt.png"),
        ("rgb/a.png", "annotations/a.tiff"),
        ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
    ],
)
def test_folders_have_many_names(tmp_path: Path, image: str, mask: str) -> None:
    found = images_masks.records(tree(tmp_path, image, mask))
    assert found.records == [labelled(image, mask)]


def test_parts_are_told_by_folders_below_the_images(tmp_path: Path) -> None:
    tree(tmp_path, "images/Train/a.png", "images/dev/b.png", "images/testing/c.png", "masks/Train/a.png")
    found = images_masks.records(tmp_path)
    assert parts(found) == {"images/Train/a.png": "train", "images/dev/b.png": "val", "images/testing/c.png": "test"}
    assert masks(found)["images/Train/a.png"] == "masks/Train/a.png"


def test_parts_are_told_by_folders_above_the_images(tmp_path: Path) -> None:
    tree(tmp_path, "train_val/images/a.png", "train_val/masks/a.png", "TEST/images/b.png", "TEST/masks/b.png")
    assert images_masks.records(tmp_path).records == [
        labelled("train_val/images/a.png", "train_val/masks/a.png", "train"),
        labelled("TEST/images/b.png", "TEST/masks/b.png", "test"),
    ]


def test_what_is_declared_unlabelled_has_no_mask(tmp_path: Path) -> None:
    tree(
        tmp_path, "images/unlabeled/a.png", "masks/unlabeled/a.png", "unlabelled/images/b.png", "unlabelled/masks/b.png"
    )
    tree(tmp_path, "images/c.png", "masks/c.png")
    found = images_masks.records(tmp_path)
    assert masks(found) == {
        "images/c.png": "masks/c.png",
        "images/unlabeled/a.png": None,
        "unlabelled/images/b.png": None,
    }
    assert (finding(found, "oracle-masks").count, finding(found, "oracle-masks").severity) == (2, "note")


def test_a_plain_folder_of_images_is_unlabelled(tmp_path: Path) -> None:
    tree(tmp_path, "dive 1/a.png", "b.jpg", "readme.txt")
    assert images_masks.can_read(tmp_path)
    assert images_masks.records(tmp_path).records == [Record("b.jpg"), Record("dive 1/a.png")]


def test_masks_beside_images_are_no_images(tmp_path: Path) -> None:
    tree(tmp_path, "a.jpg", "a_mask.png", "b.jpg")
    assert images_masks.records(tmp_path).records == [labelled("a.jpg", "a_mask.png"), Record("b.jpg")]


def test_a_mask_folder_among_the_images_is_no_folder_of_images(tmp_path: Path) -> None:
    tree(tmp_path, "a.jpg", "b.jpg", "masks/a.png")
    assert images_masks.records(tmp_path).records == [labelled("a.jpg", "masks/a.png"), Record("b.jpg")]


def test_suim_is_read_by_its_combined_masks_alone(tmp_path: Path) -> None:
    tree(tmp_path, "test/images/x.jpg", "test/masks/x.bmp", "test/masks/RO/x.bmp", "test/masks/HD/x.bmp")
    assert not class_folders.can_read(tmp_path)
    found = images_masks.records(tmp_path)
    assert found.records == [labelled("test/images/x.jpg", "test/masks/x.bmp", "test")]
    assert kinds(found) == {"class-masks"}
    assert finding(found, "class-masks").count == 2


def test_doubtful_pairs_are_reported_with_counts(tmp_path: Path) -> None:
    tree(tmp_path, "images/a.jpg", "images/a.png", "images/b.png")
    tree(tmp_path, "masks/a.png", "masks/b.png", "masks/b_mask.png", "masks/c.png", "masks/d.png")
    found = images_masks.records(tmp_path)
    assert masks(found) == {"images/a.jpg": "masks/a.png", "images/b.png": "masks/b.png"}
    orphans = finding(found, "mask-without-image")
    assert (orphans.file, orphans.count) == ("masks/c.png", 2)
    assert [(f.file, f.count) for f in found.findings if f.kind == "ambiguous"] == [
        ("images/a.png", 1),
        ("masks/b_mask.png", 1),
    ]


def test_class_names_and_lists_of_parts_are_used(tmp_path: Path) -> None:
    tree(tmp_path, "images/aris-1.png", "images/aris-2.png", "masks/aris-1.png")
    write(tmp_path, "classes.txt", "background", "bottle")
    write(tmp_path, "val_ids.txt", "2")
    found = images_masks.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "bottle"]
    assert parts(found) == {"images/aris-1.png": "train", "images/aris-2.png": "val"}


def test_names_may_be_long_or_foreign(tmp_path: Path) -> None:
    names = ["日本 語", "Ünïcödé", "x" * 240, "a.b.c", "-rf", "%s{0}"]
    tree(tmp_path, *(f"images/{n}.png" for n in names), *(f"masks/{n}.bmp" for n in names))
    assert masks(images_masks.records(tmp_path)) == {f"images/{n}.png": f"masks/{n}.bmp" for n in names}


def test_an_image_that_links_outwards_is_an_error_and_skipped(tmp_path: Path) -> None:
    tree(tmp_path, "secret.png")
    root = tree(tmp_path / "root", "images/a.png", "masks/a.png", "masks/b.png")
    (root / "images/b.png").symlink_to(tmp_path / "secret.png")
    found = images_masks.records(root)
    assert masks(found) == {"images/a.png": "masks/a.png"}
    assert finding(found, "unsafe-path").severity == "error"


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    assert not images_masks.can_read(tmp_path / "images")
    with pytest.raises(LayoutError, match="holds no images"):
        images_masks.records(tmp_path)
