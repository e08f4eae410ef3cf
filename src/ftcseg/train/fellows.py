"""The processes of one run stand and fall together, and one of them says why.

The first process starts the others and keeps a line to each of them, a pair of sockets, whatever the tensors travel by.
Over it goes a heartbeat from both sides, so that a process that is stopped or stuck is told from one that is slow; and
its last words, so that an error of any process is shown once, by the first. Who is lost is known within seconds, who
hangs after half a minute; then everybody ends, and nobody is left behind. Processes that torchrun or SLURM started have
no such line: these launchers end what they began themselves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ftcseg.distributed import ProcessLost
from ftcseg.errors import FtcsegError

if TYPE_CHECKING:
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

BEAT_SECONDS = 0.5
"""Between two heartbeats, and two looks at the others."""
QUIET_SECONDS = 30.0
"""Without a heartbeat before a process counts as lost."""
GRACE_SECONDS = 12.0
"""For the main thread to leave in good order once somebody is lost; then the process ends where it stands."""
TOLD_SECONDS = 4.0
"""How long a broken connection waits for its reason: whoever broke it may be writing it down."""
LINE = "FTCSEG_LINE"
"""Environment of a started process: its end of the line, and who started it."""
AGAIN = "Give the same command again; where the run folder was begun, ftcseg train --resume RUN."
_CHUNK = 2**16
_LONGEST = 2**20  # of last words: whoever sends more is none of ours


class Fellow:
    """One other process, seen from this end of the line to it."""

    def __init__(
        self, line: socket.socket, name: str, *, child: subprocess.Popen[bytes] | None = None, parent: int = 0
    ) -> None:
        """`child` where this process started it, `parent` (its number) where it started this one."""
        self.name = name
        self.child = child
        self.parent = parent
        self.words: dict[str, Any] | None = None
        self.heard: float | None = None
        self._line = line
        self._line.setblocking(False)
        self._rest = b""

    def say(self, **words: Any) -> None:
        """A heartbeat, or last words; nobody may listen any more."""
        with suppress(OSError):
            self._line.send(json.dumps(words).encode() + b"\n" if words else b"\n")

    def listen(self) -> None:
        """Take in what has come since the last time."""
        with suppress(OSError, ValueError):
            while chunk := self._line.recv(_CHUNK):
                self.heard = time.monotonic()
                *lines, self._rest = (self._rest + chunk)[-_LONGEST:].split(b"\n")
                for line in filter(None, lines):
                    self.words = self.words or json.loads(line)

    @property
    def is_there(self) -> bool:
        """Whether the process exists, hanging or not."""
        return os.getppid() == self.parent if self.child is None else self.child.poll() is None

    @property
    def is_echo(self) -> bool:
        """Whether it ended only because somebody else was lost to it."""
        return self.words is None and self.child is not None and self.child.poll() == ProcessLost.exit_code

    def loss(self, now: float) -> ProcessLost | None:
        """Why this process is lost, if it is."""
        there = self.is_there
        self.listen()  # after the look: what it said before it went is here by now
        if self.words is not None:
            return ProcessLost(**{"remedy": AGAIN, **self.words})
        if not there:
            return ProcessLost(f"{self.name} {self._ending()}.", AGAIN)
        if self.heard is not None and now - self.heard > QUIET_SECONDS:
            return ProcessLost(f"{self.name} hangs: it gave no sign of life for {QUIET_SECONDS:.0f} seconds.", AGAIN)
        return None

    def end(self, patience: float) -> None:
        """See a child to its end, gently at first."""
        if self.child is None:
            return
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self.child.kill()  # ends a stopped process, too
            self.child.wait()

    def _ending(self) -> str:
        code = self.child.poll() if self.child is not None else None
        if code is None:
            return "is gone: it was killed, or it crashed"
        if code >= 0:
            return f"ended with exit code {code}; its own message says why"
        by = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ". Systems do that to whoever holds the most when memory runs out" if -code == signal.SIGKILL else ""
        return f"was killed by {by}{hint}"


class Watch(threading.Thread):
    """Looks after the other processes while the main thread computes or waits for them."""

    def __init__(self, fellows: Sequence[Fellow], *, speaks: bool) -> None:
        super().__init__(name="ftcseg-watch", daemon=True)
        self.fellows = fellows
        self.speaks = speaks
        """Whether this is the first process."""
        self.lost: ProcessLost | None = None
        self._over = threading.Event()
        self._since = 0.0
        self._looked = time.monotonic()

    def run(self) -> None:
        """Until `release`, or until waiting for the main thread makes no sense any more."""
        while not self._over.wait(BEAT_SECONDS):
            now = time.monotonic()
            if self.lost is None:
                self.look(now)
            elif now - self._since > GRACE_SECONDS:
                self._leave()

    def look(self, now: float) -> None:
        """Say and ask for a sign of life."""
        slept = now - self._looked - BEAT_SECONDS
        self._looked = now
        for fellow in self.fellows:
            fellow.say()
            if slept > QUIET_SECONDS / 2 and fellow.heard is not None:
                fellow.heard += slept  # this process was stopped itself, and could not have heard
        # Those who only lost somebody else are not the reason.
        losses = [(fellow.is_echo, loss) for fellow in self.fellows if (loss := fellow.loss(now)) is not None]
        if losses:
            self._since = now
            self.lost = min(losses, key=lambda known: known[0])[1]
            for fellow in self.fellows:
                if fellow.child is not None and fellow.words is None:
                    fellow.child.kill()  # breaks the connection that the main thread may be waiting on for ever

    def reason(self) -> ProcessLost | None:
        """Why the connection broke, as soon as it is known."""
        end = time.monotonic() + TOLD_SECONDS
        while self.lost is None and time.monotonic() < end:
            time.sleep(BEAT_SECONDS / 5)
        return self.lost

    def release(self, **words: Any) -> None:
        """No more watching: take leave, perhaps with last words."""
        self._over.set()
        for fellow in self.fellows:
            fellow.say(**words)

    def again(self) -> Watch:
        """A new one over the same processes, for the next run of one program."""
        for fellow in self.fellows:
            fellow.heard = None  # it may still be on its way there
        return Watch(self.fellows, speaks=self.speaks)

    def end_all(self, patience: float = TOLD_SECONDS) -> None:
        """Nobody is left behind."""
        for fellow in self.fellows:
            fellow.end(patience)

    def _leave(self) -> None:
        assert self.lost is not None
        if self.speaks or self.fellows[0].words is None:  # else the first process speaks
            sys.stderr.write(f"ftcseg: {self.lost}\n")
            sys.stderr.flush()
        self.end_all(0.0)
        os._exit(self.lost.exit_code)


_watch: Watch | None = None  # a process has one parent, and starts the others once


def start_others(processes: int, environment: ClusterEnvironment) -> None:
    """Start this command again for each further process of this machine, unless somebody else does that."""
    global _watch
    if environment.creates_processes_externally:
        if _watch is not None and not _watch.is_alive():
            _watch = _watch.again()
            _watch.start()
        return
    if os.name == "nt":  # there sockets are not handed on; lightning-fabric starts the others
        return
    os.environ |= {
        "MASTER_ADDR": environment.main_address,
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "LOCAL_RANK": "0",
    }
    fellows = []
    for local in range(1, processes):
        ours, theirs = socket.socketpair()
        with theirs:
            child = subprocess.Popen(  # noqa: S603  this very command
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, "LOCAL_RANK": str(local), LINE: f"{theirs.fileno()} {os.getpid()}"},
                pass_fds=[theirs.fileno()],
            )
        fellows.append(Fellow(ours, f"Process {local} of the {processes} of this run", child=child))
    _watch = Watch(fellows, speaks=True)
    _watch.start()


def check_fellows() -> None:
    """ProcessLost where another process is known to be lost: nobody need wait for it."""
    if _watch is not None and _watch.lost is not None:
        raise ProcessLost(_watch.lost.what, _watch.lost.remedy)


def release_fellows() -> None:
    """From here on every process may leave when it likes."""
    if _watch is not None:
        _watch.release()


@contextmanager
def one_for_all() -> Iterator[None]:
    """Whatever ends one process of a run within this block ends all of them, and is told once, by the first."""
    _join()
    try:
        yield
    except BaseException as error:
        if _watch is None:
            raise
        if _watch.speaks:
            _end_first(_watch, error)
        _end_other(_watch, error)
        raise


def _join() -> None:
    """Take up this end of the line, in a process that was started with one."""
    global _watch
    told = os.environ.pop(LINE, None)
    if told is not None:
        handle, parent = map(int, told.split())
        first = Fellow(socket.socket(fileno=handle), "The first process of this run", parent=parent)
        _watch = Watch([first], speaks=False)
        _watch.start()


def _end_first(watch: Watch, error: BaseException) -> None:
    reason = watch.reason() if isinstance(error, ProcessLost) else None
    watch.release(what="The first process ended the run.")
    watch.end_all()
    if reason is not None:
        assert isinstance(error, ProcessLost)
        raise ProcessLost(reason.what, error.remedy or reason.remedy, reason.exit_code) from error


def _end_other(watch: Watch, error: BaseException) -> None:
    """Hand the error to the first process, and leave in silence; where that one is gone, speak."""
    if isinstance(error, ProcessLost):
        reason = watch.reason()
        first = watch.fellows[0]
        if first.words is None and reason is not None:
            raise ProcessLost(reason.what, error.remedy or reason.remedy) from error
        watch.release()
        raise SystemExit(error.exit_code) from error
    if isinstance(error, FtcsegError):
        watch.release(what=str(error), remedy="", exit_code=error.exit_code)
        raise SystemExit(error.exit_code) from error
    if isinstance(error, Exception):
        name = os.environ.get("LOCAL_RANK", "?")
        watch.release(what=f"Process {name} of this run met an error that is a bug: {type(error).__name__}: {error}.")
