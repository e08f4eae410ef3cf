"""Every string in a file that could become a path, and every way to make it lead out: nothing outside is opened.

A door is a kind of file that names others. Each is given the same names; an audit hook watches whether the file outside
is opened while the set is examined from end to end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftcseg import api
from ftcseg.data.fetch import fetch
from ftcseg.data.index import open_source
from ftcseg.data.sets.sheet import Download
from ftcseg.data.split_files import read_split
from ftcseg.errors import FetchError, FtcsegError
from ftcseg.files import MAX_DEPTH, inside, parse_json, parse_yaml, read_json, read_text, read_yaml, shown
from picture_sets import picture, save

_watching: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _watching.append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_hook)  # it cannot be taken away again, but it sleeps


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The real paths of every file opened meanwhile."""
    global _watching
    _watching = found = []
    try:
        yield found
    finally:
        _watching = None


NAMES: dict[str, Callable[[Path], str]] = {
    "climbs": lambda secret: f"../{secret.name}",
    "climbs further": lambda secret: f"images/../../{secret.name}",
    "climbs by backslashes": lambda secret: f"..\\{secret.name}",
    "absolute": str,
    "home": lambda secret: f"~/{secret.name}",
    "an address": lambda secret: f"file://{secret}",
    "a drive": lambda _: "C:\\secret.png",
    "a share": lambda _: "\\\\server\\share\\secret.png",
    "by a link": lambda _: "images/link.png",
    "through a linked folder": lambda secret: f"outside/{secret.name}",
    "NUL": lambda secret: f"../{secret.name}\0.png",
    "device": lambda _: "/dev/zero",
    "Windows device": lambda _: "images/con.png",
    "too long": lambda _: f"images/{'a' * 300}.png",
    "far too long": lambda _: "a/" * 4000 + "b.png",
    "half a character": lambda _: "images/\ud83d.png",
    "empty": lambda _: "",
    "dot": lambda _: ".",
}


AT_EVERY_DOOR = (
    *("climbs", "climbs by backslashes", "absolute", "an address", "by a link", "through a linked folder", "NUL"),
    *("device", "too long", "half a character"),
)
"""The others differ for `inside` alone."""


def _json(root: Path, name: str, value: object) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(value))


