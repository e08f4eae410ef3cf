"""Labels only: the line every other method has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ftcseg.losses.pixel import pixel_loss
from ftcseg.methods.base import Method
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.answers import ask_labeled
from ftcseg.teaching.features import FeatureWatch, feature_losses
from ftcseg.teaching.teacher import follow, make_teacher, warm_decay
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedParams:
    """Labelled only."""

    ema: float = 0.996
    """The running mean of the student that is evaluated beside it; it teaches nobody."""


class Supervised(Method):
    """Cross-entropy on the labelled images. Its running mean is evaluated too, so that no method wins by averaging."""

    views: ClassVar[ViewPlan] = ViewPlan(unlabeled=False, strong=0, cutmix=False)
    student: Segmenter

    def __init__(self, student: Segmenter, params: SupervisedParams) -> None:
        super().__init__()
        self.student = student
        self.teacher = make_teacher(student)
        self.params = params
        self.watch = FeatureWatch()

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:  # noqa: ARG002 - labels do not age
        """Compare, and nothing else."""
        labeled = batch.labeled
        logits, maps = ask_labeled(self.student, labeled.images)
        sup = pixel_loss(logits, labeled.labels)
        extra = feature_losses(self.student, maps, labeled.labels)
        self.watch.see(maps)
        return StepResult(torch.stack([sup, *extra.values()]).sum(), {"sup": sup, **extra})

    def after_update(self, clock: Clock) -> None:
        """The running mean follows."""
        follow(self.teacher, self.student, warm_decay(clock.step, self.params.ema))

    def teachers(self) -> list[nn.Module]:
        """The running mean."""
        return [self.teacher]

    def predictors(self) -> dict[str, nn.Module]:
        """The student and its running mean."""
        return {"student": self.student, "teacher": self.teacher.net}

    def facts(self) -> Mapping[str, Tensor]:
        """How OPR is doing, where there is one."""
        return self.watch.facts(self.student)
