"""Archives beyond those of test_archives.py: clashes that only some disks see, names hidden in headers, nested ones."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ftcseg.data.archives import ArchiveLimits, unpack
from ftcseg.errors import DataError, LayoutError, UnsafePathError


def zipped(*files: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in files:
            pack.writestr(name, content)
    return buffer.getvalue()


def tarred(*files: tuple[str, bytes], kind: int = tarfile.PAX_FORMAT, **headers: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as pack:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.pax_headers = headers
            pack.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def refused(data: bytes, tmp_path: Path, error: type[DataError], **limits: int) -> DataError:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    with pytest.raises(error, match=r"a\.bin|The path|in the archive") as caught:
        unpack(path, tmp_path / "out", limits=ArchiveLimits(**limits))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin"]
    return caught.value


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    ("one", "other"),
    [("a.png", "A.PNG"), ("m/ß.png", "m/SS.png"), ("é.png", "e\u0301.png"), ("a.png", "a.png."), ("a/b", "A /b")],
)
def test_names_that_some_disk_takes_for_one_are_refused_on_all(
    pack: Callable[..., bytes], one: str, other: str, tmp_path: Path
) -> None:
    assert refused(pack((one, b"1"), (other, b"2")), tmp_path, LayoutError).kind == "archive-duplicate"


def test_names_that_no_disk_confuses_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(("a.png", b"1"), ("a/b.png", b"2"), ("A/c.png", b"3"), ("a.jpg", b"4")))
    folder = unpack(tmp_path / "a.zip", tmp_path / "out")
    assert sum(path.is_file() for path in folder.rglob("*")) == 4


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil"])
def test_the_name_in_an_extended_header_is_the_one_that_counts(name: str, tmp_path: Path) -> None:
    refused(tarred(("fine.png", b"x"), path=name), tmp_path, UnsafePathError)
    long = f"{'d/' * 80}../{'../' * 80}evil"
    refused(tarred((long, b"x"), kind=tarfile.GNU_FORMAT), tmp_path, UnsafePathError)


def test_a_file_behind_a_link_meets_the_link_first(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as pack:
        link = tarfile.TarInfo("sub")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        pack.addfile(link)
        info = tarfile.TarInfo("sub/evil")
        info.size = 1
        pack.addfile(info, io.BytesIO(b"x"))
    assert refused(buffer.getvalue(), tmp_path, UnsafePathError).kind == "archive-link"


def test_an_archive_in_an_archive_stays_one(tmp_path: Path) -> None:
    bomb = zipped(*((f"{i}.zip", zipped(("zeros", bytes(2**20)))) for i in range(3)))
    (tmp_path / "a.zip").write_bytes(zipped(("inner.zip", bomb)))
    folder = unpack(tmp_path / "a.zip", tmp_path / "out")
    assert [path.name for path in folder.rglob("*")] == ["inner.zip"]
    assert (folder / "inner.zip").read_bytes() == bomb


def test_an_xz_bomb_is_stopped_by_its_ratio(tmp_path: Path) -> None:
    data = lzma.compress(tarred(("zeros", bytes(8 * 2**20))), preset=0)
    assert "200 times its own size" in str(refused(data, tmp_path, LayoutError))


def test_one_place_listed_under_many_names_is_refused(tmp_path: Path) -> None:
    """A few bytes of data that a long list of contents points to again and again."""
    data = zipped(("a", bytes(2**16)))
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[start:end]
    entries = b"".join(entry[:-1] + bytes([letter]) for letter in b"abcdefgh")
    tail = bytearray(data[end:])
    tail[8:12] = (8).to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    assert refused(data[:start] + entries + bytes(tail), tmp_path, LayoutError).kind == "archive-damaged"
