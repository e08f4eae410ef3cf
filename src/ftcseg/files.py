"""Reading what strangers wrote, showing it, and writing so that nothing is half there.

One function decides that a path stays inside its root (`inside`); text formats are read with limits on size and depth;
what was read is shown without its power over a terminal or a line of text (`shown`); files are written to a temporary
neighbour, flushed and renamed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import yaml

from ftcseg.errors import LayoutError, NotWritten, UnsafePathError

MAX_TEXT_BYTES = 64 * 2**20
"""Settings, lists and per-image annotations. COCO files may be larger: see MAX_ANNOTATION_BYTES."""
MAX_ANNOTATION_BYTES = 2 * 2**30
MAX_DEPTH = 64
MAX_ALIASES = 16
"""References in a YAML file. Three on each of five levels are 243 copies; each level more would triple them."""
MAX_NAME_BYTES = 4096
MAX_PART_BYTES = 255
"""Between two slashes; no file system in use takes more."""
PART = ".part"
"""How the names of half-written files end; they begin with a dot."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same rules, eight times as fast where it was built
_ODD_BREAKS = {"\x85", "\u2028", "\u2029"}  # line breaks to YAML, which it would read back as spaces
_DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_STRINGS = re.compile(rb'"[^"]*(?:"|$)')
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(set(range(256)).difference(b'[]{}"'))
# Controls of terminals, of the direction of writing and of lines, and halves of characters, which no file can hold.
_POWERFUL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_HALVES = re.compile("[\\ud800-\\udfff]")
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
    if any(len(part.encode(errors="surrogatepass")) > MAX_PART_BYTES for part in parts):
        return f"has a part of more than {MAX_PART_BYTES} bytes"
    if parts[0].startswith("/") or (len(parts[0]) >= 2 and parts[0][1] == ":"):
        return "is absolute"
    if ".." in parts:
        return "climbs out of the folder with '..'"
    if any(part.split(".")[0].rstrip().lower() in _WINDOWS_DEVICES for part in parts):
        return "names a device on Windows"
    return None


def shown(text: object) -> str:
    """Text from data on one line of a terminal or a page: what would steer either is spelled out in ASCII."""
    return _POWERFUL.sub(_spelled, str(text))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # the pattern holds none beyond


