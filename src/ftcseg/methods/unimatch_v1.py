"""UniMatch, the first (Yang et al. 2023): two strong views and perturbed features, all taught by the network itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ftcseg.methods.base import Method
from ftcseg.nets.drop import FeatureDrop
from ftcseg.nets.norms import as_evaluated
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import ask_alone
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.pseudo import paste_pseudo, pseudo_labels, reordered
from ftcseg.teaching.thresholds.base import Thresholds, check_choices
from ftcseg.types import Clock, PseudoLabels, SemiBatch, StepResult, Unlabeled, ViewPlan
from ftcseg.views.mix import paste


@dataclass(frozen=True, slots=True, kw_only=True)
class UniMatchV1Params:
    """UniMatch V1's own settings."""

    drop: float = 0.5
    """Share of the channels that the perturbed features lose."""
    partner: Literal["flip", "shuffle", "same_image"] = "flip"
    """Whose pixels CutMix pastes: another image of the batch, at its mirror place or shuffled; or another crop of the
    same image, which is what the public code does without meaning to."""

    def __post_init__(self) -> None:
        check_choices(self)


class UniMatchV1(Method):
    """Three streams learn from what the network says of the weak view: two strong views, and the weak one perturbed."""

    def __init__(self, pupil: Pupil, params: UniMatchV1Params, seed: int = 0) -> None:
        super().__init__()
        self.pupil, self.params, self.seed = pupil, params, seed
        self.views = ViewPlan(strong=2, partner=params.partner == "same_image")

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled, pupil = batch.labeled, batch.unlabeled, self.pupil
        if unlabeled is None or pupil.burns_in(clock):
            return pupil.learn_labels(batch)
        # 1  Both strong views are mixed with their partners.
        order = self._order(len(unlabeled.weak), clock).to(unlabeled.weak.device)
        others: Sequence[Tensor] = [view[order] for view in unlabeled.strong]
        if unlabeled.partner is not None:
            others = unlabeled.partner.strong
        mixing = zip(unlabeled.strong, others, unlabeled.boxes, strict=True)
        strong = [paste(view, other, box) for view, other, box in mixing]
        # 2  One network answers labels, weak view, strong views, and the weak view with half of its channels silenced.
        drop = FeatureDrop(seed=seed_for(self.seed, "drop", clock.step), rate=self.params.drop)
        shown = (labeled.images, unlabeled.weak, strong)
        said, disturbed = ask_alone(pupil.student, shown, drop, pupil.params.norms)
        # 3  What it is sure of in the weak view teaches the other three streams.
        pseudo = pupil.judge(said, labeled, unlabeled)
        theirs = reordered(pseudo, order) if unlabeled.partner is None else self._label(unlabeled.partner)
        views = pupil.compare(said.strong, [paste_pseudo(pseudo, theirs, box) for box in unlabeled.boxes])
        features = pupil.compare([disturbed], [pseudo])
        # 4  L = (L_sup + (L_strong1 + L_strong2) / 4 + L_features / 2) / 2.
        result = pupil.conclude(said, labeled, pseudo, (views + features) / 2, clock)
        return replace(result, parts={**result.parts, "strong": views, "features": features})

    def _order(self, count: int, clock: Clock) -> Tensor:
        if self.params.partner == "flip":
            return torch.arange(count - 1, -1, -1)
        rng = torch.Generator().manual_seed(seed_for(self.seed, "partner", clock.step))
        return torch.randperm(count, generator=rng)

    @torch.no_grad()
    def _label(self, partner: Unlabeled) -> PseudoLabels:
        with as_evaluated(self.pupil.student):
            return pseudo_labels(self.pupil.student(partner.weak), partner.valid)

    def after_update(self, clock: Clock) -> None:
        """Nobody follows."""

    def teachers(self) -> list[nn.Module]:
        """There is none."""
        return []

    def predictors(self) -> dict[str, nn.Module]:
        """The one network."""
        return {"student": self.pupil.student}

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """The student labels its own weak views."""
        return self.pupil.student, self.pupil.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds per class, OPR per stage."""
        return self.pupil.facts()
