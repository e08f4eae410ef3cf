"""One file per paper. A method's step reads like its algorithm box; the parts are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.methods.fixmatch import FixMatch
from ftcseg.methods.ftc import FTCParams, FTCSeg
from ftcseg.methods.supervised import Supervised
from ftcseg.methods.unimatch_v2 import UniMatchV2, UniMatchV2Params
from ftcseg.teaching.pair import Pair


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: who wrote it, what it does, how it is put together from a pair and a seed."""

    title: str
    paper: str
    year: int
    line: str
    build: Callable[[Pair, int], Method]


METHODS: Mapping[str, Entry] = {
    "supervised": Entry(
        "Labelled only",
        "",
        2015,
        "cross-entropy on the labelled images; the line to beat",
        lambda pair, _: Supervised(pair),
    ),
    "fixmatch": Entry(
        "FixMatch",
        "Sohn et al.",
        2020,
        "one strong view, an EMA teacher, a fixed threshold",
        lambda pair, _: FixMatch(pair),
    ),
    "unimatch-v2": Entry(
        "UniMatch V2",
        "Yang et al.",
        2025,
        "two strong views with complementary dropout; the paper's EMA baseline M2",
        lambda pair, seed: UniMatchV2(pair, UniMatchV2Params(seed=seed)),
    ),
    "ftc": Entry(
        "FTC-Seg",
        "FTC-Seg",
        2026,
        "M2 with orthogonal prototypes (OPR) and class thresholds (ATC)",
        lambda pair, seed: FTCSeg(pair, FTCParams(seed=seed)),
    ),
}
