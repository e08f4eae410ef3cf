from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scripted_nets import CLASSES, Facts, Scripted

from ftcseg.errors import UsageError
from ftcseg.evaluate import files
from ftcseg.evaluate.files import JOURNAL, SUMMARY, Look, predict_folder
from ftcseg.evaluate.inputs import find_inputs, output_names
from ftcseg.evaluate.predictor import Predictor
from ftcseg.inference import look_of
from ftcseg.types import ClassTable

LOOK = look_of(CLASSES)
NET = {0: (0.8, 0.1, 0.1), 10: (0.2, 0.6, 0.2), 20: (0.0, 0.0, 1.0)}
FRAMES = {"a.png": [[0, 10, 20]], "deep/er/b.png": [[20], [20], [0], [0]], "deep/c.png": [[10, 10, 10]]}


def net() -> Scripted:
    return Scripted({**NET, **{v: (0.5, 0.3, 0.2) for v in range(21, 256)}})


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    for name, pixels in FRAMES.items():
        path = tmp_path / "frames" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.array(pixels, np.uint8)).save(path)
    return tmp_path / "frames"


def run(frames: Any, out: Path, **options: Any) -> files.Predicted:
    return predict_folder(Predictor(net(), Facts()), frames, out, options.pop("look", LOOK), **options)


