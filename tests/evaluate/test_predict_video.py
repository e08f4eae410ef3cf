"""Videos to files: each frame is an image, taken up where it was left, and only few of them are in memory."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from scripted_nets import CLASSES, Facts, Scripted

from films import film, plain_frames
from ftcseg.data import video
from ftcseg.errors import UsageError
from ftcseg.evaluate import files
from ftcseg.evaluate.files import JOURNAL, SUMMARY, predict_folder
from ftcseg.evaluate.inputs import Outputs, find_inputs
from ftcseg.evaluate.predictor import Predictor
from ftcseg.inference import look_of

ANSWERS = {0: (0.8, 0.1, 0.1), 10: (0.2, 0.6, 0.2), 20: (0.0, 0.0, 1.0)}
GREYS = (0, 10, 20, 0, 10, 20, 0, 10, 20, 0, 10, 20)
"""Of the twelve frames of dive.avi; their classes are 0, 1, 2, 0, ..."""


def predictor(batch: int = 8) -> Predictor:
    return Predictor(Scripted({**{v: (0.5, 0.3, 0.2) for v in range(256)}, **ANSWERS}), Facts(), batch=batch)


def run(inputs: Any, out: Path, **options: Any) -> files.Predicted:
    return predict_folder(predictor(), inputs, out, look_of(CLASSES), what=["masks"], **options)


@pytest.fixture
def dive(tmp_path: Path) -> Path:
    return film(tmp_path / "videos" / "dive.avi", plain_frames(*GREYS))


def masks(out: Path) -> dict[str, int]:
    """The class that fills each mask, by the mask's name."""
    found = {}
    for path in sorted((out / "masks").rglob("*.png")):
        with Image.open(path) as mask:
            assert mask.size == (32, 24)
            (found[path.relative_to(out / "masks").as_posix()],) = np.unique(np.asarray(mask)).tolist()
    return found


def times(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "masks").iterdir()}


def listed(out: Path) -> list[tuple[str, int | None]]:
    summary = json.loads((out / SUMMARY).read_text())
    return [(entry["image"], entry.get("frame")) for entry in summary["images"]]


