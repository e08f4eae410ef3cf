"""Asked to stop, and one process per folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ftcseg.errors import UsageError
from ftcseg.train import lock
from ftcseg.train.lock import RunInUse, RunLock
from ftcseg.train.signals import Interrupted, Stop, ignore_in_worker

SOURCE = Path(__file__).parents[2] / "src"


def process(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def line_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)])
def test_a_signal_asks_and_does_not_kill(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        assert not stop()
        assert stop.exit_code == 0
        signal.raise_signal(number)
        assert stop.asked
        with pytest.raises(Interrupted):
            stop.interrupt()
        assert stop()
        assert stop.exit_code == code
        signal.raise_signal(number)  # a launcher forwards what the group has got already: one call, not two
    assert signal.getsignal(number) == before


STUBBORN = """
import time
from ftcseg.train.signals import Stop
with Stop() as stop:
    print("ready", flush=True)
    while not stop(): time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(60)
"""


def test_a_second_signal_leaves_at_once() -> None:
    running = process(STUBBORN)
    assert line_of(running) == "ready"
    running.send_signal(signal.SIGTERM)
    assert line_of(running) == "asked"
    time.sleep(0.6)
    began = time.monotonic()
    running.send_signal(signal.SIGTERM)
    assert running.wait(5) == 143
    assert time.monotonic() - began < 2
    running.communicate()


WITH_WORKER = """
import os, signal, time
from ftcseg.train.signals import Stop
with Stop() as stop:
    worker = os.fork()
    if worker == 0:
        time.sleep(0.5)
        os._exit(7 if not stop.asked else 8)
    os.kill(worker, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), stop.asked, flush=True)
"""


def test_a_worker_takes_no_orders() -> None:
    out, _ = process(WITH_WORKER).communicate(timeout=20)
    assert out.split() == ["7", "False"]


def test_a_started_worker_can_be_told_to_ignore_signals() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        ignore_in_worker(0)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_outside_the_main_thread_only_the_program_can_ask() -> None:
    answers = []

    def work() -> None:
        with Stop() as stop:
            answers.append(stop())
            stop.ask()
            answers.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False, True]


def test_processes_agree_on_the_highest_signal() -> None:
    stop = Stop(lambda number: max(number, signal.SIGTERM), processes=2)  # the other one was asked
    assert not stop.asked
    assert stop()
    stop.interrupt()  # an evaluation is ended by all or by none
    assert stop.exit_code == 143


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"), RunLock(tmp_path / "file" / "run"):
        pass


HOLD = """
import sys
from pathlib import Path
from ftcseg.train.lock import RunInUse, RunLock
try:
    with RunLock(Path(sys.argv[1])):
        print("mine", flush=True)
        sys.stdin.readline()
except RunInUse as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


def test_a_folder_in_use_is_refused_and_its_user_named(tmp_path: Path) -> None:
    running = process(HOLD, str(tmp_path))
    assert line_of(running) == "mine"
    with pytest.raises(RunInUse, match=f"in use by process {running.pid} on {socket.gethostname()}"), RunLock(tmp_path):
        pass
    running.communicate("done\n")
    with RunLock(tmp_path):
        refused, _ = process(HOLD, str(tmp_path)).communicate()
        assert f"in use by process {os.getpid()}" in refused


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    running = process(HOLD, str(tmp_path))
    assert line_of(running) == "mine"
    running.kill()
    running.communicate()
    with RunLock(tmp_path):
        pass


WITH_CHILD = """
import os, sys, time
from pathlib import Path
from ftcseg.train.lock import RunLock
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        os.close(1)
        time.sleep(3)
        os._exit(0)
    print("mine", flush=True)
    time.sleep(60)
"""


def test_a_worker_that_outlives_its_parent_holds_no_lock(tmp_path: Path) -> None:
    running = process(WITH_CHILD, str(tmp_path))
    assert line_of(running) == "mine"
    running.kill()
    running.wait()
    with RunLock(tmp_path):
        pass
    running.communicate()


def test_without_kernel_locks_a_file_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with RunLock(tmp_path):
        holder = json.loads((tmp_path / lock.CLAIM_FILE).read_text())
        assert holder == {"pid": os.getpid(), "host": socket.gethostname()}
        with pytest.raises(RunInUse), RunLock(tmp_path):
            pass
    assert not (tmp_path / lock.CLAIM_FILE).exists()


def test_the_file_of_a_dead_process_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    dead = process("pass")
    dead.communicate()
    claim = tmp_path / lock.CLAIM_FILE
    claim.write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname()}))
    with RunLock(tmp_path):
        pass
    claim.write_text(json.dumps({"pid": dead.pid, "host": "elsewhere"}))  # nobody here can tell
    with pytest.raises(RunInUse, match=r"on elsewhere.*delete"), RunLock(tmp_path):
        pass
