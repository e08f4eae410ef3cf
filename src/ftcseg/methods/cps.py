"""Cross Pseudo Supervision (Chen et al. 2021): two networks of other beginnings, each learning the other's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ftcseg.losses.pixel import pixel_loss
from ftcseg.methods.base import Method
from ftcseg.rng import random_for
from ftcseg.teaching.answers import Answers
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.pseudo import mix_pseudo, pseudo_labels
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import IGNORE, Clock, Labeled, SemiBatch, StepResult, Unlabeled, ViewPlan
from ftcseg.views.mix import draw_xor_boxes, paste_partner

WEIGHT, CUTMIX_WEIGHT = 1.5, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CPSParams:
    """CPS's own settings."""

    cutmix: bool = True
    """Learn from unlabelled images mixed in pairs, labelled before the mixing; else from all images as they are."""
    weight: float | None = None
    """Of the cross supervision; None is 1 with CutMix and 1.5 without, as on VOC; 6 on Cityscapes."""


class CPS(Method):
    """Both networks are trained, and both can be used. The paper filters nothing, so the preset is a threshold of 0."""

    views = ViewPlan(strong=0, cutmix=False)

    def __init__(self, first: Pupil, second: Pupil, params: CPSParams, seed: int = 0) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.params, self.seed = params, seed

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled, pupils = batch.labeled, batch.unlabeled, (self.first, self.second)
        if unlabeled is None or self.first.burns_in(clock):
            return _summed([pupil.learn_labels(batch) for pupil in pupils])
        # 1  Unlabelled images are mixed in pairs.
        boxes = self._boxes(unlabeled, clock)
        mixed = paste_partner(unlabeled.weak, boxes)
        # 2  Each network answers labels and mixed images, and labels the images as they were.
        said = [pupil.ask(labeled, unlabeled, [mixed]) for pupil in pupils]
        pseudo = [pupil.judge(answers, labeled, unlabeled) for pupil, answers in zip(pupils, said, strict=True)]
        # 3  What one says, mixed as the images were, the other learns.
        crossed = [
            one.compare(other.strong, [mix_pseudo(labels, boxes)])
            for one, labels, other in zip(pupils, pseudo, reversed(said), strict=True)
        ]
        if not self.params.cutmix:  # then the labelled images are a lesson for both as well
            told = [_told_on_labels(*each, labeled) for each in zip(pupils, said, reversed(said), strict=True)]
            crossed = [(on_unlabeled + on_labeled) / 2 for on_unlabeled, on_labeled in zip(crossed, told, strict=True)]
        # 4  L = L_sup of both + w * L_cross of both, and what OPR adds.
        sup = torch.stack([pixel_loss(answers.labeled, labeled.labels) for answers in said]).sum()
        unsup = torch.stack(crossed).sum()
        extras = [pupil.opr_losses(answers, labeled) for pupil, answers in zip(pupils, said, strict=True)]
        extra = {name: extras[0][name] + extras[1][name] for name in extras[0]}
        loss = torch.stack([sup, self._weight(clock) * unsup, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, **extra}, self.first.counts(pseudo[0]))

    def _boxes(self, unlabeled: Unlabeled, clock: Clock) -> Tensor:
        count, height, width = unlabeled.valid.shape
        if not self.params.cutmix:
            return torch.zeros_like(unlabeled.valid)
        rng = random_for(self.seed, "boxes", clock.step)
        return torch.stack([draw_xor_boxes(height, width, rng) for _ in range(count)]).to(unlabeled.valid.device)

    def _weight(self, clock: Clock) -> float:
        usual = CUTMIX_WEIGHT if self.params.cutmix else WEIGHT
        return self.first.weight(clock) * (usual if self.params.weight is None else self.params.weight)

    def labels_first(self, clock: Clock) -> int:  # noqa: ARG002 - the same for every run
        """Both burn in together."""
        return self.first.params.burn_in

    def after_update(self, clock: Clock) -> None:
        """Nobody follows: both learn."""

    def teachers(self) -> list[nn.Module]:
        """There is none."""
        return []

    def predictors(self) -> dict[str, nn.Module]:
        """Either network."""
        return {"first": self.first.student, "second": self.second.student}

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """The first stands for both."""
        return self.first.student, self.first.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds and OPR of the first."""
        return self.first.facts()


def _told_on_labels(one: Pupil, said: Answers, other: Answers, labeled: Labeled) -> Tensor:
    return one.compare([other.labeled], [pseudo_labels(said.labeled, labeled.labels != IGNORE)])


def _summed(results: Sequence[StepResult]) -> StepResult:
    parts = {name: torch.stack([result.parts[name] for result in results]).sum() for name in results[0].parts}
    return StepResult(torch.stack([result.loss for result in results]).sum(), parts)
