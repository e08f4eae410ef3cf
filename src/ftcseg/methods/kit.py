"""What a method is built from."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.pair import Pair, Pupil
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import ClassTable


@dataclass(frozen=True, slots=True, eq=False)
class Kit:
    """The networks and facts of one run. Most methods need no more than `pair()`."""

    net: Segmenter
    """The student."""
    another: Callable[[int], Segmenter]
    """`another(n)` is a network of the same kind, its encoder from the same weights, the rest drawn from n."""
    thresholds: Thresholds
    teaching: TeachingParams
    classes: ClassTable
    pixels: Tensor  # (num_classes,) labelled pixels
    steps: int
    """Length of the run."""
    seed: int
    view: tuple[int, int, int] | None = None
    """(channels, height, width) of training views, for methods that store some; None where nobody said."""
    resumed: bool = False
    """Whether a checkpoint is about to fill in all weights and statistics: what they come from need not be there."""

    def pair(self, *, labels_itself: bool = False) -> Pair:
        """The student with an EMA teacher and the run's threshold rule."""
        return Pair(self.net, self.thresholds, self.teaching, labels_itself=labels_itself)

    def pupil(self) -> Pupil:
        """The student with the run's threshold rule and no teacher."""
        return Pupil(self.net, self.thresholds, self.teaching)

    def another_pupil(self, number: int) -> Pupil:
        """Another network, with a threshold rule of its own that starts as the run's does."""
        return Pupil(self.another(number), deepcopy(self.thresholds), self.teaching)
