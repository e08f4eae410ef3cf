"""What the project asks for, and what that asks for in turn, read from pyproject.toml and from what is installed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CORE = ""
"""The name under which `asked_for` lists what is asked for without any extra."""


class Pin(NamedTuple):
    """A line of constraints.txt."""

    name: str
    """As the line spells it."""
    version: str
    marker: str | None = None


def asked_for() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for: under CORE, and under the name of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {CORE: project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in listed.items()}


def pins() -> dict[str, Pin]:
    """The exact versions of constraints.txt by canonical name."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            asked = Requirement(line)
            (exact,) = asked.specifier
            marker = None if asked.marker is None else str(asked.marker)
            found[str(canonicalize_name(asked.name))] = Pin(asked.name, exact.version, marker)
    return found


@cache
def installed() -> dict[str, Distribution]:
    """What this Python can import, by canonical name; the first on the path where there are two."""
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        found.setdefault(str(canonicalize_name(distribution.metadata["Name"])), distribution)
    return found


@cache
def needs_of(distribution: Distribution) -> tuple[Requirement, ...]:
    """All that it may ask for, extras included; read once, since metadata are long."""
    return tuple(Requirement(line) for line in distribution.requires or ())


def closure(
    asked: Iterable[Requirement], there: Mapping[str, Distribution], environment: Mapping[str, str] | None = None
) -> dict[str, Distribution | None]:
    """Everything that comes along with these, by canonical name; None where it is asked for and not installed."""
    place = {**default_environment(), **(environment or {})}
    found: dict[str, Distribution | None] = {}
    done: set[tuple[str, str]] = set()
    waiting = [one for one in asked if _applies(one, place, "")]
    while waiting:
        asking = waiting.pop()
        name = str(canonicalize_name(asking.name))
        found[name] = distribution = there.get(name)
        for extra in {"", *asking.extras}:
            if distribution is None or (name, extra) in done:
                continue
            done.add((name, extra))
            waiting += [need for need in needs_of(distribution) if _applies(need, place, extra)]
    return found


def _applies(asked: Requirement, place: Mapping[str, str], extra: str) -> bool:
    return asked.marker is None or asked.marker.evaluate({**place, "extra": extra})
