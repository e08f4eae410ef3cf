"""A disk without room, a folder that is shut or vanishes, damage, clocks that jump, two processes at once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import SMALL, STEPS, Starter, assert_same_run, lines_of, settings, steps_in, wait_for

from ftcseg import api
from ftcseg.data.writing import claim
from ftcseg.errors import NotWritten, UsageError
from ftcseg.files import sweep, write_json
from ftcseg.train.checkpoint import CheckpointNotWritten
from ftcseg.train.events import Evaluated, Event, IntervalDone, Listener, RunStarted
from ftcseg.train.listeners import JsonLines, LogFile, Terminal
from ftcseg.types import Clock

DISK_BYTES = 12 * 2**20
FULL = 4
"""The exit code of whatever could not be written."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that several tests look at are made before any single test's cache is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("runs-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 small frames of four classes, a fifth of them for test."""
    return api.simulate(tmp_path_factory.mktemp("frames") / "sonar", 24, size=(96, 96), classes=4, workers=1)


@pytest.fixture(scope="module")
def straight(frames: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    api.train(frames, method="ftc", labels=6, steps=STEPS, out=folder, settings=SMALL)
    return folder


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("starter"))
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def begun(frames: Path, starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed behind step 5: last at 4, last_good and best at 3."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    assert starter.run(*command(frames, folder), die=("ftcseg.train.listeners._append", 11)) == -signal.SIGKILL
    assert steps_in(folder) == 5
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, in memory, with room for a run or two."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("no disk may be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def command(frames: Path, run: Path, *more: str, steps: int = STEPS) -> list[object]:
    return ["train", frames, "--labels", 6, "--steps", steps, "--out", run, *settings(*more)]


def fill(disk: Path, leave: int = 0) -> Path:
    """Take all the room there is, but for these bytes."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        file.truncate(0)
        free = shutil.disk_usage(disk).free - leave
        file.write(b"\0" * free)
    assert shutil.disk_usage(disk).free <= leave
    return filler


def assert_told(said: str, *words: str) -> None:
    """One sentence for the user, with these words in it."""
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("ftcseg: "), said
    for word in words:
        assert word in last


# No room


