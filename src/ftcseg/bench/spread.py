"""Times that differ from round to round: a median, and between which half of them lie."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ftcseg.errors import UsageError

_QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several measurements of one thing."""

    median: float
    low: float
    """First quartile: a quarter of the measurements lie below."""
    high: float
    """Third quartile."""
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """`Spread.of([1, 2, 3, 4, 5])` is 3, from 2 to 4."""
        if not values:
            raise UsageError("Nothing was measured. Ask for at least one step.")
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, middle, high = statistics.quantiles(values, n=_QUARTERS, method="inclusive")
        return cls(middle, low, high, len(values))

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.count)

    def under(self, amount: float) -> Spread:
        """`amount` divided by each: seconds a step become images a second. The quartiles change places."""
        return Spread(amount / self.median, amount / self.high, amount / self.low, self.count)

    def as_json(self) -> dict[str, float]:
        """In plain numbers."""
        return {"median": self.median, "low": self.low, "high": self.high, "count": self.count}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours over theirs, each pair from the same round: a machine that is busy for a while slows both alike."""
    return Spread.of([our / their for our, their in zip(ours, theirs, strict=True)])
