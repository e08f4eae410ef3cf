"""Pictures of every depth, and files that are none: what is decoded, and what is said about the rest."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import GifImagePlugin, Image, ImageOps, JpegImagePlugin, PngImagePlugin

from ftcseg.data.images import MAX_PIXELS, oriented, read_header, read_image, read_unturned
from ftcseg.errors import ImageError

ORIENTATION = 0x0112


def noise(*shape: int, dtype: type[Any] = np.uint8) -> NDArray[Any]:
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, color_type: int, rows: bytes) -> bytes:
    """A PNG written by hand: `rows` are its scan lines, each after a filter byte 0."""
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def png16(array: NDArray[np.uint16], color_type: int) -> bytes:
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    return png(array.shape[1], array.shape[0], 16, color_type, rows)


def saved(tmp_path: Path, name: str, image: Image.Image, **options: Any) -> Path:
    image.save(tmp_path / name, **options)
    return tmp_path / name


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


def tiff(tmp_path: Path, array: NDArray[Any], **options: Any) -> Path:
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    return tmp_path / "a.tif"


def refused(path: Path, kind: str, max_pixels: int = MAX_PIXELS) -> ImageError:
    """The error that both the header and the pixels of this file raise."""
    for read in (read_image, read_header):
        with pytest.raises(ImageError) as caught:
            read(path, max_pixels)
        assert caught.value.kind == kind
        assert path.name in caught.value.what
        assert str(path.parent) not in str(caught.value)
        assert caught.value.remedy
    return caught.value


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_stays_one_channel_and_colour_three(tmp_path: Path, suffix: str, channels: int) -> None:
    pixels = noise(5, 7, channels)
    path = saved(tmp_path, f"a.{suffix}", Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels))
    read = read_image(path)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, pixels)


@pytest.mark.parametrize(("mode", "channels"), [("RGBA", 4), ("LA", 2)])
def test_alpha_stays_a_channel(tmp_path: Path, mode: str, channels: int) -> None:
    pixels = noise(5, 7, channels)
    read = read_image(saved(tmp_path, "a.png", Image.fromarray(pixels, mode)))
    np.testing.assert_array_equal(read, pixels)


@pytest.mark.parametrize("suffix", ["png", "gif", "tif"])
def test_a_palette_picture_has_the_colours_of_its_palette(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8), "P")
    image.putpalette([9, 8, 7, 255, 0, 0, 0, 0, 250])
    read = read_image(saved(tmp_path, f"a.{suffix}", image))
    assert read.tolist() == [[[9, 8, 7], [255, 0, 0], [0, 0, 250]]]


def test_a_palette_with_transparency_has_alpha(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    image.putpalette([9, 8, 7, 255, 0, 0])
    read = read_image(saved(tmp_path, "a.png", image, transparency=bytes([255, 0])))
    assert read.tolist() == [[[9, 8, 7, 255], [255, 0, 0, 0]]]


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp"])
def test_one_bit_is_black_and_white(tmp_path: Path, suffix: str) -> None:
    read = read_image(saved(tmp_path, f"a.{suffix}", Image.fromarray(np.array([[True, False, True]]))))
    assert read.dtype == np.uint8
    assert read[..., :1].tolist() == [[[255], [0], [255]]]


def test_a_cmyk_photograph_becomes_the_rgb_it_stands_for(tmp_path: Path) -> None:
    read = read_image(saved(tmp_path, "a.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0)), quality=100))
    assert read.shape == (8, 8, 3)
    assert np.abs(read.astype(int) - [255, 0, 0]).max() <= 4


def test_a_jpeg_keeps_grey_as_one_channel(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.jpg", Image.new("L", (8, 8), 77))
    assert read_image(path).tolist() == [[[77]] * 8] * 8
    assert read_header(path).mode == "L"


def test_a_tiff_stored_as_a_negative_is_turned_back(tmp_path: Path) -> None:
    for array, upright in ((np.array([[0, 255, 5]], np.uint8), [255, 0, 250]), (np.array([[True, False]]), [0, 255])):
        read = read_image(tiff(tmp_path, array, photometric="miniswhite"))
        assert read[0, :, 0].tolist() == upright


# ---------------------------------------------------------------- depth


RAMP = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def test_a_16_bit_grey_ramp_keeps_its_65536_levels(tmp_path: Path) -> None:
    files = {
        "hand.png": png16(RAMP, 0),
        "pillow.png": _bytes(lambda b: Image.fromarray(RAMP).save(b, "PNG")),
        "plain.tif": _bytes(lambda b: tifffile.imwrite(b, RAMP)),
        "zlib.tif": _bytes(lambda b: tifffile.imwrite(b, RAMP, compression="zlib", predictor=True)),
        "big-endian.tif": _bytes(lambda b: tifffile.imwrite(b, RAMP, byteorder=">")),
        "bigtiff.tif": _bytes(lambda b: tifffile.imwrite(b, RAMP, bigtiff=True)),
        "pillow.tif": _bytes(lambda b: Image.fromarray(RAMP).save(b, "TIFF")),
    }
    for name, data in files.items():
        read = read_image(written(tmp_path, name, data))
        assert read.dtype == np.uint16, name
        assert read.dtype.isnative, name
        np.testing.assert_array_equal(read[:, :, 0], RAMP, err_msg=name)


def _bytes(write: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(("color_type", "channels", "mode"), [(2, 3, "RGB;16"), (6, 4, "RGBA;16"), (4, 2, "LA;16")])
def test_a_16_bit_png_of_several_channels_keeps_its_levels(
    tmp_path: Path, color_type: int, channels: int, mode: str
) -> None:
    ramp = np.stack([np.roll(RAMP, c, axis=1) for c in range(channels)], axis=2)
    path = written(tmp_path, "a.png", png16(ramp, color_type))
    read = read_image(path)
    assert read.dtype == np.uint16
    np.testing.assert_array_equal(read, ramp)
    assert read_header(path).mode == mode


def test_a_16_bit_rgb_tiff_keeps_its_levels(tmp_path: Path) -> None:
    ramp = np.stack([RAMP, RAMP[::-1], RAMP.T], axis=2)
    np.testing.assert_array_equal(read_image(tiff(tmp_path, ramp, photometric="rgb")), ramp)


@pytest.mark.parametrize("compression", [None, "lzw", "zlib"])
@pytest.mark.parametrize("planar", [False, True])
def test_a_5_channel_16_bit_tiff_is_read_whole(tmp_path: Path, compression: str | None, planar: bool) -> None:
    pixels = noise(6, 9, 5, dtype=np.uint16)
    stored = np.moveaxis(pixels, -1, 0) if planar else pixels
    config = "separate" if planar else "contig"
    path = tiff(tmp_path, stored, photometric="minisblack", planarconfig=config, compression=compression)
    read = read_image(path)
    assert read.dtype == np.uint16
    np.testing.assert_array_equal(read, pixels)
    header = read_header(path)
    assert (header.format, header.mode, header.width, header.height) == ("TIFF", "5xuint16", 9, 6)


def test_planes_are_not_mistaken_for_rows(tmp_path: Path) -> None:
    # 5 x 5 x 5: only the file can tell which axis is which.
    pixels = noise(5, 5, 5)
    path = tiff(tmp_path, pixels, photometric="minisblack", planarconfig="contig")
    np.testing.assert_array_equal(read_image(path), pixels)


def test_a_float_tiff_stays_float(tmp_path: Path) -> None:
    pixels = np.array([[0.1, -3.5, 1e30]], dtype=np.float32)
    read = read_image(tiff(tmp_path, pixels))
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read[:, :, 0], pixels)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int16, np.int32, np.uint32])
def test_other_depths_become_float(tmp_path: Path, dtype: type[Any]) -> None:
    read = read_image(tiff(tmp_path, np.array([[1, 2, 300]], dtype=dtype)))
    assert read.dtype == np.float32
    assert read[0, :, 0].tolist() == [1, 2, 300]


def test_complex_numbers_are_no_picture(tmp_path: Path) -> None:
    refused(tiff(tmp_path, np.ones((4, 4), dtype=np.complex64)), "depth")


# ---------------------------------------------------------------- orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "webp", "jpg"])
def test_exif_orientation_is_that_of_pillow(tmp_path: Path, orientation: int, suffix: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    options = {"webp": {"lossless": True}, "jpg": {"quality": 100, "subsampling": 0}, "png": {}}[suffix]
    path = saved(tmp_path, f"a.{suffix}", Image.fromarray(noise(16, 24, 3)), exif=exif, **options)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(read_image(path), expected)
    header = read_header(path)
    assert (header.width, header.height, header.orientation) == (24, 16, orientation)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_turned_like_the_others(tmp_path: Path, orientation: int) -> None:
    pixels = noise(5, 7, 3)
    path = tiff(tmp_path, pixels, photometric="rgb", extratags=[(ORIENTATION, "H", 1, orientation, True)])
    with Image.open(path) as image:  # Pillow turns TIFFs by itself
        expected = np.asarray(image)
    np.testing.assert_array_equal(read_image(path), expected)
    stored, told = read_unturned(path)
    np.testing.assert_array_equal(stored, pixels)
    assert told == orientation
    assert read_header(path).orientation == orientation


def test_a_16_bit_png_is_turned_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    ramp = noise(3, 5, 3, dtype=np.uint16)
    data = png16(ramp, 2)
    end = data.index(b"IDAT") - 4
    turned = data[:end] + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + data[end:]
    # Orientation 6: the first row is the right side, so a quarter turn clockwise.
    np.testing.assert_array_equal(read_image(written(tmp_path, "a.png", turned)), np.rot90(ramp, -1))


def test_an_orientation_told_behind_the_picture_is_found(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 8
    pixels = noise(3, 5)
    data = png(5, 3, 8, 0, b"".join(b"\0" + row.tobytes() for row in pixels))
    end = data.index(b"IEND") - 4
    turned = data[:end] + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + data[end:]
    path = written(tmp_path, "a.png", turned)
    assert read_header(path).orientation == 8
    np.testing.assert_array_equal(read_image(path)[:, :, 0], np.rot90(pixels))


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "webp", "tif"])
def test_a_header_is_read_without_decoding(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, f"a.{suffix}", Image.fromarray(noise(6, 9)))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(Image.Image, "load", refuse)
    for plugin in (PngImagePlugin.PngImageFile, JpegImagePlugin.JpegImageFile, GifImagePlugin.GifImageFile):
        monkeypatch.setattr(plugin, "load", refuse)
    monkeypatch.setattr(tifffile.TiffPage, "asarray", refuse)
    assert (read_header(path).width, read_header(path).height) == (9, 6)


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_makes_no_sense_is_none(tmp_path: Path, value: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    path = saved(tmp_path, "a.png", Image.new("L", (3, 2)), exif=exif)
    assert read_header(path).orientation == 1
    tags = [(ORIENTATION, "H", 1, value, True)]
    assert read_header(tiff(tmp_path, noise(2, 3), extratags=tags)).orientation == 1


def test_damaged_exif_is_no_orientation(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.jpg", Image.new("L", (16, 8), 9), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff garbage")
    assert read_header(path).orientation == 1
    assert read_image(path).shape == (8, 16, 1)


def test_exif_that_pillow_stumbles_over_is_no_orientation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "a.jpg", Image.new("L", (16, 8), 9))

    def stumble(_: Image.Image) -> None:
        raise struct.error("unpack requires a buffer of 2 bytes")

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "getexif", stumble)
    assert read_header(path).orientation == 1
    assert read_image(path).shape == (8, 16, 1)


def test_a_turn_by_hand() -> None:
    # F lies on its back: orientation 6 asks for a quarter turn clockwise.
    assert oriented(np.array([[1, 2, 3], [4, 5, 6]]), 6).tolist() == [[4, 1], [5, 2], [6, 3]]
    assert oriented(np.array([[1, 2, 3], [4, 5, 6]]), 8).tolist() == [[3, 6], [2, 5], [1, 4]]


# ---------------------------------------------------------------- size


def bomb_png(width: int, height: int) -> bytes:
    return png(width, height, 8, 2, b"\0" * 100)


def bomb_gif(width: int, height: int) -> bytes:
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0)
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frame + b"\x02\x02\x44\x01\0;"


def bomb_bmp(width: int, height: int) -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + info + bytes(100)


def bomb_jpeg(width: int, height: int) -> bytes:
    data = bytearray(_bytes(lambda b: Image.new("L", (8, 8)).save(b, "JPEG")))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def bomb_tiff(width: int, height: int) -> bytes:
    data = bytearray(_bytes(lambda b: tifffile.imwrite(b, np.zeros((8, 8), np.uint8), compression="zlib")))
    for tag, value in ((256, width), (257, height)):
        at = data.index(struct.pack("<H", tag), 8)
        data[at : at + 12] = struct.pack("<HHII", tag, 4, 1, value)
    return bytes(data)


@pytest.mark.parametrize("bomb", [bomb_png, bomb_gif, bomb_bmp, bomb_jpeg, bomb_tiff])
@pytest.mark.parametrize("side", [60_000, 10_000])  # far beyond the limit, and just beyond it
def test_a_small_file_with_a_huge_header_is_refused_unread(
    tmp_path: Path, bomb: Callable[[int, int], bytes], side: int
) -> None:
    path = written(tmp_path, "bomb.bin", bomb(side, side))
    assert path.stat().st_size < 2000
    tracemalloc.start()
    error = refused(path, "oversized")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert "--max-pixels" in error.remedy


def test_the_limit_is_the_users(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.png", Image.new("L", (100, 100)))
    assert read_image(path, 10_000).shape == (100, 100, 1)
    assert "100x100" in refused(path, "oversized", 9_999).what


def test_a_limit_above_pillows_own_is_the_users_too(tmp_path: Path) -> None:
    # 13,400 x 13,400 = 179.6 million pixels, which Pillow refuses by itself; 1 bit each, so the file is small.
    path = saved(tmp_path, "a.png", Image.new("1", (13_400, 13_400)))
    refused(path, "oversized")
    assert read_header(path, 200_000_000).width == 13_400


def test_a_tiff_of_many_channels_counts_as_so_much_larger(tmp_path: Path) -> None:
    path = tiff(tmp_path, noise(10, 10, 8), photometric="minisblack", planarconfig="contig")
    assert read_image(path, 200).shape == (10, 10, 8)
    refused(path, "oversized", 199)


def test_a_side_longer_than_any_frame_is_refused(tmp_path: Path) -> None:
    refused(written(tmp_path, "a.png", png(200_001, 1, 8, 0, bytes(200_002))), "oversized")


def test_a_strip_of_one_row_is_an_image(tmp_path: Path) -> None:
    for shape in ((1, 10_000), (10_000, 1), (1, 1)):
        pixels = noise(*shape)
        np.testing.assert_array_equal(read_image(saved(tmp_path, "a.png", Image.fromarray(pixels)))[:, :, 0], pixels)


def test_no_pixels_are_no_image(tmp_path: Path) -> None:
    for width, height in ((0, 5), (5, 0)):
        with pytest.raises(ImageError) as caught:
            read_image(written(tmp_path, "a.png", png(width, height, 8, 0, b"")))
        assert caught.value.kind in ("zero-size", "unreadable")


# ---------------------------------------------------------------- what is no image


def test_an_empty_file(tmp_path: Path) -> None:
    refused(written(tmp_path, "a.png", b""), "empty-file")


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "webp", "tif"])
def test_a_truncated_file(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path, f"half.{suffix}", Image.fromarray(noise(60, 60)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert caught.value.kind == "unreadable"
    assert path.name in caught.value.what


@pytest.mark.parametrize("compression", [None, "lzw", "zlib"])
def test_a_truncated_tiff(tmp_path: Path, compression: str | None) -> None:
    path = tiff(tmp_path, noise(60, 60), compression=compression, rowsperstrip=5)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ImageError, match=r"a\.tif") as caught:
        read_image(path)
    assert caught.value.kind == "unreadable"


def test_a_truncated_16_bit_png(tmp_path: Path) -> None:
    data = png16(noise(60, 60, 3, dtype=np.uint16), 2)
    with pytest.raises(ImageError, match=r"a\.png") as caught:
        read_image(written(tmp_path, "a.png", data[: len(data) // 2]))
    assert caught.value.kind == "unreadable"


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_an_animation(tmp_path: Path, suffix: str) -> None:
    frames = [Image.fromarray(noise(8, 8) // (i + 1)) for i in range(3)]
    refused(saved(tmp_path, f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:]), "animated")


def test_a_tiff_of_several_pages(tmp_path: Path) -> None:
    path = tiff(tmp_path, noise(3, 8, 8), photometric="minisblack")
    assert "3 pages" in refused(path, "animated").what


def test_a_still_gif_is_an_image(tmp_path: Path) -> None:
    assert read_image(saved(tmp_path, "a.gif", Image.fromarray(noise(8, 8)))).shape[:2] == (8, 8)


@pytest.mark.parametrize("name", ["notes.png", "notes.tif", "notes.jpg"])
def test_a_text_file_with_the_name_of_an_image(tmp_path: Path, name: str) -> None:
    refused(written(tmp_path, name, b"Dear diary,\n" * 100), "unreadable")


def test_a_program_for_a_printer_is_not_run(tmp_path: Path) -> None:
    # Pillow would hand EPS to Ghostscript.
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    refused(written(tmp_path, "a.png", drawing), "unreadable")


def test_a_missing_file_and_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    assert "No such file" in refused(tmp_path / "none.png", "missing").what
    assert "directory" in refused(tmp_path / "folder.png", "missing").what
    assert "too long" in refused(tmp_path / ("x" * 300 + ".png"), "missing").what


def test_a_file_with_another_ending_is_known_by_its_content(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.png", Image.new("RGB", (4, 3)))
    path = path.rename(tmp_path / "a.jpg")
    assert read_header(path).format == "PNG"
    assert read_image(path).shape == (3, 4, 3)


def test_a_damaged_tiff_says_nothing_behind_our_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tiff(tmp_path, noise(8, 8))
    path.write_bytes(path.read_bytes()[:40])
    refused(path, "unreadable")
    assert capfd.readouterr() == ("", "")


WHOLE = {
    "a.png": _bytes(lambda b: Image.fromarray(noise(9, 9, 3)).save(b, "PNG")),
    "deep.png": bytes(imagecodecs.png_encode(noise(9, 9, 3, dtype=np.uint16))),
    "a.jpg": _bytes(lambda b: Image.fromarray(noise(9, 9, 3)).save(b, "JPEG")),
    "a.gif": _bytes(lambda b: Image.fromarray(noise(9, 9)).save(b, "GIF")),
    "a.bmp": _bytes(lambda b: Image.fromarray(noise(9, 9, 3)).save(b, "BMP")),
    "a.webp": _bytes(lambda b: Image.fromarray(noise(9, 9, 3)).save(b, "WEBP")),
    "a.tif": _bytes(lambda b: tifffile.imwrite(b, noise(9, 9, 3), photometric="rgb", compression="lzw")),
}


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(WHOLE)),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 60),
)
def test_whatever_is_damaged_the_error_is_ours(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(WHOLE[name])
    for at, value in changes:
        data[at % len(data)] = value
    path = written(tmp_path_factory.getbasetemp(), name, bytes(data[: len(data) - cut]))
    for read in (read_header, read_image):
        with suppress(ImageError):
            read(path, 10**6)
