from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.data import archives
from ftcseg.data.archives import ArchiveLimits, tree_digest, unpack
from ftcseg.errors import DataError, LayoutError, UnsafePathError, UsageError

FILES = {"set/Images/a.png": b"a" * 700, "set/Masks/a.png": b"b" * 20, "readme.txt": b"hello"}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as pack:
        for name, data in files.items():
            pack.writestr(name, data)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as pack:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            pack.addfile(info, io.BytesIO(data))
        for info in others:
            pack.addfile(info, io.BytesIO(b"\0" * info.size))
    return buffer.getvalue()


def tar_entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "given.archive"
        path.write_bytes(data)
        return path

    return write


def refused(path: Path, error: type[DataError] = LayoutError, limits: ArchiveLimits = archives.LIMITS) -> DataError:
    """The error, after a look that neither the folder nor anything temporary is left."""
    before = set(path.parent.rglob("*"))
    with pytest.raises(error) as raised:
        unpack(path, path.parent / "out", limits=limits)
    assert set(path.parent.rglob("*")) == before
    return raised.value


# What is whole ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        zipped(FILES),
        zipped(FILES, zipfile.ZIP_STORED),
        tarred(FILES),
        gzip.compress(tarred(FILES)),
        bz2.compress(tarred(FILES)),
        lzma.compress(tarred(FILES)),
    ],
    ids=["zip", "zip-stored", "tar", "gz", "bz2", "xz"],
)
def test_every_kind_unpacks_to_the_same_files(data: bytes, archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    assert content(unpack(archive(data), tmp_path / "out")) == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["given.archive", "out"]


@pytest.mark.parametrize("data", [zipped(FILES), tarred(FILES)], ids=["zip", "tar"])
def test_a_subfolder_becomes_the_folder(data: bytes, archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    out = unpack(archive(data), tmp_path / "deep/out", subfolder="set")
    assert content(out) == {"Images/a.png": b"a" * 700, "Masks/a.png": b"b" * 20}


def test_a_missing_subfolder_is_named(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="no files below 'sets'"):
        unpack(archive(zipped(FILES)), tmp_path / "out", subfolder="sets")


def test_the_folder_entry_of_everything_is_fine(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    dot = tar_entry("./", tarfile.DIRTYPE)
    assert content(unpack(archive(tarred({"./a.png": b"x"}, dot)), tmp_path / "out")) == {"a.png": b"x"}


def test_folders_may_be_listed_and_windows_separators_understood(
    archive: Callable[[bytes], Path], tmp_path: Path
) -> None:
    data = tarred({"d\\a.png": b"x"}, tar_entry("d", tarfile.DIRTYPE), tar_entry("empty", tarfile.DIRTYPE))
    out = unpack(archive(data), tmp_path / "out")
    assert content(out) == {"d/a.png": b"x"}
    assert (out / "empty").is_dir()


def test_what_is_there_is_left_alone(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already there"):
        unpack(archive(zipped(FILES)), tmp_path / "out")
    assert content(tmp_path / "out") == {}


def test_a_failed_check_undoes_everything(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    seen: list[dict[str, bytes]] = []

    def check(folder: Path) -> None:
        seen.append(content(folder))
        raise LayoutError("not the set")

    with pytest.raises(LayoutError, match="not the set"):
        unpack(archive(zipped(FILES)), tmp_path / "out", check=check)
    assert seen == [FILES]
    assert [p.name for p in tmp_path.iterdir()] == ["given.archive"]


def test_no_programs_come_out(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    info = tarfile.TarInfo("run.sh")
    info.mode = 0o4777
    out = unpack(archive(tarred({}, info)), tmp_path / "out")
    assert not (out / "run.sh").stat().st_mode & (stat.S_IXUSR | stat.S_ISUID)


def test_progress_ends_at_the_bytes_that_came_out(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    told: list[int] = []
    unpack(archive(zipped(FILES)), tmp_path / "out", progress=lambda done, _: told.append(done))
    assert told == sorted(told)
    assert told[-1] == 725  # 700 + 20 + 5


# Names that leave the folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "C:\\evil", "c:evil", "a/nul.txt"],
)
def test_no_name_leaves_the_folder(
    pack: Callable[[dict[str, bytes]], bytes], name: str, archive: Callable[[bytes], Path], tmp_path: Path
) -> None:
    refused(archive(pack({"fine": b"x", name: b"x"})), UnsafePathError)
    assert not (tmp_path / "evil").exists()


def test_a_name_that_climbs_out_of_the_subfolder_is_refused(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    with pytest.raises(UnsafePathError, match="climbs"):
        unpack(archive(tarred({"set/../../evil": b"x"})), tmp_path / "out", subfolder="set")


def test_a_nul_in_a_name_is_refused(archive: Callable[[bytes], Path]) -> None:
    # zipfile would quietly call it «a.png»
    data = zipped({"a.pngX.exe": b"x"}).replace(b"a.pngX.exe", b"a.png\0.exe")
    assert "NUL" in str(refused(archive(data), UnsafePathError))


@pytest.mark.parametrize(
    "entry",
    [
        tar_entry("link", tarfile.SYMTYPE, "/etc"),
        tar_entry("link", tarfile.SYMTYPE, "fine"),
        tar_entry("link", tarfile.LNKTYPE, "fine"),
        tar_entry("device", tarfile.CHRTYPE),
        tar_entry("device", tarfile.BLKTYPE),
        tar_entry("pipe", tarfile.FIFOTYPE),
    ],
    ids=["symlink-out", "symlink-in", "hardlink", "character", "block", "fifo"],
)
def test_tar_links_and_devices_are_refused(entry: tarfile.TarInfo, archive: Callable[[bytes], Path]) -> None:
    assert refused(archive(tarred({"fine": b"x"}, entry)), UnsafePathError).kind == "archive-link"


def test_zip_links_are_refused(archive: Callable[[bytes], Path]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pack:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        pack.writestr(link, "/etc")
    assert refused(archive(buffer.getvalue()), UnsafePathError).kind == "archive-link"


def test_links_outside_the_wanted_folder_do_not_matter(archive: Callable[[bytes], Path], tmp_path: Path) -> None:
    data = tarred(FILES, tar_entry("docs/latest", tarfile.SYMTYPE, "v1"))
    assert len(content(unpack(archive(data), tmp_path / "out", subfolder="set"))) == 2


def test_a_name_given_twice_is_refused(archive: Callable[[bytes], Path]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pack.writestr("a.png", "one")
        pack.writestr("a.png", "two")
    assert refused(archive(buffer.getvalue())).kind == "archive-duplicate"
    assert refused(archive(tarred({"a": b"x", "./a": b"y"}))).kind == "archive-duplicate"
    assert refused(archive(tarred({"a": b"x", "a/b": b"y"}))).kind == "archive-duplicate"


# Too much --------------------------------------------------------------------------------------------------------


ZEROS = {"zeros": b"\0" * 8 * 2**20}


@pytest.mark.parametrize(
    "data", [zipped(ZEROS), gzip.compress(tarred(ZEROS)), bz2.compress(tarred(ZEROS))], ids=["zip", "gz", "bz2"]
)
def test_a_bomb_is_stopped_by_its_ratio(data: bytes, archive: Callable[[bytes], Path]) -> None:
    # 8 MiB from about 8 KiB: some 1000 times
    assert "200 times its own size" in str(refused(archive(data)))


def test_skipped_tar_members_count_since_they_are_decompressed(
    archive: Callable[[bytes], Path], tmp_path: Path
) -> None:
    data = gzip.compress(tarred({**ZEROS, **FILES}))
    with pytest.raises(LayoutError, match="200 times"):
        unpack(archive(data), tmp_path / "out", subfolder="set")


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_too_many_files_are_refused(
    pack: Callable[[dict[str, bytes]], bytes], archive: Callable[[bytes], Path]
) -> None:
    path = archive(pack({str(i): b"" for i in range(11)}))
    assert "more than 10 entries" in str(refused(path, limits=ArchiveLimits(files=10)))
    unpack(path, path.parent / "out", limits=ArchiveLimits(files=11))


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_too_many_bytes_are_refused(
    pack: Callable[[dict[str, bytes]], bytes], archive: Callable[[bytes], Path]
) -> None:
    path = archive(pack({"a": bytes(range(256)) * 40}))
    assert "more than 10,000 bytes" in str(refused(path, limits=ArchiveLimits(total_bytes=10_000)))


def test_a_zip_that_lies_about_its_size_is_not_believed(archive: Callable[[bytes], Path]) -> None:
    data = zipped({"a": b"x" * 5000})
    size = (5000).to_bytes(4, "little")
    assert data.count(size) == 2  # local and central header
    refused(archive(data.replace(size, (10).to_bytes(4, "little"))))


def test_a_huge_tar_header_is_not_read(archive: Callable[[bytes], Path]) -> None:
    name = tar_entry("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    name.size = 3 * 2**20
    assert "more than it may hold" in str(refused(archive(tarred({}, name))))


def test_a_tar_that_points_backwards_does_not_loop(archive: Callable[[bytes], Path]) -> None:
    header = bytearray(tarred({"a": b"", "b": b""})[:1024])
    header[512 + 124 : 512 + 136] = b"\xff" * 10 + b"\xfc\x00"  # the size of b: -1024 in base 256
    header[512 + 148 : 512 + 156] = b" " * 8
    header[512 + 148 : 512 + 156] = b"%06o\0 " % sum(header[512:1024])
    assert refused(archive(bytes(header) + b"\0" * 1024)).kind == "archive-damaged"


# Damaged ---------------------------------------------------------------------------------------------------------


def test_an_encrypted_zip_says_so(archive: Callable[[bytes], Path]) -> None:
    data = bytearray(zipped({"a": b"x"}))
    data[6] |= 1  # the flags of the local header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and of the central one
    error = refused(archive(bytes(data)))
    assert error.kind == "archive-encrypted"
    assert "password" in error.remedy


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_methods_that_cannot_be_counted_are_refused(method: int, archive: Callable[[bytes], Path]) -> None:
    assert refused(archive(zipped({"a": b"x"}, method))).kind == "archive-method"


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>Not found</html>" * 50, zipped(FILES)[:-30], gzip.compress(tarred(FILES))[:-40]],
    ids=["empty", "page", "zip", "gz"],
)
def test_what_is_no_archive_or_cut_short_is_damaged(data: bytes, archive: Callable[[bytes], Path]) -> None:
    assert refused(archive(data)).kind == "archive-damaged"


@pytest.mark.parametrize("length", [512 + 300, 512 + 1024, 512 + 1024 + 100])
def test_a_tar_cut_anywhere_is_damaged(length: int, archive: Callable[[bytes], Path]) -> None:
    # header 512, 700 bytes in two blocks, then the next header: cut in the data, between the files, in the header
    assert refused(archive(tarred(FILES)[:length])).kind == "archive-damaged"


def test_a_name_no_disk_can_hold_is_refused(archive: Callable[[bytes], Path]) -> None:
    assert "more than 255 bytes" in str(refused(archive(zipped({"q" * 300: b"x"})), UnsafePathError))


def test_a_spoilt_byte_in_a_zip_is_noticed(archive: Callable[[bytes], Path]) -> None:
    data = zipped({"a": b"hello world"}, zipfile.ZIP_STORED).replace(b"hello world", b"hello_world", 1)
    assert refused(archive(data)).kind == "archive-damaged"


@settings(max_examples=150, deadline=None)
@given(
    whole=st.sampled_from([zipped(FILES), tarred(FILES), gzip.compress(tarred(FILES)), lzma.compress(tarred(FILES))]),
    spoilt=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    kept=st.floats(0, 1),
)
def test_spoilt_archives_unpack_or_leave_nothing(
    whole: bytes, spoilt: Iterable[tuple[float, int]], kept: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spoilt")
    data = bytearray(whole)
    for place, value in spoilt:
        data[int(place * len(data))] = value
    path = folder / "given"
    path.write_bytes(data[: round(kept * len(data))] if kept < 0.5 else data)
    try:
        unpack(path, folder / "out")
    except DataError:
        assert [p.name for p in folder.iterdir()] == ["given"]


# The digest of a tree --------------------------------------------------------------------------------------------


def test_tree_digest_is_the_digest_of_sorted_lines(tmp_path: Path) -> None:
    unpack_into = tmp_path / "set"
    for name in ("b.txt", "a/z.txt", "other/x"):
        (unpack_into / name).parent.mkdir(parents=True, exist_ok=True)
        (unpack_into / name).write_bytes(name.encode())
    z = f"a/z.txt {hashlib.sha256(b'a/z.txt').hexdigest()}\n"
    b = f"b.txt {hashlib.sha256(b'b.txt').hexdigest()}\n"
    x = f"other/x {hashlib.sha256(b'other/x').hexdigest()}\n"
    assert tree_digest(unpack_into) == hashlib.sha256((z + b + x).encode()).hexdigest()
    assert tree_digest(unpack_into, ["other", "a"]) == hashlib.sha256((z + x).encode()).hexdigest()


def test_tree_digest_sees_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    first = tree_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = tree_digest(tmp_path)
    (tmp_path / "b").write_bytes(b"y")
    assert len({first, second, tree_digest(tmp_path)}) == 3
