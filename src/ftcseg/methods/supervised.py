"""Labels only: the line every other method has to beat."""

from __future__ import annotations

from ftcseg.methods.base import Method
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


class Supervised(Method):
    """Cross-entropy on the labelled images.

    Its teacher teaches nobody: it is the running mean of the student, evaluated beside it so that no other method wins
    by averaging alone.
    """

    views = ViewPlan(unlabeled=False, strong=0, cutmix=False)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:  # noqa: ARG002 - labels do not age
        """Compare with the labels, and nothing else."""
        return self.pair.learn_labels(batch)
