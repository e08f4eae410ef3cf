"""One run folder, one process.

The lock is the kernel's (`flock`), so a killed process leaves none behind. Where the system or the file system has no
such lock, a file that can be made only once stands in for it, and one left by a dead process of this machine is taken
over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import uuid
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from ftcseg.errors import DataError, UsageError
from ftcseg.files import MAX_NAME_BYTES, disk_trouble, parse_json, read_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
CLAIM_FILE = ".claim"
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class RunInUse(UsageError):
    """Another process trains in this folder."""


class RunLock:
    """`with RunLock(folder): ...` keeps every other process out of the folder, and is gone with this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None
        self._claimed = False
        self._mark = uuid.uuid4().hex

    def __enter__(self) -> RunLock:
        try:
            with disk_trouble(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                if not self._lock():
                    self._claim()
        except OSError as error:
            raise UsageError(
                f"The run folder {self.folder} cannot be used: {error.strerror}. Choose one that may be written."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._claimed:
            (self.folder / CLAIM_FILE).unlink(missing_ok=True)
            self._claimed = False
        self._close()  # the lock goes with the last handle; the file stays, since removing it would race

    def is_mine(self) -> bool:
        """Whether the folder of that name is still the one that was locked, and not another's in its place."""
        name = CLAIM_FILE if self._claimed else LOCK_FILE
        return bool(_holder(self.folder / name).get("mark", self._mark) == self._mark)

    def _lock(self) -> bool:
        """Take the kernel's lock; False where there is no such thing."""
        if fcntl is None:
            return False
        handle = os.open(self.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in _NO_LOCKS_HERE:
                return False
            raise _in_use(self.folder, _holder(self.folder / LOCK_FILE)) from error
        with contextlib.suppress(OSError):  # who holds it is good to know; a full disk must not cost the lock
            os.ftruncate(handle, 0)
            os.write(handle, self._signature())
        self._handle = handle
        _held.add(self)
        return True

    def _claim(self) -> None:
        """Make the file that can be made only once, over the one of a dead process if need be."""
        path = self.folder / CLAIM_FILE
        for _ in range(2):
            with contextlib.suppress(FileExistsError):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                with contextlib.suppress(OSError):  # as above
                    os.write(handle, self._signature())
                os.close(handle)
                self._claimed = True
                return
            holder = _holder(path)
            if holder.get("host") != socket.gethostname() or _alive(int(holder.get("pid", 0))):
                break
            path.unlink(missing_ok=True)
        raise _in_use(self.folder, _holder(path))

    def _signature(self) -> bytes:
        return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "mark": self._mark}).encode()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A forked loader worker would otherwise keep the lock alive after its parent was killed.
    for lock in _held:
        lock._close()
        lock._claimed = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


def _holder(path: Path) -> dict[str, Any]:
    with contextlib.suppress(DataError, ValueError):
        holder = parse_json(read_text(path, MAX_NAME_BYTES))
        if isinstance(holder, dict):
            return holder
    return {}


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    if os.name == "nt":  # os.kill would end it there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(folder: Path, holder: dict[str, Any]) -> RunInUse:
    who = f"process {holder['pid']} on {holder.get('host')}" if "pid" in holder else "another process"
    return RunInUse(
        f"The run folder {folder} is in use by {who}. Wait for it to end, stop it, or choose another folder. "
        f"If it is long gone from another machine, delete {folder / CLAIM_FILE}."
    )
