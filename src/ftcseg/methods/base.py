"""What the loop knows of a method: a step, what follows the update, and who predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


class Method(nn.Module):
    """One paper, one subclass. Whatever must survive a restart is a parameter or a buffer of it.

    The step computes a loss and moves nothing but statistics; teachers move in `after_update`, once the loop has seen
    that the student is finite.
    """

    views: ClassVar[ViewPlan]
    """What the method wants to see of each unlabelled image."""

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The loss of one batch."""
        raise NotImplementedError

    def after_update(self, clock: Clock) -> None:
        """Let teachers follow the student; `clock` still shows the step that was just taken."""

    def teachers(self) -> list[nn.Module]:
        """Networks that are not trained by gradient."""
        return []

    def predictors(self) -> dict[str, nn.Module]:
        """Networks worth evaluating, by name; the first is the one a user gets."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Tensor]:
        """What to log now and then: thresholds, gates, sizes of corrections. Per class or per stage."""
        return {}
