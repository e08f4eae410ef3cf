"""FTC-Seg's step as a textbook would write it, to compare memory and time with.

The same networks, views, thresholds and numbers as the real step, so that both learn the same; and none of its care:

attention    softmax(q kT) v with the whole matrix of tokens times tokens, forward and backward
ReLU6        torch's own in place, which copies its input first
teacher      a copy with gradients, asked with autograd on; what it says keeps its graph until the step is over
probabilities  of every class at every pixel, and the winner looked up in them
losses       labels as one-hot floats, multiplied with all log-probabilities; masks as floats
EMA          one tensor after the other, each through two temporaries
optimiser    one tensor after the other (`optim.implementation=loop`, set by the rig)

What is not a matter of how the step is written stays: batches, the guard, the log, channels_last.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.methods.base import Method
from ftcseg.methods.ftc import FTCSeg
from ftcseg.methods.unimatch_v2 import UniMatchV2
from ftcseg.nets import relu6
from ftcseg.nets.drop import ComplementaryDrop
from ftcseg.nets.norms import still_statistics
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import seed_for
from ftcseg.teaching.features import feature_losses
from ftcseg.teaching.pseudo import mix_pseudo, pseudo_counts, soft_counts
from ftcseg.teaching.ramp import is_burn_in, ramp
from ftcseg.teaching.teacher import warm_decay
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import IGNORE, Clock, Labeled, PseudoLabels, SemiBatch, StepResult, Unlabeled
from ftcseg.views.mix import paste_partner

PAIR = 2  # strong views that complementary dropout is made for


class PlainStep(Method):
    """The step of `ftc` and `unimatch-v2`, written without care."""

    def __init__(self, method: FTCSeg | UniMatchV2) -> None:
        super().__init__()
        self.views, self.teaching, self.seed = method.views, method.pair.params, method.seed
        self.student, self.thresholds = method.pair.student, method.pair.thresholds
        self.drops = method.params.comp_drop and method.views.strong == PAIR
        # In a list and not a part of the module: with gradients asked for, the optimiser would train it.
        self._teacher = [copy.deepcopy(self.student).requires_grad_(True).eval()]

    @classmethod
    def of(cls, method: Method) -> PlainStep:
        """The plain twin of a method; UsageError for those that have none."""
        if not isinstance(method, FTCSeg | UniMatchV2):
            raise UsageError("The plain step is written for ftc (all its readings) and unimatch-v2 only.")
        return cls(method)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """As in methods/ftc.py."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        with plain_layers():
            if unlabeled is None or is_burn_in(clock, self.teaching.burn_in):
                maps = self.student.features(labeled.images)
                logits = self.student.decode(maps, labeled.images.shape[-2:])
                return self._concluded(plain_loss(logits, labeled.labels), None, maps, labeled)
            weak: Tensor = self._teacher[0](unlabeled.weak)
            logits, strong, maps = self._ask(labeled, unlabeled, clock)
        conf, guess = weak.softmax(1).max(1)
        pseudo = PseudoLabels(guess, conf, unlabeled.valid)
        soft = soft_counts(weak, unlabeled.valid) if self.thresholds.needs_soft else None
        self.thresholds.observe(target=labeled.labels, logits=logits, pseudo=pseudo, soft=soft)
        losses = [self._unsup(z, mix_pseudo(pseudo, box)) for z, box in zip(strong, unlabeled.boxes, strict=True)]
        unsup = torch.stack(losses).mean()
        weight = self.teaching.unsup_weight * ramp(clock, self.teaching.burn_in, self.teaching.ramp)
        sup = plain_loss(logits, labeled.labels)
        result = self._concluded((sup + weight * unsup) / 2, pseudo, maps, labeled)
        return StepResult(result.loss, {"sup": sup, "unsup": unsup, **result.parts}, result.pseudo)

    def after_update(self, clock: Clock) -> None:
        """The teacher follows, tensor by tensor."""
        decay = warm_decay(max(0, clock.step - self.teaching.burn_in), self.teaching.ema)
        with torch.no_grad():
            for old, new in zip(_tensors(self._teacher[0]), _tensors(self.student), strict=True):
                old.copy_(decay * old + (1 - decay) * new if old.is_floating_point() else new)

    def teachers(self) -> list[nn.Module]:
        """The one teacher."""
        return list(self._teacher)

    def predictors(self) -> dict[str, nn.Module]:
        """The student."""
        return {"student": self.student}

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """The teacher, and the rule."""
        return self._teacher[0], self.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds."""
        return self.thresholds.facts()

    def _ask(
        self, labeled: Labeled, unlabeled: Unlabeled, clock: Clock
    ) -> tuple[Tensor, Sequence[Tensor], list[Tensor]]:
        """The student's logits of labelled images and of each strong view, and its maps of the labelled images."""
        mixed = [paste_partner(view, box) for view, box in zip(unlabeled.strong, unlabeled.boxes, strict=True)]
        drop = ComplementaryDrop(seed=seed_for(self.seed, "drop", clock.step)) if self.drops else None
        size, count, still = labeled.images.shape[-2:], len(labeled.images), self.teaching.norms == "labeled"
        if still:
            maps = self.student.features(labeled.images)
        else:
            together = self.student.features(torch.cat([labeled.images, *mixed]))
            maps, others = [m[:count] for m in together], [m[count:] for m in together]
        with still_statistics(self.student) if still else nullcontext():
            if still:
                others = self.student.features(torch.cat(mixed))
            strong = self.student.decode(others, size, drop).chunk(len(mixed))
        return self.student.decode(maps, size), strong, maps

    def _unsup(self, logits: Tensor, pseudo: PseudoLabels) -> Tensor:
        keep = (self.thresholds.accept(pseudo) & pseudo.valid).float()
        valid, normaliser = pseudo.valid.float(), self.teaching.normaliser
        surprise = plain_surprise(logits, pseudo.labels)
        if self.teaching.balance == "class":
            base = keep if normaliser == "kept" else valid
            one_hot = _one_hot(pseudo.labels, logits.shape[1])
            pixels = (one_hot * base.unsqueeze(1)).sum((0, 2, 3))
            weights = 1 / (pixels.clamp(min=1) * (pixels > 0).sum().clamp(min=1))
            return (surprise * keep * (one_hot * weights.view(1, -1, 1, 1)).sum(1)).sum()
        if normaliser == "hw":
            return (surprise * keep).mean()
        return (surprise * keep).sum() / (valid if normaliser == "valid" else keep).sum().clamp(min=1)

    def _concluded(self, loss: Tensor, pseudo: PseudoLabels | None, maps: list[Tensor], labeled: Labeled) -> StepResult:
        extra = feature_losses(self.student, maps, labeled.labels)
        counts = None
        if pseudo is not None:
            counts = pseudo_counts(pseudo, self.thresholds.accept(pseudo), self.student.num_classes)
        return StepResult(torch.stack([loss, *extra.values()]).sum(), extra, counts)


