"""Records to samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ftcseg import api
from ftcseg.data.dataset import open_dataset, thinned
from ftcseg.errors import FtcsegError, ImageError, LayoutError, MaskError, UsageError
from ftcseg.types import IGNORE
from picture_sets import images_and_masks, picture, save


def test_a_sample_is_the_image_and_its_class_ids(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 38, 255]], "b": None})
    dataset = open_dataset(root)
    assert len(dataset) == 2
    first, second = dataset
    assert (first.id, second.id) == ("images/a.png", "images/b.png")
    np.testing.assert_array_equal(first.image[:, :, 0], picture(0, 1, 3))
    assert first.labels is not None
    assert first.labels.tolist() == [[0, 1, IGNORE]]
    assert first.labels.dtype == np.int16
    assert second.labels is None
    assert dataset.classes.names == ["background", "value-38"]


def test_depth_and_channels_stay(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.fromarray(np.full((2, 3), 40_000, np.uint16)).save(tmp_path / "images/a.png")
    save(tmp_path / "images/b.png", picture(0, 2, 3, 3))
    deep, colored = open_dataset(tmp_path)
    assert (deep.image.dtype, deep.image.shape, int(deep.image.max())) == (np.uint16, (2, 3, 1), 40_000)
    assert (colored.image.dtype, colored.image.shape) == (np.uint8, (2, 3, 3))


def test_image_and_mask_are_turned_together(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    drawn = np.arange(6, dtype=np.uint8).reshape(2, 3)
    save(tmp_path / "images/a.png", drawn * 40, exif=exif)
    save(tmp_path / "masks/a.png", drawn)
    (sample,) = open_dataset(tmp_path)
    assert sample.labels is not None
    np.testing.assert_array_equal(sample.image[:, :, 0], np.rot90(drawn, -1) * 40)
    np.testing.assert_array_equal(sample.labels, np.rot90(drawn, -1))


def test_parts_and_lists_of_a_set(sonar12: Path) -> None:
    dataset = open_dataset(sonar12)
    assert (len(dataset.part("train")), len(dataset.part("test")), len(dataset.part("val"))) == (10, 2, 0)
    assert len(dataset.labeled()) == 12
    some = dataset.only(["images/train/sonar-000003.png", "images/train/sonar-000001.png"])
    assert [sample.id for sample in some] == ["images/train/sonar-000003.png", "images/train/sonar-000001.png"]
    with pytest.raises(LayoutError, match=r"1 of 2 listed images are not in sonar12: images/x\.png"):
        dataset.only(["images/train/sonar-000003.png", "images/x.png"])


def test_labelled_ones_are_those_with_a_mask(tmp_path: Path) -> None:
    dataset = open_dataset(images_and_masks(tmp_path, {"a": [[0, 1]], "b": None}))
    assert [r.image for r in dataset.labeled().records] == ["images/a.png"]


def test_a_broken_file_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 1]], "b": [[0, 0, 1]], "c": [[0, 0, 1]]})
    api.doctor(root, write=root / "dataset.yaml")
    (root / "images/a.png").write_bytes(b"")
    (root / "masks/b.png").write_bytes(b"")
    save(root / "masks/c.png", [[0, 0, 9]])
    dataset = open_dataset(root)
    with pytest.raises(ImageError, match=r"a\.png is empty"):
        dataset[0]
    with pytest.raises(MaskError, match=r"b\.png is empty"):
        dataset[1]
    with pytest.raises(MaskError, match=r"c\.png holds value 9 in 1 pixels"):
        dataset[2]


def test_masks_that_cannot_be_understood_stop_before_they_are_read(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 1, 5]]})
    (root / "classes.txt").write_text("background\nrope\n")
    with pytest.raises(LayoutError, match=r"masks/a\.png: a\.png holds value 5 in 1 pixels") as caught:
        open_dataset(root)
    assert caught.value.kind == "unknown-value"


def test_a_named_set_knows_its_masks_without_looking(tmp_path: Path) -> None:
    save(tmp_path / "suim/TEST/images/d_r_1_.jpg", picture(0, 4, 5, 3))
    save(tmp_path / "suim/TEST/masks/d_r_1_.bmp", np.full((4, 5, 3), (3, 5, 250)))
    dataset = open_dataset("suim", root=tmp_path)
    assert dataset.description.set_name == "suim"
    labels = dataset[0].labels
    assert labels is not None
    assert set(labels.ravel().tolist()) == {1}  # nearly blue: human-divers
    assert dataset.records[0].part == "test"


def test_a_too_tall_mask_of_a_named_set_is_cropped_where_it_is_known(tmp_path: Path) -> None:
    save(tmp_path / "train_val/images/w_r_1_.jpg", picture(0, 8, 6, 3))
    mask = np.zeros((63, 6, 3), np.uint8)
    mask[27:35] = (0, 0, 255)  # the eight rows that lie on the image
    save(tmp_path / "train_val/masks/w_r_1_.bmp", mask)
    labels = open_dataset(tmp_path)[0].labels
    assert labels is not None
    assert labels.tolist() == [[1] * 6] * 8


def test_what_is_no_dataset_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "empty").mkdir()
    for path, error, said in (
        (tmp_path / "none" / "x", UsageError, "There is no file or folder"),
        ("flsdm", UsageError, "Did you mean flsmd"),
        (tmp_path / "a.txt", LayoutError, "not something a set can be read from"),
        (tmp_path / "empty", LayoutError, "is empty"),
        (tmp_path, LayoutError, "No images were found"),
        ("x" * 5000, UsageError, "File name too long"),
        ("a\0b", UsageError, "There is no set or folder"),
    ):
        with pytest.raises(FtcsegError, match=said) as caught:
            open_dataset(path)
        assert isinstance(caught.value, error)
        assert len(str(caught.value)) < 600


def test_a_description_leads_to_its_parts_and_manifest(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 1]], "b": [[0, 1]]})
    (root / "held.txt").write_text("images/b.png\n")
    (root / "dataset.yaml").write_text("ftcseg: 1\nclasses: {0: a, 1: b}\nparts: {val: held.txt}")
    assert [r.part for r in open_dataset(root).records] == ["train", "val"]
    (root / "held.txt").write_text("images/z.png\n")
    with pytest.raises(LayoutError, match=r"names 'images/z\.png', which is no image of the set"):
        open_dataset(root)
    (root / "list.jsonl").write_text('{"image": "images/b.png", "mask": "masks/b.png", "part": "test"}\n')
    (root / "dataset.yaml").write_text("ftcseg: 1\nclasses: {0: a, 1: b}\nmanifest: list.jsonl")
    assert [(r.image, r.part) for r in open_dataset(root).records] == [("images/b.png", "test")]
    (root / "dataset.yaml").write_text("ftcseg: 1\nclasses: {0: a, 1: b}\nmanifest: ../list.jsonl")
    with pytest.raises(FtcsegError, match="climbs out"):
        open_dataset(root)


def test_unknown_names_in_a_description_are_told(tmp_path: Path) -> None:
    images_and_masks(tmp_path, {"a": [[0, 1]]})
    for line, said in (("layout: images-mask", "Did you mean images-masks"), ("set: flsdm", "Did you mean flsmd")):
        (tmp_path / "dataset.yaml").write_text(f"ftcseg: 1\nclasses: {{0: a, 1: b}}\n{line}")
        with pytest.raises(FtcsegError, match=said):
            open_dataset(tmp_path)


# ---------------------------------------------------------------- thinning


def test_thinning_keeps_about_its_share_of_a_class_and_all_of_the_others() -> None:
    labels = np.repeat(np.array([0, 1, 2, IGNORE], np.int16), 10_000).reshape(200, 200)
    thin = thinned(labels, {1: 0.25}, 0, "a.png")
    assert (thin == 0).sum() == (thin == 2).sum() == 10_000
    assert 2300 < (thin == 1).sum() < 2700
    assert (thin == IGNORE).sum() == 40_000 - 20_000 - (thin == 1).sum()
    assert (labels == 1).sum() == 10_000  # the original is left alone


def test_thinning_is_the_same_for_the_same_seed_and_name() -> None:
    labels = np.ones((50, 50), np.int16)
    first = thinned(labels, {1: 0.5}, 0, "a.png")
    np.testing.assert_array_equal(first, thinned(labels, {1: 0.5}, 0, "a.png"))
    assert (first != thinned(labels, {1: 0.5}, 1, "a.png")).any()
    assert (first != thinned(labels, {1: 0.5}, 0, "b.png")).any()


def test_no_thinning_changes_nothing() -> None:
    labels = np.ones((5, 5), np.int16)
    assert thinned(labels, {}, 0, "a") is labels
    np.testing.assert_array_equal(thinned(labels, {1: 1.0}, 0, "a"), labels)
    assert (thinned(labels, {1: 0.0}, 0, "a") == IGNORE).all()
