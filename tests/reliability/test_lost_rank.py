"""A process of a run that dies, hangs or errs: the others end soon, say why once, and nothing half is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import settings

from ftcseg import api
from ftcseg.distributed import ProcessLost, connected
from ftcseg.train.fellows import QUIET_SECONDS, Fellow, Watch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "train"))
from toy_training import assert_same_run  # noqa: E402

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


# The connection


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What forked_ranks.py saw, by the name of the trial."""
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, str(HERE / "forked_ranks.py"), str(folder)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {"folder": folder, **{line.get("name", "left"): line for line in lines}}


@pytest.mark.parametrize(("lost", "codes"), [("second", [5, -signal.SIGKILL]), ("first", [-signal.SIGKILL, 5])])
def test_a_killed_process_ends_the_other_and_the_resumed_run_is_the_same(
    lost: str, codes: list[int], trials: dict[str, Any]
) -> None:
    assert trials[lost]["codes"] == codes
    assert "The connection to another process of this run broke" in "".join(trials[lost]["said"])
    assert trials[lost]["seconds"] < 60
    assert trials[f"{lost} again"]["codes"] == [0, 0]
    assert_same_run(trials["folder"] / lost, trials["folder"] / "straight")
    names = {path.name for path in (trials["folder"] / lost / "checkpoints").iterdir()}
    assert names == {"last", "best", "last_good"}


def test_the_first_process_was_killed_in_the_middle_of_a_checkpoint(trials: dict[str, Any]) -> None:
    assert "best.new" in trials["left"]["left"]


def test_an_error_of_the_sum_itself_is_no_lost_process() -> None:
    with pytest.raises(RuntimeError, match="sizes do not match"), connected():
        raise RuntimeError("sizes do not match")
    with pytest.raises(ProcessLost), connected():
        raise RuntimeError("[gloo/pair.cc:537] Read error [127.0.0.1]: Connection reset by peer")


# A whole run, with the processes it starts itself


def test_an_error_of_the_second_process_is_told_once_by_the_first(tmp_path: Path) -> None:
    frames = api.simulate(tmp_path / "frames", 12, size=(96, 96), classes=4, workers=1)
    values = [value for value in settings("processes=2", "device=cpu") if value != "--set"]
    done = subprocess.run(
        [sys.executable, str(HERE / "run_of_two.py"), "error", str(frames), str(tmp_path / "run"), *values],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert (done.stdout + done.stderr).count("frame_0007.png ends in its middle. Copy it again.") == 1
    assert done.stdout.startswith("ProcessLost 2: ")
    assert f"ftcseg train --resume {tmp_path / 'run'}" in done.stdout
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.new"))
    assert not _commands_with(str(tmp_path / "run"))  # nobody is left behind


def _commands_with(words: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in command:
            found.append(command)
    return found


# The line between two processes


class Pair:
    """A child that does nothing, and both ends of the line to it."""

    def __init__(self, *command: str) -> None:
        ours, self.theirs = socket.socketpair()
        self.child = subprocess.Popen(command or ("sleep", "60"))
        self.fellow = Fellow(ours, "Process 1 of the 2 of this run", child=self.child)

    def loss(self, later: float = 0.0) -> str | None:
        found = self.fellow.loss(time.monotonic() + later)
        return None if found is None else str(found)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.child.kill()
    pair.child.wait()
    pair.theirs.close()
    pair.fellow._line.close()


def test_a_process_that_lives_is_not_lost(pair: Pair) -> None:
    assert pair.loss(later=1000) is None  # it has not said anything yet: it may be importing
    pair.theirs.send(b"\n")
    assert pair.loss() is None
    assert pair.loss(later=QUIET_SECONDS - 1) is None


def test_a_process_that_falls_silent_hangs(pair: Pair) -> None:
    pair.theirs.send(b"\n")
    pair.loss()
    assert "hangs: it gave no sign of life for 30 seconds" in str(pair.loss(later=QUIET_SECONDS + 1))


def test_a_process_that_was_killed_is_lost_with_its_signal(pair: Pair) -> None:
    pair.child.kill()
    pair.child.wait()
    assert "Process 1 of the 2 of this run was killed by SIGKILL" in str(pair.loss())


def test_last_words_count_for_more_than_the_end(pair: Pair) -> None:
    pair.theirs.send(b'\n\n{"what": "frame.png is torn.", "exit_code": 2}\n')
    pair.child.kill()
    pair.child.wait()
    found = pair.fellow.loss(time.monotonic())
    assert found is not None
    assert (found.what, found.exit_code) == ("frame.png is torn.", 2)


def test_a_watch_that_slept_itself_blames_nobody(pair: Pair) -> None:
    """Ctrl-Z stops all processes of a run; when they go on, each has heard nothing for a long time."""
    watch = Watch([pair.fellow], speaks=True)
    pair.theirs.send(b"\n")
    watch.look(time.monotonic())
    watch.look(time.monotonic() + 1000)
    assert watch.lost is None
    watch.look(time.monotonic() + 1000 + QUIET_SECONDS / 3)
    watch.look(time.monotonic() + 1000 + 2 * QUIET_SECONDS / 3)
    watch.look(time.monotonic() + 1000 + QUIET_SECONDS + 2)
    assert watch.lost is not None


def test_who_only_lost_somebody_else_is_not_the_reason(pair: Pair) -> None:
    """Its exit code says that it lost a process; the one that was killed is that one."""
    echo = Pair(sys.executable, "-S", "-c", f"raise SystemExit({ProcessLost.exit_code})")
    echo.child.wait()
    echo.fellow.name = "Process 2"
    pair.child.kill()
    pair.child.wait()
    watch = Watch([echo.fellow, pair.fellow], speaks=True)
    watch.look(time.monotonic())
    assert watch.lost is not None
    assert watch.lost.what.startswith("Process 1")
    echo.theirs.close()
    echo.fellow._line.close()


def test_a_hanging_child_is_killed_so_that_the_connection_breaks(pair: Pair) -> None:
    os.kill(pair.child.pid, signal.SIGSTOP)
    pair.theirs.send(b"\n")
    watch = Watch([pair.fellow], speaks=True)
    now = time.monotonic()
    for ticks in range(4):  # in steps that are no sleep of its own
        watch.look(now + ticks * (QUIET_SECONDS / 2 - 1))
    assert pair.child.wait(10) == -signal.SIGKILL
