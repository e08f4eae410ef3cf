"""A split on disk: lists that other tools read, and a JSON whose hash proves them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ftcseg import api
from ftcseg.data.dataset import open_dataset
from ftcseg.data.split_files import read_split
from ftcseg.errors import LayoutError, UsageError
from picture_sets import images_and_masks


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Ten labelled training frames with two classes beside background, three without masks, two held out."""
    root = images_and_masks(
        tmp_path / "set", {f"f{i}": [[0, 0, 0, 1 + i % 2]] for i in range(12)} | {"x": None, "y": None, "z": None}
    )
    (root / "val.txt").write_text("f10\n")
    (root / "test.txt").write_text("f11\n")
    return root


def test_the_lists_name_images_and_masks(small: Path, tmp_path: Path) -> None:
    split = api.split(small, 4, seed=3, out=tmp_path / "out")
    lines = {
        name: (tmp_path / "out" / f"{name}.txt").read_text().splitlines()
        for name in ("labeled", "unlabeled", "val", "test")
    }
    assert lines["labeled"] == [f"{i} masks/{Path(i).name}" for i in split.labeled]
    assert lines["unlabeled"] == list(split.unlabeled)
    assert lines["val"] == ["images/f10.png masks/f10.png"]
    assert lines["test"] == ["images/f11.png masks/f11.png"]
    assert (len(split.labeled), len(split.unlabeled)) == (4, 6 + 3)
    assert {"images/x.png", "images/y.png", "images/z.png"} <= set(split.unlabeled)
    assert not set(split.labeled) & set(split.unlabeled)


def test_the_json_tells_how_and_what(small: Path, tmp_path: Path) -> None:
    split = api.split(small, "40%", seed=3, out=tmp_path / "out")
    data = json.loads((tmp_path / "out" / "split.json").read_text())
    assert data["hash"] == split.digest()
    assert (data["ftcseg"], data["seed"], data["dataset"]) == (1, 3, "set")
    assert data["options"]["labels"] == "40%"
    assert data["images"] == {"labeled": 4, "unlabeled": 9, "left_out": 0, "val": 1, "test": 1}
    # Each labelled frame has three pixels of background and one of class 1 or 2.
    assert data["classes"][0] == {"id": 0, "name": "background", "images": 4, "pixels": 12}
    assert sum(row["pixels"] for row in data["classes"][1:]) == 4


def test_a_split_is_read_back(small: Path, tmp_path: Path) -> None:
    split = api.split(small, 4, balanced="pixel", out=tmp_path / "out")
    for path in (tmp_path / "out", tmp_path / "out" / "split.json"):
        again, held = read_split(path)
        assert again == split
        assert held == {"val": ["images/f10.png"], "test": ["images/f11.png"]}


def test_the_lists_beside_the_images_are_a_set(small: Path, tmp_path: Path) -> None:
    split = api.split(small, 4, out=tmp_path / "out")
    for name in ("labeled", "unlabeled"):
        shutil.copy(tmp_path / "out" / f"{name}.txt", small)
    dataset = open_dataset(small)
    assert dataset.description.layout == "lists"
    labelled = dataset.part("train").labeled()
    assert sorted(r.image for r in labelled.records) == sorted(split.labeled)
    assert len(dataset.part("train")) == 13


def changed(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | changes))


def test_an_edited_list_does_not_match_the_hash(small: Path, tmp_path: Path) -> None:
    split = api.split(small, 4, out=tmp_path / "out")
    changed(tmp_path / "out/split.json", labeled=[*split.labeled, "images/x.png"])
    with pytest.raises(LayoutError, match="do not match its hash"):
        read_split(tmp_path / "out")


def test_the_hash_of_the_other_parts_is_that_of_their_lists(small: Path, tmp_path: Path) -> None:
    api.split(small, 4, out=tmp_path / "out")
    data = json.loads((tmp_path / "out/split.json").read_text())
    text = '{"test": ["images/f11.png"], "val": ["images/f10.png"]}'
    assert data["parts_hash"] == hashlib.sha256(text.encode()).hexdigest()
    # Another seed trains on other images and is judged on the same ones.
    api.split(small, 4, seed=1, out=tmp_path / "other")
    other = json.loads((tmp_path / "other/split.json").read_text())
    assert other["hash"] != data["hash"]
    assert other["parts_hash"] == data["parts_hash"]