def test_every_frame_has_a_mask_with_its_number(dive: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    done = run(dive, tmp_path / "out", progress=lambda count, total: seen.append((count, total)))
    assert (done.images, done.made, done.there, done.problems) == (12, 12, 0, ())
    assert masks(tmp_path / "out") == {f"dive-{i:06d}.png": i % 3 for i in range(12)}
    assert listed(tmp_path / "out") == [("dive.avi", i) for i in range(12)]
    assert (seen[0], seen[-1]) == ((0, 1), (12, 12))


def test_every_fifth_frame_keeps_its_own_number(dive: Path, tmp_path: Path) -> None:
    done = run(dive, tmp_path / "out", every=5)
    assert (done.images, done.made) == (3, 3)
    assert masks(tmp_path / "out") == {"dive-000000.png": 0, "dive-000005.png": 2, "dive-000010.png": 1}
    with pytest.raises(UsageError, match="at least 1"):
        run(dive, tmp_path / "none", every=0)
    assert not (tmp_path / "none").exists()


def test_what_is_there_is_not_made_again(dive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    run(dive, out, every=5)
    before = times(out)
    done = run(dive, out)  # now all of them
    assert (done.images, done.made, done.there) == (12, 9, 3)
    assert {name: time for name, time in times(out).items() if name in before} == before
    (out / "masks" / "dive-000007.png").unlink()
    before = times(out)
    done = run(dive, out)
    assert (done.images, done.made, done.there) == (12, 1, 11)
    assert {name: time for name, time in times(out).items() if name in before} == before
    assert len(before) == 11
    monkeypatch.setattr(video, "frames", None)  # a finished video is not even opened
    done = run(dive, out)
    assert (done.images, done.made, done.there) == (12, 0, 12)
    assert (run(dive, out, every=5).there, listed(out)) == (3, [("dive.avi", 0), ("dive.avi", 5), ("dive.avi", 10)])


def test_an_interrupted_video_goes_on_where_it_stopped(
    dive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real = tmp_path / "out", files._Work._write

    def killed(self: files._Work, frame: files._Frame, said: Any) -> Any:
        if frame.number == 4:
            raise KeyboardInterrupt
        return real(self, frame, said)

    monkeypatch.setattr(files._Work, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        predict_folder(predictor(batch=1), dive, out, look_of(CLASSES), what=["masks"], workers=1)
    monkeypatch.undo()
    told = [json.loads(line)["frame"] for line in (out / JOURNAL).read_text().splitlines()]
    assert told == list(range(len(told)))
    assert 1 <= len(told) <= 4
    done = run(dive, out)
    assert (done.images, done.there) == (12, len(told))
    assert masks(out) == {f"dive-{i:06d}.png": i % 3 for i in range(12)}


def test_images_and_videos_of_a_folder_are_predicted_together(dive: Path, tmp_path: Path) -> None:
    folder = dive.parent
    Image.fromarray(np.full((24, 32), 20, np.uint8)).save(folder / "still.png")
    first, *rest = (Image.fromarray(pixels) for pixels in plain_frames(0, 20))
    first.save(folder / "loop.gif", save_all=True, append_images=rest)
    tifffile.imwrite(folder / "stack.tif", np.stack(plain_frames(10, 0, 10)), photometric="minisblack")
    done = run(folder, tmp_path / "out", every=2)
    assert (done.images, done.made) == (6 + 1 + 2 + 1, 10)
    assert masks(tmp_path / "out") == {
        **{f"dive-{i:06d}.png": i % 3 for i in range(0, 12, 2)},
        "loop-000000.png": 0,
        "stack-000000.png": 1,
        "stack-000002.png": 1,
        "still.png": 2,
    }
    assert listed(tmp_path / "out")[6:] == [("loop.gif", 0), ("stack.tif", 0), ("stack.tif", 2), ("still.png", None)]
    assert run(folder, tmp_path / "out", every=2).there == 10


def test_a_video_that_breaks_off_keeps_what_could_be_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (4, 24, 32), np.uint8)
    first, *rest = map(Image.fromarray, noise)
    path = tmp_path / "torn.gif"
    first.save(path, save_all=True, append_images=rest)
    path.write_bytes(path.read_bytes()[:-500])
    for made, there in ((3, 0), (0, 3)):
        done = run(path, tmp_path / "out")
        assert (done.images, done.made, done.there) == (4, made, there)
        (problem,) = done.problems
        assert problem.startswith("torn.gif: from frame 3 on: torn.gif cannot be decoded")
        assert listed(tmp_path / "out") == [("torn.gif", 0), ("torn.gif", 1), ("torn.gif", 2)]


def test_a_colored_film_is_no_film_for_a_grey_model(tmp_path: Path) -> None:
    red = np.zeros((24, 32, 3), np.uint8)
    red[:, :, 0] = 200
    done = run(film(tmp_path / "red.mkv", [red] * 3, kept_as="bgr0"), tmp_path / "out")
    assert (done.images, done.made) == (1, 0)
    assert done.problems == ("red.mkv: It has 3 channels; the model reads 1. Convert it.",)


def test_few_frames_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = film(tmp_path / "long.avi", plain_frames(*(i % 3 * 10 for i in range(150))))
    alive, most, lock = 0, 0, threading.Lock()
    read, write = files._Work._frame, files._Work._write

    def reading(self: files._Work, *frame: Any) -> Any:
        nonlocal alive, most
        with lock:
            alive += 1
            most = max(most, alive)
        return read(self, *frame)

    def writing(self: files._Work, frame: files._Frame, said: Any) -> Any:
        nonlocal alive
        entry = write(self, frame, said)
        with lock:
            alive -= 1
        return entry

    monkeypatch.setattr(files._Work, "_frame", reading)
    monkeypatch.setattr(files._Work, "_write", writing)
    done = predict_folder(predictor(batch=2), path, tmp_path / "out", look_of(CLASSES), what=["masks"])
    assert done.made == 150
    assert most <= 2 * 2 + 2 + 2 * 2 + 2 + 2  # ahead, waiting, in the batch, being written


def test_no_frame_is_called_like_an_image_beside_it() -> None:
    names = ["dive.avi", "dive.mp4", "Dive-000001.png", "swim.mkv", "run.mp4", "run-000000.jpg", "run.mp4-000000.jpg"]
    outputs = Outputs(names)
    assert outputs.of("swim.mkv", 12) == "swim-000012"
    assert outputs.of("dive.avi", 1) == "dive.avi-000001"
    assert outputs.of("run.mp4", 1_234_567) == "run.mp4-frames0-1234567"
    assert outputs.of("run-000000.jpg", None) == "run-000000"
    every = [outputs.of(name, number) for name in names for number in (None, 0, 1)]
    assert len({name.casefold() for name in every}) == len(every)


def test_without_the_extra_videos_are_refused_or_left_out(
    dive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for inputs in (dive, dive.parent, str(dive.parent / "*.avi"), [dive]):
        with pytest.raises(UsageError, match=r"dive\.avi is a video; .*pip install 'ftcseg\[video\]'"):
            find_inputs(inputs, tmp_path / "out")
    Image.fromarray(np.zeros((24, 32), np.uint8)).save(dive.parent / "still.png")
    done = run(dive.parent, tmp_path / "out")
    assert (done.images, done.made) == (1, 1)
    assert "ftcseg[video]" in done.problems[0]
