"""Unpacking archives that strangers wrote.

Members are read one by one: their names go through `files.inside`, links and devices are refused, and bytes are counted
as they come out rather than believed from a header. The folder appears under its name only when all of it is there.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

from ftcseg.errors import DataError, FtcsegError, LayoutError, UnsafePathError, UsageError
from ftcseg.files import inside, relative

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes done so far and, where anybody knows, the bytes in all."""

CHUNK = 2**20
MAX_HEADER = 2**20
"""What one tar header may take, long names and extended records included; tarfile itself would read any amount."""
RATIO_FREE = 2**20
"""Bytes that are never counted as a bomb: the padding of a tiny tar alone compresses a hundredfold."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much may come out of one archive."""

    files: int = 200_000
    total_bytes: int = 64 * 2**30
    ratio: int = 200
    """Bytes out per byte of archive. Deflate reaches 1032; flat label masks, the emptiest honest files, about 100."""


LIMITS = ArchiveLimits()


def silent(done: int, total: int | None) -> None:
    """A Progress that tells nobody."""


def unpack(
    archive: Path,
    into: Path,
    *,
    limits: ArchiveLimits = LIMITS,
    subfolder: str | None = None,
    progress: Progress = silent,
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Unpack a zip or tar (plain, gz, bz2, xz) so that `into` is either whole or absent.

    With `subfolder` only what lies below that folder of the archive is taken, and becomes the content of `into`.
    `check` looks at the unpacked files before they take their place; what it raises undoes everything.
    A faulty archive is a DataError; a disk that fails is the OSError it is.
    """
    if into.exists() or into.is_symlink():
        raise UsageError(f"{into} is already there; nothing was unpacked. Move it away or choose another place.")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}.", suffix=".unpacking") as staging:
        folder = Path(staging) / into.name
        folder.mkdir()
        with _faults_named(archive), closing(_members(archive, _Ledger(archive, limits, progress))) as members:
            names: set[str] = set()
            written = sum(_place(member, folder, subfolder, archive, names) for member in members)
        if not written:
            what = f"no files below {subfolder!r}" if subfolder else "no files"
            raise LayoutError(f"{archive} holds {what}.", remedy="Is it the right archive?", kind="archive-empty")
        if check is not None:
            check(folder)
        folder.rename(into)
    return into


def tree_digest(folder: Path, only: Iterable[str] = ()) -> str:
    """SHA-256 over the sorted lines `name sha256(file)` of every file below the folder, or below some subfolders.

    It proves content where an archive's own checksum is unknown or changes with each packing.
    """
    tops = [folder / name for name in only] or [folder]
    names = sorted({relative(folder, path) for top in tops for path in top.rglob("*") if path.is_file()})
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of either kind of archive. `refusal` is why it may not be unpacked, should anyone want it."""

    name: str
    is_folder: bool
    refusal: DataError | None
    open: Callable[[], IO[bytes]]


class _Ledger:
    """Counts what really comes out, and stops at the limits."""

    def __init__(self, archive: Path, limits: ArchiveLimits, progress: Progress) -> None:
        self.archive = archive
        self.limits = limits
        self.progress = progress
        self.files = 0
        self.bytes = 0
        self.most_bytes = min(limits.total_bytes, archive.stat().st_size * limits.ratio + RATIO_FREE)

    def entry(self) -> None:
        self.files += 1
        if self.files > self.limits.files:
            self._refuse(f"holds more than {self.limits.files:,} entries")

    def spend(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.limits.total_bytes:
            self._refuse(f"unpacks to more than {self.limits.total_bytes:,} bytes")
        if self.bytes > self.most_bytes:
            self._refuse(f"unpacks to more than {self.limits.ratio} times its own size")
        self.progress(self.bytes, None)

    def _refuse(self, what: str) -> None:
        raise LayoutError(
            f"{self.archive} {what}; unpacking stopped and nothing was kept.",
            remedy="If you trust it, unpack it yourself.",
            kind="archive-too-large",
        )


def _place(member: _Member, folder: Path, subfolder: str | None, archive: Path, names: set[str]) -> bool:
    """Write one member if it is wanted; True for a file that was written. `names` are those of all files so far."""
    name = _name_below(member.name, subfolder)
    if name is None or (member.is_folder and not PurePosixPath(name).parts):
        return False
    if member.refusal is not None:
        raise member.refusal
    path = inside(folder, name)
    try:
        if member.is_folder:
            path.mkdir(parents=True, exist_ok=True)
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        alike = _on_any_disk(name)
        if alike in names:
            raise FileExistsError
        names.add(alike)
        with path.open("xb") as target, member.open() as source:
            shutil.copyfileobj(source, target, CHUNK)
    except (FileExistsError, NotADirectoryError) as error:
        raise LayoutError(
            f"{archive} holds {member.name!r} twice, by another case or spelling perhaps, or as both file and folder.",
            remedy="Fetch it again or unpack it yourself.",
            kind="archive-duplicate",
        ) from error
    return True


def _on_any_disk(name: str) -> str:
    """The same for two names that some file system takes for one: by case, by accents, by dots and spaces at an end."""
    parts = PurePosixPath(unicodedata.normalize("NFKC", name).casefold()).parts
    return "/".join(part.rstrip(". ") for part in parts)


def _name_below(name: str, subfolder: str | None) -> str | None:
    """The member's name as seen from the wanted folder; None for a member that lies elsewhere."""
    name = name.replace("\\", "/")
    if subfolder is None:
        return name
    wanted, parts = PurePosixPath(subfolder).parts, PurePosixPath(name).parts
    return "/".join(parts[len(wanted) :]) if parts[: len(wanted)] == wanted else None


def _members(archive: Path, ledger: _Ledger) -> Generator[_Member, None, None]:
    with archive.open("rb") as file:
        start = file.read(6)
        file.seek(0)
        if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            yield from _zip_members(file, ledger)
            return
        for magic, decompress in _DECOMPRESSORS.items():
            if start.startswith(magic):
                with decompress(file) as plain:
                    yield from _tar_members(plain, ledger)
                return
        yield from _tar_members(file, ledger)


def _gunzip(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file))


def _bunzip(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], bz2.BZ2File(file))


