"""Every error a user can meet: what is wrong, where, and what to do about it.

FtcsegError
├── UsageError      a call that cannot mean anything (a bad option, an unknown name)
├── DataError       something about the user's files
│   ├── LayoutError     the folder is not one we can read
│   ├── ImageError      one image cannot be used
│   ├── MaskError       one mask cannot be used
│   └── UnsafePathError a path that leaves its root
├── FetchError      a download that did not arrive whole
├── NotWritten      a disk that takes no more: full, over its quota, read-only, broken (exit code 4)
├── OutOfMemory     what was asked for needs more memory than there is (exit code 6)
├── ProcessLost     another process of the same run is gone (distributed.py; exit code 5)
├── WorkerLost      processes that load images keep dying (views/workers.py; exit code 5)
├── TrainingError   numbers that are none, again and again (train/guard.py; exit code 3)
└── CheckpointError a checkpoint that cannot be written or read (train/checkpoint.py; exit code 4)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FtcsegError(Exception):
    """One sentence for the user; the command line prints it and exits with `exit_code`."""

    exit_code = 2


class UsageError(FtcsegError):
    """The call itself is at fault."""


class DataError(FtcsegError):
    """The data are at fault; `kind` is the short code that doctor lists it under, `remedy` what to do."""

    kind = "data"

    def __init__(self, what: str, *, remedy: str = "", kind: str | None = None) -> None:
        # Half a character, which JSON may hold in a name, would end whoever prints the message or writes it down.
        self.what = what.encode(errors="backslashreplace").decode()
        self.remedy = remedy.encode(errors="backslashreplace").decode()
        self.kind = kind or type(self).kind
        super().__init__(f"{self.what} {self.remedy}".strip())

    def __reduce__(
        self,
    ) -> tuple[object, ...]:  # keyword arguments survive the way back from a worker process
        return (_rebuild, (type(self), self.what, self.remedy, self.kind))


class LayoutError(DataError):
    """The folder, list or manifest cannot be read as a set of images."""

    kind = "layout"


class ImageError(DataError):
    """One image cannot be used."""

    kind = "image"


class MaskError(DataError):
    """One mask cannot be used."""

    kind = "mask"


class UnsafePathError(DataError):
    """A path in a manifest, annotation or archive leaves the folder it belongs to."""

    kind = "unsafe-path"


class FetchError(FtcsegError):
    """A download failed or does not match its checksum."""


class NotWritten(FtcsegError):
    """A file could not be written because of the disk it is on; what was there before is untouched."""

    exit_code = 4


class OutOfMemory(FtcsegError):
    """There is not enough memory; says what was tried, with which numbers, and what to change."""

    exit_code = 6


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "alloc_failed")
"""How torch says it where it has no kind of error for it: on CPUs, and in CUDA's libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, numpy or torch means that memory ran out."""
    if isinstance(error, FtcsegError):
        return False
    told = isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)
    return told or isinstance(error, MemoryError)


def _rebuild(cls: type[DataError], what: str, remedy: str, kind: str) -> DataError:
    return cls(what, remedy=remedy, kind=kind)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is in no table, naming the nearest ones."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names)}."
    return UsageError(f"There is no {kind} called {name!r}. {hint}")
