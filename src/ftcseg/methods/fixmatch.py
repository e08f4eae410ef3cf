"""FixMatch for segmentation (Sohn et al. 2020), as UniMatch V2 runs it: one strong view, an EMA teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from ftcseg.methods.base import Method
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


class FixMatch(Method):
    """One strong view learns from the pixels of which the teacher is sure enough."""

    views: ClassVar[ViewPlan] = ViewPlan(strong=1)

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair

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

    def after_update(self, clock: Clock) -> None:
        """The teacher follows the student."""
        self.pair.follow(clock)

    def teachers(self) -> list[nn.Module]:
        """The one EMA teacher."""
        return [self.pair.teacher]

    def predictors(self) -> dict[str, nn.Module]:
        """Teacher and student."""
        return self.pair.predictors()

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds per class, OPR per stage."""
        return self.pair.facts()
