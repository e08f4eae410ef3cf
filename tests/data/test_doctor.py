"""One look at a whole set: what is counted, what is found, and that nothing is touched."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from ftcseg import api
from ftcseg.data import doctor, scan
from ftcseg.data.doctor import Examination, as_json, examine_set
from ftcseg.data.scan import Facts
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.types import Finding, Record
from picture_sets import images_and_masks, picture, save


def kinds(found: Examination) -> set[str]:
    return {f.kind for f in found.findings}


def finding(found: Examination, kind: str) -> Finding:
    (one,) = (f for f in found.findings if f.kind == kind)
    return one


def rows(found: Examination) -> list[tuple[str, int, int]]:
    """(name, pixels, images) of every class."""
    return [(c.name, c.pixels, c.images) for c in found.classes]


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below the folder with its size and modification time."""
    paths = [folder, *folder.rglob("*")]
    return {str(p): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in paths}


# ---------------------------------------------------------------- what is told


def test_the_simulated_set_is_told_as_it_is(sonar12: Path) -> None:
    before = listing(sonar12)
    data = as_json(examine_set(sonar12, workers=1))
    assert listing(sonar12) == before
    masks = [np.asarray(Image.open(path)) for path in sorted(sonar12.glob("masks/*/*.png"))]
    assert (data["images"], data["labelled"], data["unlabelled"]) == (12, 12, 0)
    assert data["parts"] == {"train": 10, "test": 2}
    assert (data["layout"], data["encoding"], data["ignore"]) == ("images-masks", "grey8", None)
    assert data["sizes"] == [{"width": 160, "height": 240, "images": 12}]
    assert data["depth"] == ["1 x uint8"]
    everything = 12 * 160 * 240
    for row in data["classes"]:
        assert row["pixel_share"] == round(100 * sum(int((m == row["id"]).sum()) for m in masks) / everything, 4)
        assert row["images"] == sum(bool((m == row["id"]).any()) for m in masks)
    assert [row["id"] for row in data["classes"]] == list(range(8))
    assert data["classes"][0]["name"] == data["classes"][0]["group"] == "background"
    assert not [f for f in data["findings"] if f["severity"] == "error"]


def test_the_json_has_the_keys_that_were_promised(sonar12: Path, tmp_path: Path) -> None:
    images_and_masks(tmp_path, {"a": [[0, 7]], "b": None})
    for root in (sonar12, tmp_path):
        data = json.loads(json.dumps(as_json(examine_set(root, workers=1)), allow_nan=False))
        assert {
            "images",
            "labelled",
            "unlabelled",
            "layout",
            "encoding",
            "ignore",
            "classes",
            "findings",
        } <= data.keys()
        for row in data["classes"]:
            assert row.keys() == {"id", "name", "pixel_share", "images", "group"}
        for row in data["findings"]:
            assert row.keys() == {"kind", "file", "detail", "remedy", "count", "severity"}
    assert data["findings"]


def test_shares_are_of_the_labelled_pixels_that_are_known(tmp_path: Path) -> None:
    # 20 pixels: 12 of class 0, 3 of class 1, 1 of class 2, 4 unknown. Shares are of 16.
    root = images_and_masks(
        tmp_path,
        {
            "a": [[0, 0, 0, 0, 0], [0, 1, 1, 255, 255]],
            "b": [[0, 0, 0, 0, 0], [0, 1, 2, 255, 255]],
            "c": None,
        },
    )
    found = examine_set(root)
    assert rows(found) == [("background", 12, 2), ("class-1", 3, 2), ("class-2", 1, 1)]
    data = as_json(found)
    assert [c["pixel_share"] for c in data["classes"]] == [75.0, 18.75, 6.25]
    assert [c["group"] for c in data["classes"]] == ["background", "head", "tail"]
    assert data["ignore"] == 255
    assert data["tail"] == ["class-2"]
    assert (data["images"], data["labelled"], data["unlabelled"]) == (3, 2, 1)
    assert {"ignore-value", "background-assumed"} <= kinds(found)


