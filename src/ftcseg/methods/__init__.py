"""One file per paper. A method's step reads like its algorithm box; the parts are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from ftcseg.errors import UsageError, unknown_name
from ftcseg.methods.base import Method
from ftcseg.methods.crest import CReST, CReSTParams
from ftcseg.methods.fixmatch import FixMatch
from ftcseg.methods.ftc import FTCParams, FTCSeg
from ftcseg.methods.kit import Kit
from ftcseg.methods.supervised import Supervised
from ftcseg.methods.unimatch_v2 import UniMatchV2, UniMatchV2Params

GROUP = "ftcseg.methods"
"""Entry points of this group are methods of other packages, each an Entry."""


@dataclass(frozen=True, slots=True)
class NoParams:
    """For methods that have no settings of their own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: who wrote it, what it does, its own settings, how it is put together."""

    title: str
    paper: str
    year: int
    line: str
    build: Callable[[Kit, Any], Method]
    params: type = NoParams
    """A frozen dataclass: the settings `params.NAME=value`."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Values of the run that this method wants other than the defaults, nested as in a preset file."""


METHODS: Mapping[str, Entry] = {
    "supervised": Entry(
        "Labelled only",
        "",
        2015,
        "cross-entropy on the labelled images; the line to beat",
        lambda kit, _: Supervised(kit.pair()),
    ),
    "fixmatch": Entry(
        "FixMatch",
        "Sohn et al.",
        2020,
        "one strong view, an EMA teacher, a fixed threshold",
        lambda kit, _: FixMatch(kit.pair()),
    ),
    "unimatch-v2": Entry(
        "UniMatch V2",
        "Yang et al.",
        2025,
        "two strong views with complementary dropout; the paper's EMA baseline M2",
        lambda kit, params: UniMatchV2(kit.pair(), params, kit.seed),
        UniMatchV2Params,
    ),
    "ftc": Entry(
        "FTC-Seg",
        "FTC-Seg",
        2026,
        "M2 with orthogonal prototypes (OPR) and class thresholds (ATC)",
        lambda kit, params: FTCSeg(kit.pair(), params, kit.seed),
        FTCParams,
    ),
    "crest": Entry(
        "CReST",
        "Wei et al.",
        2021,
        "FixMatch in generations: each learns what the last was surest of, rare classes first",
        lambda kit, params: CReST(kit, params, align=False),
        CReSTParams,
    ),
    "crest-plus": Entry(
        "CReST+",
        "Wei et al.",
        2021,
        "CReST whose pseudo-labels are held to the class shares of the labels",
        lambda kit, params: CReST(kit, params, align=True),
        CReSTParams,
    ),
}


def find_method(name: str, also: tuple[str, ...] = ()) -> Entry:
    """A method of the table, or one that another installed package offers under this name.

    `also` are names that exist too, for the error's list.
    """
    if name in METHODS:
        return METHODS[name]
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        raise unknown_name("method", name, [*METHODS, *also, *offered])
    entry = offered[name].load()
    if not isinstance(entry, Entry):
        raise UsageError(f"{offered[name].value} is offered as the method {name}, but it is no ftcseg.methods.Entry.")
    return entry