def _manifest(root: Path, name: str) -> None:
    lines = [{"image": "images/a.png", "mask": "masks/a.png"}, {"image": name}, {"image": "images/a.png", "mask": name}]
    (root / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _lists(root: Path, name: str) -> None:
    for file, text in {
        "labeled.txt": f"images/a.png masks/a.png\n{name}\n",
        "val.txt": f"images/a.png {name}\n",
    }.items():
        (root / file).write_text(text, encoding="utf-8", errors="surrogatepass")


def _coco(root: Path, name: str) -> None:
    images = [{"id": i, "file_name": f, "width": 5, "height": 4} for i, f in enumerate(("a.png", name))]
    outline = {"segmentation": [[0, 0, 4, 0, 4, 3]], "category_id": 1, "iscrowd": 0, "area": 6, "bbox": [0, 0, 4, 3]}
    annotations = [{"id": i, "image_id": i, **outline} for i in range(2)]
    categories = [{"id": 1, "name": "tire"}]
    _json(root, "annotations.json", {"images": images, "annotations": annotations, "categories": categories})


def _labelme(root: Path, name: str) -> None:
    shape = {"label": "tire", "points": [[0, 0], [4, 0], [4, 3]], "shape_type": "polygon"}
    facts = {"version": "5", "flags": {}, "shapes": [shape], "imageData": None, "imageHeight": 4, "imageWidth": 5}
    _json(root, "images/a.json", {**facts, "imagePath": "a.png"})
    _json(root, "images/b.json", {**facts, "imagePath": name})


def _cvat(root: Path, name: str) -> None:
    from xml.sax.saxutils import quoteattr

    named = "".join(c for c in name if c not in "\0\ud83d") or "x"  # XML itself has no such characters
    images = "".join(
        f'<image id="{i}" name={quoteattr(n)} width="5" height="4">'
        '<polygon label="tire" points="0,0;4,0;4,3" z_order="0"/></image>'
        for i, n in enumerate(("images/a.png", named))
    )
    (root / "annotations.xml").write_text(f"<annotations><version>1.1</version>{images}</annotations>")


def _label_studio(root: Path, name: str) -> None:
    value = {"points": [[20, 25], [80, 25], [80, 75]], "polygonlabels": ["tire"], "closed": True}
    result = [{"type": "polygonlabels", "value": value, "original_width": 5, "original_height": 4, "id": "x"}]
    addresses = ("images/a.png", name, f"/data/local-files/?d={name}")
    tasks = [
        {"id": i, "data": {"image": n}, "annotations": [{"id": 1, "result": result}]} for i, n in enumerate(addresses)
    ]
    _json(root, "export.json", tasks)


def _ultralytics(root: Path, name: str) -> None:
    (root / "labels").mkdir(exist_ok=True)
    (root / "labels/a.txt").write_text("0 0.1 0.1 0.9 0.1 0.9 0.9\n")
    (root / "data.yaml").write_text(json.dumps({"path": ".", "train": "images", "val": name, "names": ["tire"]}))


def _described(root: Path, name: str) -> None:
    (root / "dataset.yaml").write_text(json.dumps({"ftcseg": 1, "manifest": name, "classes": {"0": "a", "1": "b"}}))


def _described_parts(root: Path, name: str) -> None:
    (root / "dataset.yaml").write_text(json.dumps({"ftcseg": 1, "parts": {"val": name}}))


DOORS = {
    "manifest": _manifest,
    "lists": _lists,
    "COCO": _coco,
    "LabelMe": _labelme,
    "CVAT": _cvat,
    "Label Studio": _label_studio,
    "Ultralytics": _ultralytics,
    "dataset.yaml, manifest": _described,
    "dataset.yaml, parts": _described_parts,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_opens_nothing_outside(door: str, tmp_path: Path) -> None:
    for number, kind in enumerate(AT_EVERY_DOOR):
        make = NAMES[kind]
        base = tmp_path / str(number)
        root = base / "set"
        secret = save(base / "secret.png", picture(1))
        save(root / "images/a.png", picture(2))
        save(root / "masks/a.png", np.eye(4, 5))
        (root / "images/link.png").symlink_to(secret)
        (root / "outside").symlink_to(base)
        DOORS[door](root, make(secret))
        with opened_files() as seen:
            try:
                found = api.doctor(root, workers=1)
                told = " ".join(f"{f.kind} {f.detail} {f.remedy}" for f in found.findings)
            except FtcsegError as error:
                told = str(error)
        assert str(secret) not in seen, (kind, told)
        assert "/dev/zero" not in seen, kind
        assert told, kind  # links lie about in all of them, so that something is always said


LAYOUTS = {
    "manifest": "manifest",
    "lists": "lists",
    "COCO": "coco",
    "LabelMe": "labelme",
    "CVAT": "cvat-xml",
    "Label Studio": "label-studio",
    "Ultralytics": "ultralytics-polygons",
    "dataset.yaml, manifest": "manifest",
    "dataset.yaml, parts": "images-masks",
}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_leads_to_what_lies_inside(door: str, tmp_path: Path) -> None:
    save(tmp_path / "images/a.png", picture(2))
    save(tmp_path / "masks/a.png", np.eye(4, 5))
    name = {"Ultralytics": "images", "dataset.yaml, parts": "list.txt"}.get(door, "images/a.png")
    if door == "dataset.yaml, manifest":
        _manifest(tmp_path, name)
        name = "manifest.jsonl"
    (tmp_path / "list.txt").write_text("images/a.png\n")
    DOORS[door](tmp_path, name)
    found = open_source(tmp_path).found
    assert found.layout == LAYOUTS[door]
    assert "images/a.png" in [record.image for record in found.records]


def test_the_watch_is_awake(tmp_path: Path) -> None:
    secret = save(tmp_path / "secret.png", picture(1))
    with opened_files() as seen:
        secret.read_bytes()
    assert str(secret.resolve()) in seen


@pytest.mark.parametrize("kind", NAMES)
def test_the_one_function_refuses_them_all(kind: str, tmp_path: Path) -> None:
    root, secret = tmp_path / "set", tmp_path / "secret.png"
    (root / "images").mkdir(parents=True)
    secret.touch()
    (root / "images/link.png").symlink_to(secret)
    (root / "outside").symlink_to(tmp_path)
    name = NAMES[kind](secret)
    if kind in ("home", "an address"):  # names like others, below the root: nobody expands them
        assert inside(root, name).is_relative_to(root)
        return
    with pytest.raises(FtcsegError, match="The path"):
        inside(root, name)


def test_a_split_names_images_of_its_set_alone(tmp_path: Path) -> None:
    from ftcseg.data.dataset import open_dataset

    root = tmp_path / "set"
    secret = save(tmp_path / "secret.png", picture(1))
    for name in "abc":
        save(root / f"images/{name}.png", picture(ord(name)))
        save(root / f"masks/{name}.png", np.eye(4, 5))
    api.split(root, labels="2", val="1", out=tmp_path / "split")
    note = tmp_path / "split/split.json"
    data = json.loads(note.read_text())
    data["labeled"] = ["../secret.png"]
    note.write_text(json.dumps(data))
    with pytest.raises(FtcsegError, match=r"split\.json do not match its hash"):
        read_split(note)
    with opened_files() as seen, pytest.raises(FtcsegError, match=r"\.\./secret\.png"):
        open_dataset(root).only(["../secret.png"])  # also where somebody forges the hash
    assert str(secret) not in seen


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://x.example/a", "data:,a", "/etc/passwd", "HTTP+unix://x", "gopher://x", ""]
)
def test_an_address_is_of_the_web_or_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="Only http and https"):
        fetch(address, tmp_path / "a")