def test_a_written_description_is_read_as_the_same_set(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 38, 75, 255]], "b": [[0, 0, 0, 38]]})
    first = api.doctor(root, write=root / "dataset.yaml")
    again = api.doctor(root)
    assert again.description == first.description
    assert rows(again) == rows(first) == [("background", 4, 2), ("value-38", 2, 2), ("value-75", 1, 1)]
    assert again.encoding == first.encoding == "grey8"
    assert kinds(again) <= kinds(first)


def test_masks_that_cannot_be_understood_are_not_described(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    root = images_and_masks(tmp_path / "set", {"a": rng.integers(0, 256, (40, 40))})
    with pytest.raises(FtcsegError, match="masks could not be understood"):
        api.doctor(root, write=tmp_path / "dataset.yaml")
    assert not (tmp_path / "dataset.yaml").exists()


def test_errors_come_first(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 1]], "b": [[0, 0, 1]]})
    (root / "images/b.png").write_bytes(b"")
    severities = [f.severity for f in examine_set(root).findings]
    assert severities[0] == "error"
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


# ---------------------------------------------------------------- names and codings


def test_names_from_a_list_go_to_the_ids(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 2, 255]]})
    (root / "classes.txt").write_text("background\nbottle\ncan\n")
    found = examine_set(root)
    assert rows(found) == [("background", 2, 1), ("bottle", 0, 0), ("can", 1, 1)]
    assert found.description.coding.ignore == {255}
    assert "bottle" in finding(found, "class-absent").detail


def test_names_with_values_of_their_own_go_to_those(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 75, 255]]})
    (root / "classes.txt").write_text("0 background\n75 rope\n255 chain\n")
    found = examine_set(root)
    assert rows(found) == [("background", 2, 1), ("rope", 1, 1), ("chain", 1, 1)]
    assert found.description.coding.ignore == frozenset()


def test_two_names_for_0_and_255(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 255, 255, 255]]})
    (root / "classes.txt").write_text("background\nwreck\n")
    found = examine_set(root)
    assert rows(found) == [("background", 2, 1), ("wreck", 3, 1)]
    assert found.encoding == "binary255"
    assert "binary-masks" in kinds(found)


@pytest.mark.parametrize("names", ["wreck\n", "background\nwreck\nrope\n"])
def test_another_number_of_names_does_not_say_what_255_is(tmp_path: Path, names: str) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 255, 255, 255]]})
    (root / "classes.txt").write_text(names)
    found = examine_set(root)
    assert "value 255 in 3 pixels" in finding(found, "unknown-value").detail
    assert "binary-masks" not in kinds(found)


def test_names_without_colours_are_not_given_to_colours(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[[0, 0, 0], [9, 100, 50], [200, 99, 0]]]})
    (root / "classes.txt").write_text("background\nwreck\n")
    found = examine_set(root)
    assert [c.name for c in found.classes] == ["background", "color-096432", "color-c86300"]
    assert finding(found, "class-names-ignored").severity == "warning"


def test_values_beyond_the_names_are_told_with_their_pixels(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 1, 38, 38, 38]]})
    (root / "classes.txt").write_text("background\nrope\n")
    said = finding(examine_set(root), "unknown-value")
    assert said.file == "masks/a.png"
    assert "value 38 in 3 pixels" in said.detail
    assert "«2: {name: NAME, values: [38]}»" in said.remedy
    assert said.severity == "error"


def test_an_id_mask_among_coloured_ones_is_told_and_no_crash(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[[0, 0, 0], [9, 100, 50]]], "b": None})
    (root / "masks").mkdir(exist_ok=True)
    np.save(root / "masks" / "b.npy", np.full((4, 5), 300))
    assert finding(examine_set(root), "mixed-encoding").file == "masks/b.npy"


