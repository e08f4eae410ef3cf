"""FixMatch for segmentation (Sohn et al. 2020), as UniMatch V2 runs it: one strong view, an EMA teacher.

FlexMatch (Zhang et al. 2021) is this step with a threshold rule of its own (teaching/thresholds/flexmatch.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FixMatchParams:
    """FixMatch's own settings, and FlexMatch's; those of thresholds are `flexmatch.NAME`."""

    ema_teacher: bool = True
    """Whether an EMA teacher labels, as UniMatch V2 has it; without, the student labels its own weak view, as in the
    papers, and its running mean is only evaluated."""


class FixMatch(Method):
    """One strong view learns from the pixels of which the labeler is sure enough."""

    views = ViewPlan(strong=1)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        # 1  The labeler reads the weak view; the student answers labels and the strong view, mixed with its partner.
        said = self.pair.ask_mixed(labeled, unlabeled)
        # 2  The threshold rule takes note. Pixels the labeler is sure of become labels, mixed as the view was.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        unsup = self.pair.compare_mixed(said.strong, pseudo, unlabeled.boxes)
        # 3  L = (L_sup + L_unsup) / 2.
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
