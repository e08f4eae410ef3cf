"""FlexMatch (Zhang et al. 2021) for segmentation: FixMatch whose thresholds follow how far each class is learnt.

The curriculum is a threshold rule that any method can use (teaching/thresholds/flexmatch.py); this is the paper's use.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexMatchStepParams:
    """FlexMatch's own settings; those of its thresholds are `flexmatch.NAME`."""

    ema_teacher: bool = True
    """Whether an EMA teacher labels, as for every method here; without, the student labels its own weak view, as the
    paper has it, and its running mean is only evaluated."""


class FlexMatch(Method):
    """One strong view learns from pixels; those of classes that are learnt less need less confidence."""

    views = ViewPlan(strong=1)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        # 1  The labeler reads the weak view; the student answers labels and the mixed strong view.
        said = self.pair.ask(labeled, unlabeled, [paste_partner(view, box)])
        # 2  The learning status of every class, and its threshold: the curriculum.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 3  Pixels that reach the threshold of their class become labels, mixed as the view was.
        unsup = self.pair.compare(said.strong, [mix_pseudo(pseudo, box)])
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
