"""DASO (Oh et al. 2022) for segmentation: FixMatch whose pseudo-labels blend the classifier with likeness to classes.

The classifier of a long-tailed set calls too much by its common classes, likeness to class means by its rare ones. A
pixel listens to likeness the more, the commoner the class is that the classifier sees in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.extra import soft_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import Answers
from ftcseg.teaching.blend import LabelShares, blend
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.queues import ClassQueues, draw_by_class
from ftcseg.types import Clock, Labeled, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


@dataclass(frozen=True, slots=True, kw_only=True)
class DASOParams:
    """DASO's own settings."""

    queue: int = 256
    """Vectors remembered of each class; the paper's 256."""
    pixels: int = 16
    """Ours: labelled pixels of each class that enter its queue in a step. The paper's images are one vector each."""
    temperature: float = 0.05
    """Of the likeness to class means; the paper's 0.05."""
    flatten: float = 1.5
    """T_dist, how much the shares of pseudo-labels are flattened before they decide; the paper's 1.5."""
    refresh: int = 100
    """Steps that the shares are counted over, the paper's 100; at most as long as the pretraining."""
    pretrain: float = 0.02
    """Share of the run after the burn-in that is plain FixMatch: the paper's 5000 of 250,000 updates. It lasts at least
    until a queue can be full, queue / pixels steps."""
    align: float = 1.0
    """Weight of the alignment loss beside the unsupervised one; the paper's 1."""

    def __post_init__(self) -> None:
        if min(self.queue, self.pixels, self.refresh) < 1 or not (self.temperature > 0 and self.flatten > 0):
            raise UsageError("DASO needs queue, pixels and refresh of at least 1, and temperatures above 0.")


class DASO(Method):
    """The classifier's and the class means' opinion of a pixel become one pseudo-label, and both learn from it."""

    views = ViewPlan(strong=1)

    def __init__(self, kit: Kit, params: DASOParams) -> None:
        super().__init__(kit.pair())
        self.params, self.seed = params, kit.seed
        self.queues = ClassQueues(len(kit.classes), kit.net.head.classifier.in_channels, params.queue)
        self.shares = LabelShares(len(kit.classes))

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        # 1  The teacher reads weak views and labelled images; the student labelled images and the mixed strong view.
        said = self.pair.ask(labeled, unlabeled, [paste_partner(view, box)], taught=True)
        # 2  Labelled pixels, as the teacher sees them, enter the queues of their classes.
        self._remember(said, labeled, clock)
        more: dict[str, Tensor] = {}
        if self._age(clock) >= self._pretraining(clock) and bool(self.queues.known().any()):
            # 3  q: how much a pixel looks like each class's mean, in the teacher's eyes and in the student's.
            weak, strong = self._likeness(said)
            # 4  p' = (1 - v) p + v q; the commoner the class that p sees, the more q has to say.
            said = replace(said, weak=blend(said.weak, weak, self.shares.trust(self.params.flatten)))
            # 5  The strong view is to resemble the classes that the weak one does.
            align = soft_loss(strong, paste_partner(weak, box).softmax(1), paste_partner(unlabeled.valid, box))
            more = {"align": self.params.align * self.pair.weight(clock) / 2 * align}
        # 6  Pixels that are sure enough of p' become labels: FixMatch.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        self.shares.observe(pseudo)
        unsup = self.pair.compare(said.strong, [mix_pseudo(pseudo, box)])
        # 7  L = (L_sup + L_unsup + L_align) / 2; the part «align» is logged as it counts.
        result = self.pair.conclude(said, labeled, pseudo, unsup, clock)
        return replace(result, loss=result.loss + sum(more.values()), parts={**result.parts, **more})

    def after_update(self, clock: Clock) -> None:
        """The teacher follows; at the end of a period the shares of pseudo-labels are those of the period."""
        self.pair.follow(clock)
        # Never longer than the pretraining, so that there are shares when it ends.
        if self._age(clock.tick()) % min(self.params.refresh, self._pretraining(clock)) == 0:
            self.shares.turn()

    def facts(self) -> Mapping[str, Tensor]:
        """Beside the pair's: how far likeness is trusted per class, and how many vectors each queue holds."""
        trust = self.shares.trust(self.params.flatten)
        return {**self.pair.facts(), "trust": trust, "queued": self.queues.filled.clone()}

    def _remember(self, said: Answers, labeled: Labeled, clock: Clock) -> None:
        assert said.embedded is not None
        assert said.embedded.taught is not None
        seed = seed_for(self.seed, "queue", clock.step)
        classes = len(self.queues.filled)
        self.queues.push(*draw_by_class(said.embedded.taught, labeled.labels, classes, self.params.pixels, seed))

    def _likeness(self, said: Answers) -> tuple[Tensor, Tensor]:
        assert said.embedded is not None
        size, temperature = said.weak.shape[-2:], self.params.temperature
        weak, strong = said.embedded.weak, said.embedded.strong[0]
        return self.queues.likeness(weak, size, temperature), self.queues.likeness(strong, size, temperature)

    def _age(self, clock: Clock) -> int:
        return clock.step - self.pair.params.burn_in

    def _pretraining(self, clock: Clock) -> int:
        share = self.params.pretrain * (clock.total - self.pair.params.burn_in)
        return max(math.ceil(share), math.ceil(self.params.queue / self.params.pixels))
