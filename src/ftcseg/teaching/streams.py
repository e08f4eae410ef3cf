"""UniMatch's three streams: two strong views, mixed with partners, and the weak view with some of its features gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ftcseg.nets.drop import FeatureDrop
from ftcseg.nets.norms import as_evaluated
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import Answers, ask_alone
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.pseudo import paste_pseudo, pseudo_labels, reordered
from ftcseg.types import Clock, Labeled, PseudoLabels, Unlabeled, ViewPlan
from ftcseg.views.mix import paste

Partner: TypeAlias = Literal["flip", "shuffle", "same_image"]
"""Whose pixels CutMix pastes: another image of the batch, at its mirror place or shuffled; or another crop of the same
image, which the views must hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """Who is pasted into whom in one step."""

    order: Tensor  # (B,) int64, the place of each image's partner in the batch
    crops: Unlabeled | None  # other crops of the same images; where there are any, they are the partners

    def paste_views(self, unlabeled: Unlabeled) -> list[Tensor]:
        """The strong views with boxes of their partners' pasted in."""
        others: Sequence[Tensor] = [view[self.order] for view in unlabeled.strong]
        if self.crops is not None:
            others = self.crops.strong
        mixing = zip(unlabeled.strong, others, unlabeled.boxes, strict=True)
        return [paste(view, other, box) for view, other, box in mixing]

    def paste_labels(
        self, pseudo: PseudoLabels, boxes: Sequence[Tensor], label: Callable[[Unlabeled], PseudoLabels]
    ) -> list[PseudoLabels]:
        """Labels of the whole batch mixed as its views are; `label` is asked about crops, which nobody labelled yet."""
        theirs = reordered(pseudo, self.order) if self.crops is None else label(self.crops)
        return [paste_pseudo(pseudo, theirs, box) for box in boxes]


def partners_for(unlabeled: Unlabeled, partner: Partner, seed: int) -> Partners:
    """The partners of this batch; a shuffled order is drawn from the seed, and may leave an image to itself."""
    count, device = len(unlabeled.weak), unlabeled.weak.device
    if partner == "flip":
        return Partners(torch.arange(count - 1, -1, -1, device=device), unlabeled.partner)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return Partners(order.to(device), unlabeled.partner)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What one network said of everything, and what it costs to learn what it was sure of in the weak view."""

    said: Answers
    disturbed: Tensor  # logits of the weak view with perturbed features
    pseudo: PseudoLabels  # of the weak view
    partners: Partners
    views: Tensor  # the loss of the strong views, their mean
    features: Tensor  # the loss of the disturbed view

    @property
    def unsup(self) -> Tensor:
        """Half of it is the strong views', half the perturbed features'."""
        return (self.views + self.features) / 2

    @property
    def parts(self) -> dict[str, Tensor]:
        """The halves, for the log."""
        return {"strong": self.views, "features": self.features}


@dataclass(frozen=True, slots=True)
class Streams:
    """One network in every role: it labels the weak view, and learns that from two strong views and a disturbed one."""

    drop: float
    """Share of the channels that the disturbed view loses."""
    partner: Partner
    seed: int

    @property
    def views(self) -> ViewPlan:
        """What of each unlabelled image is wanted."""
        return ViewPlan(strong=2, partner=self.partner == "same_image")

    def teach(self, pupil: Pupil, labeled: Labeled, unlabeled: Unlabeled, clock: Clock) -> Lesson:
        """One step's lesson, UniMatch's box line by line."""
        # 1  Both strong views are mixed with their partners.
        partners = partners_for(unlabeled, self.partner, seed_for(self.seed, "partner", clock.step))
        # 2  One network answers labels, weak view, strong views, and the weak view with some of its channels silenced.
        drop = FeatureDrop(seed=seed_for(self.seed, "drop", clock.step), rate=self.drop)
        shown = (labeled.images, unlabeled.weak, partners.paste_views(unlabeled))
        said, disturbed = ask_alone(pupil.student, shown, drop, pupil.params.norms)
        # 3  What it is sure of in the weak view teaches the other three streams.
        pseudo = pupil.judge(said, labeled, unlabeled)
        mixed = partners.paste_labels(pseudo, unlabeled.boxes, partial(label_as_evaluated, pupil.student))
        views, features = pupil.compare(said.strong, mixed), pupil.compare([disturbed], [pseudo])
        return Lesson(said, disturbed, pseudo, partners, views, features)


@torch.no_grad()
def label_as_evaluated(student: Segmenter, unlabeled: Unlabeled) -> PseudoLabels:
    """What a network says of weak views in evaluation mode."""
    with as_evaluated(student):
        return pseudo_labels(student(unlabeled.weak), unlabeled.valid)