def test_ids_colours_and_confidences_are_written_below_the_same_folders(frames: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(frames, out)
    assert (done.images, done.made, done.problems) == (3, 3, ())
    with Image.open(out / "masks" / "a.png") as mask:
        assert mask.mode == "L"
        assert np.asarray(mask).tolist() == [[0, 1, 2]]
    with Image.open(out / "colors" / "deep" / "er" / "b.png") as colors:
        assert colors.mode == "P"
        assert np.asarray(colors.convert("RGB"))[:, 0].tolist() == [list(LOOK.colors[i]) for i in (2, 2, 0, 0)]
    with Image.open(out / "confidence" / "deep" / "c.png") as conf:
        assert np.asarray(conf).tolist() == [[153] * 3]  # 0.6 of 255
    with Image.open(out / "overlays" / "a.jpg") as picture:
        assert picture.size == (3, 1)
    assert {p.name for p in out.iterdir()} == {*files.WHAT, JOURNAL, SUMMARY, files.RECIPE}


def test_the_summary_lists_images_in_order_with_their_shares(frames: Path, tmp_path: Path) -> None:
    run(frames, tmp_path / "out", what={"masks"})
    summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert [c["name"] for c in summary["classes"]] == CLASSES.names
    assert [e["image"] for e in summary["images"]] == ["a.png", "deep/c.png", "deep/er/b.png"]
    assert [e["shares"] for e in summary["images"]] == [
        {"0": 0.333333, "1": 0.333333, "2": 0.333333},
        {"1": 1.0},
        {"0": 0.5, "2": 0.5},
    ]
    assert [e["confidence"] for e in summary["images"]] == pytest.approx([0.8, 0.6, 0.9], abs=1e-5)
    assert (summary["images"][2]["height"], summary["images"][2]["width"]) == (4, 1)
    assert not (tmp_path / "out" / "colors").exists()


def test_what_is_there_is_not_made_again(frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    run(frames, out, what=["masks"])
    whole = (out / SUMMARY).read_bytes()
    (out / "masks" / "deep" / "c.png").unlink()
    read: list[str] = []
    real = files.read_image
    monkeypatch.setattr(files, "read_image", lambda path: (read.append(path.name), real(path))[1])
    done = run(frames, out, what=["masks"])
    assert (read, done.images, done.made) == (["c.png"], 3, 1)
    assert (out / SUMMARY).read_bytes() == whole
    assert run(frames, out, what=["masks", "colors"]).made == 3  # colours were never written
    assert run(frames, out).made == 3
    assert run(frames, out).made == 0
    (out / JOURNAL).unlink()  # nobody knows their shares any more
    assert run(frames, out).made == 3


def test_an_interrupted_run_goes_on_where_it_stopped(
    frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real = files._Work._write

    def killed(self: files._Work, frame: files._Frame, said: Any) -> Any:
        if frame.name != "a.png":
            raise KeyboardInterrupt
        return real(self, frame, said)

    monkeypatch.setattr(files._Work, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        run(frames, out, what=["masks"])
    assert not (out / SUMMARY).exists()
    with (out / JOURNAL).open("ab") as journal:
        journal.write(b'{"image": "deep/c.png", "outp')  # killed in the middle of a line
    monkeypatch.setattr(files._Work, "_write", real)
    assert run(frames, out, what=["masks"]).made >= 2
    summary = json.loads((out / SUMMARY).read_text())
    assert [e["image"] for e in summary["images"]] == ["a.png", "deep/c.png", "deep/er/b.png"]
    assert run(frames, out, what=["masks"]).made == 0


def test_another_model_does_not_write_into_the_same_folder(frames: Path, tmp_path: Path) -> None:
    run(frames, tmp_path / "out")
    other = Predictor(Scripted({v: (0.1, 0.1, 0.8) for v in range(256)}), Facts())
    with pytest.raises(UsageError, match="other settings"):
        predict_folder(other, frames, tmp_path / "out", LOOK)
    with pytest.raises(UsageError, match="not empty"):
        run(frames, frames / "deep")


def test_unreadable_images_are_left_out_and_named(frames: Path, tmp_path: Path) -> None:
    (frames / "deep" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (frames / "empty.png").touch()
    done = run(frames, tmp_path / "out", what=["masks"])
    assert (done.images, done.made) == (5, 3)
    assert [p.split(":")[0] for p in sorted(done.problems)] == ["deep/broken.png", "empty.png"]
    assert len(json.loads((tmp_path / "out" / SUMMARY).read_text())["problems"]) == 2
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(frames / "empty.png")  # mended
    assert run(frames, tmp_path / "out", what=["masks"]).made == 1


def test_outputs_inside_the_input_folder_are_not_inputs(frames: Path) -> None:
    run(frames, frames / "out")
    assert run(frames, frames / "out").images == 3
    with pytest.raises(UsageError, match="Choose another"):
        run(frames, frames)


def test_images_are_asked_about_in_batches_of_one_size(tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for i in range(10):
        Image.fromarray(np.zeros((2 + i % 2, 5), np.uint8)).save(frames / f"{i}.png")
    scripted = net()
    predict_folder(Predictor(scripted, Facts(), batch=4), frames, tmp_path / "out", LOOK, what=["masks"])
    assert sorted(shape[0] for shape in scripted.shown) == [1, 1, 4, 4]


def test_few_images_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for i in range(120):
        Image.fromarray(np.zeros((2 + i % 5, 3), np.uint8)).save(frames / f"{i:03}.png")
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
    predict_folder(Predictor(net(), Facts(), batch=2), frames, tmp_path / "out", LOOK, what=["masks"])
    assert most <= 2 * 2 + 4 * 2 + 2 * 2 + 2 + 2  # ahead, waiting for their size, in the batch, being written


def test_sixteen_bits_where_eight_do_not_hold_the_classes(tmp_path: Path) -> None:
    classes = ClassTable.named(*(f"class {i}" for i in range(300)))
    answers = [0.0] * 300
    answers[299] = 1.0
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "a.png")
    predictor = Predictor(Scripted({0: answers}), Facts())
    predict_folder(predictor, tmp_path / "a.png", tmp_path / "out", look_of(classes))
    with Image.open(tmp_path / "out" / "masks" / "a.png") as mask:
        assert np.asarray(mask).tolist() == [[299] * 2] * 2
    with Image.open(tmp_path / "out" / "colors" / "a.png") as colors:
        assert colors.mode == "RGB"


# What a user may hand in


def test_folder_pattern_file_and_list(frames: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert find_inputs(frames, out).names == ["a.png", "deep/c.png", "deep/er/b.png"]
    assert find_inputs(str(frames / "deep" / "*.png"), out).names == ["c.png"]
    everywhere = find_inputs(f"{frames}/**/*.png", out)
    assert (everywhere.root, everywhere.names) == (frames, ["a.png", "deep/c.png", "deep/er/b.png"])
    assert find_inputs(frames / "a.png", out).names == ["a.png"]
    listed = find_inputs([frames / "deep" / "er" / "b.png", frames / "a.png"], out)
    assert (listed.root, listed.names) == (frames, ["deep/er/b.png", "a.png"])
    mixed = find_inputs([frames / "deep", frames / "a.png"], out)
    assert (mixed.root, mixed.names) == (frames, ["deep/c.png", "deep/er/b.png", "a.png"])


def test_files_that_differ_in_their_suffix_keep_their_whole_names() -> None:
    names = ["a.png", "a.jpg", "b.png", "sub/a.png", "v1.2/c", "B.tif"]
    assert output_names(names) == {
        "a.png": "a.png",
        "a.jpg": "a.jpg",
        "b.png": "b.png",
        "sub/a.png": "sub/a",
        "v1.2/c": "v1.2/c",
        "B.tif": "B.tif",
    }


def test_no_two_images_share_an_output() -> None:
    names = ["a.png", "a.jpg", "a.png.tif", "A.PNG.gif", "c", "c.png", "d", "e.png", "e.png.png"]
    outputs = [name.casefold() for name in output_names(names).values()]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize("inputs", ["nowhere", "nowhere/*.png", []])
def test_nothing_to_predict_is_said(inputs: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        find_inputs(inputs, tmp_path / "out")
    with pytest.raises(UsageError, match="no images"):
        find_inputs(tmp_path, tmp_path / "out")


def test_unknown_kinds_of_files_are_refused(frames: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="masks"):
        run(frames, tmp_path / "out", what=["mask"])
    with pytest.raises(UsageError):
        run(frames, tmp_path / "out", what=[])
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(frames: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        run(frames, tmp_path / "file" / "out")


def test_look_is_anything_that_draws(frames: Path, tmp_path: Path) -> None:
    red = Look(CLASSES, LOOK.colors, lambda pixels, _: np.full((*pixels.shape[:2], 3), (255, 0, 0), np.uint8))
    run(frames, tmp_path / "out", look=red, what=["overlays"])
    with Image.open(tmp_path / "out" / "overlays" / "a.jpg") as picture:
        assert np.asarray(picture)[0, 0].tolist() == pytest.approx([255, 0, 0], abs=3)
