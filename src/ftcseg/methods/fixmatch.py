"""FixMatch for segmentation (Sohn et al. 2020), as UniMatch V2 runs it: one strong view, an EMA teacher."""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


@dataclass(frozen=True, slots=True, kw_only=True)
class FixMatchParams:
    """FixMatch's own settings."""

    ema_teacher: bool = True
    """Whether an EMA teacher labels, as UniMatch V2 has it; without, the student labels its own weak view, as the 2020
    paper has it, and its running mean is only evaluated."""


class FixMatch(Method):
    """One strong view learns from the pixels of which the labeler is sure enough."""

    views = ViewPlan(strong=1)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        # 1  The labeler reads the weak view; the student answers labels and the mixed strong view.
        said = self.pair.ask(labeled, unlabeled, [paste_partner(view, box)])
        # 2  Pixels the labeler is sure of become labels, mixed as the view was.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        unsup = self.pair.compare(said.strong, [mix_pseudo(pseudo, box)])
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
