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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftcseg.errors import UsageError
from ftcseg.train import lock
from ftcseg.train.lock import RunInUse, RunLock
from ftcseg.train.signals import ONE_CALL_SECONDS, Interrupted, Stop, ignore_in_worker

SOURCE = Path(__file__).parents[2] / "src"


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that does not outlive the block."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe) as running:
        try:
            yield running
        finally:
            running.kill()


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
    with process(STUBBORN) as running:
        assert line_of(running) == "ready"
        running.send_signal(signal.SIGTERM)
        assert line_of(running) == "asked"
        time.sleep(ONE_CALL_SECONDS + 0.1)
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 143


WITH_WORKER = """
import os, signal, time
from ftcseg.train.signals import Stop
with Stop() as stop:
    worker = os.fork()
    if worker == 0:
        time.sleep(0.5)
        os._exit(7 if not stop.asked else 8)
    time.sleep(0.1)  # Python forgets signals that arrive while it forks
    os.kill(worker, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), stop.asked, flush=True)
"""


def test_a_worker_takes_no_orders() -> None:
    with process(WITH_WORKER) as running:
        assert line_of(running) == "7 False"


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
    who = f"in use by process {{}} on {socket.gethostname()}"
    with process(HOLD, str(tmp_path)) as running:
        assert line_of(running) == "mine"
        with pytest.raises(RunInUse, match=who.format(running.pid)), RunLock(tmp_path):
            pass
        running.communicate("done\n")
    with RunLock(tmp_path), process(HOLD, str(tmp_path)) as refused:
        assert who.format(os.getpid()) in line_of(refused)
        assert refused.wait() == 2


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    with process(HOLD, str(tmp_path)) as running:
        assert line_of(running) == "mine"
        running.kill()
        running.wait()
        with RunLock(tmp_path):
            pass


WITH_CHILD = """
import os, sys, time
from pathlib import Path
from ftcseg.train.lock import RunLock
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        print("forked", flush=True)
        os.close(1)
        time.sleep(3)
        os._exit(0)
    time.sleep(60)
"""


def test_a_worker_that_outlives_its_parent_holds_no_lock(tmp_path: Path) -> None:
    with process(WITH_CHILD, str(tmp_path)) as running:
        assert line_of(running) == "forked"
        running.kill()
        running.wait()
        with RunLock(tmp_path):
            pass


def test_without_kernel_locks_a_file_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with RunLock(tmp_path):
        holder = json.loads((tmp_path / lock.CLAIM_FILE).read_text())
        assert (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
        with pytest.raises(RunInUse), RunLock(tmp_path):
            pass
    assert not (tmp_path / lock.CLAIM_FILE).exists()


def test_the_file_of_a_dead_process_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with process("pass") as dead:
        dead.wait()
    claim = tmp_path / lock.CLAIM_FILE
    claim.write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname()}))
    with RunLock(tmp_path):
        pass
    claim.write_text(json.dumps({"pid": dead.pid, "host": "elsewhere"}))  # nobody here can tell
    with pytest.raises(RunInUse, match=r"on elsewhere.*delete"), RunLock(tmp_path):
        pass