def test_large_ids_are_read_with_a_tolerance(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": None})
    (root / "masks").mkdir()
    np.save(root / "masks" / "a.npy", np.array([[0, 1000, 1001, -1, 0]] * 4))
    text = "ftcseg: 1\nclasses: {0: a, 1: {name: b, values: [1000]}}\nmasks: {ignore: [-1], tolerance: 1}"
    (root / "dataset.yaml").write_text(text)
    # -1 is as near to 0 as to itself, and is itself.
    assert rows(examine_set(root)) == [("a", 8, 1), ("b", 8, 1)]


def test_a_coloured_jpeg_mask_of_many_shades_is_counted_with_a_tolerance(tmp_path: Path) -> None:
    labels = np.zeros((160, 160), int)
    labels[30:90, 40:130] = 1
    shades = np.array([[10, 20, 30], [250, 120, 10]])[labels] + np.random.default_rng(0).integers(-5, 6, (160, 160, 3))
    save(tmp_path / "images/a.png", picture(0, 160, 160))
    save(tmp_path / "masks/a.jpg", shades, quality=95, subsampling=0)
    text = (
        "ftcseg: 1\nclasses: {0: {name: water, colors: ['#0a141e']}, 1: {name: wreck, colors: ['#fa780a']}}\n"
        "masks: {encoding: colors, tolerance: 100}"
    )
    (tmp_path / "dataset.yaml").write_text(text)
    found = examine_set(tmp_path)
    assert found.facts[0].mask is not None
    assert found.facts[0].mask.values is None  # more than the scan remembers
    assert rows(found) == [("water", 160 * 160 - 5400, 1), ("wreck", 5400, 1)]
    assert not found.errors


# ---------------------------------------------------------------- placement


def test_a_mask_that_is_too_tall_is_told_until_a_rule_is_chosen(tmp_path: Path) -> None:
    save(tmp_path / "images/a.png", picture(0, 4, 5))
    save(tmp_path / "masks/a.png", [[0] * 5] * 3 + [[1] * 5] * 3)
    said = finding(examine_set(tmp_path), "size-mismatch")
    assert said.file == "masks/a.png"
    assert said.detail == "The mask is 5x6, its image 5x4: 2 rows too many."
    assert "crop-top" in said.remedy
    (tmp_path / "dataset.yaml").write_text("ftcseg: 1\nclasses: {0: a, 1: b}\nmasks: {fit: crop-top}")
    assert "size-mismatch" not in kinds(examine_set(tmp_path))


@pytest.mark.parametrize(("fit", "told"), [("crop-top", True), ("crop-bottom", True), ("resize", False)])
def test_a_rule_that_cannot_help_is_told(tmp_path: Path, fit: str, told: bool) -> None:
    save(tmp_path / "images/a.png", picture(0, 4, 5))
    save(tmp_path / "masks/a.png", [[0, 1, 1]] * 4)  # too narrow
    (tmp_path / "dataset.yaml").write_text(f"ftcseg: 1\nclasses: {{0: a, 1: b}}\nmasks: {{fit: {fit}}}")
    assert ("size-mismatch" in kinds(examine_set(tmp_path))) == told


def test_an_image_that_is_turned_is_told(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "images/a.jpg", picture(0, 4, 6), exif=exif)
    save(tmp_path / "images/b.jpg", picture(1, 4, 6), exif=exif)
    save(tmp_path / "masks/a.png", np.zeros((4, 6)))  # as stored
    save(tmp_path / "masks/b.png", np.ones((6, 4)))  # as seen
    found = examine_set(tmp_path)
    assert {f.kind for f in found.findings if f.severity == "error"} == set()
    assert sum(f.kind == "orientation" for f in found.findings) == 2
    assert as_json(found)["sizes"] == [{"width": 4, "height": 6, "images": 2}]


def test_a_mask_with_an_orientation_of_its_own_lies_on_its_image(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "images/a.png", picture(0, 6, 4))
    save(tmp_path / "masks/a.png", [[0, 1] * 3] * 4, exif=exif)
    assert "size-mismatch" not in kinds(examine_set(tmp_path))


def test_a_jpeg_mask_is_told(tmp_path: Path) -> None:
    save(tmp_path / "images/a.png", picture(0, 16, 16))
    save(tmp_path / "masks/a.jpg", np.zeros((16, 16)))
    assert finding(examine_set(tmp_path), "jpeg-mask").severity == "error"


def test_rows_that_a_named_set_knows_about_are_no_error(tmp_path: Path) -> None:
    save(tmp_path / "train_val/images/w_r_1_.jpg", picture(0, 8, 6, 3))
    save(tmp_path / "train_val/masks/w_r_1_.bmp", np.zeros((63, 6, 3)))
    save(tmp_path / "train_val/images/w_r_9_.jpg", picture(1, 8, 6, 3))
    save(tmp_path / "train_val/masks/w_r_9_.bmp", np.zeros((63, 6, 3)))
    found = examine_set(tmp_path)
    assert found.description.set_name == "suim"
    assert finding(found, "size-mismatch").file == "train_val/masks/w_r_9_.bmp"


# ---------------------------------------------------------------- the set as a whole


def test_no_masks_at_all_are_told(tmp_path: Path) -> None:
    found = examine_set(images_and_masks(tmp_path, {"a": None, "b": None}))
    assert finding(found, "no-masks").severity == "error"
    assert (found.encoding, found.classes) == ("none", ())


def test_a_single_class_is_told(tmp_path: Path) -> None:
    assert "one-class" in kinds(examine_set(images_and_masks(tmp_path, {"a": [[0, 0]]})))


def test_images_of_another_depth_are_told(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": None, "b": None, "c": None})
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(root / "images/c.png")
    said = finding(examine_set(root), "mixed-depth")
    assert said.file == "images/c.png"
    assert "2 of 1 x uint8, 1 of 1 x uint16" in said.detail


def test_byte_identical_images_are_told_with_their_parts(tmp_path: Path) -> None:
    for name in ("train/images/a", "train/images/b", "val/images/c", "train/images/d"):
        save(tmp_path / f"{name}.png", picture(1 if name.endswith("d") else 0))
    said = finding(examine_set(tmp_path), "duplicate-images")
    assert said.file == "train/images/a.png"
    assert said.count == 1  # one group of three
    assert said.detail.startswith("3 images are byte-identical to another")
    assert "1 times in different parts" in said.detail


def film(folder: Path, scenes: int, frames: int, first: int = 0) -> None:
    """Frames of unrelated scenes, each changing by a little; numbered across the scenes by turns."""
    for scene in range(scenes):
        rng = np.random.default_rng(scene)
        still = rng.uniform(20, 235, (24, 24))
        for i in range(first, first + frames):
            save(folder / f"{i:03d}-{scene:02d}x.png", (still + rng.normal(0, 5, still.shape)).clip(0, 255))


def test_frames_with_neighbours_are_told(tmp_path: Path) -> None:
    film(tmp_path / "train" / "images", 5, 4)
    found = examine_set(tmp_path)
    assert (
        "100 % of the frames have a near-duplicate; they form 5 sequences" in finding(found, "near-duplicates").detail
    )
    assert "--by-sequence" in finding(found, "near-duplicates").remedy
    assert "leaking-parts" not in kinds(found)
    assert as_json(found)["sequences"] == {"count": 5, "frames_with_neighbour": 20}


def test_held_out_frames_with_neighbours_in_training_are_told(tmp_path: Path) -> None:
    film(tmp_path / "train" / "images", 5, 4)
    film(tmp_path / "val" / "images", 5, 1, first=50)
    for i in range(5):
        save(tmp_path / f"val/images/other-{chr(97 + i)}.png", picture(i + 50, 24, 24))
    said = finding(examine_set(tmp_path), "leaking-parts")
    assert said.detail.startswith("50 % of the validation and test frames")


def test_unrelated_frames_are_not_called_neighbours(tmp_path: Path) -> None:
    for i in range(20):
        save(tmp_path / f"images/{i}.png", picture(i, 24, 24))
    assert "near-duplicates" not in kinds(examine_set(tmp_path))


# ---------------------------------------------------------------- hostile files


def hostile(root: Path) -> dict[str, str]:
    """A set with something wrong in every file but two; the kind of finding that each should become."""
    good = [[0, 0, 1, 1, 0]] * 4
    names = (
        "good",
        "other",
        "short",
        "empty",
        "text",
        "moving",
        "bomb",
        "nan",
        "huge",
        "deep",
        "folder",
        "gone",
        "link",
    )
    images_and_masks(root, dict.fromkeys(names, good))
    images, masks = root / "images", root / "masks"
    (images / "short.png").write_bytes((images / "short.png").read_bytes()[:50])
    (images / "empty.png").write_bytes(b"")
    (images / "text.png").write_text("not a picture")
    (images / "moving.png").unlink()
    frames = [Image.fromarray(picture(i)) for i in range(2)]
    frames[0].save(images / "moving.gif", save_all=True, append_images=frames[1:])
    header = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
    (images / "bomb.png").write_bytes(header + b"\0\0\0\0")
    for name, value in (("nan", np.nan), ("huge", 3e38)):
        (images / f"{name}.png").unlink()
        tifffile.imwrite(images / f"{name}.tif", np.array([[value, -value, 0, 1, 2]] * 4, dtype=np.float32))
    Image.fromarray(picture(0).astype(np.uint16) * 257).save(images / "deep.png")
    (images / "folder.png").unlink()
    (images / "folder.png").mkdir()
    (images / "link.png").unlink()
    (images / "link.png").symlink_to("/etc/hostname")
    (images / "gone.png").unlink()
    (images / "gone.png").symlink_to("nowhere")
    for i, (name, data) in enumerate(
        {
            "pickle": np.array([[object()]], dtype=object),
            "wide": np.array([[2**63]], dtype=np.uint64),
            "fraction": np.array([[0.5]]),
            "one-hot": np.zeros((4, 5, 2)),
        }.items()
    ):
        save(images / f"{name}.png", picture(i + 100))
        np.save(masks / f"{name}.npy", data, allow_pickle=True)
    save(images / "cut.png", picture(200))
    (masks / "cut.npy").write_bytes((masks / "wide.npy").read_bytes()[:70])
    save(images / "odd.png", picture(201))
    save(masks / "odd.png", [[0, 77, 77, 77, 1]] * 4)
    save(images / "small.png", picture(202))
    save(masks / "small.png", [[0, 1]])
    save(images / "noise.png", picture(203))
    (masks / "noise.png").write_bytes(os.urandom(100))
    (masks / "orphan.png").write_bytes(b"")
    (root / "classes.txt").write_text("background\nrope\n")
    (root / "val.txt").write_bytes(b"\xff\xfe\0")
    return {
        "images/short.png": "unreadable",
        "images/empty.png": "empty-file",
        "images/text.png": "unreadable",
        "images/moving.gif": "animated",
        "images/nan.tif": "nan",
        "images/link.png": "unsafe-path",
        "images/gone.png": "broken-link",
        "masks/pickle.npy": "unsafe-npy",
        "masks/wide.npy": "mask-shape",
        "masks/fraction.npy": "mask-shape",
        "masks/one-hot.npy": "mask-shape",
        "masks/cut.npy": "unreadable",
        "masks/odd.png": "unknown-value",
        "masks/small.png": "size-mismatch",
        "masks/noise.png": "unreadable",
        "val.txt": "list-ignored",
    }


def test_every_hostile_file_becomes_a_finding_and_nothing_is_touched(
    tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "set"
    expected = hostile(root)
    before = listing(tmp_path)
    for workers in (1, 2, 1):  # decoded here, decoded elsewhere, remembered
        for path in cache.iterdir() if workers == 2 else ():
            path.unlink()
        found = examine_set(root, workers=workers)
        told = {f.file: f.kind for f in found.findings if f.severity != "note"}
        assert expected.items() <= told.items()
        assert told["images/bomb.png"] in ("oversized", "unreadable")
        assert told["masks/folder.png"] == "mask-without-image"  # with gone and orphan
        json.dumps(as_json(found), allow_nan=False)
        assert all(f.detail and f.remedy for f in found.findings if f.severity != "note")
        # good, other, huge, deep and small are counted: 8 pixels of rope in each mask but the last, which has one.
        assert rows(found)[1][1:] == (8 + 8 + 8 + 8 + 1, 5)
    assert listing(tmp_path) == before
    assert capfd.readouterr() == ("", "")


def test_a_page_can_be_made_of_the_worst_set(tmp_path: Path) -> None:
    hostile(tmp_path / "set")
    page = api.dataset_page(examine_set(tmp_path / "set"), tmp_path / "page.html", pictures=50)
    assert page.read_text(encoding="utf-8").count("<figure>") >= 4


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="those disks refuse such names")
def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": None})
    Path(os.fsdecode(os.fsencode(root / "images") + b"/\xff.png")).write_bytes(b"")
    assert "bad-name" in kinds(examine_set(root))


def test_names_of_every_alphabet_are_read(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"größe 1": [[0, 1]], "影像": [[0, 1]], "🦐": [[0, 1]]})
    assert not examine_set(root).errors


def test_of_very_many_findings_the_rest_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_MOST_LISTED", 3)
    root = images_and_masks(tmp_path, {f"f{i}": [[0, 1]] for i in range(7)})
    for i in range(7):
        (root / f"images/f{i}.png").write_bytes(b"")
    counts = [f.count for f in examine_set(root).findings if f.kind == "empty-file"]
    assert counts == [1, 1, 5]


def test_a_limit_on_pixels_is_kept_and_not_remembered_as_a_fault(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0] * 50] * 50})
    told = {f.file for f in api.doctor(root, max_pixels=2000).findings if f.kind == "oversized"}
    assert told == {"images/a.png", "masks/a.png"}
    assert "oversized" not in kinds(api.doctor(root))
    with pytest.raises(UsageError, match="at least 1"):
        api.doctor(root, max_pixels=0)


