"""A step as a bar of three storeys, like a flame graph: the whole, its groups, its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ftcseg.bench.parts import GROUPS

EDGE, FILL = "│", "─"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a storey."""

    name: str
    share: float
    number: int
    """Its place in its storey: what tells colours and hatchings apart."""


def storeys(step: Mapping[str, Any]) -> list[list[Segment]]:
    """From the whole to the parts of a record's `step`, in one order: what belongs together is one above the other."""
    groups = [Segment(name, step["groups"][name], number) for number, name in enumerate(GROUPS)]
    inside = [part for parts in GROUPS.values() for part in parts]
    parts = [Segment(name, step["parts"][name]["share"], number) for number, name in enumerate(inside)]
    return [[Segment("step", sum(part.share for part in parts), 0)], groups, parts]


def widths(shares: Sequence[float], width: int) -> list[int]:
    """How many letters each share gets of a line: ends are rounded and not lengths, so that storeys stay in line."""
    total = sum(shares) or 1.0
    ends = [round(width * end / total) for end in accumulate(shares)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def line(segments: Sequence[Segment], width: int) -> list[tuple[Segment, str]]:
    """A storey as text, each stretch beginning with an edge and, as far as it goes, its name."""
    taken = widths([segment.share for segment in segments], width)
    return [(s, f"{EDGE}{s.name}"[:w].ljust(w, FILL)) for s, w in zip(segments, taken, strict=True) if w]
