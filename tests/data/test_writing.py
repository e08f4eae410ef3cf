"""Arrays to files and back; folders that belong to somebody."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ftcseg.data.images import read_image, read_unturned
from ftcseg.data.writing import claim, encode_image, write_image, write_labels
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.types import IGNORE


def noise(channels: int, dtype: type[Any]) -> Any:
    rng = np.random.default_rng(0)
    if dtype is np.float32:
        return rng.random((6, 7, channels), dtype=np.float32)
    return rng.integers(0, np.iinfo(dtype).max, (6, 7, channels), dtype=dtype, endpoint=True)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp", ".webp", ".gif"])
@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint8), (2, np.uint8), (3, np.uint8), (4, np.uint8)])
def test_bytes_come_back_from_every_lossless_format(tmp_path: Path, suffix: str, channels: int, dtype: Any) -> None:
    pixels = noise(channels, dtype)
    write_image(tmp_path / f"a{suffix}", pixels)
    np.testing.assert_array_equal(read_image(tmp_path / f"a{suffix}"), pixels)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg"])
@pytest.mark.parametrize(
    ("channels", "dtype"),
    [
        (1, np.uint16),
        (2, np.uint16),
        (3, np.uint16),
        (4, np.uint16),
        (5, np.uint16),
        (5, np.uint8),
        (1, np.float32),
        (3, np.float32),
    ],
)
def test_depth_comes_back_whatever_the_suffix(tmp_path: Path, suffix: str, channels: int, dtype: Any) -> None:
    pixels = noise(channels, dtype)
    write_image(tmp_path / f"a{suffix}", pixels)
    read = read_image(tmp_path / f"a{suffix}")
    assert read.dtype == pixels.dtype
    np.testing.assert_array_equal(read, pixels)


def test_a_jpeg_is_a_jpeg_of_high_quality() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(encode_image(".jpg", pixels))) as image:
        assert image.format == "JPEG"
        # Coloured noise is the hardest case: Pillow's default would be off by 48 on average, quality 90 by 6.
        assert np.abs(np.asarray(image).astype(int) - pixels).mean() < 3.5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp", "a.jpg", "a.bmp"])
def test_an_orientation_is_kept(tmp_path: Path, name: str, orientation: int) -> None:
    write_image(tmp_path / name, noise(3, np.uint8), orientation)
    assert read_unturned(tmp_path / name)[1] == orientation


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_is_kept_in_16_bits(tmp_path: Path, orientation: int) -> None:
    pixels = noise(3, np.uint16)
    write_image(tmp_path / "a.png", pixels, orientation)
    stored, told = read_unturned(tmp_path / "a.png")
    np.testing.assert_array_equal(stored, pixels)
    assert told == orientation


@pytest.mark.parametrize(
    ("largest", "mode", "unknown"), [(254, "L", 255), (255, "I;16", 65535), (30_000, "I;16", 65535)]
)
def test_labels_take_8_bits_or_16(tmp_path: Path, largest: int, mode: str, unknown: int) -> None:
    write_labels(tmp_path / "m.png", np.array([[0, largest, IGNORE]], np.int16))
    with Image.open(tmp_path / "m.png") as image:
        assert image.mode == mode
        assert np.asarray(image).tolist() == [[0, largest, unknown]]


def test_a_folder_belongs_to_the_recipe_it_was_made_with(tmp_path: Path) -> None:
    claim(tmp_path / "out", {"seed": 1, "noise": 0.5}, "made.json")
    (tmp_path / "out" / "a.png").touch()
    claim(tmp_path / "out", {"seed": 1, "noise": 0.5}, "made.json")
    with pytest.raises(UsageError, match="made with other settings"):
        claim(tmp_path / "out", {"seed": 2, "noise": 0.5}, "made.json")
    with pytest.raises(UsageError, match="exists and is not empty"):
        claim(tmp_path / "out", {"seed": 1}, "other.json")
    (tmp_path / "empty").mkdir()
    claim(tmp_path / "empty", {"seed": 1}, "made.json")


def test_a_damaged_recipe_is_told(tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text("{")
    with pytest.raises(FtcsegError, match=r"made\.json is not valid JSON"):
        claim(tmp_path, {"seed": 1}, "made.json")
