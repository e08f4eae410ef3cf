"""Each command as a function: simulate, split and corrupt from end to end, broken off and taken up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import ftcseg
from ftcseg import api
from ftcseg.data.images import read_image
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.views import corrupt as corruptions
from picture_sets import images_and_masks, picture, save


def contents(folder: Path) -> dict[str, str]:
    """The hash of every file below the folder."""
    paths = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def interrupt_after(count: int) -> Callable[[int, int], None]:
    """A progress that presses Ctrl-C."""

    def progress(done: int, _total: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


# ---------------------------------------------------------------- simulate


def test_a_simulated_set_is_complete_and_described(sonar12: Path) -> None:
    assert len(list(sonar12.glob("images/train/*.png"))) == 10
    assert len(list(sonar12.glob("images/test/*.png"))) == 2
    assert {p.relative_to(sonar12 / "images") for p in sonar12.glob("images/*/*")} == {
        p.relative_to(sonar12 / "masks") for p in sonar12.glob("masks/*/*")
    }
    dataset = ftcseg.open_dataset(sonar12)
    assert len(dataset.classes) == 8
    sample = dataset[0]
    assert sample.image.shape == (240, 160, 1)
    assert sample.labels is not None
    assert sample.labels.shape == (240, 160)


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    size = (96, 64)
    alone = api.simulate(tmp_path / "a" / "set", 20, seed=5, size=size, workers=1)
    together = api.simulate(tmp_path / "b" / "set", 20, seed=5, size=size, workers=2)
    assert contents(alone) == contents(together)
    other = api.simulate(tmp_path / "c" / "set", 20, seed=6, size=size, workers=1)
    assert contents(alone)["images/train/sonar-000000.png"] != contents(other)["images/train/sonar-000000.png"]


def test_an_interrupted_simulation_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole = api.simulate(tmp_path / "whole" / "set", 8, size=(96, 64), workers=1)
    half = tmp_path / "half" / "set"
    with pytest.raises(KeyboardInterrupt):
        api.simulate(half, 8, size=(96, 64), workers=1, progress=interrupt_after(3))
    assert len(list(half.glob("masks/*/*.png"))) == 3
    first = half / "masks/train/sonar-000000.png"
    before = first.stat().st_mtime_ns
    api.simulate(half, 8, size=(96, 64), workers=1)
    assert contents(half) == contents(whole)
    assert first.stat().st_mtime_ns == before  # what was there was not made again


def test_a_folder_of_other_settings_or_somebody_else_is_refused(tmp_path: Path) -> None:
    made = api.simulate(tmp_path / "set", 2, size=(96, 64), workers=1)
    before = contents(made)
    with pytest.raises(UsageError, match="made with other settings"):
        api.simulate(made, 2, seed=1, size=(96, 64), workers=1)
    assert contents(made) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for target in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(UsageError, match="exists and is not empty"):
            api.simulate(target, 2, workers=1)
    with pytest.raises(UsageError, match="cannot be written to"):
        api.simulate(tmp_path / "mine" / "thesis.txt" / "set", 2, workers=1)
    assert contents(tmp_path / "mine").keys() == {"thesis.txt"}


@pytest.mark.parametrize(
    "options", [{"images": 0}, {"classes": 1}, {"classes": 99}, {"noise": 2.0}, {"imbalance": 0.5}]
)
def test_a_set_that_cannot_be_simulated_is_told(tmp_path: Path, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        api.simulate(tmp_path / "set", **({"images": 2} | options), workers=1)  # type: ignore[arg-type]
    assert not (tmp_path / "set").exists()


# ---------------------------------------------------------------- split


def test_a_split_of_the_simulated_set(sonar12: Path, tmp_path: Path) -> None:
    split = ftcseg.split(sonar12, 5, seed=1, out=tmp_path / "out")
    assert (len(split.labeled), len(split.unlabeled)) == (5, 5)
    assert all(count.images >= 1 for count in split.counts.values())
    again, held = ftcseg.read_split(tmp_path / "out")
    assert again == split
    assert ftcseg.split(sonar12, "50%", seed=1).digest() == split.digest()
    assert [len(held["val"]), len(held["test"])] == [0, 2]
    assert len(ftcseg.open_dataset(sonar12).only(list(split.labeled))) == 5


def test_the_same_seed_draws_the_same_split(sonar12: Path) -> None:
    draws = [ftcseg.split(sonar12, 6, seed=seed).digest() for seed in (0, 1, 2, 3, 4)]
    assert draws == [ftcseg.split(sonar12, 6, seed=seed).digest() for seed in (0, 1, 2, 3, 4)]
    assert len(set(draws)) > 1


def test_a_new_validation_part_is_held_out(sonar12: Path, tmp_path: Path) -> None:
    split = ftcseg.split(sonar12, 5, val=2, out=tmp_path / "out")
    _, held = ftcseg.read_split(tmp_path / "out")
    assert len(held["val"]) == 2
    assert not set(held["val"]) & {*split.labeled, *split.unlabeled}
    assert len(split.labeled) + len(split.unlabeled) == 8


@pytest.mark.parametrize("labels", ["0%", "0", "-3", "2", "11", "300", "101%", "many", "0.5", ""])
def test_an_amount_that_cannot_be_drawn_is_told(sonar12: Path, labels: str) -> None:
    # Ten training images; seven classes in few images, so two are not enough.
    with pytest.raises(UsageError):
        ftcseg.split(sonar12, labels)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_told(sonar12: Path, seed: int) -> None:
    with pytest.raises(UsageError, match="out of range"):
        ftcseg.split(sonar12, 5, seed=seed)


def test_broken_images_are_in_no_list(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {f"f{i}": [[0, 1]] for i in range(6)} | {"x": None, "y": None})
    for name in ("f1", "x"):
        (root / f"images/{name}.png").write_bytes(b"")
    (root / "masks/f2.png").write_bytes(b"")
    split = ftcseg.split(root, 2)
    listed = {*split.labeled, *split.unlabeled}
    assert listed == {"images/f0.png", "images/f3.png", "images/f4.png", "images/f5.png", "images/y.png"}


def test_no_masks_to_draw_from_are_told(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": None, "b": None})
    with pytest.raises(UsageError, match=r"No training image of .* has a usable mask"):
        ftcseg.split(root, 1)


# ---------------------------------------------------------------- corrupt


def test_masks_lists_and_descriptions_are_copied_byte_for_byte(sonar12: Path, tmp_path: Path) -> None:
    assert api.corrupt(sonar12, tmp_path / "out", kind="gaussian", severity=3, workers=1) == []
    before, after = contents(sonar12), contents(tmp_path / "out")
    assert after.keys() == before.keys() | {"corrupt.json"}
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {name for name in before if name.startswith("images/")}
    found = api.doctor(tmp_path / "out", workers=1)
    assert [c.pixels for c in found.classes] == [c.pixels for c in api.doctor(sonar12, workers=1).classes]


def test_each_image_draws_its_own_noise_whatever_the_workers(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for i in range(20):
        save(root / f"images/{i}.png", np.full((24, 24), 128))
    for workers in (1, 2):
        api.corrupt(root, tmp_path / str(workers), kind="speckle", severity=1, workers=workers)
    alone = contents(tmp_path / "1")
    assert alone == contents(tmp_path / "2")
    assert len({alone[f"images/{i}.png"] for i in range(20)}) == 20


def test_an_interrupted_corruption_goes_on_and_ends_the_same(sonar12: Path, tmp_path: Path) -> None:
    api.corrupt(sonar12, tmp_path / "whole", kind="fog", workers=1)
    with pytest.raises(KeyboardInterrupt):
        api.corrupt(sonar12, tmp_path / "half", kind="fog", workers=1, progress=interrupt_after(4))
    assert len(list((tmp_path / "half").rglob("*.png"))) == 4
    api.corrupt(sonar12, tmp_path / "half", kind="fog", workers=1)
    assert contents(tmp_path / "half") == contents(tmp_path / "whole")


def test_a_folder_of_another_corruption_or_set_is_refused(sonar12: Path, tmp_path: Path) -> None:
    api.corrupt(sonar12, tmp_path / "out", workers=1)
    with pytest.raises(UsageError, match="made with other settings"):
        api.corrupt(sonar12, tmp_path / "out", severity=1, workers=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").touch()
    with pytest.raises(UsageError, match="exists and is not empty"):
        api.corrupt(sonar12, tmp_path / "mine", workers=1)
    for dive in ("dive1", "dive2"):  # two sets of the same name with images of the same names
        images_and_masks(tmp_path / dive / "frames", {"a": [[0, int(dive == "dive1")] * 8]})
    api.corrupt(tmp_path / "dive1" / "frames", tmp_path / "noisy")
    save(tmp_path / "dive2" / "frames/images/a.png", picture(9, 2, 40))
    with pytest.raises(UsageError, match="made with other settings"):
        api.corrupt(tmp_path / "dive2" / "frames", tmp_path / "noisy")


def test_a_target_within_the_source_or_around_it_is_refused(sonar12: Path, tmp_path: Path) -> None:
    before = contents(sonar12)
    for target in (sonar12, sonar12 / "noisy", sonar12.parent, sonar12 / "x" / ".."):
        with pytest.raises(UsageError, match="overlaps"):
            api.corrupt(sonar12, target, workers=1)
    assert contents(sonar12) == before


def test_unknown_kinds_and_severities_are_told_before_anything_is_written(sonar12: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean speckle"):
        api.corrupt(sonar12, tmp_path / "out", kind="spekle")
    with pytest.raises(UsageError, match="severity 6"):
        api.corrupt(sonar12, tmp_path / "out", severity=6)
    assert not (tmp_path / "out").exists()


def test_depth_and_channels_survive_a_corruption(tmp_path: Path) -> None:
    images = tmp_path / "set" / "images"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65536, (40, 30), dtype=np.uint16)
    Image.fromarray(deep).save(images / "grey16.png")
    tifffile.imwrite(
        images / "five.tif",
        rng.integers(0, 65536, (40, 30, 5), dtype=np.uint16),
        photometric="minisblack",
        planarconfig="contig",
    )
    tifffile.imwrite(images / "float.tif", rng.random((40, 30), dtype=np.float32))
    Image.fromarray(picture(0, 40, 30, 4)).save(images / "rgba.png")
    Image.fromarray(picture(0, 40, 30, 3)).save(images / "web.webp", lossless=True)
    Image.fromarray(picture(0, 40, 30, 3)).save(images / "rgb.bmp")
    Image.fromarray(picture(0, 40, 30)).save(images / "grey.jpg")
    assert api.corrupt(tmp_path / "set", tmp_path / "out", kind="gaussian", severity=1) == []
    for path in images.iterdir():
        before, after = read_image(path), read_image(tmp_path / "out" / "images" / path.name)
        assert (after.dtype, after.shape) == (before.dtype, before.shape), path.name
        assert (after != before).mean() > 0.5, path.name
    after16 = read_image(tmp_path / "out/images/grey16.png")
    assert len(np.unique(after16 % 256)) > 200  # the low byte is not lost
    noise = after16[:, :, 0].astype(float) - deep
    inner = (deep > 20_000) & (deep < 45_000)
    assert abs(noise[inner].std() / 65535 - 0.08) < 0.01  # severity 1 adds 0.08


def test_names_that_cannot_hold_their_pixels_are_no_obstacle(tmp_path: Path) -> None:
    # Files are known by their content: here PNGs that are called something else.
    images = tmp_path / "set" / "images"
    images.mkdir(parents=True)
    Image.fromarray(picture(0, 8, 8, 4)).save(images / "alpha.jpg", "PNG")
    Image.fromarray(picture(0, 8, 8, 2), "LA").save(images / "grey-alpha.bmp", "PNG")
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(images / "deep.jpeg", "PNG")
    Image.fromarray(picture(0, 8, 8)).save(images / "grey.webp", "PNG")
    Image.fromarray(picture(0, 8, 8)).save(images / "still.gif")
    assert api.corrupt(tmp_path / "set", tmp_path / "out", severity=1) == []
    for path in images.iterdir():
        after = read_image(tmp_path / "out" / "images" / path.name)
        assert after.shape[:2] == (8, 8)
        if path.suffix != ".gif":
            assert after.shape == read_image(path).shape


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif", "deep.png", "jpeg-inside.bmp"])
def test_a_turned_image_still_lies_under_its_mask(tmp_path: Path, name: str) -> None:
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :8] = 200  # a bright corner, and the mask of it, both stored lying on their side
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "set" / "images" / name
    path.parent.mkdir(parents=True)
    if name == "a.tif":
        tifffile.imwrite(path, pixels, photometric="rgb", extratags=[(0x0112, "H", 1, 6, True)])
    elif name == "deep.png":
        from ftcseg.data.writing import write_image

        write_image(path, pixels.astype(np.uint16) * 257, orientation=6)
    else:
        Image.fromarray(pixels).save(path, "JPEG" if "jpeg" in name else None, exif=exif)
    save((tmp_path / "set" / "masks" / name).with_suffix(".png"), pixels[:, :, 0] > 0)
    assert api.corrupt(tmp_path / "set", tmp_path / "out", kind="speckle", severity=1) == []
    for root in (tmp_path / "set", tmp_path / "out"):
        (sample,) = ftcseg.open_dataset(root)
        assert sample.labels is not None
        assert sample.image.shape[:2] == sample.labels.shape == (24, 16)
        bright = sample.image.mean(axis=2) > sample.image.max() / 4
        assert (bright == (sample.labels == 1)).mean() > 0.95


def test_what_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 1]], "b": [[0, 1]], "c": [[0, 1]]})
    (root / "images/b.png").write_bytes(b"")
    (root / "images/c.png").unlink()
    tifffile.imwrite(root / "images/c.tif", np.array([[5.0, -3.0]], dtype=np.float32))
    empty, beyond = api.corrupt(root, tmp_path / "out")
    assert empty == "b.png is empty (0 bytes)."
    assert beyond.startswith("images/c.tif: A float image must lie in [0, 1]")
    assert {p.name for p in (tmp_path / "out" / "images").iterdir()} == {"a.png"}
    assert len(list((tmp_path / "out" / "masks").iterdir())) == 3


def test_links_within_the_set_are_copied_and_links_out_of_it_are_not(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 1]], "b": None})
    (tmp_path / "secret.txt").write_text("secret")
    (root / "notes.txt").symlink_to(tmp_path / "secret.txt")
    (root / "stored").mkdir()
    save(root / "stored/b.png", [[0, 1, 1, 1, 1]] * 4)
    (root / "masks/b.png").symlink_to(root / "stored" / "b.png")
    api.corrupt(root, tmp_path / "out")
    assert not (tmp_path / "out/notes.txt").exists()
    assert (tmp_path / "out/masks/b.png").read_bytes() == (root / "stored/b.png").read_bytes()
    assert len(ftcseg.open_dataset(tmp_path / "out").labeled()) == 2


def test_a_description_from_elsewhere_comes_along(tmp_path: Path) -> None:
    images_and_masks(tmp_path / "set", {"a": [[0, 38]]})
    note = tmp_path / "harbour.yaml"
    note.write_text("ftcseg: 1\nname: harbour\nroot: set\nclasses: {0: water, 1: {name: rope, values: [38]}}")
    api.corrupt(note, tmp_path / "out")
    dataset = ftcseg.open_dataset(tmp_path / "out")
    assert dataset.classes.names == ["water", "rope"]
    assert dataset.description.root == (tmp_path / "out").resolve()


def test_the_noise_is_that_of_the_corruption_itself(tmp_path: Path) -> None:
    from ftcseg.rng import random_for

    pixels = picture(3, 30, 20)
    save(tmp_path / "set/images/a.png", pixels)
    api.corrupt(tmp_path / "set", tmp_path / "out", kind="scattering", severity=2, seed=4)
    rng = random_for(4, "corrupt", "scattering", 2, "images/a.png")
    expected = corruptions.corrupt(pixels[:, :, None], "scattering", 2, rng)
    np.testing.assert_array_equal(read_image(tmp_path / "out/images/a.png"), expected)
    # By hand: transmission 0.7 of the pixel, and 0.3 of mid grey.
    assert abs(int(expected[0, 0, 0]) - (0.7 * int(pixels[0, 0]) + 0.3 * 127.5)) <= 1


# ---------------------------------------------------------------- the rest


def test_a_page_is_written_for_the_simulated_set(sonar12: Path, tmp_path: Path) -> None:
    page = ftcseg.dataset_page(ftcseg.doctor(sonar12, workers=1), tmp_path / "new" / "page.html", pictures=5)
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure>") == 5
    assert "It can be used as it is." in text


def test_getting_a_set_needs_a_place_and_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FTCSEG_DATA", raising=False)
    with pytest.raises(UsageError, match="Say where sets are kept"):
        ftcseg.get("flsmd")
    with pytest.raises(FtcsegError, match="Did you mean flsmd"):
        ftcseg.get("flsdm", root=tmp_path)


def test_the_recipe_of_a_folder_can_be_read(sonar12: Path) -> None:
    recipe = json.loads((sonar12 / "simulate.json").read_text())
    assert (recipe["command"], recipe["images"], recipe["seed"], recipe["classes"]) == ("simulate", 12, 0, 8)
