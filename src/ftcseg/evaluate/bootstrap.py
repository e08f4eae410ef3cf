"""How far a score would move had other images been judged: images or whole sequences drawn again, with replacement.

Every draw takes as many units (images, or sequences) as there are, adds up their pixels and divides once, as the score
itself does. The interval lies between two percentiles of the draws. It tells of the images alone: a network trained
with another seed would move the score as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ftcseg.errors import UsageError
from ftcseg.evaluate.per_image import HIT, SAID, TRUE, PerImage
from ftcseg.rng import random_for
from ftcseg.types import GROUPS, Group

DRAWS = 2000
SHARE = 0.95
FEW = 10
"""Units below which percentiles of draws are known to lie too close together."""
_CELLS = 2**20  # numbers of one array that are in memory at a time

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.float64]
Clusters: TypeAlias = Sequence[Hashable]
"""What each image belongs to; images of one cluster are drawn together or not at all."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and the percentiles of its draws."""

    value: float
    low: float
    high: float
    draws: int
    """Draws in which it could be formed; a class that is absent from a draw has no IoU there."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of a set's scores, or of the difference of two; None where there is nothing to judge."""

    over: Literal["images", "sequences"]
    units: int
    """Images or sequences there were to draw from."""
    share: float
    draws: int
    miou: Interval | None
    classes: tuple[Interval | None, ...]
    groups: Mapping[str, Interval | None]

    @property
    def warning(self) -> str:
        """A sentence where the intervals should not be relied upon, else empty."""
        if self.units < 2:
            return f"One {self.over[:-1]} cannot tell how much {self.over} differ, so there is no interval."
        return f"With {self.units} {self.over} the interval is too narrow." if self.units < FEW else ""

    def as_json(self) -> dict[str, Any]:
        """Plain values: [low, high] or None."""
        return {
            "units": self.units,
            "share": self.share,
            "draws": self.draws,
            "warning": self.warning,
            "miou": _ends(self.miou),
            "groups": {name: _ends(found) for name, found in self.groups.items()},
            "classes": [_ends(found) for found in self.classes],
        }


def bootstrap(
    counts: NDArray[np.int64],
    clusters: Clusters | None = None,
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    share: float = SHARE,
) -> Intervals:
    """Intervals of the IoU of every class, of their mean and of the mean of each group (by class ids).

    `counts` are (images, classes, 3) as in PerImage. A class that is absent from a draw is left out of its means.
    """
    how = _How(draws, seed, share)
    members = groups or {}
    found = _intervals(counts, lambda pooled: _scores(pooled, members), clusters, how)
    return _named(found, counts.shape[1], members, clusters, how, len(counts))


def intervals_of(kept: PerImage, groups: Mapping[int, Group]) -> dict[str, Intervals]:
    """Intervals over images and, where some of them are neighbours, over sequences; `groups` are by class id."""
    members: dict[str, list[int]] = {
        name: ids for name in GROUPS if (ids := [c for c, own in groups.items() if own == name])
    }
    found = {"images": bootstrap(kept.counts, groups=members)}
    if kept.clusters is not None:
        found["sequences"] = bootstrap(kept.counts, kept.clusters, groups=members)
    return found


def bootstrap_difference(  # noqa: PLR0913  each choice has a name
    ours: Sequence[PerImage],
    theirs: Sequence[PerImage],
    clusters: Clusters | None = None,
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    share: float = SHARE,
) -> Intervals:
    """Intervals of the mean of ours minus theirs over pairs of runs (one a seed), all judged on the same images.

    Every draw takes the same images of all runs; `clusters` are in the order of the first of ours.
    """
    runs = [run for pair in zip(ours, theirs, strict=True) for run in pair]
    if not alike(runs):
        raise UsageError(
            "The runs were judged on other images or classes, so that their difference cannot be drawn. "
            "Evaluate all of them on the same part of one set."
        )
    first = runs[0]
    every = np.stack([_in_order(run, first.names) for run in runs], axis=1)  # (images, runs, classes, 3)
    how, members = _How(draws, seed, share), groups or {}

    def mean_gap(pooled: Floats) -> Floats:
        gaps = [_scores(pooled[:, i], members) - _scores(pooled[:, i + 1], members) for i in range(0, len(runs), 2)]
        mean: Floats = np.stack(gaps).mean(axis=0)
        return mean

    found = _intervals(every, mean_gap, clusters, how)
    return _named(found, first.counts.shape[1], members, clusters, how, len(first.names))


def alike(runs: Sequence[PerImage]) -> bool:
    """Whether all were judged on the same images and classes."""
    return len({(frozenset(run.names), run.counts.shape) for run in runs}) == 1