@pytest.mark.parametrize("part", ["val", "test"])
@pytest.mark.parametrize("images", [[], ["images/f9.png"], ["images/f10.png", "images/f11.png"]])
def test_an_edited_part_does_not_match_its_hash(small: Path, tmp_path: Path, part: str, images: list[str]) -> None:
    api.split(small, 4, out=tmp_path / "out")
    changed(tmp_path / "out/split.json", **{part: images})
    with pytest.raises(LayoutError, match=r"val and test lists in .*split\.json do not match its parts_hash"):
        read_split(tmp_path / "out")


@pytest.mark.parametrize("part", ["val", "test"])
@pytest.mark.parametrize("text", ["", "images/f9.png masks/f9.png\n", "images/f10.png.png\n"])
def test_an_edited_list_beside_it_is_noticed(small: Path, tmp_path: Path, part: str, text: str) -> None:
    api.split(small, 4, out=tmp_path / "out")
    (tmp_path / "out" / f"{part}.txt").write_text(text)
    with pytest.raises(LayoutError, match=rf"{part}\.txt lists other images than split\.json"):
        read_split(tmp_path / "out")


def test_lists_without_masks_or_without_the_files_are_no_edit(small: Path, tmp_path: Path) -> None:
    api.split(small, 4, out=tmp_path / "out")
    (tmp_path / "out/val.txt").write_text("images/f10.png\n")
    (tmp_path / "out/test.txt").unlink()
    assert read_split(tmp_path / "out")[1] == {"val": ["images/f10.png"], "test": ["images/f11.png"]}


def test_an_older_file_says_nothing_about_the_other_parts(small: Path, tmp_path: Path) -> None:
    split = api.split(small, 4, out=tmp_path / "out")
    data = json.loads((tmp_path / "out/split.json").read_text())
    del data["parts_hash"]
    (tmp_path / "out/split.json").write_text(json.dumps(data | {"val": ["images/f9.png"]}))
    assert read_split(tmp_path / "out") == (split, {"val": ["images/f9.png"], "test": ["images/f11.png"]})
    api.split(small, 4, out=tmp_path / "out")  # the same draw; now with the hash
    assert "parts_hash" in json.loads((tmp_path / "out/split.json").read_text())


def test_the_same_labels_with_other_parts_are_another_split(small: Path, tmp_path: Path) -> None:
    api.split(small, 4, out=tmp_path / "out")
    changed(tmp_path / "out/split.json", parts_hash="0" * 64)
    with pytest.raises(UsageError, match="holds another split"):
        api.split(small, 4, out=tmp_path / "out")


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"labeled": 3}', "null", '{"labeled": [], "unlabeled": [], "seed": "x", "classes": []}']
)
def test_what_is_no_split_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(LayoutError, match=r"split\.json is no split"):
        read_split(tmp_path)


def test_a_missing_split_is_told(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="cannot be read"):
        read_split(tmp_path / "none")


def test_another_draw_is_not_written_over(small: Path, tmp_path: Path) -> None:
    api.split(small, 4, seed=0, out=tmp_path / "out")
    before = (tmp_path / "out/labeled.txt").read_text()
    with pytest.raises(UsageError, match="holds another split"):
        api.split(small, 4, seed=1, out=tmp_path / "out")
    assert (tmp_path / "out/labeled.txt").read_text() == before
    api.split(small, 4, seed=0, out=tmp_path / "out")  # the same again is nothing new


@pytest.mark.parametrize("name", ["labeled.txt", "val.txt", "split.json"])
def test_lists_of_somebody_else_are_not_written_over(small: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('["mine"]')
    with pytest.raises(UsageError, match="holds another split"):
        api.split(small, 4, out=tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == [name]


def test_what_an_interrupted_run_left_is_completed(small: Path, tmp_path: Path) -> None:
    api.split(small, 4, out=tmp_path / "out")
    (tmp_path / "out/split.json").unlink()
    (tmp_path / "out/test.txt").unlink()
    api.split(small, 4, out=tmp_path / "out")
    assert read_split(tmp_path / "out")[1]["test"] == ["images/f11.png"]


def test_a_folder_that_cannot_be_written_is_told(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written to"):
        api.split(small, 4, out=tmp_path / "file" / "out")
