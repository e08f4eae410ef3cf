from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, labelled, masks, parts, tree

from ftcseg.data.formats import cityscapes
from ftcseg.errors import LayoutError
from ftcseg.types import Record


def city(part: str, name: str) -> str:
    return f"leftImg8bit/{part}/ulm/{name}_leftImg8bit.png"


def fine(part: str, name: str, kind: str = "labelIds") -> str:
    return f"gtFine/{part}/ulm/{name}_gtFine_{kind}.png"


def test_cityscapes_is_read_with_label_ids(tmp_path: Path) -> None:
    tree(
        tmp_path, city("train", "a"), fine("train", "a"), fine("train", "a", "color"), fine("train", "a", "instanceIds")
    )
    tree(tmp_path, city("val", "b"), fine("val", "b"), city("train_extra", "c"))
    assert cityscapes.can_read(tmp_path)
    found = cityscapes.records(tmp_path)
    assert found.layout == "cityscapes"
    assert found.records == [
        labelled(city("train", "a"), fine("train", "a")),
        Record(city("train_extra", "c")),
        labelled(city("val", "b"), fine("val", "b"), "val"),
    ]
    assert found.findings == ()
    assert found.coding is not None
    values = found.coding.values
    assert (values[7], values[26], values[33], len(values)) == (0, 13, 18, 19)
    assert {0, 9, 29, 255} <= found.coding.ignore
    assert not found.coding.ignore & values.keys()


def test_there_are_19_classes_and_no_background(tmp_path: Path) -> None:
    classes = cityscapes.records(tree(tmp_path, city("train", "a"))).classes
    assert classes is not None
    assert len(classes.foreground) == len(classes) == 19
    assert (classes.names[0], classes.names[18]) == ("road", "bicycle")


def test_train_ids_are_preferred_where_both_are_there(tmp_path: Path) -> None:
    tree(tmp_path, city("train", "a"), fine("train", "a"), fine("train", "a", "labelTrainIds"))
    found = cityscapes.records(tmp_path)
    assert masks(found) == {city("train", "a"): fine("train", "a", "labelTrainIds")}
    assert found.coding is not None
    assert dict(found.coding.values) == {i: i for i in range(19)}
    assert found.coding.ignore == {255}


def test_train_ids_of_a_few_do_not_displace_label_ids_of_all(tmp_path: Path) -> None:
    tree(tmp_path, city("train", "a"), fine("train", "a"), fine("train", "a", "labelTrainIds"))
    tree(tmp_path, city("train", "b"), fine("train", "b"))
    assert None not in masks(cityscapes.records(tmp_path)).values()


def test_masks_of_the_test_part_are_placeholders(tmp_path: Path) -> None:
    found = cityscapes.records(tree(tmp_path, city("test", "a"), fine("test", "a")))
    assert found.records == [Record(city("test", "a"), None, "test")]
    assert finding(found, "dummy-masks").severity == "note"


def test_acdc_is_read_without_its_references(tmp_path: Path) -> None:
    image, mask = "rgb_anon/{}/{}/G/{}_rgb_anon.png", "gt/{}/{}/G/{}_gt_labelTrainIds.png"
    tree(tmp_path, image.format("fog", "train", "a"), mask.format("fog", "train", "a"))
    tree(
        tmp_path, image.format("night", "val", "b"), mask.format("night", "val", "b"), image.format("snow", "test", "c")
    )
    tree(tmp_path, image.format("fog", "train_ref", "a"), image.format("rain", "val_ref", "b"))
    found = cityscapes.records(tmp_path)
    assert found.layout == "acdc"
    assert parts(found) == {
        image.format("fog", "train", "a"): "train",
        image.format("night", "val", "b"): "val",
        image.format("snow", "test", "c"): "test",
    }
    assert list(masks(found).values()) == [mask.format("fog", "train", "a"), mask.format("night", "val", "b"), None]
    assert finding(found, "reference-images").count == 2


def test_pictures_that_are_named_otherwise_are_told(tmp_path: Path) -> None:
    found = cityscapes.records(tree(tmp_path, city("train", "a"), "leftImg8bit/train/ulm/b.png", "leftImg8bit/c.png"))
    assert list(masks(found)) == [city("train", "a")]
    assert finding(found, "unknown-name").count == 2


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert not cityscapes.can_read(tmp_path)
    (tmp_path / "rgb_anon").mkdir()
    assert cityscapes.can_read(tmp_path)
    with pytest.raises(LayoutError, match="acdc"):
        cityscapes.records(tmp_path)


def test_a_city_that_links_outwards_is_skipped(tmp_path: Path) -> None:
    tree(tmp_path, "away/x_leftImg8bit.png")
    root = tree(tmp_path / "root", city("train", "a"))
    (root / "leftImg8bit/train/away").symlink_to(tmp_path / "away")
    found = cityscapes.records(root)
    assert list(masks(found)) == [city("train", "a")]
    assert finding(found, "unsafe-path").severity == "error"
