from __future__ import annotations

import json
from pathlib import Path

import pytest
from picture_trees import finding, labelled, masks, tree

from ftcseg.data.formats import nnunet
from ftcseg.errors import DataError, LayoutError, UnsafePathError
from ftcseg.types import Record


def describe(root: Path, labels: object, **more: object) -> None:
    (root / "dataset.json").write_text(json.dumps({"labels": labels, **more}))


def test_cases_find_their_labels(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/a b_0000.png", "imagesTr/c_0000.png", "labelsTr/a b.png")
    tree(tmp_path, "imagesTs/d_0000.png", "labelsTs/d.png")
    describe(tmp_path, {"background": 0, "rope": 1, "ignore": 2}, file_ending=".png", channel_names={"0": "R"})
    assert nnunet.can_read(tmp_path)
    found = nnunet.records(tmp_path)
    assert found.layout == "nnunet"
    assert found.records == [
        labelled("imagesTr/a b_0000.png", "labelsTr/a b.png"),
        Record("imagesTr/c_0000.png"),
        labelled("imagesTs/d_0000.png", "labelsTs/d.png", "test"),
    ]
    assert found.classes is not None
    assert found.classes.names == ["background", "rope"]
    assert found.classes.foreground == [1]
    assert found.coding is not None
    assert (dict(found.coding.values), found.coding.ignore) == ({0: 0, 1: 1}, {2})


def test_the_old_spelling_and_gaps_in_the_values_are_read(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/a_0000.png", "labelsTr/a.png")
    describe(tmp_path, {"4": "tumour", "0": "nothing", "1": "edema"})
    found = nnunet.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["nothing", "edema", "tumour"]
    assert [c.background for c in found.classes] == [True, False, False]
    assert found.coding is not None
    assert dict(found.coding.values) == {0: 0, 1: 1, 4: 2}


def test_channels_in_several_files_are_refused_with_a_remedy(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/a_0000.png", "imagesTr/a_0000_b_0000.png", "imagesTr/a_0001.png", "labelsTr/a.png")
    describe(tmp_path, {"background": 0, "rope": 1})
    with pytest.raises(LayoutError, match=r"a_0001\.png.*multi-channel TIFF") as caught:
        nnunet.records(tmp_path)
    assert caught.value.kind == "channel-files"


def test_numbered_frames_are_no_channels(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/f_0001_0000.png", "imagesTr/f_0002_0000.png", "labelsTr/f_0001.png", "labelsTr/f_0002.png")
    describe(tmp_path, {"background": 0, "rope": 1})
    assert list(masks(nnunet.records(tmp_path)).values()) == ["labelsTr/f_0001.png", "labelsTr/f_0002.png"]


@pytest.mark.parametrize(
    "labels",
    [{"background": 0, "whole": [1, 2]}, {"a": "b"}, {"a": -1}, {"a": 0, "b": 0}, {"a": True}, {"a": None}, {}, [1], 7],
)
def test_labels_that_mean_nothing_are_refused(tmp_path: Path, labels: object) -> None:
    describe(tree(tmp_path, "imagesTr/a_0000.png"), labels)
    with pytest.raises(LayoutError, match=r"dataset\.json"):
        nnunet.records(tmp_path)


def test_volumes_are_refused(tmp_path: Path) -> None:
    describe(tree(tmp_path, "imagesTr/a_0000.nii.gz"), {"background": 0, "rope": 1}, file_ending=".nii.gz")
    with pytest.raises(LayoutError, match="PNG or TIFF"):
        nnunet.records(tmp_path)


def test_labels_without_a_description_say_what_is_missing(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/a_0000.png", "labelsTr/a.png")
    assert nnunet.can_read(tmp_path)
    with pytest.raises(DataError, match=r"dataset\.json"):
        nnunet.records(tmp_path)


def test_a_description_that_links_outwards_is_not_read(tmp_path: Path) -> None:
    describe(tmp_path, {"background": 0})
    root = tree(tmp_path / "root", "imagesTr/a_0000.png")
    (root / "dataset.json").symlink_to(tmp_path / "dataset.json")
    with pytest.raises(UnsafePathError):
        nnunet.records(root)


def test_labels_without_a_case_are_counted(tmp_path: Path) -> None:
    tree(tmp_path, "imagesTr/a_0000.png", "labelsTr/b.png", "labelsTr/c.png")
    describe(tmp_path, {"background": 0, "rope": 1})
    assert finding(nnunet.records(tmp_path), "mask-without-image").count == 2


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert not nnunet.can_read(tmp_path)
    (tmp_path / "imagesTr").mkdir()
    describe(tmp_path, {"background": 0, "rope": 1})
    with pytest.raises(LayoutError, match="no images"):
        nnunet.records(tmp_path)
