"""Videos to frames: their numbers, depth and direction, and what is refused before it is decoded."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from films import film, plain_frames
from ftcseg.data import video
from ftcseg.data.video import frames, length
from ftcseg.errors import ImageError, UsageError
from ftcseg.types import Pixels


def every(_number: int) -> bool:
    return True


def pixels_of(path: Path, **options: bool) -> list[Pixels]:
    found = list(frames(path, every, **options))
    assert [number for number, _ in found] == list(range(len(found)))
    return [pixels for _, pixels in found if pixels is not None]


def refused(path: Path, max_pixels: int = 10**6) -> ImageError:
    with pytest.raises(ImageError) as caught:
        list(frames(path, every, max_pixels=max_pixels))
    return caught.value


# Films


@pytest.mark.parametrize("name", ["dive.avi", "dive.MKV"])
def test_the_frames_of_a_grey_film_come_as_they_were_taken(name: str, tmp_path: Path) -> None:
    drawn = np.arange(24 * 32, dtype=np.uint8).reshape(24, 32)
    found = pixels_of(film(tmp_path / name, [drawn, 255 - drawn]))
    assert [pixels.shape for pixels in found] == [(24, 32, 1)] * 2
    assert (found[0][:, :, 0] == drawn).all()
    assert (found[1][:, :, 0] == 255 - drawn).all()


def test_sixteen_bits_stay_sixteen_bits(tmp_path: Path) -> None:
    (only,) = pixels_of(film(tmp_path / "deep.mkv", plain_frames(128), kept_as="gray16le"))
    assert (only.dtype, only.shape) == (np.uint16, (24, 32, 1))
    assert only[0, 0, 0] == 128 * 257  # the same grey of 65535


def test_frames_nobody_wants_are_counted_and_not_made(tmp_path: Path) -> None:
    path = film(tmp_path / "dive.avi", plain_frames(*range(7)))
    found = list(frames(path, lambda number: number % 3 == 0))
    assert [number for number, _ in found] == [0, 1, 2, 3, 4, 5, 6]
    assert [None if pixels is None else int(pixels[0, 0, 0]) for _, pixels in found] == [
        0,
        None,
        None,
        3,
        None,
        None,
        6,
    ]


def test_a_grey_film_that_a_codec_keeps_as_colour_is_grey_where_that_is_asked_for(tmp_path: Path) -> None:
    path = film(tmp_path / "dive.mp4", plain_frames(40, 200), "mpeg4", "yuv420p")
    colored = pixels_of(path)
    assert [pixels.shape for pixels in colored] == [(24, 32, 3)] * 2
    grey = pixels_of(path, grey=True)
    assert [pixels.shape for pixels in grey] == [(24, 32, 1)] * 2
    assert [float(pixels.mean()) for pixels in grey] == pytest.approx([40, 200], abs=3)


def test_a_colored_film_stays_colored(tmp_path: Path) -> None:
    red = np.zeros((24, 32, 3), np.uint8)
    red[:, :, 0] = 200
    (only,) = pixels_of(film(tmp_path / "red.mkv", [red], kept_as="bgr0"), grey=True)
    assert only[3, 4].tolist() == [200, 0, 0]


def turned_by_a_quarter(path: Path) -> None:
    """Tell players to show the film turned to the right: the matrix in its track header says so."""
    data = bytearray(path.read_bytes())
    start = data.index(b"tkhd") + 44  # behind version, times, track, duration, layer and volume
    matrix = (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    data[start : start + 36] = b"".join(number.to_bytes(4, "big", signed=True) for number in matrix)
    path.write_bytes(data)


def test_a_film_is_turned_upright(tmp_path: Path) -> None:
    bright_left = np.zeros((24, 32), np.uint8)
    bright_left[:, :16] = 200
    path = film(tmp_path / "phone.mp4", [bright_left], "mpeg4", "yuv420p")
    turned_by_a_quarter(path)
    (only,) = pixels_of(path, grey=True)
    assert only.shape == (32, 24, 1)
    assert only[4].mean() == pytest.approx(200, abs=10)  # what was left is above
    assert only[-4].mean() == pytest.approx(0, abs=10)


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.mkv", "a.webm"])
def test_the_header_may_tell_how_many_frames_there_are(name: str, tmp_path: Path) -> None:
    codec = "libvpx-vp9" if name == "a.webm" else "mpeg4"
    assert length(film(tmp_path / name, plain_frames(*range(12)), codec, "yuv420p")) == 12


def test_a_film_of_too_many_pixels_is_refused_by_its_header(tmp_path: Path) -> None:
    path = film(tmp_path / "dive.avi", plain_frames(1))
    assert refused(path, max_pixels=24 * 32 - 1).kind == "oversized"
    assert len(list(frames(path, every, max_pixels=24 * 32))) == 1
    with pytest.raises(ImageError, match="the limit is 767"):
        length(path, max_pixels=767)


def test_a_list_of_other_files_is_no_film(tmp_path: Path) -> None:
    other = film(tmp_path / "secret.mkv", plain_frames(1))
    for suffix in video.VIDEO_SUFFIXES:
        path = tmp_path / f"list{suffix}"
        path.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other}\n#EXT-X-ENDLIST\n")
        assert refused(path).kind in ("unreadable", "image")
        path.write_text(f"ffconcat version 1.0\nfile '{other}'\n")
        assert refused(path).kind in ("unreadable", "image")


def test_damaged_films_are_refused_by_name(tmp_path: Path) -> None:
    path = film(tmp_path / "dive.mp4", plain_frames(*range(12)), "mpeg4", "yuv420p")
    path.write_bytes(path.read_bytes()[:600])
    assert "dive.mp4" in str(refused(path))
    path.write_bytes(b"")
    assert refused(path).kind == "empty-file"
    path.write_bytes(b"no film at all")
    assert "dive.mp4 cannot be decoded (Invalid data" in str(refused(path))
    assert "dive2.mp4 cannot be read: No such file" in str(refused(tmp_path / "dive2.mp4"))


def test_without_the_extra_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UsageError, match=r"pip install 'ftcseg\[video\]'"):
        list(frames(tmp_path / "dive.mp4", every))


# Moving pictures and pages


def moving(path: Path, frames: list[NDArray[np.uint8]]) -> Path:
    first, *rest = (Image.fromarray(pixels) for pixels in frames)
    first.save(path, save_all=True, append_images=rest, lossless=True)
    return path


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_a_moving_picture_is_a_video(suffix: str, tmp_path: Path) -> None:
    colors = np.zeros((3, 6, 5, 3), np.uint8)
    colors[0, :, :, 0] = colors[1, 2:4, :, 1] = colors[2, :, 1:3, 2] = 255  # later frames change only a part
    path = moving(tmp_path / f"a.{suffix}", list(colors))
    assert length(path) == 3
    found = pixels_of(path)
    assert [pixels[:, :, :3].tolist() for pixels in found] == colors.tolist()
    last = [pixels for _, pixels in frames(path, lambda number: number == 2)]
    assert last[:2] == [None, None]
    assert last[2] is not None
    assert (last[2] == found[2]).all()  # though the frames before it were passed over
    assert refused(path, max_pixels=29).kind == "oversized"


def test_a_torn_moving_picture_gives_what_is_whole(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (4, 40, 40), np.uint8)
    path = moving(tmp_path / "a.gif", list(noise))
    path.write_bytes(path.read_bytes()[:-900])
    coming = frames(path, every)
    assert [next(coming)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ImageError, match=r"a\.gif cannot be decoded"):
        next(coming)


def test_the_pages_of_a_tiff_keep_their_depth(tmp_path: Path) -> None:
    pages = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5) * 1000
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, pages, photometric="minisblack")
    assert length(path) == 3
    found = pixels_of(path)
    assert [pixels.dtype for pixels in found] == [np.uint16] * 3
    assert [pixels[:, :, 0].tolist() for pixels in found] == pages.tolist()
    assert refused(path, max_pixels=19).kind == "oversized"


def test_smaller_copies_of_a_page_are_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "survey.tif"
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(np.full((8, 8), 7, np.uint8), photometric="minisblack")
        tiff.write(np.full((4, 4), 7, np.uint8), photometric="minisblack", subfiletype=1)
    (only,) = pixels_of(path)
    assert only.shape == (8, 8, 1)


def test_a_volume_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "volume.tif"
    tifffile.imwrite(path, np.zeros((3, 16, 16), np.uint8), photometric="minisblack", volumetric=True, tile=(1, 16, 16))
    assert refused(path).kind == "animated"
