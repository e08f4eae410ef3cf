"""Our manifest: one line of JSON for each image.

    {"image": "a/b.png", "mask": "m/b.png", "part": "train"}
    {"image": "a/c.png"}                                                           unlabelled, to train on
    {"image": "a/d.png", "masks": {"1": "wreck/d.png", "2": "rope/d.png"}, "part": "val"}

The folder's manifest is manifest.jsonl or records.jsonl. The same objects may also stand in a list, alone or under
`records:`, in a YAML or JSON file. Paths are relative to the set's root. An image without mask is unlabelled; `masks`
gives one on/off picture per class id, later ones painted over earlier ones.

Lines are read one at a time, so a million of them cost seconds and little more memory than their records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias

from ftcseg.data.files_found import Tally, found, text_file
from ftcseg.errors import LayoutError, UnsafePathError, UsageError
from ftcseg.files import atomic, inside, parse_json, read_json, read_yaml
from ftcseg.types import PARTS, ClassFiles, Finding, Found, MaskFile, MaskRef, Part, Record, Shapes

LAYOUT = "manifest"
NAMES = ("manifest.jsonl", "records.jsonl")
MAX_LINE_BYTES = 2**20
MAX_CLASS_ID = 2**15 - 1  # class ids are int16
_KEYS = frozenset({"image", "mask", "masks", "part"})
_PARTS: dict[object, Part] = {part: part for part in PARTS}

_Entry: TypeAlias = tuple[str, dict[str, Any]]
"""Where it stands («line 7») and what stands there."""


def can_read(root: Path) -> bool:
    """Whether there is a manifest at the root."""
    return text_file(root, NAMES) is not None


def records(root: Path) -> Found:
    """The records of the root's manifest."""
    name = text_file(root, NAMES)
    if name is None:
        raise LayoutError(f"There is no {NAMES[0]} in {root}.", remedy="Give the path of the manifest itself.")
    return read_manifest(root, inside(root, name))


def read_manifest(root: Path, file: Path) -> Found:
    """The records of a .jsonl, .json or .yaml manifest whose paths are relative to `root`."""
    tally, paths, seen, listed = Tally(), _Paths(root), set[str](), list[Record]()
    for where, entry in _lines(file) if file.suffix.lower() == ".jsonl" else _listed(file):
        try:
            record = _record(entry, paths)
        except UnsafePathError as error:
            finding = Finding("unsafe-path", file.name, f"{where}: {error.what}", error.remedy, severity="error")
            tally.add(finding, file.name)
            continue
        except LayoutError as error:
            raise LayoutError(f"{file.name}, {where}: {error.what}", remedy=error.remedy, kind=error.kind) from error
        if record.image in seen:
            detail = f"{where}: {record.image!r} is listed before; this entry is left out."
            tally.add(Finding("duplicate-image", file.name, detail, "List each image once."), file.name)
            continue
        seen.add(record.image)
        listed.append(record)
    return found(LAYOUT, root, listed, tally)


def write_manifest(path: Path, records: Iterable[Record]) -> None:
    """Write records as lines of JSON, one at a time; the file appears when it is whole."""
    with atomic(path) as file:
        for record in records:
            file.write(json.dumps(_entry(record), ensure_ascii=False).encode() + b"\n")


def _lines(path: Path) -> Iterator[_Entry]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_bounded(file, path), 1):
                if line.strip():
                    yield f"line {number}", _parsed(line, path, number)
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}.", remedy="Check that it may be read.") from error


def _bounded(file: IO[bytes], path: Path) -> Iterator[bytes]:
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise LayoutError(
                f"{path.name}, line {number} has more than {MAX_LINE_BYTES:,} bytes.",
                remedy="Write one object a line; a list of objects belongs into a .json file.",
                kind="too-large",
            )
        yield line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        entry = parse_json(line)
    except ValueError as error:  # ValueError: no JSON, or not UTF-8
        raise LayoutError(f"{path.name}, line {number} is not JSON ({error}).", remedy="Mend that line.") from error
    return _object(entry, path, f"line {number}")


