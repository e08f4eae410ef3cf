"""Numbers over seeds, and what may be concluded from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from ftcseg.evaluate.bootstrap import (
    Interval,
    Intervals,
    alike,
    bootstrap,
    bootstrap_difference,
    bootstrap_statistic,
    rate,
)

__all__ = [
    "ENOUGH",
    "Comparison",
    "Family",
    "Interval",
    "Intervals",
    "Paired",
    "Summary",
    "alike",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_statistic",
    "family",
    "holm",
    "main_effect",
    "paired",
    "rate",
    "summary",
]

ENOUGH = 3
"""Up to so many seeds a spread is a guess and a test says little."""
_TINY = 1e-100  # what is smaller has a square of 0, and so no spread
_ROUNDING = 1e-9
"""Gaps that differ by less than this share of the numbers themselves are equal but for rounding."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A number over seeds."""

    count: int
    mean: float
    std: float | None  # with one degree of freedom taken; None below two seeds
    half_width: float | None  # of the 95 % interval of the mean, by Student's t


def summary(values: Sequence[float]) -> Summary:
    """Mean, spread and interval of at least one number."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Summary(count, mean, None, None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Summary(count, mean, std, float(stats.t.ppf(0.975, count - 1)) * std / math.sqrt(count))


@dataclass(frozen=True, slots=True)
class Paired:
    """Two rows over the same seeds."""

    count: int
    difference: float
    p: float | None  # two-sided paired t-test; None where it cannot be formed
    warning: str = ""


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired:
    """Whether ours differs from theirs, seed by seed; at least one seed."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    count = len(gaps)
    difference = math.fsum(gaps) / count
    # Rounding alone would give gaps like 0.1 and 0.1 + 1e-17 a spread, and the test a p of nearly nothing.
    if count < 2 or max(gaps) - min(gaps) <= max(_TINY, _ROUNDING * max(map(abs, (*ours, *theirs)))):
        return Paired(count, difference, None, "one seed allows no test" if count < 2 else "the gaps are all equal")
    p = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    return Paired(count, difference, p, "" if count > ENOUGH else f"with {count} seeds a test says little")


def main_effect(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """What a part brings, seed by seed: the mean over all pairs of rows (with it, without it) that measure it.

    Two parts that are each on and off make four rows, and so two pairs for either of them: chance weighs less than in
    a single pair.
    """
    gaps = [[a - b for a, b in zip(ours, theirs, strict=True)] for ours, theirs in pairs]
    return [math.fsum(seed) / len(seed) for seed in zip(*gaps, strict=True)]


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for having tested them all (Holm), in their own order."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = highest
    return corrected


@dataclass(frozen=True, slots=True)
class Comparison:
    """One named pair of rows within a family of tests."""

    name: str
    count: int
    """Seeds both have."""
    difference: float | None
    """Mean of ours less theirs; None where they share no seed."""
    half_width: float | None
    """Of the 95 % interval of the mean difference, by Student's t; None below two seeds."""
    p: float | None
    corrected: float | None
    """p after Holm over all tests of the family; None where no test could be formed."""
    warning: str
    """A sentence for the page, or empty."""

    def holds(self, level: float = 0.05) -> bool:
        """Whether the difference passes after correction."""
        return self.corrected is not None and self.corrected < level


@dataclass(frozen=True, slots=True)
class Family:
    """Comparisons that were made together, corrected for all of those that were tested."""

    comparisons: tuple[Comparison, ...]

    def __getitem__(self, name: str) -> Comparison:
        return {one.name: one for one in self.comparisons}[name]

    @property
    def tested(self) -> int:
        """How many tests could be formed: what Holm's correction counts."""
        return sum(one.p is not None for one in self.comparisons)

    def notes(self) -> tuple[str, ...]:
        """What was tested and corrected, and what must be borne in mind, as sentences."""
        if not self.comparisons:
            return ()
        total = len(self.comparisons)
        if not self.tested:
            told = "No test could be formed: nothing here tells a difference from chance."
        elif self.tested == 1:
            told = "Two-sided paired t-test over matched seeds; the only one, so p is not corrected."
        else:
            told = (
                f"Two-sided paired t-tests over matched seeds; p corrected by Holm over the {self.tested} tests made."
            )
        left = total - self.tested
        out = f" {left} of {total} comparisons allowed none." if left and self.tested else ""
        warned: dict[str, list[str]] = {}
        for one in self.comparisons:
            if one.warning:
                warned.setdefault(one.warning, []).append(one.name)
        of = {text: "" if len(names) == total else f"{', '.join(names)}: " for text, names in warned.items()}
        return told + out, *(names + text for text, names in of.items())


def family(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Family:
    """Test every named pair (ours, theirs) over matched seeds, and correct over exactly those that could be tested."""
    tests = {name: paired(*both) if both[0] else None for name, both in pairs.items()}
    formed = {name: test.p for name, test in tests.items() if test is not None and test.p is not None}
    corrected = dict(zip(formed, holm(list(formed.values())), strict=True))
    found = []
    for name, (ours, theirs) in pairs.items():
        test = tests[name]
        gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
        found.append(
            Comparison(
                name=name,
                count=len(gaps),
                difference=None if test is None else test.difference,
                half_width=summary(gaps).half_width if gaps else None,
                p=formed.get(name),
                corrected=corrected.get(name),
                warning=_sentence(test),
            )
        )
    return Family(tuple(found))


def _sentence(test: Paired | None) -> str:
    """What a reader must know about a test before believing it."""
    if test is None:
        return "The two share no seed, so there is nothing to compare."
    if test.count < 2:
        return "One seed allows no test: the difference may be chance."
    if test.p is None:
        same = "are equal" if abs(test.difference) <= _ROUNDING else "differ by the same amount with every seed"
        return f"The two {same}; without any spread there is no test."
    if test.count <= ENOUGH:
        return (
            f"With {test.count} seeds a t-test says little: it finds only differences far above their spread, and "
            "cannot check that they are normally distributed."
        )
    return ""
