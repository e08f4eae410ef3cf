"""FixMatch for segmentation (Sohn et al. 2020), as UniMatch V2 runs it: one strong view, an EMA teacher."""

from __future__ import annotations

from ftcseg.methods.base import Method
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


class FixMatch(Method):
    """One strong view learns from the pixels of which the teacher is sure enough."""

    views = ViewPlan(strong=1)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        # 1  The teacher reads the weak view; the student answers labels and the mixed strong view.
        said = self.pair.ask(labeled, unlabeled, [paste_partner(view, box)])
        # 2  Pixels the teacher is sure of become labels, mixed as the view was.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        unsup = self.pair.compare(said.strong, [mix_pseudo(pseudo, box)])
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