def plain_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over known pixels."""
    known = (labels != IGNORE).float()
    return (plain_surprise(logits, labels) * known).sum() / known.sum().clamp(min=1)


def plain_surprise(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy at every pixel, (B, H, W): a one-hot float for each class, and all log-probabilities."""
    return -(_one_hot(labels, logits.shape[1]) * logits.softmax(1).clamp(min=1e-38).log()).sum(1)


@contextmanager
def plain_layers() -> Iterator[None]:
    """Inside, attention builds its matrix of tokens times tokens and ReLU6 is torch's, whoever computes them."""
    attention, thrifty = F.scaled_dot_product_attention, relu6.relu6_
    F.scaled_dot_product_attention = _attention  # type: ignore[assignment]
    relu6.relu6_ = partial(F.relu6, inplace=True)
    try:
        yield
    finally:
        F.scaled_dot_product_attention, relu6.relu6_ = attention, thrifty


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return scores.softmax(dim=-1) @ value


def _one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B, num_classes, H, W) float; nobody's pixels count as class 0, and are masked by whoever asks."""
    return F.one_hot(labels.clamp(min=0), num_classes).permute(0, 3, 1, 2).float()


def _tensors(net: Segmenter) -> list[Tensor]:
    return [*net.parameters(), *net.buffers()]
