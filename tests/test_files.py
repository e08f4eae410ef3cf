"""Paths that stay inside, text that stays small, files that are whole or absent."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from ftcseg import files
from ftcseg.errors import LayoutError, UnsafePathError
from ftcseg.files import atomic, inside, read_json, read_text, read_yaml, relative, to_yaml, write_json, write_text

# ---------------------------------------------------------------- inside


@pytest.mark.parametrize("name", ["a.png", "a/b.png", "./a.png", "a//b.png", "..a/b..png", "nullify.png", "a b/ü.png"])
def test_an_ordinary_name_stays_inside(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("name", ["Größe/影像/🦐.png", "e\u0301.png", "\u202eabc.png"])
def test_unicode_names_are_names_like_others(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x.png", "climbs out"),
        ("a/../../x.png", "climbs out"),
        ("a/..", "climbs out"),
        ("..\\x.png", "climbs out"),
        ("a\\..\\..\\x.png", "climbs out"),
        ("/etc/passwd", "absolute"),
        ("//server/share", "absolute"),
        ("\\\\server\\share", "absolute"),
        ("\\x.png", "absolute"),
        ("C:\\x.png", "absolute"),
        ("c:x.png", "absolute"),
        ("Z:/x.png", "absolute"),
        ("", "is empty"),
        (".", "is empty"),
        ("a\0.png", "NUL"),
        ("x" * 5000, "too long"),
        ("ü" * 2049, "too long"),  # 4098 bytes
        ("con", "device"),
        ("a/NUL.txt", "device"),
        ("aux.tar.gz", "device"),
        ("a/Com1 .png", "device"),
        ("lpt9/x.png", "device"),
    ],
)
def test_a_name_that_could_leave_is_refused(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UnsafePathError, match=why) as caught:
        inside(tmp_path, name)
    assert caught.value.kind == "unsafe-path"
    assert len(str(caught.value)) < 400 + len(str(tmp_path))  # however long the name was


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    # JSON can spell a lone surrogate, which no file name can hold.
    with pytest.raises(UnsafePathError, match="cannot be followed"):
        inside(tmp_path, json.loads('"\\ud800.png"'))


def test_a_link_out_of_the_root_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    for folder in (root / "real", secret):
        folder.mkdir(parents=True)
    (secret / "x.png").touch()
    (root / "out").symlink_to(secret)
    (root / "file.png").symlink_to(secret / "x.png")
    (root / "in").symlink_to(root / "real")
    for name in ("out/x.png", "out", "file.png", "in/../out/x.png"):
        with pytest.raises(UnsafePathError):
            inside(root, name)
    assert inside(root, "in/x.png") == root / "in/x.png"


def test_a_root_that_is_itself_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert inside(tmp_path / "link", "x.png") == tmp_path / "link" / "x.png"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="newer Pythons do not notice; whoever opens the file does")
def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnsafePathError, match="cannot be followed"):
        inside(tmp_path, "loop/x.png")


def test_relative_names_have_forward_slashes(tmp_path: Path) -> None:
    assert relative(tmp_path, tmp_path / "a" / "b.png") == "a/b.png"


# ---------------------------------------------------------------- text


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(tmp_path / "a.txt") == "abc"


def test_an_oversized_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(files.MAX_TEXT_BYTES + 1)  # sparse: nothing is written
    for read in (read_text, read_json, read_yaml):
        with pytest.raises(LayoutError, match="67,108,865 bytes") as caught:
            read(path)
        assert caught.value.kind == "too-large"


def test_what_is_not_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"name": "Gr\xf6\xdfe"}')
    for read in (read_text, read_json, read_yaml):
        with pytest.raises(LayoutError, match=r"a\.json is not UTF-8 text \(byte 12\)") as caught:
            read(path)
        assert caught.value.kind == "not-text"


def test_a_missing_file_and_a_folder_are_layout_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(LayoutError, match="cannot be read"):
            read_json(path)


def test_deep_json_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(LayoutError, match="nested too deeply") as caught:
        read_json(path)
    assert caught.value.kind == "too-deep"


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "9" * 5000, '{"a": 1} x'])
def test_what_is_no_json_is_a_layout_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(LayoutError, match=r"a\.json is not valid JSON"):
        read_json(path)


def yaml_of(tmp_path: Path, text: str) -> object:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path)


def test_yaml_of_plain_values(tmp_path: Path) -> None:
    assert yaml_of(tmp_path, "a: [1, x, {b: null}]\nc: &n 2\nd: *n\n") == {"a": [1, "x", {"b": None}], "c": 2, "d": 2}


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "a: !!python/name:os.system",
        "a: !!python/object:ftcseg.types.Record {}",
        "a: !mine 1",
    ],
)
def test_yaml_tags_build_nothing(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LayoutError, match=r"line 1: could not determine a constructor"):
        yaml_of(tmp_path, text)
    assert not (tmp_path / "owned").exists()


def test_deep_yaml_is_an_error_before_it_is_built(tmp_path: Path) -> None:
    assert yaml_of(tmp_path, "[" * 64 + "]" * 64) is not None
    with pytest.raises(LayoutError) as caught:
        yaml_of(tmp_path, "[" * 5000 + "]" * 5000)
    assert caught.value.kind == "too-deep"


def test_an_alias_bomb_is_an_error_before_it_is_built(tmp_path: Path) -> None:
    # Ten levels of nine references each would be 9^9 = 387 million words.
    levels = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    levels += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(LayoutError) as caught:
        yaml_of(tmp_path, "\n".join(levels))
    assert caught.value.kind == "too-deep"


def test_an_alias_bomb_of_few_references_is_one_too(tmp_path: Path) -> None:
    # Three references on each of twenty levels are only 60, and 3^20 = 3.5 billion words.
    levels = ["k0: &k0 [x]", *(f"k{i}: &k{i} [*k{i - 1}, *k{i - 1}, *k{i - 1}]" for i in range(1, 21))]
    with pytest.raises(LayoutError) as caught:
        yaml_of(tmp_path, "\n".join(levels))
    assert caught.value.kind == "too-deep"


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\ta: 1", "a: 2024-13-45", "a: \x01", "9" * 5000, "*nobody"])
def test_what_is_no_yaml_is_a_layout_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(LayoutError, match=r"a\.yaml is not valid YAML"):
        yaml_of(tmp_path, text)


def test_yaml_is_written_in_the_order_it_is_given() -> None:
    assert to_yaml({"z": 1, "a": "größer", "m": [1]}) == "z: 1\na: größer\nm:\n- 1\n"


def test_odd_line_breaks_survive_yaml(tmp_path: Path) -> None:
    assert yaml_of(tmp_path, to_yaml({"ü": "a\x85b\u2028c\u2029d"})) == {"ü": "a\x85b\u2028c\u2029d"}


# ---------------------------------------------------------------- atomic


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.bin"
    with atomic(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]


def write_half(path: Path, error: type[BaseException]) -> None:
    with atomic(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    old, new = tmp_path / "old.bin", tmp_path / "new.bin"
    old.write_bytes(b"old")
    for path in (old, new):
        with pytest.raises(error):
            write_half(path, error)
    assert old.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.bin"]


def test_a_folder_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_text(tmp_path / "a", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".txt")  # 244 of the 255 bytes a name may have
    write_text(path, "x")
    assert path.read_text() == "x"


@pytest.mark.skipif(os.name == "nt", reason="no such permissions there")
def test_a_written_file_has_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_json_is_readable_and_refuses_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "b": 1,\n  "a": "ü"\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b.json", {"a": float("nan")})
    assert not (tmp_path / "b.json").exists()


# ---------------------------------------------------------------- cache


def test_the_cache_folder_is_chosen_by_the_user_then_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("FTCSEG_CACHE", "/mine")
    assert files.cache_folder() == Path("/mine")
    monkeypatch.delenv("FTCSEG_CACHE")
    assert files.cache_folder() == Path("/x/ftcseg")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert files.cache_folder() == Path.home() / ".cache" / "ftcseg"