# ---------------------------------------------------------------- memory


class Watched:
    """Counts the records that are decoded; may stop in the middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> None:
        self.seen: list[str] = []
        self._real, self._stop_after = scan.examine, stop_after
        monkeypatch.setattr(scan, "examine", self)

    def __call__(self, root: Path, record: Record, **options: Any) -> Facts:
        if len(self.seen) == self._stop_after:
            raise KeyboardInterrupt
        self.seen.append(record.image)
        return self._real(root, record, **options)


def test_a_second_look_decodes_nothing(sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    first = examine_set(sonar12, workers=1)
    assert len(watched.seen) == 12
    second = examine_set(sonar12, workers=1)
    assert len(watched.seen) == 12
    assert second == first


def test_a_touched_file_is_recognised_and_a_changed_one_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = images_and_masks(tmp_path, {name: [[0, 0, 1]] for name in "abc"})
    watched = Watched(monkeypatch)
    examine_set(root, workers=1)
    os.utime(root / "images/a.png", (1, 1))
    os.utime(root / "masks/b.png", (1, 1))
    examine_set(root, workers=1)
    assert len(watched.seen) == 3
    save(root / "masks/b.png", [[0, 1, 1]])
    found = examine_set(root, workers=1)
    assert watched.seen[3:] == ["images/b.png"]
    assert rows(found) == [("background", 5, 3), ("class-1", 4, 3)]


def test_a_change_that_keeps_the_size_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = images_and_masks(tmp_path, {"a": None})
    (root / "masks").mkdir()
    np.save(root / "masks/a.npy", np.zeros((4, 5), np.uint8))
    watched = Watched(monkeypatch)
    examine_set(root, workers=1)
    np.save(root / "masks/a.npy", np.ones((4, 5), np.uint8))
    os.utime(root / "masks/a.npy", (1, 1))
    found = examine_set(root, workers=1)
    assert len(watched.seen) == 2
    assert found.facts[0].mask is not None
    assert found.facts[0].mask.values == {"1": 20}


def test_an_interrupted_look_goes_on_where_it_stopped(sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        watched = Watched(patch, stop_after=5)
        with pytest.raises(KeyboardInterrupt):
            examine_set(sonar12, workers=1)
    assert len(watched.seen) == 5
    again = Watched(monkeypatch)
    assert len(examine_set(sonar12, workers=1).facts) == 12
    assert len(again.seen) == 7


def test_a_killed_look_goes_on_where_it_was_saved(sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, sys; from ftcseg.data import doctor, scan; scan._SAVE_EVERY = 0; real = scan.examine; seen = []\n"
        "def examine(*a, **k):\n    if len(seen) == 5: os._exit(9)\n    seen.append(1); return real(*a, **k)\n"
        "scan.examine = examine; doctor.examine_set(sys.argv[1], workers=1)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(sonar12)], check=False).returncode == 9
    watched = Watched(monkeypatch)
    examine_set(sonar12, workers=1)
    assert len(watched.seen) == 7


def test_a_damaged_memory_is_forgotten(sonar12: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    first = examine_set(sonar12, workers=1)
    (database,) = cache.glob("scan-*.sqlite")
    with sqlite3.connect(database) as db:
        db.execute("UPDATE files SET facts = '{\"image\": 3}'")
    db.close()
    assert examine_set(sonar12, workers=1) == first
    database.write_bytes(b"no database at all" * 100)
    assert examine_set(sonar12, workers=1) == first
    assert len(watched.seen) == 36


def test_a_cache_that_cannot_be_written_is_done_without(
    sonar12: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FTCSEG_CACHE", str(tmp_path / "file"))
    assert len(examine_set(sonar12, workers=1).facts) == 12


def test_workers_change_nothing(sonar12: Path, cache: Path) -> None:
    alone = examine_set(sonar12, workers=1)
    for path in cache.iterdir():
        path.unlink()
    assert examine_set(sonar12, workers=2) == alone


def test_a_new_class_folder_renumbers_what_was_remembered(tmp_path: Path) -> None:
    save(tmp_path / "images/a.png", picture(0))
    save(tmp_path / "images/b.png", picture(1))
    save(tmp_path / "masks/rope/a.png", [[255, 0, 0, 0, 0]] * 4)
    assert rows(examine_set(tmp_path)) == [("background", 16, 1), ("rope", 4, 1)]
    save(tmp_path / "masks/anchor/b.png", [[255, 255, 0, 0, 0]] * 4)
    assert rows(examine_set(tmp_path)) == [("background", 28, 2), ("anchor", 8, 1), ("rope", 4, 1)]


def test_a_new_category_renumbers_what_was_remembered(tmp_path: Path) -> None:
    def annotate(part: str, image: str, category: tuple[int, str], width: int) -> None:
        save(tmp_path / part / image, picture(len(image) + width))
        shape = [0, 0, width, 0, width, 4, 0, 4]
        entry = {"id": 1, "image_id": 1, "category_id": category[0], "segmentation": [shape]}
        images = [{"id": 1, "file_name": image, "height": 4, "width": 5}]
        categories = [{"id": category[0], "name": category[1]}]
        text = json.dumps({"images": images, "annotations": [entry], "categories": categories})
        (tmp_path / part / "_annotations.coco.json").write_text(text)

    annotate("train", "a.png", (7, "rope"), 1)
    assert rows(examine_set(tmp_path)) == [("background", 16, 1), ("rope", 4, 1)]
    annotate("valid", "b.png", (3, "anchor"), 2)
    assert rows(examine_set(tmp_path)) == [("background", 28, 2), ("anchor", 8, 1), ("rope", 4, 1)]
