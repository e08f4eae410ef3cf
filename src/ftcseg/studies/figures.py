"""A study's pictures: what they show, apart from how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Value:
    """A height, and how far it may be off on either side."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars side by side: one block a group, one bar a series in each block."""

    name: str
    """Of the files."""
    title: str
    label: str
    """What the heights are, with the unit."""
    groups: tuple[str, ...]
    series: tuple[tuple[str, tuple[Value | None, ...]], ...]
    """(name, a value for each group)."""
    spread: str = ""
    """What the spreads are, such as «standard deviation over 3 seeds»; told beside the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Values over something."""

    name: str
    title: str
    label: str
    across: str
    """What runs along the bottom."""
    series: tuple[tuple[str, tuple[tuple[float, Value], ...]], ...]
    """(name, places from left to right)."""
    chosen: float | None = None
    """A place along the bottom that is marked as the default."""
    log: bool = False
    """Whether the bottom axis multiplies rather than adds."""
    spread: str = ""
    """What the spreads are; told beside the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """A grid of images that were drawn before."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Path, ...]], ...]
    """(caption, an image for each head)."""
    key: tuple[tuple[str, str], ...] = ()
    """What a colour stands for: (name, #rrggbb)."""


Figure: TypeAlias = Bars | Lines | Pictures
