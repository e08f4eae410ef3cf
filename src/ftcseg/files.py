"""Reading what strangers wrote, and writing so that nothing is half there.

One function decides that a path stays inside its root (`inside`); text formats are read with limits on size and depth;
files are written to a temporary neighbour, flushed and renamed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import yaml

from ftcseg.errors import LayoutError, UnsafePathError

MAX_TEXT_BYTES = 64 * 2**20
"""Settings, lists and per-image annotations. COCO files may be larger: see MAX_ANNOTATION_BYTES."""
MAX_ANNOTATION_BYTES = 2 * 2**30
MAX_DEPTH = 64
MAX_ALIASES = 16
"""References in a YAML file. Three on each of five levels are 243 copies; each level more would triple them."""
MAX_NAME_BYTES = 4096
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same rules, eight times as fast where it was built
_ODD_BREAKS = {"\x85", "\u2028", "\u2029"}  # line breaks to YAML, which it would read back as spaces
_WINDOWS_DEVICES = {"con", "prn", "aux", "nul", *(f"{p}{i}" for p in ("com", "lpt") for i in range(1, 10))}


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`; UnsafePathError where it is absolute, climbs up or leaves by a link."""
    problem = _lexical_problem(name)
    if problem is None:
        path = root / name
        try:
            if path.resolve().is_relative_to(root.resolve()):
                return path
            problem = "leads outside the folder through a link"
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or half a character
            problem = f"cannot be followed ({error.__class__.__name__})"
    shown = name if len(name) <= 120 else f"{name[:100]}… ({len(name)} characters)"
    raise UnsafePathError(
        f"The path {shown!r} {problem}.",
        remedy=f"Only paths below {root} are read; correct the entry or copy the file there.",
    )


def _lexical_problem(name: str) -> str | None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not name or not parts:
        return "is empty"
    if "\0" in name:
        return "contains a NUL character"
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        return "is too long"
    if parts[0].startswith("/") or (len(parts[0]) >= 2 and parts[0][1] == ":"):
        return "is absolute"
    if ".." in parts:
        return "climbs out of the folder with '..'"
    if any(part.split(".")[0].rstrip().lower() in _WINDOWS_DEVICES for part in parts):
        return "names a device on Windows"
    return None


def relative(root: Path, path: Path) -> str:
    """`path` below `root`, with forward slashes on every platform."""
    return path.relative_to(root).as_posix()


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a file of bounded size; an unreadable, binary or oversized one is a LayoutError."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise LayoutError(
                f"{path} is {size:,} bytes; at most {limit:,} are read.",
                remedy="Is it the right file?",
                kind="too-large",
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LayoutError(
            f"{path} is not UTF-8 text (byte {error.start}).", remedy="Save it as UTF-8.", kind="not-text"
        ) from error
    except OSError as error:
        raise LayoutError(
            f"{path} cannot be read: {error.strerror}.", remedy="Check that it exists and may be read."
        ) from error


def read_json(path: Path, limit: int = MAX_TEXT_BYTES) -> Any:
    """Parsed JSON of bounded size; the parser's own recursion limit bounds its depth."""
    text = read_text(path, limit)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise LayoutError(f"{path} is nested too deeply.", remedy="Is it the right file?", kind="too-deep") from error
    except ValueError as error:  # also an integer of more digits than Python converts
        raise LayoutError(f"{path} is not valid JSON ({error}).", remedy="Export it again.") from error


def read_yaml(path: Path) -> Any:
    """Parsed YAML: plain values only, no tags that build objects, no alias bombs."""
    text = read_text(path, limit=MAX_TEXT_BYTES // 8)
    try:
        depth = aliases = 0
        for event in yaml.parse(text, Loader=_LOADER):
            aliases += isinstance(event, yaml.AliasEvent)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH or aliases > MAX_ALIASES:
                raise LayoutError(
                    f"{path} is nested more than {MAX_DEPTH} deep, or refers to itself more than {MAX_ALIASES} times.",
                    remedy="Write it out plainly.",
                    kind="too-deep",
                )
        return yaml.load(text, Loader=_LOADER)  # noqa: S506, a safe one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else "somewhere"
        what = getattr(error, "problem", None) or "not YAML"
        raise LayoutError(f"{path} is not valid YAML ({where}: {what}).", remedy="Mend that line.") from error
    except (
        RecursionError,
        ValueError,
    ) as error:  # ValueError: a date that is none, an integer of a million digits
        raise LayoutError(f"{path} is not valid YAML ({error}).", remedy="Mend that value.") from error


def to_yaml(value: object) -> str:
    """YAML in the order the keys were given."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
    if _ODD_BREAKS.isdisjoint(text):
        return text
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=110)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name only when it is whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """The whole text or nothing."""
    with atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """JSON, indented, whole or nothing; refuses NaN, which is not JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def cache_folder() -> Path:
    """Where remembered facts live: FTCSEG_CACHE, or the platform's cache folder. Nothing here is ever needed again."""
    chosen = os.environ.get("FTCSEG_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "ftcseg"


def parse_yaml(text: str) -> Any:
    """One plain value as YAML reads it: `2`, `null`, `[0.5, 2]`, `speckle`."""
    if len(text) > MAX_NAME_BYTES:
        raise LayoutError(f"A value of {len(text)} characters is too long.", remedy="Shorten it.")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LayoutError(f"{text!r} is no value.", remedy="Write a number, a word or a list: [1, 2].") from error