def relative(root: Path, path: Path) -> str:
    """`path` below `root`, with forward slashes on every platform."""
    return path.relative_to(root).as_posix()


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a file of bounded size; an unreadable, binary or oversized one is a LayoutError."""
    try:
        return _read_bytes(path, limit).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise LayoutError(
            f"{path} is not UTF-8 text (byte {error.start}).", remedy="Save it as UTF-8.", kind="not-text"
        ) from error
    except OSError as error:
        raise LayoutError(
            f"{path} cannot be read: {error.strerror}.", remedy="Check that it exists and may be read."
        ) from error


def _read_bytes(path: Path, limit: int) -> bytes:
    """What a plain file holds. Opening a pipe would wait for ever, and a device has no end."""
    facts, content = path.stat(), b""
    if not stat.S_ISREG(facts.st_mode):
        what = "a folder" if stat.S_ISDIR(facts.st_mode) else "a pipe, a device or a socket"
        raise LayoutError(f"{path} cannot be read: it is {what}.", remedy="Is it the right file?")
    if facts.st_size <= limit:
        with path.open("rb") as file:
            content = file.read(min(limit, facts.st_size + 2**16) + 1)  # it may have grown
    if max(facts.st_size, len(content)) > limit:
        raise LayoutError(
            f"{path} is {max(facts.st_size, len(content)):,} bytes; at most {limit:,} are read.",
            remedy="Is it the right file?",
            kind="too-large",
        )
    return content


class TooDeep(ValueError):
    """Lists and tables that lie in each other more than MAX_DEPTH deep."""


def read_json(path: Path, limit: int = MAX_TEXT_BYTES) -> Any:
    """Parsed JSON of bounded size and depth."""
    text = read_text(path, limit)
    try:
        return parse_json(text)
    except TooDeep as error:
        raise LayoutError(f"{path} is nested too deeply.", remedy="Is it the right file?", kind="too-deep") from error
    except ValueError as error:  # also an integer of more digits than Python converts
        raise LayoutError(f"{path} is not valid JSON ({error}).", remedy="Export it again.") from error


def parse_json(text: str | bytes, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """One JSON value of at most MAX_DEPTH levels; whatever is wrong with it is a ValueError."""
    if _depth(text) > MAX_DEPTH:
        raise TooDeep(f"nested more than {MAX_DEPTH} deep")
    return json.loads(text, object_hook=object_hook)


def _depth(text: str | bytes) -> int:
    """How deep JSON is nested, or more where it is none. A hundred megabytes take a twentieth of their parsing."""
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:  # no need to look closer
        return 0
    if b"\\" in content:  # what is escaped ends no string; backslashes pair up from the left
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side change for no bracket whether it is within a string, and most strings hold none.
    marks = content.translate(_ONE_KIND, _NO_MARKS).replace(b'""', b"")
    brackets = _STRINGS.sub(b"", marks)
    if b"[" * (MAX_DEPTH + 1) in brackets:
        return MAX_DEPTH + 1
    for levels in range(MAX_DEPTH + 1):  # each round takes away what is innermost
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            return levels + fewer.count(b"[")
        brackets = fewer
    return MAX_DEPTH + 1


def read_yaml(path: Path) -> Any:
    """Parsed YAML: plain values only, no tags that build objects, no alias bombs."""
    text = read_text(path, limit=MAX_TEXT_BYTES // 8)
    try:
        _judge_yaml(text)
        return yaml.load(text, Loader=_LOADER)  # noqa: S506, a safe one
    except TooDeep as error:
        raise LayoutError(f"{path} {error}.", remedy="Write it out plainly.", kind="too-deep") from error
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


def _judge_yaml(text: str) -> None:
    """TooDeep before anything is built; a list that contains itself would have no end."""
    around: list[str | None] = []
    aliases = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if event.anchor in around:
                raise TooDeep(f"holds a value that contains itself (*{event.anchor})")
        if len(around) > MAX_DEPTH or aliases > MAX_ALIASES:
            raise TooDeep(f"is nested more than {MAX_DEPTH} deep, or refers to itself more than {MAX_ALIASES} times")


def to_yaml(value: object) -> str:
    """YAML in the order the keys were given."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
    if _ODD_BREAKS.isdisjoint(text):
        return text
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=110)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name only when it is whole and on disk; NotWritten where that is full."""
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=PART)
        with _renamed(handle, Path(temporary), path) as file:
            yield file


@contextmanager
def _renamed(handle: int, temporary: Path, path: Path) -> Iterator[IO[bytes]]:
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Whatever the disk says while `path` is written, as an error that names the file and the room that is left."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_TROUBLE:
            raise not_written(path, error) from error
        raise


def not_written(path: Path, error: OSError) -> NotWritten:
    """The error about a file that could not be written."""
    return NotWritten(
        f"{path} could not be written: {error.strerror or error} ({room_at(path)}). What was there before is "
        f"untouched. Make room, or see that the folder may be written; then give the same command again (a run: "
        f"--resume)."
    )


def room_at(path: Path) -> str:
    """How much fits onto the disk of a file, for people."""
    folder = next((place for place in path.absolute().parents if place.is_dir()), Path("/"))
    try:
        return f"{shutil.disk_usage(folder).free / 2**20:,.1f} MB are free there"
    except OSError:
        return "its disk cannot be looked at"


def is_leftover(path: Path) -> bool:
    """Whether this is what a process that was killed left of a file."""
    return path.name.startswith(".") and path.name.endswith(PART)


def sweep(folder: Path) -> int:
    """Remove what killed processes left half-written below a folder; returns how many files that were.

    Only for one whose writers are all known to be gone.
    """
    leftovers = [path for path in folder.rglob(f".*{PART}") if path.is_file()]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def write_text(path: Path, text: str) -> None:
    """The whole text or nothing."""
    with atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """JSON, indented, whole or nothing; refuses NaN, which is not JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if _HALVES.search(text):  # a name may hold half a character; only JSON's own escapes can say it
        text = json.dumps(value, indent=2, allow_nan=False)
    write_text(path, text + "\n")


def cache_folder() -> Path:
    """Where remembered facts live: FTCSEG_CACHE, or the platform's cache folder. Nothing here is ever needed again."""
    chosen = os.environ.get("FTCSEG_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "ftcseg"


def compiler_caches_here() -> None:
    """Let torch's compiler keep what it remembers in our cache, unless the user has chosen a place.

    It looks when it is first imported, as it is along with every optimiser and every export, and makes its folder.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "kernels"))


def parse_yaml(text: str) -> Any:
    """One plain value as YAML reads it: `2`, `null`, `[0.5, 2]`, `speckle`."""
    if len(text) > MAX_NAME_BYTES:
        raise LayoutError(f"A value of {len(text)} characters is too long.", remedy="Shorten it.")
    try:
        _judge_yaml(text)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: too deep, or a date that is none
        raise LayoutError(f"{text!r} is no value.", remedy="Write a number, a word or a list: [1, 2].") from error
