"""A checkpoint is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_training import Kit, Toy, after, assert_same_run, tensors_in

from ftcseg.train import chance, checkpoint
from ftcseg.train.checkpoint import CheckpointError, RunGone

SOURCE = Path(__file__).parents[2] / "src"


class Crash(BaseException):
    """The process is gone: nothing of it runs any more."""


def write(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    tensors = {"weight": torch.full((5,), float(number)), "none": torch.zeros(0)}
    checkpoint.write(folder, "last", {"model": tensors, "optim": {"a": torch.tensor(number)}}, {"number": number})


def number_in(folder: Path) -> int:
    """The number of the checkpoint, after a look into every part of it."""
    found = checkpoint.read(folder, "last")
    number = int(found.state["number"])
    with found.tensors("model") as tensors:
        assert torch.equal(tensors["weight"], torch.full((5,), float(number)))
    with found.tensors("optim") as tensors:
        assert int(tensors["a"]) == number
    return number


STEPS = ("settle", "save_file", "_write_state", "_flush", "_read_state", "_rename", "_remove")


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("leftover", [False, True], ids=["clean", "leftover"])
def test_a_crash_between_any_two_steps_leaves_a_whole_one(
    before: bool, leftover: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, ends = 0, []
    while True:
        folder = tmp_path / str(moment)
        write(folder, 1)
        if leftover:  # an earlier crash, just before the old one was removed
            shutil.copytree(folder / "last", folder / "last.old")
        with monkeypatch.context() as patch:
            crash_at(patch, moment, before=before)
            try:
                write(folder, 2)
                break
            except Crash:
                pass
        ends.append(number_in(folder))
        assert len(list(folder.iterdir())) <= 3
        write(folder, 3)  # the next run goes on from whatever is there
        assert number_in(folder) == 3
        assert [path.name for path in folder.iterdir()] == ["last"]
        moment += 1
    assert ends == sorted(ends)
    assert set(ends) == {1, 2}
    assert moment >= 12


def crash_at(patch: pytest.MonkeyPatch, moment: int, *, before: bool) -> None:
    """Let the process end before (or after) its `moment`-th touch of the disk."""
    left = [moment]

    def wrap(step: Any) -> Any:
        def touch(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 and before:
                raise Crash
            result = step(*arguments)
            if left[0] <= -1 and not before:
                raise Crash
            return result

        return touch

    for name in STEPS:
        patch.setattr(checkpoint, name, wrap(getattr(checkpoint, name)))


def test_a_half_written_file_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path / "other", 2)
    shutil.copytree(tmp_path / "other" / "last", tmp_path / "last.new")
    (tmp_path / "last.new" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "last").rename(tmp_path / "last.old")  # both renames to come, and the new one did not arrive
    assert number_in(tmp_path) == 1
    write(tmp_path, 3)
    assert number_in(tmp_path) == 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped at step 5; last_good stands at 3."""
    folder = tmp_path_factory.mktemp("trained")
    Kit(folder).go(after(5))
    return folder


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("damage", [flip, shorten, Path.unlink])
@pytest.mark.parametrize("file", ["model.safetensors", "optim.safetensors", "chance.safetensors", "state.json"])
def test_a_damaged_last_is_found_and_replaced_by_last_good(
    damage: Any, file: str, trained: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    damage(folder / "checkpoints" / "last" / file)
    kit = Kit(folder)
    clock = kit.keeper.restore()
    assert clock is not None
    assert clock.step == 3
    assert file in kit.keeper.note
    assert "goes on from last_good, step 3" in kit.keeper.note


def test_a_run_that_fell_back_ends_like_the_others(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    flip(folder / "checkpoints" / "last" / "model.safetensors")
    kit = Kit(folder)
    kit.go()
    assert getattr(kit.events[0], "note", "") == kit.keeper.note
    metrics = folder / "metrics.jsonl"
    told = [line for line in metrics.read_text().splitlines() if json.loads(line).get("kind") == "note"]
    assert [json.loads(line) for line in told] == [{"step": 3, "kind": "note", "note": kit.keeper.note}]
    metrics.write_text(metrics.read_text().replace(f"{told[0]}\n", ""))
    Kit(tmp_path / "straight").go()
    assert_same_run(folder, tmp_path / "straight")


def test_a_changed_number_in_the_state_is_found(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    path = folder / "checkpoints" / "last" / "state.json"
    path.write_text(path.read_text().replace('"step": 5', '"step": 4'))
    with pytest.raises(CheckpointError, match=r"state\.json does not match its checksum"):
        checkpoint.read(folder / "checkpoints", "last")


def test_where_both_are_damaged_the_best_is_gone_on_from(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    for name in ("last", "last_good"):
        flip(folder / "checkpoints" / name / "optim.safetensors")
    kit = Kit(folder)
    assert kit.go().step == 8
    assert "The run goes on from best, step 3." in kit.keeper.note
    Kit(tmp_path / "straight").go()
    for name in ("last", "last_good", "best"):
        ours, theirs = tensors_in(folder, name), tensors_in(tmp_path / "straight", name)
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_damaged_best_comes_back_from_its_twin(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")  # the only evaluation, at 3, was the best; last stands at 5
    flip(folder / "checkpoints" / "best" / "model.safetensors")
    kit = Kit(folder)
    clock = kit.keeper.restore()
    assert clock is not None
    assert clock.step == 5
    assert "best: model.safetensors does not match its checksum" in kit.keeper.note
    assert "The best was copied from last_good, which holds the same." in kit.keeper.note
    for file in ("model.safetensors", "optim.safetensors", "state.json"):
        copied, original = (run / "checkpoints" / "best" / file for run in (folder, trained))
        assert copied.read_bytes() == original.read_bytes()


def test_a_damaged_best_without_a_twin_is_said_to_be_lost(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    for name in ("best", "last_good"):
        flip(folder / "checkpoints" / name / "model.safetensors")
    kit = Kit(folder)
    clock = kit.go(after(0))
    assert clock.step == 5
    assert "The best so far is lost; the best from here on is kept." in kit.keeper.note
    assert not (folder / "checkpoints" / "best").exists()
    assert checkpoint.read(folder / "checkpoints", "last").state["best"]["step"] is None
    good = checkpoint.read(folder / "checkpoints", "last_good")  # written anew: there must be something to return to
    assert good.state["clock"]["step"] == 5
    kit = Kit(folder)
    assert kit.go().step == 8
    assert not kit.keeper.note
    assert checkpoint.read(folder / "checkpoints", "best").state["clock"]["step"] in (6, 8)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_at_any_place_of_any_file_is_found(trained: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        last = Path(shutil.copytree(trained / "checkpoints" / "last", Path(name) / "last"))
        path = data.draw(st.sampled_from(sorted(last.iterdir())), label="file")
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        if data.draw(st.booleans(), label="cut off there"):
            content = content[:place]
        else:
            content[place] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        path.write_bytes(content)
        if path.name == "state.json" and _says_the_same(path, trained / "checkpoints" / "last" / path.name):
            assert checkpoint.read(Path(name), "last").state["clock"]["step"] == 5
        else:
            with pytest.raises(CheckpointError, match=rf"\(last: {re.escape(path.name)}"):
                checkpoint.read(Path(name), "last")


def _says_the_same(state: Path, original: Path) -> bool:
    """Whether a changed byte changed nothing, such as a blank that became another."""
    with contextlib.suppress(ValueError):
        return bool(json.loads(state.read_bytes()) == json.loads(original.read_bytes()))
    return False


def test_what_a_killed_process_left_is_no_damage(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    places = folder / "checkpoints"
    (places / "step-4.new").mkdir()
    shutil.copytree(places / "last", places / "last.new")
    os.truncate(places / "last.new" / "model.safetensors", 10)
    shutil.copytree(places / "last_good", places / "last_good.old")
    (places / "best").rename(places / "best.old")
    kit = Kit(folder)
    clock = kit.keeper.restore()
    assert clock is not None
    assert (clock.step, kit.keeper.note) == (5, "")
    assert sorted(path.name for path in places.iterdir()) == ["best", "last", "last_good"]


def test_a_run_killed_in_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    new = tmp_path / "checkpoints" / "last_good.new"
    new.mkdir(parents=True)
    (new / "model.safetensors").write_bytes(b"half")
    kit = Kit(tmp_path)
    assert kit.go().step == 8
    assert not kit.keeper.note
    assert not new.exists()


def test_a_folder_that_vanished_is_told_and_not_made_again(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "run")
    gone = iter(range(100))

    def deleting() -> bool:
        if next(gone) == 2:
            shutil.rmtree(tmp_path / "run")
        return False

    with pytest.raises(RunGone, match="was deleted, moved or replaced while the run was going on") as caught:
        kit.go(deleting)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "run").exists()


def test_a_folder_that_vanishes_while_a_checkpoint_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library opens a file twice. Gone between the two, it is torch that complains, and not with an OSError.
    def gone(path: Path, **_: object) -> None:
        shutil.rmtree(tmp_path / "run")
        raise RuntimeError(f"unable to open file <{path}> in read-only mode: No such file or directory (2)")

    monkeypatch.setattr(checkpoint, "safe_open", gone)
    with pytest.raises(RunGone, match="was deleted, moved or replaced while the run was going on"):
        Kit(tmp_path / "run").go()
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_that_vanishes_before_its_state_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = checkpoint._flush

    def deleting(path: Path) -> None:
        flush(path)
        if path.name == "last.new":
            shutil.rmtree(path)

    monkeypatch.setattr(checkpoint, "_flush", deleting)
    with pytest.raises(RunGone, match="was deleted, moved or replaced while the run was going on"):
        Kit(tmp_path).go()


def test_where_nothing_is_whole_the_error_says_what_is_wrong(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    for name in ("last", "last_good", "best"):
        flip(folder / "checkpoints" / name / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"last_good: model\.safetensors does not match its checksum"):
        Kit(folder).go()


def test_the_newer_one_of_two_whole_ones_is_taken(tmp_path: Path) -> None:
    kit = Kit(tmp_path, save_every=4, judge_every=5)
    with pytest.raises(ZeroDivisionError):  # the run dies at step 6, after last at 4 and last_good at 5
        kit.go(lambda: kit.kinds().count("Evaluated") > 0 and 1 / 0 > 0)
    kit = Kit(tmp_path, save_every=2, judge_every=5)
    clock = kit.keeper.restore()
    assert clock is not None
    assert clock.step == 5
    assert not kit.keeper.note
    flip(tmp_path / "checkpoints" / "last_good" / "model.safetensors")
    kit = Kit(tmp_path, save_every=2, judge_every=5)
    clock = kit.keeper.restore()
    assert clock is not None
    assert clock.step == 4
    assert "goes on from last, step 4" in kit.keeper.note


def test_nothing_is_pickled(trained: Path) -> None:
    files = sorted(path.name for path in (trained / "checkpoints" / "last").iterdir())
    assert files == ["chance.safetensors", "model.safetensors", "optim.safetensors", "state.json"]
    state = json.loads((trained / "checkpoints" / "last" / "state.json").read_text())
    assert state["clock"] == {"step": 5, "total": 8, "epoch_steps": 4}
    assert state["made_by"]["torch"] == torch.__version__


def test_another_python_is_told(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    monkeypatch.setattr("platform.python_version", lambda: "9.9")
    kit = Kit(folder)
    kit.keeper.restore()
    assert "python was" in kit.keeper.note
    assert "and is 9.9" in kit.keeper.note


def test_tied_weights_are_saved_once_and_come_back(tmp_path: Path) -> None:
    def tied() -> Toy:
        method = Toy()
        method.twin = method.student.head
        return method

    Kit(tmp_path, method=tied()).go(after(3))
    kit = Kit(tmp_path, method=tied())
    assert kit.go().step == 8


def test_chance_goes_on_where_it_was() -> None:
    import random

    import numpy as np

    random.gauss(0, 1)  # leaves a second number waiting
    np.random.standard_normal()  # noqa: NPY002, the global generator is what is saved
    kept = chance.capture(torch.device("cpu"))
    draws = [(random.gauss(0, 1), float(np.random.standard_normal()), float(torch.rand(()))) for _ in range(2)]  # noqa: NPY002
    chance.restore(kept, torch.device("cpu"))
    again = [(random.gauss(0, 1), float(np.random.standard_normal()), float(torch.rand(()))) for _ in range(2)]  # noqa: NPY002
    assert draws == again


NO_ROOM = """
import os, resource, sys, torch
from pathlib import Path
from ftcseg.train import checkpoint
from ftcseg.train.checkpoint import CheckpointError

def save(folder, size):
    Path(folder).mkdir(exist_ok=True)
    try:
        checkpoint.write(Path(folder), "last", {"model": {"weight": torch.zeros(size)}}, {"number": size})
    except CheckpointError as error:
        print(error)
    else:
        print("saved")
    print(checkpoint.exists(Path(folder), "last") and checkpoint.read(Path(folder), "last").state["number"])

room, shut = sys.argv[1:]
save(room, 10)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, unlimited[1]))
save(room, 50_000)
save(room, 20)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
save(shut, 10)
Path(shut).chmod(0o555)
if os.geteuid() == 0:
    os.setuid(65534)  # nothing is read-only to root
save(shut, 20)
"""


def test_a_full_disk_and_a_shut_folder_are_told_and_harm_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        room, shut = Path(name) / "room", Path(name) / "shut"
        command = [sys.executable, "-c", NO_ROOM, str(room), str(shut)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
        )
        shut.chmod(0o755)
    first, _, full, kept, smaller, _, _, _, read_only, still = done.stdout.splitlines()
    assert first == smaller == "saved"
    assert f"{room / 'last'} could not be written" in full
    assert "File too large" in full
    assert "The previous one is untouched. Check that the folder may be written and that its disk" in full
    assert kept == "10"
    assert f"{shut / 'last'} could not be written" in read_only
    assert "Permission denied" in read_only
    assert still == "10"
