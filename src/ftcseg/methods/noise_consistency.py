"""Noise-robust consistency (after Zhang et al. 2025): what the teacher says must survive several ways of denoising.

Written from what is said about the paper, not from the paper: docs/methods/noise-consistency.md tells what is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ftcseg.errors import UsageError, unknown_name
from ftcseg.losses.pixel import weight_map_loss
from ftcseg.methods.base import Method
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.vote import vote
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.filters import FILTERS
from ftcseg.views.mix import paste_partner


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConsistencyParams:
    """All of it is ours: the paper's numbers are not known to us."""

    views: tuple[str, ...] = ("median", "gaussian", "lee")
    """The denoised views that the teacher reads, by their names in views/filters.py."""
    with_weak: bool = False
    """Whether the weak view itself votes, too."""
    sharpness: float = 1.0
    """A pixel weighs agreement ** sharpness; 0 lets all pixels weigh alike."""

    def __post_init__(self) -> None:
        for name in self.views:
            if name not in FILTERS:
                raise unknown_name("view", name, FILTERS)
        if not self.views and not self.with_weak:
            raise UsageError("params.views names no view for the teacher. Name one, or set params.with_weak=true.")


class NoiseConsistency(Method):
    """The teacher reads denoised views and labels by their mean; where they disagree, little is learnt."""

    def __init__(self, pair: Pair, params: NoiseConsistencyParams) -> None:
        super().__init__(pair)
        self.params = params
        self.views = ViewPlan(strong=1, filters=params.views)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """What the method's name promises, in four lines."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        # 1  The teacher reads every denoised view; the student labels and the mixed strong view, noise and all.
        calm = [unlabeled.filtered[name] for name in self.params.views]
        calm += [unlabeled.weak] if self.params.with_weak else []
        said = self.pair.ask(labeled, replace(unlabeled, weak=torch.cat(calm)), [paste_partner(view, box)])
        # 2  The views vote; the mean of their probabilities makes the pseudo-labels.
        together, agreement = vote(said.weak.chunk(len(calm)))
        pseudo = self.pair.judge(replace(said, weak=together), labeled, unlabeled)
        # 3  A kept pixel weighs as much as the views agree about it.
        mixed = mix_pseudo(pseudo, box)
        weights = paste_partner(agreement, box).pow(self.params.sharpness) * self.pair.thresholds.accept(mixed)
        unsup = weight_map_loss(said.strong[0], mixed, weights, normaliser=self.pair.params.normaliser)
        # 4  L = (L_sup + w L_unsup) / 2.
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