def _listed(path: Path) -> Iterator[_Entry]:
    """The entries of a YAML or JSON list."""
    data = read_json(path) if path.suffix.lower() == ".json" else read_yaml(path)
    entries = data.get("records") if isinstance(data, dict) else data
    if not isinstance(entries, list):
        raise LayoutError(f"{path.name} holds no list of records.", remedy="Write «records:» and a list below it.")
    for number, entry in enumerate(entries, 1):
        yield f"record {number}", _object(entry, path, f"record {number}")


def _object(entry: object, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise LayoutError(f"{path.name}, {where} is no object.", remedy='Write {"image": "a.png", "mask": "b.png"}.')
    return entry


def _record(entry: dict[str, Any], paths: _Paths) -> Record:
    if not entry.keys() <= _KEYS:
        strange = next(str(key) for key in entry if key not in _KEYS)
        raise LayoutError(f"There is no key {strange[:80]!r}.", remedy=f"Known are {', '.join(sorted(_KEYS))}.")
    part = entry.get("part", "train")
    if part not in PARTS:
        raise LayoutError(f"There is no part {str(part)[:80]!r}.", remedy=f"Known are {', '.join(PARTS)}.")
    if "image" not in entry:
        raise LayoutError("There is no «image».", remedy='Write {"image": "a.png"}.')
    return Record(paths.safe(entry["image"]), _mask(entry, paths), _PARTS[part])


def _mask(entry: dict[str, Any], paths: _Paths) -> MaskRef | None:
    mask, masks = entry.get("mask"), entry.get("masks")
    if mask is not None and masks is not None:
        raise LayoutError("It has both «mask» and «masks».", remedy="Give one of them.")
    if masks is None:
        return None if mask is None else MaskFile(paths.safe(mask))
    if not isinstance(masks, dict) or not all(_is_class_id(key) for key in masks):
        raise LayoutError("«masks» is no table of class ids and paths.", remedy='Write {"1": "a.png", "2": "b.png"}.')
    return ClassFiles(tuple((int(key), paths.safe(path)) for key, path in masks.items())) if masks else None


def _is_class_id(key: object) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", str(key)) is not None and int(str(key)) <= MAX_CLASS_ID


class _Paths:
    """Names that stay below the root: `files.inside`, but following links once a folder, not for a million names.

    Whoever opens a file asks `inside` again, so a last part that is itself a link is met there.
    """

    # A name that can be neither a step up, nor a drive, nor a device: those have at most four letters.
    _PLAIN = re.compile(r"(?:[^\\/:.\0]{5,}|[0-9]+)(?:\.[^\\/:\0]*)?")

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: set[str] = set()

    def safe(self, name: object) -> str:
        """The name with single forward slashes; UnsafePathError where it leads out."""
        if not isinstance(name, str):
            raise LayoutError(f"{str(name)[:80]!r} is no path.", remedy="Paths are text in quotes.")
        if not name.isascii():
            _require_text(name)
        folder, _, last = name.rpartition("/")
        if folder in self._folders and len(last) < 256 and self._PLAIN.fullmatch(last):
            return name
        inside(self._root, name)
        clean = PurePosixPath(name.replace("\\", "/")).as_posix()
        folder = clean.rpartition("/")[0]
        if folder:
            inside(self._root, folder)
        self._folders.add(folder)
        return clean


def _require_text(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise LayoutError(f"The path {name[:120]!a} is not text.", remedy="Rename the file.") from error


def _entry(record: Record) -> dict[str, object]:
    entry: dict[str, object] = {"image": record.image}
    if isinstance(record.mask, MaskFile):
        entry["mask"] = record.mask.path
    elif isinstance(record.mask, ClassFiles):
        ids = [class_id for class_id, _ in record.mask.paths]
        if len(set(ids)) < len(ids):
            raise UsageError(
                f"{record.image} has two masks for one class, which a manifest cannot say. Join them first."
            )
        entry["masks"] = {str(class_id): path for class_id, path in record.mask.paths}
    elif isinstance(record.mask, Shapes):
        raise UsageError(
            f"The mask of {record.image} is drawn from {record.mask.path}, which a manifest cannot say."
            " Write the masks as pictures first."
        )
    return entry | {"part": record.part}
