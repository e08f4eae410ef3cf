"""Dual Teacher (Na et al. 2023): two temporary teachers take turns, each with its own way of mixing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from ftcseg.losses.pixel import kept_loss, kept_share, pixel_loss, weight_map_loss
from ftcseg.methods.base import Method
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import random_for
from ftcseg.teaching.answers import ask_student
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import paste_pseudo, pseudo_labels, reordered
from ftcseg.teaching.teacher import follow, make_teacher, warm_decay
from ftcseg.teaching.turns import Turn, turn_at
from ftcseg.types import Clock, PseudoLabels, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import half_of_the_classes, paste, share_box


@dataclass(frozen=True, slots=True, kw_only=True)
class DualTeacherParams:
    """Dual Teacher's own settings."""

    epoch_steps: int | None = None
    """Steps of a teacher's turn, an epoch in the paper; None is the run's epoch, but at least 20 steps and at most a
    tenth of the run (ours, so that both teach in a short run)."""
    ic_weight: float = 0.2
    """Weight of the consistency of strong views that are not mixed (released code)."""
    beta: float = 4.0
    """A CutMix box covers a share drawn from Beta(beta, beta) (released code)."""


class DualTeacher(Method):
    """In even turns the first teacher labels and boxes are mixed, in odd ones the second teacher and classes."""

    views = ViewPlan(strong=1, cutmix=False)  # its boxes are drawn here

    def __init__(self, pair: Pair, params: DualTeacherParams, seed: int = 0) -> None:
        super().__init__(pair)
        self.params, self.seed = params, seed
        self.second = make_teacher(pair.student)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        turn, rules, (strong,) = self._turn(clock), self.pair.thresholds, unlabeled.strong
        # 1  The teacher whose turn it is reads the weak view.
        teacher = self._teacher(turn.is_second)
        with torch.no_grad():
            weak = teacher(unlabeled.weak)
            taught = teacher(labeled.images) if rules.asks_teacher else None
        # 2  Strong views are mixed: boxes in the first teacher's turn, classes in the second's.
        images, mixed = self._mixed(strong, pseudo_labels(weak, unlabeled.valid), turn, clock)
        # 3  The student answers labels, mixed views, and the strong views as they are.
        said = ask_student(self.pair.student, labeled.images, [images, strong], weak, self.pair.params.norms)
        pseudo = self.pair.judge(replace(said, taught=taught), labeled, unlabeled)
        # 4  Every mixed pixel counts, by the share of sure ones: of its image (boxes) or of the batch (classes).
        share = kept_share(rules.accept(mixed), mixed.valid, of_each=not turn.is_second)
        unsup = weight_map_loss(said.strong[0], mixed, share.expand_as(mixed.conf))
        # 5  Unmixed, only sure pixels count.
        ic = kept_loss(said.strong[1], pseudo, rules.accept(pseudo))
        # 6  L = L_sup + w (L_mix + 0.2 L_ic), and what OPR adds.
        sup, extra = pixel_loss(said.labeled, labeled.labels), self.pair.opr_losses(said, labeled)
        whole = sup + self.pair.weight(clock) * (unsup + self.params.ic_weight * ic)
        loss = torch.stack([whole, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, "ic": ic, **extra}, self.pair.counts(pseudo))

    def after_update(self, clock: Clock) -> None:
        """The teacher whose turn it is follows, anew in each turn; until the burn-in ends both are the student."""
        turn, following = self._turn(clock), self._turn(clock.tick())
        if self.pair.burns_in(clock):
            decays = {False: 0.0, True: 0.0}
        else:
            decays = {turn.is_second: warm_decay(turn.place, self.pair.params.ema)}
            if following.number > turn.number:  # nobody is taught by what was left of a teacher one turn ago
                decays[following.is_second] = 0.0
        for is_second, decay in decays.items():
            follow(self._teacher(is_second), self.pair.student, decay)

    def teachers(self) -> list[nn.Module]:
        """Both of them."""
        return [self.pair.teacher, self.second]

    def predictors(self) -> dict[str, nn.Module]:
        """The student first: the paper evaluates nobody else. Its teachers come and go; the first stands for both."""
        return {"student": self.pair.student, "teacher": self._teacher(False)}

    def _mixed(self, strong: Tensor, pseudo: PseudoLabels, turn: Turn, clock: Clock) -> tuple[Tensor, PseudoLabels]:
        rng = random_for(self.seed, "dual-teacher", clock.step)
        order = torch.from_numpy(rng.permutation(len(strong))).to(strong.device)
        if turn.is_second:
            where = ~half_of_the_classes(pseudo.labels, pseudo.valid, rng)
        else:
            where = torch.stack([self._box(image, rng) for image in strong]).to(strong.device)
        return paste(strong, strong[order], where), paste_pseudo(pseudo, reordered(pseudo, order), where)

    def _box(self, image: Tensor, rng: np.random.Generator) -> Tensor:
        height, width = image.shape[-2:]
        return share_box(height, width, rng.beta(self.params.beta, self.params.beta), rng)

    def _turn(self, clock: Clock) -> Turn:
        return turn_at(clock, self.pair.params.burn_in, self.params.epoch_steps)

    def _teacher(self, is_second: bool) -> Segmenter:
        return cast("Segmenter", (self.second if is_second else self.pair.teacher).net)
