"""Write requirements-hashed.txt: the versions of constraints.txt, each with the hashes of its files.

.venv/bin/python scripts/lock.py
.venv/bin/python scripts/lock.py --index https://pypi.example/simple

Run it whenever constraints.txt changes. torch is left out; docs/adr/0017-supply-chain.md says why.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from distributions import ROOT, Pin, pins
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

LOCK = ROOT / "requirements-hashed.txt"
UNHASHED = frozenset({"torch"})
"""Its builds for the CPU and for each accelerator share a version and come from places of their own."""
OLDEST = 311
"""CPython 3.11: files for older ones are left out, and so are those for other Pythons."""
INDEX = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
LARGEST_PAGE = 64_000_000  # bytes
HEAD = """\
# Written by scripts/lock.py from constraints.txt; not to be edited.
# Every file of these versions that CPython 3.11 or newer can install, on any platform. torch is not among them: its
# builds for the CPU and for each accelerator differ. «make setup-locked» installs these, then torch, then ftcseg.
"""
_WHEEL_PYTHON = re.compile(r"cp3(\d+)")


class File(NamedTuple):
    """One file of a release."""

    name: str
    sha256: str
    withdrawn: bool


class Refused(Exception):
    """The index does not have what constraints.txt asks for."""


def files_on(page: str, kind: str) -> list[File]:
    """What a project's page of an index lists, in HTML or JSON; files without a SHA-256 are left out."""
    if "json" in kind:
        files = json.loads(page)["files"]
        listed = iter([(file["filename"], file["hashes"].get("sha256"), file.get("yanked")) for file in files])
    else:
        reader = _Links()
        reader.feed(page)
        listed = iter(reader.found)
    return [File(name, sha256, withdrawn not in (None, False)) for name, sha256, withdrawn in listed if sha256]


class _Links(HTMLParser):
    """The links of a page: file name, hash, and what it says about its withdrawal."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "a" and (href := told.get("href")):
            parts = urlsplit(href)
            kind, _, value = parts.fragment.partition("=")
            withdrawn = (told["data-yanked"] or True) if "data-yanked" in told else None
            self.found.append((unquote(parts.path.rsplit("/", 1)[-1]), value if kind == "sha256" else None, withdrawn))


def installable(file: str, version: str) -> bool:
    """Whether it is a file of this version that CPython 3.11 or newer can install."""
    try:
        if not file.endswith(".whl"):
            return parse_sdist_filename(file)[1] == Version(version)
        _, found, _, tags = parse_wheel_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return False  # an installer for Windows, an egg, or older than the rules for names
    return found == Version(version) and any(_runs(tag.interpreter, tag.abi) for tag in tags)


def _runs(interpreter: str, abi: str) -> bool:
    if interpreter == "py3":
        return True
    made_for = _WHEEL_PYTHON.fullmatch(interpreter)
    return made_for is not None and (abi == "abi3" or 300 + int(made_for[1]) >= OLDEST)


def hashes_of(pin: Pin, listed: Iterable[File]) -> list[str]:
    """The hashes of a version's files, sorted; it must be there, and not all of it withdrawn."""
    files = [file for file in listed if installable(file.name, pin.version)]
    if not files:
        raise Refused(f"The index has no file of {pin.name} {pin.version} with a SHA-256.")
    if all(file.withdrawn for file in files):
        raise Refused(f"{pin.name} {pin.version} was withdrawn by its authors. Choose another in constraints.txt.")
    return sorted({file.sha256 for file in files})


def lines_for(pin: Pin, hashes: Iterable[str]) -> str:
    """One requirement, as pip reads it."""
    head = f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")
    return " \\\n".join((head, *(f"    --hash=sha256:{value}" for value in hashes)))


def locked(text: str) -> dict[tuple[str, str], int]:
    """How many hashes a lock holds for each name and version."""
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return {_named(line): len(re.findall(r"--hash=sha256:[0-9a-f]{64}(?![0-9a-f])", line)) for line in lines}


def _named(line: str) -> tuple[str, str]:
    name, version = line.split()[0].split("==")
    return name, version


def fetched(index: str) -> Callable[[Pin], str]:
    """From a pin to its lines, by asking an index."""

    def ask(pin: Pin) -> str:
        name = re.sub(r"[-_.]+", "-", pin.name).lower()
        headers = {"Accept": f"{JSON}, text/html;q=0.5"}
        request = urllib.request.Request(f"{index.rstrip('/')}/{name}/", headers=headers)  # noqa: S310 - main sees to https
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            page, kind = answer.read(LARGEST_PAGE).decode(), answer.headers.get_content_type()
        return lines_for(pin, hashes_of(pin, files_on(page, kind)))

    return ask


def main() -> int:
    """Write the lock; 1 where the index does not have what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", default=INDEX, help="by default %(default)s; its name is not written")
    index = parser.parse_args().index
    if not index.startswith("https://"):
        parser.error("an index is asked over https only")
    wanted = [pin for name, pin in pins().items() if name not in UNHASHED]
    try:
        with ThreadPoolExecutor(4) as pool:
            entries = list(pool.map(fetched(index), wanted))
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    LOCK.write_text(HEAD + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"{LOCK.name}: {len(entries)} versions, {sum(locked(LOCK.read_text()).values())} hashes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
