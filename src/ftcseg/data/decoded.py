"""Decoded images on disk: what is dearer to decode than to read back is decoded once.

An entry is found by the content of the files it was made of and by everything the decoding depends on; so a copy of a
set, or a second run, finds what the first one left. Entries are written whole or not at all, hold a checksum, and are
read by memory map: any number of processes share one copy in memory. Losing the folder costs only time.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftcseg.files import cache_folder

FOLDER = "decoded"
VERSION = 1
"""Raise it when a decoder of ours changes what it makes of a file."""
DECODERS = ("pillow", "tifffile", "imagecodecs")
"""Packages whose versions are part of an entry's name: another JPEG decoder may round another way."""
READ_RATE = 1e9
"""Bytes a second at which files are hashed and entries checked and mapped (measured; docs/results/speed.md)."""
WORTH = 2.0
"""An entry is kept where decoding took at least so many times as long as reading it back would."""
RECENT = 3600.0
"""Seconds since its last use for which no entry gives way to a new one: a set that is larger than the folder may be
would push itself out of it without end."""
ROOM_FOR_OTHERS = 2 << 30
"""Bytes of the disk that are left free."""
COUNT_EVERY = 1 / 64
"""Share of the limit that a process writes before it looks again at what others have written."""

_MAGIC = b"ftcseg decoded 1"
_HEAD = struct.Struct("<16sII")  # magic, checksum of everything behind it, length of the description
_AT = 64  # arrays begin at multiples of it
_MOST_AROUND = 1024  # bytes of an entry besides its arrays
_KINDS = ("uint8", "uint16", "int16", "float32")


class DecodedCache:
    """Arrays by key, in a folder of at most `limit` bytes, whoever else writes there."""

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.folder = folder or cache_folder() / FOLDER
        self._used: int | None = None  # bytes in the folder when it was last looked at, and written since
        self._written = 0
        self._full_until = 0.0

    def recall(self, key: str) -> list[NDArray[Any]] | None:
        """The arrays of a key, mapped and not to be written to; None where there are none, or damaged ones."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # an empty file cannot be mapped
            return None
        arrays = _unpacked(mapped, key)
        with suppress(OSError):
            if arrays is None:
                path.unlink()  # made anew by whoever decodes it next
            else:
                os.utime(path)
        return arrays

    def keep(self, key: str, arrays: Sequence[NDArray[Any]], *, seconds: float, source: int) -> bool:
        """Write the arrays down where that pays, for files of `source` bytes decoded in `seconds`; whether it did."""
        raw = sum(array.nbytes for array in arrays)
        if seconds < WORTH * (source + raw) / READ_RATE:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._has_room(raw + _MOST_AROUND) and self._write(key, arrays)
        except OSError:  # a full, locked or vanished disk: work without it
            self._full_until = time.monotonic() + RECENT
            return False

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.raw"

    def _write(self, key: str, arrays: Sequence[NDArray[Any]]) -> bool:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in _packed(arrays, key):
                    file.write(piece)
                size = file.tell()
            Path(temporary).replace(path)  # not flushed to the disk first: what a power cut tears, the checksum finds
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        self._used = (self._used or 0) + size
        self._written += size
        return True

    def _has_room(self, size: int) -> bool:
        if time.monotonic() < self._full_until:
            return False
        if self._used is None or self._written > COUNT_EVERY * self.limit or self._used + size > self.limit:
            self._used, self._written = self._sweep(size), 0
        fits = self._used + size <= self.limit and shutil.disk_usage(self.folder).free - size >= ROOM_FOR_OTHERS
        if not fits:
            self._full_until = time.monotonic() + RECENT / 60
        return fits

    def _sweep(self, size: int) -> int:
        """Bytes in the folder, after those longest unused have made room for `size` more."""
        now, entries = time.time(), []
        for path in self.folder.glob("*/*"):
            with suppress(OSError):  # somebody else removed it
                stat = path.stat()
                if path.suffix == ".raw":
                    entries.append((stat.st_mtime, stat.st_size, path))
                elif now - stat.st_mtime > RECENT:
                    path.unlink()  # of a process that died over it
        used = sum(entry[1] for entry in entries)
        for last_used, its, path in sorted(entries):
            if used + size <= self.limit or now - last_used < RECENT:
                break
            with suppress(OSError):
                path.unlink()
                used -= its
        return used


def key_of(digests: Sequence[str], how: Mapping[str, Any]) -> str:
    """The name of an entry: what its files hold, and how they are decoded."""
    told = {"version": VERSION, "decoders": _decoders(), "files": list(digests), **how}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=repr).encode()).hexdigest()


def content(path: Path) -> str:
    """A hash of what a file holds, remembered while its size and times stay as they are; OSError where it cannot be."""
    stat = path.stat()
    return _content(path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array lies in a mapped file and not in this process's own memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


@cache
def _content(path: Path, *_stamp: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _decoders() -> list[str]:
    return [f"{name} {_version(name)}" for name in DECODERS]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _packed(arrays: Sequence[NDArray[Any]], key: str) -> list[bytes | memoryview]:
    """The pieces of an entry: head, description, and every array at a multiple of _AT."""
    about = {"key": key, "arrays": [[array.dtype.name, list(array.shape)] for array in arrays]}
    text = json.dumps(about).encode()
    pieces: list[bytes | memoryview] = [text]
    at = _HEAD.size + len(text)
    for array in arrays:
        pieces += [b"\0" * (-at % _AT), np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]
        at += -at % _AT + array.nbytes
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return [_HEAD.pack(_MAGIC, checksum, len(text)), *pieces]


def _unpacked(mapped: mmap.mmap, key: str) -> list[NDArray[Any]] | None:
    """The arrays of an entry; None where one bit of it is not as it was written, or it was written for another key."""
    try:
        magic, checksum, length = _HEAD.unpack_from(mapped)
        with memoryview(mapped) as whole, whole[_HEAD.size :] as rest:
            if magic != _MAGIC or zlib.crc32(rest) != checksum:
                return None
        at = _HEAD.size + length
        about = json.loads(mapped[_HEAD.size : at])
        if about["key"] != key:
            return None
        arrays: list[NDArray[Any]] = []
        for kind, shape in about["arrays"]:
            at += -at % _AT
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            if kind not in _KINDS:
                return None
            arrays.append(np.frombuffer(mapped, dtype, count, at).reshape(shape))
            at += count * dtype.itemsize
    except (struct.error, ValueError, LookupError, TypeError):
        return None
    return arrays
