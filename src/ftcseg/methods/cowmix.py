"""Noise suppression with cow masks (Scherer et al. 2022): a student anew, a teacher that does not move, doubted pixels.

The run's first part learns from labels. What comes of it labels the second part, whose student begins from the start;
its pixels weigh as much as the student itself believes them, so that wrong labels, which it is slow to learn, fade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import pixel_loss, weighted_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import random_for
from ftcseg.teaching.answers import ask
from ftcseg.teaching.pseudo import mix_pseudo, probability_of
from ftcseg.teaching.rounds import Rounds, equal_starts, long_enough
from ftcseg.teaching.teacher import follow, make_teacher
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import draw_cow_mask, paste_partner

SUPERVISED = 0.3
"""Share of the run that learns from labels where no burn-in is set; the paper's is a run of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CowMixParams:
    """The settings of the paper and its code."""

    rounds: int = 1
    """Students that begin anew after the supervised part, each taught by the one before."""
    anew: bool | None = None
    """Whether those students begin with the run's first weights, as the paper's do; None: where a round has 300 steps
    or more (ours), else the student goes on and only its teacher changes."""
    labels_every: int = 4
    """Every so many-th step learns from labels alone, as in the public code; 0: none does."""
    apart: bool = False
    """Whether the other steps learn from mixed images alone, as in the public code, and not from labels beside them."""
    weights: bool = True
    """The noise suppression: pixels weigh what the student believes of them. False: all weigh alike."""
    filter: bool = False
    """Ours: pixels must also reach the run's threshold. The paper has none."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.labels_every < 0:
            raise UsageError("CowMix needs rounds >= 1 and labels_every >= 0.")


class CowMix(Method):
    """Pairs of unlabelled images, mixed by cow masks, against a fixed teacher's labels."""

    views = ViewPlan(strong=0, cutmix=False)

    def __init__(self, kit: Kit, params: CowMixParams) -> None:
        super().__init__(kit.pair())
        self.params, self.seed, self.burn_in = params, kit.seed, kit.teaching.burn_in
        self.labeler_net = make_teacher(self.pair.student)
        first = self.burn_in or round(SUPERVISED * kit.steps)
        starts = (0, first, *equal_starts(kit.steps, params.rounds, first)[1:])
        anew = long_enough(starts, kit.steps) if params.anew is None else params.anew
        self.rounds = Rounds(self.pair.student, starts, kit.steps, anew=anew)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The supervised part, and then the algorithm box, numbered."""
        labeled, unlabeled, pair = batch.labeled, batch.unlabeled, self.pair
        if unlabeled is None or self._labels_alone(clock):
            return pair.learn_labels(batch)
        # 1  Each image is mixed with its partner by a cow mask of its own.
        masks = self._masks(unlabeled.valid, clock)
        mixed = paste_partner(unlabeled.weak, masks)
        # 2  The fixed teacher labels the images as they are; the student reads them so, too, and mixed.
        shown = (labeled.images, unlabeled.weak, [mixed, unlabeled.weak])
        teacher = cast("Segmenter", self.labeler_net.net)
        said = ask(pair.student, teacher, shown, None, pair.params.norms, pair.thresholds.asks_teacher)
        pseudo = pair.judge(said, labeled, unlabeled)
        keep = pair.thresholds.accept(pseudo) if self.params.filter else pseudo.valid
        # 3  A label weighs as much as the student believes it, seeing the whole image.
        believed = probability_of(pseudo.labels, said.strong[1])
        weighed = replace(pseudo, conf=believed if self.params.weights else torch.ones_like(believed))
        # 4  Labels and weights are mixed as the images were.
        unsup = weighted_loss(said.strong[0], mix_pseudo(weighed, masks), paste_partner(keep, masks))
        # 5  L = (L_sup + L_unsup) / 2, or L_unsup alone.
        sup, weight = pixel_loss(said.labeled, labeled.labels), pair.weight(self.rounds.teaching(clock, self.burn_in))
        loss = weight * unsup if self.params.apart else (sup + weight * unsup) / 2
        extra = pair.opr_losses(said, labeled)
        loss = torch.stack([loss, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, **extra}, pair.counts(pseudo))

    def after_update(self, clock: Clock) -> None:
        """The running mean follows; where a part ends it becomes the fixed teacher, and a new student begins."""
        self.pair.follow(self.rounds.teaching(clock, self.burn_in))
        if self.rounds.turns(clock):
            follow(self.labeler_net, self.pair.teacher.net, decay=0)
            self.rounds.begin(self.pair.student, clock)
            if self.rounds.anew:
                follow(self.pair.teacher, self.pair.student, decay=0)

    def labels_first(self, clock: Clock) -> int:  # noqa: ARG002 - the rounds know
        """The supervised part, in which the first labeler learns."""
        return self.rounds.starts[1]

    def pace(self, clock: Clock) -> Clock:
        """Every round has the whole schedule of the learning rate to itself."""
        return self.rounds.pace(clock)

    def teachers(self) -> list[nn.Module]:
        """The running mean, which is evaluated, and the fixed teacher."""
        return [self.pair.teacher, self.labeler_net]

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """The fixed teacher; the rule only filters where it is asked to."""
        return self.labeler_net.net, self.pair.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """Beside the pair's, the round."""
        return {**self.pair.facts(), "round": self.rounds.number.clone()}

    def _labels_alone(self, clock: Clock) -> bool:
        number, every = self.rounds.at(clock), self.params.labels_every
        age = clock.step - self.rounds.starts[number]
        return number == 0 or (every > 0 and age % every == every - 1)

    def _masks(self, like: Tensor, clock: Clock) -> Tensor:
        count, height, width = like.shape
        rng = random_for(self.seed, "cow", clock.step)
        return torch.stack([draw_cow_mask(height, width, rng) for _ in range(count)]).to(like.device)