@pytest.mark.parametrize("path", ["%2e%2e%2fsecret", "a/..%2f..%2fsecret", "%00", "a" * 400, "..", ""])
def test_a_download_is_named_inside_its_folder(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftcseg.data import fetch as module

    asked: list[Path] = []
    monkeypatch.setattr(module, "fetch", lambda url, target, **_: asked.append(target))
    monkeypatch.setattr(module, "unpack", lambda *_, **__: (_ for _ in ()).throw(FetchError("enough")))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    download = Download(url=f"https://x.example/{path}", checksum=None, size=None)
    with pytest.raises(FtcsegError):
        module._install(download, tmp_path / "set", module.quiet, module.LIMITS)
    assert all(target.parent == tmp_path / ".downloads" for target in asked)


# ---------------------------------------------------------------- text


DEEP = MAX_DEPTH + 1


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ('["[", ', "]"), (r'["\\", ', "]"), (r'["\"[", ', "]")],
)
def test_json_may_be_so_deep_and_no_deeper(opening: str, closing: str, tmp_path: Path) -> None:
    levels = len(closing)
    for depth in (MAX_DEPTH // levels, MAX_DEPTH // levels + 1):
        text = opening * depth + "1" + closing * depth
        (tmp_path / "a.json").write_text(text)
        if depth * levels <= MAX_DEPTH:
            assert parse_json(text) == json.loads(text) == read_json(tmp_path / "a.json")
            continue
        with pytest.raises(ValueError, match="more than 64 deep"):
            parse_json(text)
        with pytest.raises(FtcsegError, match=r"a\.json is nested too deeply"):
            read_json(tmp_path / "a.json")


def test_brackets_in_strings_are_no_depth() -> None:
    for text in ("[" * 500, '"[' * 300, "\\[" * 300, '\\"[{' * 300, "]" * 300 + "[" * 400):
        value = [text, {text: text}]
        assert parse_json(json.dumps(value)) == value
    assert parse_json(b"[" + b"[]," * 1000 + b"[]]")[-1] == []


def test_many_values_are_no_depth() -> None:
    value = [[[i]] for i in range(5000)]
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["a: &x [1, *x]", "a: &x {b: *x}", "&x {a: {b: [*x]}}", "&x [*x]"])
def test_yaml_that_contains_itself_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(FtcsegError, match=r"a\.yaml holds a value that contains itself \(\*x\)"):
        read_yaml(tmp_path / "a.yaml")
    with pytest.raises(FtcsegError, match="is no value"):
        parse_yaml(text)


def test_yaml_may_refer_to_what_is_finished(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &x [1, 2]\nb: *x\nc: {<<: {d: *x}}")
    assert read_yaml(tmp_path / "a.yaml") == {"a": [1, 2], "b": [1, 2], "c": {"d": [1, 2]}}


@pytest.mark.parametrize("text", ["[" * 3000, "[" * 2000 + "]" * 2000, "2024-13-45", "!!python/name:os.system"])
def test_a_value_on_the_command_line_is_plain(text: str) -> None:
    with pytest.raises(FtcsegError, match="is no value"):
        parse_yaml(text)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dataset.yaml")
    with pytest.raises(FtcsegError, match=r"dataset\.yaml cannot be read: it is a pipe"):
        read_text(tmp_path / "dataset.yaml")
    with pytest.raises(FtcsegError, match="/dev/zero cannot be read"):
        read_text(Path("/dev/zero"))
    save(tmp_path / "images/a.png", picture(0))
    assert [record.image for record in open_source(tmp_path).found.records] == ["images/a.png"]  # it is no file


def test_what_steers_a_terminal_is_spelled_out() -> None:
    assert shown("a\x1b[2Jb\u202ec\n\x9bd\ud83d") == r"a\x1b[2Jb\u202ec\x0a\x9bd\ud83d"
    assert shown("Größe 影像 🦐 e\u0301") == "Größe 影像 🦐 e\u0301"