def _in_order(run: PerImage, names: Sequence[str]) -> NDArray[np.int64]:
    place = {name: i for i, name in enumerate(run.names)}
    return run.counts[[place[name] for name in names]]


def bootstrap_statistic(
    values: Numbers,
    function: Callable[[Floats], Floats],
    clusters: Clusters | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    share: float = SHARE,
) -> Interval | None:
    """The interval of any number that is formed from sums over images; None where it cannot be formed.

    `values` are (images, ...), what each image adds. `function` gets the sums of many draws at once, (draws, ...), and
    returns one number for each, nan where it cannot be formed (see `rate`). The share of dropped pixels, say, of
    tallies (images, 2) of dropped and all pixels:

    >>> tallies = np.array([[1, 10], [3, 10], [2, 10]])
    >>> found = bootstrap_statistic(tallies, lambda sums: rate(sums[:, 0], sums[:, 1]))
    >>> (found.value, found.low, found.high)
    (0.2, 0.1, 0.3)
    """
    return _intervals(values, lambda sums: function(sums)[:, None], clusters, _How(draws, seed, share))[0]


def rate(part: Floats, whole: Floats) -> Floats:
    """Part of whole, nan where there is no whole."""
    found: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return found


@dataclass(frozen=True, slots=True)
class _How:
    """How many draws, by which chance, and the share of them an interval holds."""

    draws: int
    seed: int
    share: float

    @property
    def ends(self) -> tuple[float, float]:
        return (1 - self.share) / 2, (1 + self.share) / 2


def _intervals(
    values: Numbers, function: Callable[[Floats], Floats], clusters: Clusters | None, how: _How
) -> list[Interval | None]:
    """Of each of the numbers (draws, numbers) that `function` forms."""
    units = _units(values, clusters)
    shape = (-1, *values.shape[1:])
    whole = function(units.sum(0).reshape(shape))[0]
    if len(units) < 2:
        return [None] * len(whole)
    drawn = np.concatenate([function(sums.reshape(shape)) for sums in _resampled(units, how)])
    return [
        _interval(float(value), column[~np.isnan(column)], how) for value, column in zip(whole, drawn.T, strict=True)
    ]


def _interval(value: float, drawn: Floats, how: _How) -> Interval | None:
    if not len(drawn) or np.isnan(value):
        return None
    low, high = np.quantile(drawn, how.ends)
    return Interval(value, float(low), float(high), len(drawn))


def _units(values: Numbers, clusters: Clusters | None) -> Floats:
    """What each image, or each cluster, adds: (units, numbers)."""
    flat = values.reshape(len(values), -1).astype(np.float64)  # whole numbers stay exact up to 2**53
    if clusters is None:
        return flat
    assert len(clusters) == len(values), "every image belongs to a cluster"
    place = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    summed = np.zeros((len(place), flat.shape[1]))
    np.add.at(summed, [place[name] for name in clusters], flat)
    return summed


def _resampled(units: Floats, how: _How) -> Iterator[Floats]:
    """Sums of `len(units)` units drawn with replacement, (some draws, numbers) at a time.

    How often each unit was drawn is counted first, so that a draw costs a product of matrices and no copies.
    """
    count = len(units)
    random = random_for(how.seed, "bootstrap")
    block = max(1, _CELLS // max(units.shape))
    for start in range(0, how.draws, block):
        rows = min(block, how.draws - start)
        picks = random.integers(0, count, (rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(picks.ravel(), minlength=rows * count).reshape(rows, count)
        yield times.astype(np.float64) @ units


def _scores(pooled: Floats, groups: Mapping[str, Sequence[int]]) -> Floats:
    """IoU of every class, then mIoU, then the groups: (draws, classes + 1 + groups)."""
    hit = pooled[:, :, HIT]
    ious = rate(hit, pooled[:, :, SAID] + pooled[:, :, TRUE] - hit)
    means = [_mean(ious), *(_mean(ious[:, list(ids)]) for ids in groups.values())]
    return np.concatenate([ious, np.stack(means, axis=1)], axis=1)


def _mean(ious: Floats) -> Floats:
    there = ~np.isnan(ious)
    return rate(np.where(there, ious, 0.0).sum(1), there.sum(1).astype(np.float64))


def _named(
    found: Sequence[Interval | None],
    classes: int,
    groups: Mapping[str, Sequence[int]],
    clusters: Clusters | None,
    how: _How,
    images: int,
) -> Intervals:
    return Intervals(
        over="images" if clusters is None else "sequences",
        units=images if clusters is None else len(set(clusters)),
        share=how.share,
        draws=how.draws,
        miou=found[classes],
        classes=tuple(found[:classes]),
        groups=dict(zip(groups, found[classes + 1 :], strict=True)),
    )


def _ends(found: Interval | None) -> list[float] | None:
    return None if found is None else [found.low, found.high]