def test_a_checkpoint_that_has_no_room_leaves_the_old_one_to_go_on_from(
    begun: Path, straight: Path, starter: Starter, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    assert starter.run("train", "--resume", run, limit=50_000) == FULL
    assert_told(starter.said, f"{run}/checkpoints/", " could not be written: ", "File too large", "MB are free there")
    assert "The previous one is untouched" in starter.said
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert_same_run(run, straight)


def test_a_full_disk_stops_a_run_and_room_lets_it_go_on(
    begun: Path, frames: Path, straight: Path, starter: Starter, disk: Path
) -> None:
    run = Path(shutil.copytree(begun, disk / "run"))
    filler = fill(disk)
    assert starter.run("train", "--resume", run) == FULL
    assert_told(starter.said, "could not be written: No space left on device", "0.0 MB are free there", "--resume")
    filler.unlink()
    fill(disk, leave=40_000)  # for the log and some lines, and for no checkpoint
    assert starter.run("train", "--resume", run) == FULL
    assert_told(starter.said, f"{run}/checkpoints/", " could not be written: ", "No space left on device")
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["best", "last", "last_good"]
    filler.unlink()
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert_same_run(run, straight)
    (run / "report.html").unlink()
    fill(disk)
    assert starter.run("report", run) == FULL
    assert_told(starter.said, f"{run}/report.html could not be written: No space left on device (0.0 MB are free")
    assert starter.run(*command(frames, disk / "other")) == FULL  # where there is no room to begin
    assert_told(starter.said, f"{disk}/other", "No space left on device (0.0 MB are free there)")


def test_a_line_cut_off_by_a_full_disk_is_mended(disk: Path) -> None:
    listener = JsonLines(disk)
    listener(RunStarted(Clock(0, 1000, 10)))
    fill(disk, leave=8192)
    with pytest.raises(NotWritten, match=rf"{disk}/metrics.jsonl could not be written: No space left on device"):
        tell(listener, 1, 1000)
    *lines, torn = (disk / "metrics.jsonl").read_bytes().split(b"\n")
    assert len(lines) > 10
    assert torn
    (disk / "filler").unlink()
    listener = JsonLines(disk)
    listener(RunStarted(Clock(len(lines) - 2, 1000, 10)))  # where the last checkpoint is
    tell(listener, len(lines) - 1, 200)
    assert [line["step"] for line in lines_of(disk)] == list(range(1, 201))


def tell(listener: Listener, first: int, last: int) -> None:
    for step in range(first, last + 1):
        listener(interval(step))


def interval(step: int) -> IntervalDone:
    return IntervalDone(Clock(step, 1000, 10), {"loss": 0.5}, {}, None, None, None, {}, 0, (), {"seconds": 1.0})


def test_a_log_cut_off_by_a_full_disk_goes_on_in_a_new_line(disk: Path) -> None:
    fill(disk, leave=4096)
    with LogFile(disk / "log.txt") as log:
        terminal = Terminal(log)  # type: ignore[arg-type]
        with pytest.raises(NotWritten, match=rf"{disk}/log.txt could not be written: No space left on device"):
            tell(terminal, 1, 1000)
    assert (disk / "log.txt").stat().st_size == 4096
    (disk / "filler").unlink()
    with LogFile(disk / "log.txt") as log:
        print("on it goes", file=log)
    assert (disk / "log.txt").read_text().splitlines()[-1] == "on it goes"


def test_predictions_stop_at_a_full_disk_and_go_on(
    straight: Path, frames: Path, starter: Starter, disk: Path, tmp_path: Path
) -> None:
    told = ["predict", straight, frames / "images", "--out", disk / "masks"]
    filler = fill(disk, leave=64_000)
    assert starter.run(*told) == FULL
    assert_told(starter.said, f"{disk}/masks/", "could not be written: No space left on device (0.0 MB are free there)")
    assert 0 < len(list((disk / "masks").rglob("*.png"))) < 3 * 24
    assert not list((disk / "masks").rglob("*.part"))
    filler.unlink()
    assert starter.run(*told) == 0, starter.said
    assert starter.run(*told[:-1], tmp_path / "masks") == 0, starter.said
    ours, theirs = (
        {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*.*") if path.is_file()}
        for place in (disk / "masks", tmp_path / "masks")
    )
    for files in (ours, theirs):
        del files["predictions.jsonl"]  # its lines stand in the order of doing
    assert ours == theirs


def test_an_export_to_a_full_disk_leaves_nothing(straight: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftcseg.export import make
    from ftcseg.nets.folder import load_model

    instead = {"to_onnx": (b"0" * 100_000, 1), "opened_onnx": None, "RuntimeNet": None, "_compare": []}
    for name, made in instead.items():
        monkeypatch.setattr(make, name, lambda *_, made=made: made)  # which takes long, and writes nothing
    fill(disk, leave=50_000)
    with pytest.raises(NotWritten, match=rf"{disk}/exported/model.onnx could not be written: No space left on device"):
        make.export(*load_model(straight / "model"), disk / "exported", make.Choices())
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_disk_that_became_read_only_is_told(begun: Path, starter: Starter, disk: Path) -> None:
    run = Path(shutil.copytree(begun, disk / "run"))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert starter.run("train", "--resume", run) == FULL
    assert_told(starter.said, f"{run} could not be written: Read-only file system")


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_each_kind_of_disk_trouble_names_the_file(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(NotWritten, match=rf"/scores.json could not be written: {os.strerror(number)} \(") as told:
        write_json(tmp_path / "scores.json", {})
    assert told.value.exit_code == FULL
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_of_a_file_is_in_nobodys_way(tmp_path: Path) -> None:
    out = tmp_path / "masks"
    out.mkdir()
    (out / ".predict.json.k2x.part").write_bytes(b"half")
    claim(out, {"command": "predict"}, "predict.json")  # killed before it had begun
    assert json.loads((out / "predict.json").read_text()) == {"command": "predict"}
    (out / "sub").mkdir()
    (out / "sub" / ".a.png.x.part").write_bytes(b"half")
    (out / "sub" / "part.part").write_bytes(b"somebody's own")
    assert sweep(out) == 2
    assert sorted(path.name for path in out.rglob("*")) == ["part.part", "predict.json", "sub"]
    with pytest.raises(UsageError, match="not empty"):
        claim(out / "sub", {"command": "predict"}, "predict.json")


def test_a_study_stops_at_a_full_disk_instead_of_trying_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from ftcseg.studies import running

    tried = []

    def full(one: object, *_: object) -> None:
        tried.append(one)
        raise CheckpointNotWritten("The checkpoint could not be written.")

    class Missing:
        done, run = False, Path("run")

    monkeypatch.setattr(running, "run_cell", full)
    monkeypatch.setattr(running, "_refuse_busy", lambda _: None)
    monkeypatch.setattr(running.Work, "name", lambda *_: "")
    with pytest.raises(NotWritten):
        list(running.one_by_one(running.Work([Missing(), Missing()], None)))  # type: ignore[list-item,arg-type]
    assert len(tried) == 1


# A folder that vanishes


def test_a_folder_moved_under_a_run_stops_it_and_is_not_made_again(
    frames: Path, starter: Starter, tmp_path: Path
) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    starter.start(*command(frames, run, "evaluation.every=0", steps=3000))
    wait_for(lambda: steps_in(run) >= 2)
    run.rename(moved)
    assert starter.wait() == FULL, starter.said
    assert_told(starter.said, f"{run} was deleted, moved or replaced while the run was going on", "--resume")
    assert not run.exists()
    step = steps_in(moved)
    moved.rename(run)
    starter.start("train", "--resume", run)
    wait_for(lambda: steps_in(run) > step + 1)
    while run.exists():  # what was being written when the last one came by
        shutil.rmtree(run, ignore_errors=True)
    code = starter.wait()
    assert code == FULL, starter.said
    assert "was deleted, moved or replaced" in starter.said


def test_a_folder_that_became_another_runs_is_left_alone(frames: Path, starter: Starter, tmp_path: Path) -> None:
    run = tmp_path / "run"
    starter.start(*command(frames, run, "evaluation.every=0", "save_every=1", steps=3000))
    wait_for(lambda: steps_in(run) >= 2)
    run.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", run)  # as if another process had begun the same run there
    lock = json.loads((run / ".lock").read_text())
    (run / ".lock").write_text(json.dumps({**lock, "mark": "another"}))
    wait_for(lambda: "replaced while the run was going on" in starter.said)
    assert starter.wait() == FULL


# Damage


def test_a_damaged_checkpoint_is_said_aloud_by_the_resumed_run(
    begun: Path, straight: Path, starter: Starter, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    for name, place in (("last", 1000), ("best", -1)):
        path = run / "checkpoints" / name / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[place] ^= 4
        path.write_bytes(content)
    (run / ".scores.json.abc.part").write_bytes(b"half")
    assert starter.run("train", "--resume", run) == 0, starter.said
    told = (
        f"The checkpoint {run}/checkpoints/last cannot be used (last: model.safetensors does not match its checksum). "
        f"The checkpoint {run}/checkpoints/best cannot be used (best: model.safetensors does not match its checksum). "
        "The run goes on from last_good, step 3. The best was copied from last_good, which holds the same."
    )
    assert f"step 3 of 6. {told}" in starter.said
    assert f"step 3 of 6. {told}" in (run / "log.txt").read_text()
    notes = [line for line in lines_of(run) if line["kind"] == "note"]
    assert notes == [{"step": 3, "kind": "note", "note": told}]
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"kind": "note"' not in line))
    assert_same_run(run, straight)
    assert not sweep(run)


def test_scores_that_were_written_before_the_kill_are_not_there_twice(tmp_path: Path) -> None:
    listener = JsonLines(tmp_path)
    clock = Clock(3, 6, 3)
    listener(RunStarted(Clock(0, 6, 3)))
    listener(interval(3))
    listener(Evaluated(clock, {}, best=True))
    listener = JsonLines(tmp_path)  # killed before its checkpoint, and resumed from one of step 3 that owes the scores
    listener(RunStarted(clock))
    listener(Evaluated(clock, {}, best=True))
    assert [(line["step"], line["kind"]) for line in lines_of(tmp_path)] == [(3, "train"), (3, "scores")]


# Clocks


def test_no_clock_that_jumps_and_no_date_of_a_file_changes_anything(
    frames: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sonar = Path(shutil.copytree(frames, tmp_path / "sonar"))
    year = 365 * 86_400
    for place, path in enumerate(sorted(sonar.rglob("*.png"))):
        date = time.time() + year * (30 if place % 2 else -30)
        os.utime(path, (date, date))
    jumps = iter(range(10**9))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + year * ((next(jumps) * 7) % 41 - 20))
    run = tmp_path / "run"

    def leave(event: Event) -> None:
        if isinstance(event, IntervalDone) and event.clock.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.train(sonar, method="ftc", labels=6, steps=STEPS, out=run, settings=SMALL, listeners=[leave])
    for path in sorted(run.rglob("*")):
        os.utime(path, (real() + 50 * year, real() + 50 * year))
    assert api.resume(run).finished
    assert_same_run(run, straight)


# Two at once


def test_a_second_process_is_refused_and_harms_nothing(frames: Path, starter: Starter, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = starter.leave(*command(frames, run, "evaluation.every=0", "save_every=50", steps=100_000))
    wait_for(lambda: steps_in(run) >= 1)
    assert starter.run("train", "--resume", run) == 2
    assert_told(starter.said, f"The run folder {run} is in use by process {first} on ")
    assert starter.run(*command(frames, run)) == 2
    assert_told(starter.said, f"{run} already holds a run")
    step = steps_in(run)
    wait_for(lambda: steps_in(run) > step)
    os.kill(first, signal.SIGTERM)
    wait_for(lambda: json.loads((run / "run.json").read_text())["status"] == "stopped")
    lines = [line["step"] for line in lines_of(run) if line["kind"] == "train"]
    assert lines == list(range(1, len(lines) + 1))
