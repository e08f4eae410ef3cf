"""Numbers over seeds, and what may be concluded from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

ENOUGH = 3
"""Seeds below which neither a spread nor a test means anything."""


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
    """Whether ours differs from theirs, seed by seed."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    count = len(gaps)
    difference = math.fsum(gaps) / count
    if count < 2 or len(set(gaps)) == 1:
        return Paired(count, difference, None, "one seed allows no test" if count < 2 else "the gaps are all equal")
    p = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    return Paired(count, difference, p, "" if count > ENOUGH else f"with {count} seeds a test says little")


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for having tested them all (Holm), in their own order."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = highest
    return corrected
