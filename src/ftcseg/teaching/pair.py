"""A student, its EMA teacher and the threshold between them: what most methods of the field are arranged around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ftcseg.losses.pixel import balanced_kept_loss, kept_loss, pixel_loss
from ftcseg.nets.drop import Perturb
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.answers import Answers, ask, ask_labeled
from ftcseg.teaching.features import FeatureWatch, feature_losses
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.pseudo import pseudo_counts, pseudo_labels, soft_counts
from ftcseg.teaching.ramp import is_burn_in, ramp
from ftcseg.teaching.teacher import follow, make_teacher, warm_decay
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import Clock, Labeled, PseudoLabels, SemiBatch, StepResult, Unlabeled


class Pair(nn.Module):
    """Student and teacher with one threshold rule. Methods say what is shown to whom; this does the asking."""

    def __init__(self, student: Segmenter, thresholds: Thresholds, params: TeachingParams) -> None:
        super().__init__()
        self.student = student
        self.teacher = make_teacher(student)
        self.thresholds = thresholds
        self.params = params
        self._watch = FeatureWatch()

    def burns_in(self, clock: Clock) -> bool:
        """Whether this step still learns from labels alone."""
        return is_burn_in(clock, self.params.burn_in)

    def learn_labels(self, batch: SemiBatch) -> StepResult:
        """A step on the labelled images only."""
        logits, maps = ask_labeled(self.student, batch.labeled.images)
        sup = pixel_loss(logits, batch.labeled.labels)
        extra = feature_losses(self.student, maps, batch.labeled.labels)
        self._watch.see(maps)
        return StepResult(torch.stack([sup, *extra.values()]).sum(), {"sup": sup, **extra})

    def ask(
        self, labeled: Labeled, unlabeled: Unlabeled, strong: Sequence[Tensor], perturb: Perturb | None = None
    ) -> Answers:
        """Teacher on the weak view, and on labelled images if a rule asks; student on these and on strong views."""
        teacher = cast("Segmenter", self.teacher.net)
        shown = (labeled.images, unlabeled.weak, strong)
        return ask(self.student, teacher, shown, perturb, self.params.norms, self.thresholds.asks_teacher)

    def judge(self, said: Answers, labeled: Labeled, unlabeled: Unlabeled) -> PseudoLabels:
        """The teacher's pseudo-labels; the threshold takes note of them and of how one of the two does on labels."""
        pseudo = pseudo_labels(said.weak, unlabeled.valid)
        soft = soft_counts(said.weak, unlabeled.valid) if self.thresholds.needs_soft else None
        logits = said.labeled if said.taught is None else said.taught
        self.thresholds.observe(target=labeled.labels, logits=logits, pseudo=pseudo, soft=soft)
        return pseudo

    def compare(self, strong: Sequence[Tensor], mixed: Sequence[PseudoLabels]) -> Tensor:
        """The unsupervised loss, the mean over strong views; what the threshold rejects weighs nothing."""
        losses = []
        for logits, pseudo in zip(strong, mixed, strict=True):
            # Looked up after mixing: a pasted pixel keeps the threshold of its own class.
            keep = self.thresholds.accept(pseudo)
            if self.params.balance == "class":
                over: Literal["kept", "valid"] = "kept" if self.params.normaliser == "kept" else "valid"
                losses.append(balanced_kept_loss(logits, pseudo, keep, normaliser=over))
            else:
                losses.append(kept_loss(logits, pseudo, keep, normaliser=self.params.normaliser))
        return torch.stack(losses).mean()

    def conclude(
        self, said: Answers, labeled: Labeled, pseudo: PseudoLabels, unsup: Tensor, clock: Clock
    ) -> StepResult:
        """Everything summed: (L_sup + w L_unsup) / 2, and what OPR adds (reading C3)."""
        sup = pixel_loss(said.labeled, labeled.labels)
        weight = self.params.unsup_weight * ramp(clock, self.params.burn_in, self.params.ramp)
        extra = feature_losses(self.student, said.maps, labeled.labels)
        self._watch.see(said.maps)
        counts = pseudo_counts(pseudo, self.thresholds.accept(pseudo), self.student.num_classes)
        loss = torch.stack([(sup + weight * unsup) / 2, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, **extra}, counts)

    def follow(self, clock: Clock) -> None:
        """The teacher follows the student; until the burn-in ends it simply is the student."""
        age = max(0, clock.step - self.params.burn_in)
        follow(self.teacher, self.student, warm_decay(age, self.params.ema))

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds, and how OPR is doing where there is one."""
        return {**self.thresholds.facts(), **self._watch.facts(self.student)}
