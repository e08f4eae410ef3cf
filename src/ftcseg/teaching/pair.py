"""A student with its threshold rule, alone or with an EMA teacher: what most methods are arranged around."""

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
from ftcseg.teaching.pseudo import mix_pseudo, pseudo_counts, soft_counts
from ftcseg.teaching.ramp import is_burn_in, ramp
from ftcseg.teaching.teacher import follow, make_teacher, warm_decay
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import Clock, Labeled, PseudoCounts, PseudoLabels, SemiBatch, StepResult, Unlabeled
from ftcseg.views.mix import paste_partner


class Pupil(nn.Module):
    """A student and its threshold rule. Methods say what is shown to it and who labels; this does the asking."""

    def __init__(self, student: Segmenter, thresholds: Thresholds, params: TeachingParams) -> None:
        super().__init__()
        self.student = student
        self.thresholds = thresholds
        self.params = params
        self._watch = FeatureWatch()

    def burns_in(self, clock: Clock) -> bool:
        """Whether this step still learns from labels alone."""
        return is_burn_in(clock, self.params.burn_in)

    def learn_labels(self, batch: SemiBatch) -> StepResult:
        """A step on the labelled images only."""
        return self.conclude_labels(ask_labeled(self.student, batch.labeled.images), batch.labeled)

    def conclude_labels(self, said: Answers, labeled: Labeled) -> StepResult:
        """L_sup, and what OPR adds."""
        sup, extra = pixel_loss(said.labeled, labeled.labels), self.opr_losses(said, labeled)
        return StepResult(torch.stack([sup, *extra.values()]).sum(), {"sup": sup, **extra})

    @property
    def labeler(self) -> Segmenter:
        """Who makes the pseudo-labels: with nobody else there, the student itself."""
        return self.student

    def ask(
        self,
        labeled: Labeled,
        unlabeled: Unlabeled,
        strong: Sequence[Tensor],
        perturb: Perturb | None = None,
        *,
        taught: bool = False,
    ) -> Answers:
        """The labeler on the weak view, the student on labelled images and strong views.

        Where `taught` is True or the threshold rule wants it, a teacher is asked about the labelled images, too.
        """
        labeler = self.labeler
        shown = (labeled.images, unlabeled.weak, strong)
        asked = taught or (self.thresholds.asks_teacher and labeler is not self.student)
        return ask(self.student, labeler, shown, perturb, self.params.norms, asked)

    def ask_mixed(self, labeled: Labeled, unlabeled: Unlabeled, perturb: Perturb | None = None) -> Answers:
        """`ask`, about every strong view with the box of its partner in the reversed batch pasted in."""
        mixed = [paste_partner(view, box) for view, box in zip(unlabeled.strong, unlabeled.boxes, strict=True)]
        return self.ask(labeled, unlabeled, mixed, perturb)

    def judge(self, said: Answers, labeled: Labeled, unlabeled: Unlabeled) -> PseudoLabels:
        """Pseudo-labels of the weak view; the threshold takes note of them and of how one of the two does on labels."""
        pseudo = self.thresholds.labels_of(said.weak, unlabeled.valid)
        soft = soft_counts(said.weak, unlabeled.valid) if self.thresholds.needs_soft else None
        logits = said.taught if self.thresholds.asks_teacher and said.taught is not None else said.labeled
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
                power = self.params.balance_power
                losses.append(balanced_kept_loss(logits, pseudo, keep, normaliser=over, power=power))
            else:
                losses.append(kept_loss(logits, pseudo, keep, normaliser=self.params.normaliser))
        return torch.stack(losses).mean()

    def compare_mixed(self, strong: Sequence[Tensor], pseudo: PseudoLabels, boxes: Sequence[Tensor]) -> Tensor:
        """`compare`, with pseudo-labels mixed as `ask_mixed` mixes views: one box, (B, H, W), for each of them."""
        return self.compare(strong, [mix_pseudo(pseudo, box) for box in boxes])

    def conclude(
        self, said: Answers, labeled: Labeled, pseudo: PseudoLabels, unsup: Tensor, clock: Clock
    ) -> StepResult:
        """Everything summed: (L_sup + w L_unsup) / 2, and what OPR adds (reading C3)."""
        sup = pixel_loss(said.labeled, labeled.labels)
        extra = self.opr_losses(said, labeled)
        loss = torch.stack([(sup + self.weight(clock) * unsup) / 2, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, **extra}, self.counts(pseudo))

    def weight(self, clock: Clock) -> float:
        """What the unsupervised loss weighs at this step: nothing in the burn-in, then more, then its full weight."""
        return self.params.unsup_weight * ramp(clock, self.params.burn_in, self.params.ramp)

    def opr_losses(self, said: Answers, labeled: Labeled) -> dict[str, Tensor]:
        """What OPR adds to the loss; nothing without it. The log looks at the same maps."""
        self._watch.see(said.maps)
        return feature_losses(self.student, said.maps, labeled.labels)

    def counts(self, pseudo: PseudoLabels) -> PseudoCounts:
        """Pseudo-labels seen and kept per class, for the log."""
        return pseudo_counts(pseudo, self.thresholds.accept(pseudo), self.student.num_classes)

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds, and how OPR is doing where there is one."""
        return {**self.thresholds.facts(), **self._watch.facts(self.student)}

    def follow(self, clock: Clock) -> None:
        """Nobody follows a student without a teacher."""

    def teachers(self) -> list[nn.Module]:
        """Networks that are not trained by gradient: none here."""
        return []

    def predictors(self) -> dict[str, nn.Module]:
        """Networks worth evaluating, the one a user gets first."""
        return {"student": self.student}


class Pair(Pupil):
    """A student and its EMA teacher, with one threshold rule between them.

    A student that `labels_itself` has a teacher all the same: its running mean, evaluated beside it.
    """

    def __init__(
        self, student: Segmenter, thresholds: Thresholds, params: TeachingParams, *, labels_itself: bool = False
    ) -> None:
        super().__init__(student, thresholds, params)
        self.teacher = make_teacher(student)
        self.labels_itself = labels_itself

    @property
    def labeler(self) -> Segmenter:
        """Who makes the pseudo-labels."""
        return self.student if self.labels_itself else cast("Segmenter", self.teacher.net)

    def follow(self, clock: Clock) -> None:
        """The teacher follows the student; until the burn-in ends it simply is the student."""
        age = max(0, clock.step - self.params.burn_in)
        follow(self.teacher, self.student, warm_decay(age, self.params.ema))

    def teachers(self) -> list[nn.Module]:
        """The one teacher."""
        return [self.teacher]

    def predictors(self) -> dict[str, nn.Module]:
        """The teacher, which is what a user gets, and the student."""
        return {"teacher": self.teacher.net, "student": self.student}
