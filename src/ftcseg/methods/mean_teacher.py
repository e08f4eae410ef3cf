"""Mean Teacher (Tarvainen and Valpola 2017) for segmentation, as the authors of CPS run it: soft answers, no filter."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ftcseg.losses.extra import consistency
from ftcseg.losses.pixel import pixel_loss
from ftcseg.methods.base import Method
from ftcseg.teaching.pair import Pair
from ftcseg.types import IGNORE, Clock, SemiBatch, StepResult, ViewPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTeacherParams:
    """Mean Teacher's own settings."""

    weight: float = 100.0
    """Of the consistency beside the supervised loss (the CPS authors' code)."""
    on_labeled: bool = True
    """Whether student and teacher are compared on the labelled images, too (the same code)."""


class MeanTeacher(Method):
    """Student and teacher look at the same picture, and the student is drawn to the teacher's probabilities.

    The paper filters nothing, so the method's preset is a threshold of 0. What a run sets instead does filter.
    """

    views = ViewPlan(strong=0, cutmix=False)

    def __init__(self, pair: Pair, params: MeanTeacherParams) -> None:
        super().__init__(pair)
        self.params = params

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        # 1  Student and teacher read the same pictures: labelled ones, and the weak view of the others.
        said = self.pair.ask(labeled, unlabeled, [unlabeled.weak], taught=True)
        assert said.taught is not None
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 2  How far their probabilities are apart.
        apart = {"unsup": consistency(said.strong[0], said.weak, self.pair.thresholds.accept(pseudo))}
        if self.params.on_labeled:
            apart["unsup_labeled"] = consistency(said.labeled, said.taught, labeled.labels != IGNORE)
        # 3  L = L_sup + w * mean over labelled and unlabelled images, and what OPR adds.
        sup, extra = pixel_loss(said.labeled, labeled.labels), self.pair.opr_losses(said, labeled)
        weight = self.params.weight * self.pair.weight(clock)
        loss = torch.stack([sup, weight * torch.stack(list(apart.values())).mean(), *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, **apart, **extra}, self.pair.counts(pseudo))
