"""The real sets, against numbers that were counted by others (notes/methods.md 1.5)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ftcseg import api
from ftcseg.data.doctor import Examination, as_json

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real-cache")


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for all tests here, so that the large set is decoded once."""
    monkeypatch.setenv("FTCSEG_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture(scope="module")
def flsmd(real_data: Path, shared_cache: Path) -> Iterator[Examination]:
    if not (real_data / "flsmd").is_dir():
        pytest.skip(f"there is no flsmd in {real_data}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(shared_cache))
        yield api.doctor("flsmd", root=real_data)


@pytest.fixture
def suim(real_data: Path) -> Path:
    if not (real_data / "suim_sample").is_dir():
        pytest.skip(f"there is no suim_sample in {real_data}")
    return real_data / "suim_sample"


# ---------------------------------------------------------------- FLSMD


def test_flsmd_has_its_frames_and_parts(flsmd: Examination) -> None:
    data = as_json(flsmd)
    assert (data["images"], data["labelled"], data["unlabelled"]) == (1868, 1868, 0)
    assert data["parts"] == {"train": 1494, "val": 374}
    assert data["sizes"] == [{"width": 320, "height": 480, "images": 1868}]
    assert (data["layout"], data["encoding"], data["ignore"]) == ("images-masks", "grey8", None)


def test_flsmd_has_its_classes_and_shares(flsmd: Examination) -> None:
    # «MEASURED FLSMD pixel shares», in percent.
    measured = {
        "background": (96.24, 0.01),
        "bottle": (0.24, 0.005),
        "can": (0.26, 0.005),
        "chain": (0.47, 0.005),
        "drink-carton": (0.088, 0.001),
        "hook": (0.074, 0.001),
        "propeller": (0.20, 0.005),
        "shampoo-bottle": (0.088, 0.001),
        "standing-bottle": (0.045, 0.001),
        "tire": (0.58, 0.005),
        "valve": (0.063, 0.001),
        "wall": (1.66, 0.005),
    }
    assert [row.name for row in flsmd.classes] == list(measured)
    for row in flsmd.classes:
        share, tolerance = measured[row.name]
        assert row.pixel_share == pytest.approx(share, abs=tolerance), row.name
    assert sum(row.pixels for row in flsmd.classes) == 1868 * 320 * 480
    assert flsmd.classes[8].images == 65


def test_flsmd_has_its_tail(flsmd: Examination) -> None:
    # The four smallest of eleven: drink-carton 0.0878 just below shampoo-bottle 0.0884, hook, valve, standing-bottle.
    assert as_json(flsmd)["tail"] == ["drink-carton", "hook", "standing-bottle", "valve"]
    assert {row.name for row in flsmd.classes if row.group == "head"} == {"wall", "tire", "chain", "can"}


def test_flsmd_has_no_errors_but_neighbours(flsmd: Examination) -> None:
    assert flsmd.errors == []
    assert {"near-duplicates", "leaking-parts", "known-defect"} == {f.kind for f in flsmd.findings}


def test_flsmd_is_recognised_in_a_folder_of_any_name(flsmd: Examination, real_data: Path) -> None:
    found = api.doctor(real_data / "flsmd")
    assert found.description.set_name == "flsmd"
    assert found.classes == flsmd.classes


@pytest.mark.parametrize(("labels", "count"), [("2%", 30), ("5%", 75), ("10%", 149)])
def test_flsmd_splits_as_the_paper_does(flsmd: Examination, real_data: Path, labels: str, count: int) -> None:
    split = api.split("flsmd", labels, root=real_data)
    assert (len(split.labeled), len(split.unlabeled)) == (count, 1494 - count)
    assert all(held.images >= 1 for held in split.counts.values())


def test_flsmd_is_read_as_it_is(flsmd: Examination, real_data: Path) -> None:
    dataset = api.open_dataset("flsmd", root=real_data).part("val")
    assert len(dataset) == 374
    sample = dataset[0]
    assert sample.image.shape == (480, 320, 1)
    name = Path(sample.id).name
    assert sample.labels is not None
    np.testing.assert_array_equal(sample.labels, np.asarray(Image.open(real_data / "flsmd" / "Masks" / name)))


# ---------------------------------------------------------------- SUIM


def test_suim_is_recognised_and_cut_at_128(suim: Path) -> None:
    found = api.doctor(suim)
    assert found.description.set_name == "suim"
    assert found.encoding == "rgb-threshold"
    assert len(found.classes) == 8
    assert (len(found.records), found.errors) == (8, [])
    counts = np.zeros(8, np.int64)
    for path in suim.glob("test/masks/*.bmp"):
        red, green, blue = np.moveaxis(np.asarray(Image.open(path).convert("RGB")) >= 128, -1, 0)
        counts += np.bincount((4 * red + 2 * green + blue).ravel(), minlength=8)
    assert [row.pixels for row in found.classes] == counts.tolist()


def test_suim_under_other_names_is_worked_out_from_its_colours(suim: Path, tmp_path: Path) -> None:
    for kind, suffix in (("images", "jpg"), ("masks", "bmp")):
        (tmp_path / kind).mkdir()
        for i, path in enumerate(sorted((suim / "test" / kind).glob(f"*.{suffix}"))):
            shutil.copyfile(path, tmp_path / kind / f"frame{i}.{suffix}")
    found = api.doctor(tmp_path)
    assert found.description.set_name is None
    assert found.encoding == "rgb"  # the masks of these eight frames happen to be pure
    # Six of the eight colours are in these eight frames: no plants (green) and no sea floor (white).
    assert [c.colors[0] for c in found.description.classes] == [
        (0, 0, 0),
        (0, 0, 255),
        (0, 255, 255),
        (255, 0, 0),
        (255, 0, 255),
        (255, 255, 0),
    ]
    assert found.errors == []
