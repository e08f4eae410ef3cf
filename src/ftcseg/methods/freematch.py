"""FreeMatch (Wang et al. 2023) for segmentation: FixMatch with self-adaptive thresholds and a fairness term.

The thresholds are a rule (teaching/thresholds/freematch.py) that any method can use; the fairness term is only here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from ftcseg.errors import UsageError
from ftcseg.losses.extra import fairness
from ftcseg.methods.base import Method
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.thresholds.freematch import FreeThresholds
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeMatchStepParams:
    """FreeMatch's own settings; those of its thresholds are `freematch.NAME`."""

    ema_teacher: bool = True
    """Whether an EMA teacher labels, as for every method here; without, the student labels its own weak view, as the
    paper has it, and its running mean is only evaluated."""
    fairness: float = 0.01
    """Weight of the self-adaptive fairness beside the unsupervised loss (public code); 0 leaves it out."""


class FreeMatch(Method):
    """One strong view learns from pixels as sure as the labeler has grown to be of their class."""

    views = ViewPlan(strong=1)

    def __init__(self, pair: Pair, params: FreeMatchStepParams) -> None:
        super().__init__(pair)
        self.params = params
        if params.fairness and not isinstance(pair.thresholds, FreeThresholds):
            raise UsageError(
                "FreeMatch's fairness term needs the statistics of its own thresholds. "
                "Leave thresholds=freematch, or set params.fairness=0."
            )

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled, pair = batch.labeled, batch.unlabeled, self.pair
        if unlabeled is None or pair.burns_in(clock):
            return pair.learn_labels(batch)
        # 1  The labeler reads the weak view; the student answers labels and the strong view, mixed with its partner.
        said = pair.ask_mixed(labeled, unlabeled)
        # 2  The thresholds move to how sure the labeler is by now, of anything and of each class.
        pseudo = pair.judge(said, labeled, unlabeled)
        # 3  Pixels that reach the threshold of their class become labels, mixed as the view was.
        mixed = mix_pseudo(pseudo, *unlabeled.boxes)
        unsup = pair.compare(said.strong, [mixed])
        result = pair.conclude(said, labeled, pseudo, unsup, clock)
        if not self.params.fairness:
            return result
        # 4  What the student says of kept pixels should be as fair to the classes as what was said so far:
        #    L = (L_sup + w (L_unsup + w_f L_fair)) / 2.
        rule = cast("FreeThresholds", pair.thresholds)
        fair = fairness(said.strong[0], rule.accept(mixed), rule.probs, rule.hist)
        loss = result.loss + pair.weight(clock) * self.params.fairness * fair / 2
        return replace(result, loss=loss, parts={**result.parts, "fairness": fair})
