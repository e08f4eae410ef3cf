"""What the loop knows of a method: a step, what follows the update, and who predicts."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from ftcseg.teaching.pair import Pair, Pupil
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


class Method(nn.Module):
    """One paper, one subclass. Whatever must survive a restart is a parameter or a buffer of it.

    The step computes a loss and moves nothing but statistics; teachers move in `after_update`, once the loop has seen
    that the student is finite. What is written here suits a method with one student: a Pair, which has a teacher, or a
    Pupil, which has none. Another kind of method says these things itself.
    """

    views: ViewPlan
    """What the method wants to see of each unlabelled image."""

    pair: Pair
    """Student and teacher, where the method was given a Pair."""
    pupil: Pupil
    """The student, where it was given no teacher."""

    def __init__(self, learner: Pupil | None = None) -> None:
        super().__init__()
        if isinstance(learner, Pair):
            self.pair = learner
        elif learner is not None:
            self.pupil = learner

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The loss of one batch."""
        raise NotImplementedError

    def after_update(self, clock: Clock) -> None:
        """Let teachers follow the student; `clock` still shows the step that was just taken."""
        self._learner.follow(clock)

    def labels_first(self, clock: Clock) -> int:  # noqa: ARG002 - some ask how long the run is
        """Steps that a run begins with and that look at labelled images alone: no others are loaded for them.

        The burn-in, where the method has a student that knows of one. `clock` is any of the run's.
        """
        return self._learner.params.burn_in if hasattr(self, "pair") or hasattr(self, "pupil") else 0

    def pace(self, clock: Clock) -> Clock:
        """The clock that the learning rate goes by.

        A method that begins anew within a run returns the clock of its present round. Where that stands at 0 after an
        update, the optimiser forgets what it remembers of the weights before.
        """
        return clock

    def teachers(self) -> list[nn.Module]:
        """Networks that are not trained by gradient."""
        return self._learner.teachers()

    def predictors(self) -> dict[str, nn.Module]:
        """Networks worth evaluating, by name; the first is the one a user gets."""
        return self._learner.predictors()

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """Who makes the pseudo-labels, and the rule that filters them: what an audit looks at."""
        return self._learner.labeler, self._learner.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """What to log now and then: thresholds per class, OPR per stage."""
        return self._learner.facts()

    @property
    def _learner(self) -> Pupil:
        return self.pair if hasattr(self, "pair") else self.pupil
