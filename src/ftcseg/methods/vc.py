"""VC (Chen et al. 2024): where two opinions of a pixel differ, it learns what it is not, with a virtual category.

A pixel of which nobody knows whether it is t or q can still be told apart from all other classes. It gets a category of
its own, whose weights a small network makes for it, and is drawn to that; t and q stay out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.virtual import likeness_loss, virtual_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.heads.base import resize
from ftcseg.nets.opr import labels_at
from ftcseg.nets.virtual import WeightGenerator
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import Answers, ask_labeled
from ftcseg.teaching.potential import flipped_opinion, hardest, potential_labels
from ftcseg.types import IGNORE, Clock, Labeled, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import erase


@dataclass(frozen=True, slots=True, kw_only=True)
class VCParams:
    """VC's own settings."""

    low: float = 0.8
    """Confidence below which a pixel is dropped; the code's 0.8 (0.6 on VOC). The upper one is the run's threshold."""
    sharpen: float = 0.5
    """Temperature of the teacher's probabilities; the code's 0.5, which squares them."""
    weight: float = 3.0
    """What a pixel with a virtual category counts beside one whose opinions agree; the code's 3."""
    hard: float = 0.2
    """Share of each class's labelled pixels, the least known ones, that the generator learns from; the code's 0.2."""
    hidden: int = 64
    """Width of the generator's feed-forward part; the code's 64."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 or self.sharpen <= 0 or not 0 < self.hard <= 1:
            raise UsageError("VC needs low from 0 to 1, sharpen above 0, and hard above 0 and at most 1.")


class VC(Method):
    """A sharpened teacher and a mirrored student; what they disagree about becomes a category of its own."""

    views = ViewPlan(strong=1, labeled_strong=True)

    def __init__(self, kit: Kit, params: VCParams) -> None:
        super().__init__(kit.pair())
        self.params = params
        with torch.random.fork_rng(devices=[]):  # its own start, whatever was drawn before
            torch.manual_seed(seed_for(kit.seed, "generator"))
            self.generator = WeightGenerator(kit.net.head.classifier.in_channels, params.hidden)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        # 1  The student sees strong views only, of labelled images too; boxes are erased and not pasted.
        labeled, unlabeled, student = _erased(batch.labeled), batch.unlabeled, self.pair.student
        if unlabeled is None or self.pair.burns_in(clock):
            said = ask_labeled(student, labeled.images)
            return _added(self.pair.conclude_labels(said, labeled), self._learn_labels(said, labeled))
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        said = self.pair.ask(labeled, unlabeled, [erase(view, box)])
        # 2  t: what the teacher says of the weak view, sharpened.
        said = replace(said, weak=said.weak / self.params.sharpen)
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 3  q: where the teacher is sure, what the student says in a mirror; else the teacher's second choice.
        sure = self.pair.thresholds.accept(pseudo)
        other = potential_labels(said.weak, sure, flipped_opinion(student, unlabeled.weak))
        keep = (sure | (pseudo.conf >= self.params.low)) & pseudo.valid
        # 4  z_vc: what a pixel's own weights say of it. They are made for it and take no gradient from what they say.
        made, virtual = self._virtual(said)
        # 5  t == q: cross-entropy. t != q: the virtual category against all classes but these two.
        agree = pseudo.labels == other
        counts = torch.where(agree, 1.0, self.params.weight) * keep
        unsup = virtual_loss(said.strong[0], virtual, pseudo, other, counts, self.pair.params.normaliser)
        # 6  The generator learns to make the weights of known classes: of hard labels, and of pixels agreed upon.
        agreed = pseudo.labels.masked_fill(~(keep & agree), IGNORE)
        learnt = self._learn_labels(said, labeled) + self._learn(made, agreed)
        # 7  L = (L_sup + L_unsup) / 2 + L_generator; nothing of the last reaches the student.
        return _added(self.pair.conclude(said, labeled, pseudo, unsup, clock), learnt)

    def _virtual(self, said: Answers) -> tuple[Tensor, Tensor]:
        """The weights made for every cell of the strong view, (B, width, h, w), and z_vc, (B, H, W)."""
        assert said.embedded is not None
        (embedding,) = said.embedded.strong
        made = self.generator(embedding, self._weights())
        logit = (embedding * made.detach()).sum(1, keepdim=True)
        return made, resize(logit, said.weak.shape[-2:])[:, 0]

    def _learn_labels(self, said: Answers, labeled: Labeled) -> Tensor:
        assert said.embedded is not None
        embedding, weights = said.embedded.labeled.detach(), self._weights()
        labels = labels_at(labeled.labels, embedding.shape[-2:])
        with torch.no_grad():
            true = self.pair.student.head.classifier(embedding).softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
        chosen = hardest(true, labels, len(weights), self.params.hard)
        made = self.generator(embedding.movedim(1, -1)[chosen][:, :, None, None], weights)
        return likeness_loss(made.flatten(1), weights[labels[chosen]])

    def _learn(self, made: Tensor, labels: Tensor) -> Tensor:
        cells = labels_at(labels, made.shape[-2:])
        return likeness_loss(made.movedim(1, -1)[cells != IGNORE], self._weights()[cells[cells != IGNORE]])

    def _weights(self) -> Tensor:
        return self.pair.student.head.classifier.weight.detach().flatten(1)


def _erased(labeled: Labeled) -> Labeled:
    return labeled if labeled.boxes is None else replace(labeled, images=erase(labeled.images, labeled.boxes))


def _added(result: StepResult, learnt: Tensor) -> StepResult:
    return replace(result, loss=result.loss + learnt, parts={**result.parts, "generator": learnt})