def _unxz(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(file))


_DECOMPRESSORS = {b"\x1f\x8b": _gunzip, b"BZh": _bunzip, b"\xfd7zXZ\x00": _unxz}


def _zip_members(file: IO[bytes], ledger: _Ledger) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as pack:
        for info in pack.infolist():
            ledger.entry()

            def opened(info: zipfile.ZipInfo = info) -> IO[bytes]:
                return cast(IO[bytes], _Counted(pack.open(info), ledger))

            # orig_filename: `filename` ends at the first NUL, which `inside` should see.
            yield _Member(info.orig_filename, info.is_dir(), _zip_refusal(info), opened)


def _zip_refusal(info: zipfile.ZipInfo) -> DataError | None:
    encrypted, strong = 0x1, 0x40
    if info.flag_bits & (encrypted | strong):
        return LayoutError(
            f"The archive is encrypted ({info.filename!r}).",
            remedy="Unpack it yourself, with its password.",
            kind="archive-encrypted",
        )
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile decompresses the others a whole chunk at a time: a megabyte can become a terabyte before we count.
        return LayoutError(
            f"{info.filename!r} is compressed in a way that cannot be unpacked safely (method {info.compress_type}).",
            remedy="Unpack it yourself.",
            kind="archive-method",
        )
    kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archive comes from Windows
    return None if kind in (0, stat.S_IFREG, stat.S_IFDIR) else _not_plain(info.filename)


def _tar_members(plain: IO[bytes], ledger: _Ledger) -> Iterator[_Member]:
    stream = _TarStream(plain, ledger)
    with tarfile.TarFile(fileobj=cast(IO[bytes], stream)) as pack:
        while True:
            stream.budget = MAX_HEADER
            info = pack.next()
            if info is None:
                break
            if info.size < 0:
                raise tarfile.ReadError("an entry of negative size")
            ledger.entry()
            stream.budget = info.size

            def opened(info: tarfile.TarInfo = info) -> IO[bytes]:
                data = pack.extractfile(info)
                assert data is not None, "only regular files are opened"
                return data

            is_plain = info.isdir() or (info.isreg() and not info.issparse())
            yield _Member(info.name, info.isdir(), None if is_plain else _not_plain(info.name), opened)
    # tarfile takes a cut or spoilt header for the end; the true end is a block of zeros.
    if len(stream.last) < tarfile.BLOCKSIZE or stream.last.strip(b"\0"):
        raise tarfile.ReadError("the end is missing")


def _not_plain(name: str) -> DataError:
    return UnsafePathError(
        f"{name!r} in the archive is a link, a device or something else that is no plain file.",
        remedy="If you trust it, unpack it yourself.",
        kind="archive-link",
    )


class _Counted(io.RawIOBase):
    """A zip member whose bytes are entered into the ledger as they are read."""

    def __init__(self, file: IO[bytes], ledger: _Ledger) -> None:
        self._file = file
        self._ledger = ledger

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._ledger.spend(len(data))
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


class _TarStream(io.RawIOBase):
    """What tarfile reads: forward only, every byte in the ledger, and never more than the budget of this entry."""

    def __init__(self, file: IO[bytes], ledger: _Ledger) -> None:
        self._file = file
        self._ledger = ledger
        self._position = 0
        self.budget = MAX_HEADER
        self.last = b""
        """The bytes read last; after the last entry, the block that ended the archive."""

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.budget:
            raise tarfile.ReadError("an entry claims more than it may hold")
        self.budget -= size
        self.last = self._take(size)
        return self.last

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise tarfile.ReadError("an entry points backwards")
        while self._position < offset and self._take(min(CHUNK, offset - self._position)):
            pass
        return self._position

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        self._position += len(data)
        self._ledger.spend(len(data))
        return data


_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ArithmeticError,
    LookupError,
    ValueError,
    NotImplementedError,
    RecursionError,
)
"""What the standard readers raise on spoilt input."""
_DAMAGE_NUMBERS = (None, errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ)
"""gzip and bz2 report bad data as an OSError without a number; the others are places and names no disk can have."""


@contextmanager
def _faults_named(archive: Path) -> Iterator[None]:
    """Turn a reader's complaint into one about the archive; let the disk's own errors pass."""
    try:
        yield
    except FtcsegError:
        raise
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _DAMAGE_NUMBERS:
            raise
        what = (error.strerror if isinstance(error, OSError) else None) or error
        raise LayoutError(
            f"{archive} is no zip or tar archive, or is damaged or cut short ({what}).",
            remedy="Fetch it again.",
            kind="archive-damaged",
        ) from error
