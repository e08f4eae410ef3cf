"""Adaptive Threshold Calibration (ATC): the paper's section 3.3.

    P_l  how often a class occurs on labels          M_diff = 1 - A_l                 badly known: lower the threshold
    P_u  how often the teacher sees it elsewhere     M_bias = P_u / (P_l + eps) - 1   seen too often: raise it
    A_l  how well the student knows it on labels     tau    = tau0 - lambda_d * M_diff + lambda_b * M_bias

With the default parameters tau stays within 0.80 and 0.98, since a ratio cannot push below -lambda_b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import class_counts, pseudo_counts
from ftcseg.teaching.thresholds.base import Thresholds, check_choices
from ftcseg.types import IGNORE, PseudoLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class ATCParams:
    """What ATC can be told; the defaults are those of the released code."""

    tau0: float = 0.95
    """Threshold before calibration; the paper names it in one appendix caption only (reading B1)."""
    lambda_d: float = 0.1
    """Weight of the difficulty."""
    lambda_b: float = 0.05
    """Weight of the bias."""
    momentum: float = 0.999
    """Memory of the three statistics; shorter runs want `scaled_momentum`."""
    clip: tuple[float, float] | None = (0.5, 0.98)
    """Range of tau; None as printed (reading B2)."""
    bias_clip: float | None = 0.1
    """Most that the bias may push either way; None as printed, where a rare class can end above 1 (reading B2)."""
    init: Literal["uniform_ones", "dataset"] = "uniform_ones"
    """Start of P_l and P_u: equal shares, or those of the labeled set. A_l starts at one (reading B3)."""
    absent: Literal["keep", "zero"] = "keep"
    """A class without labels in the batch keeps its accuracy, or counts as never hit (reading B4)."""
    pu: Literal["all", "kept", "soft"] = "all"
    """P_u over all valid pixels, over accepted ones, or by the teacher's probabilities (reading B5)."""
    acc: Literal["recall", "iou"] = "recall"
    """What accuracy means (reading B6)."""
    acc_model: Literal["student", "teacher"] = "student"
    """Whose accuracy; the teacher's costs a forward more on the labeled images (reading B6)."""
    eps: float = 1e-6
    """Keeps quotients and logarithms finite (reading B8)."""
    pl: Literal["batch", "dataset"] = "batch"
    """P_l follows the augmented batches, or stays the labeled set's (reading B10)."""
    mode: Literal["full", "difficulty", "bias"] = "full"
    """Which of the two signals move tau."""
    difficulty: Literal["accuracy", "confidence"] = "accuracy"
    """What a class lacks that M_diff lowers its threshold: accuracy on labels, as printed; or, ours, the teacher's mean
    confidence in what it calls so. Few labels are soon known by heart, while a teacher is unsure of what it overlooks.
    It is unsure of a class that spreads where it is not, too, so that the bias term must hold that back."""
    bias_form: Literal["ratio", "log_ratio", "log_odds"] = "ratio"
    """M_bias as printed; or, ours, log P_u/P_l; or logit P_u - logit P_l, which also moves for a class that fills
    nearly everything: from a share of 0.95 to 0.97 the ratio says 0.02, the odds 0.53."""
    bias_margin: float = 0.0
    """Ours: how far the labels' shares are doubted, in standard errors. A share read off n labelled images is off by
    about 1 / sqrt(n) of itself; so much of M_bias, times this, is forgiven either way. 0 takes them at their word."""
    rival: float | None = None
    """Ours: where another class is at least so many times as likely as the commonest one, both measured by their share
    of the labels, the commonest one is not learnt. With shares of 0.96 and 0.003 and a rival of 1, a probability of
    0.4 % is enough to save an object from being taught as background. None asks for no rivals."""
    adjust: float = 0.0
    """Ours: the power of the labels' class shares that is divided out of the teacher's probabilities before it names a
    pixel. With shares of 0.96 and 0.003 and a power of 0.25, an object wins from a probability of 19 % on. 0 takes the
    teacher's word; 1 asks what a pixel would be if all classes were equally common."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.momentum < 1 or self.eps <= 0:
            raise UsageError(f"ATC needs 0 <= momentum < 1 and eps > 0, not {self.momentum} and {self.eps}.")
        if self.rival is not None and self.rival <= 0:
            raise UsageError(f"atc.rival cannot be {self.rival}: it must be more than 0, or null for none.")
        if self.bias_margin < 0:
            raise UsageError(f"atc.bias_margin cannot be {self.bias_margin}: it must be 0 or more.")
        if self.adjust < 0:
            raise UsageError(f"atc.adjust cannot be {self.adjust}: it must be 0 or more.")
        if self.pl == "dataset" and self.init != "dataset":
            raise UsageError("pl: dataset needs init: dataset, or every rare class starts out as seen too often.")


class ATC(Thresholds):
    """Class thresholds from what the student knows and what the teacher sees."""

    prior: Tensor  # (num_classes,) P_l
    predicted: Tensor  # (num_classes,) P_u
    accuracy: Tensor  # (num_classes,) A_l
    confidence: Tensor  # (num_classes,) the teacher's, of what it calls a class; only where it is the difficulty
    doubt: Tensor  # (num_classes,) standard error of P_l as a share of itself; only with a bias_margin
    bias_clamped_steps: Tensor  # (num_classes,) int64, observed steps in which bias_clip bound
    tau_clamped_steps: Tensor  # (num_classes,) int64, observed steps in which clip bound
    skipped_steps: Tensor  # () int64, steps with non-finite numbers, which left no other trace

    def __init__(
        self,
        num_classes: int,
        params: ATCParams,
        labeled_pixels: Tensor | None = None,
        labeled_images: Tensor | None = None,
    ) -> None:
        """Labelled pixels of every class, and on how many labelled images it is; one where nobody tells."""
        super().__init__()
        self.params, self.num_classes = params, num_classes
        self.needs_soft, self.asks_teacher = params.pu == "soft", params.acc_model == "teacher"
        pixels = labeled_pixels if params.init == "dataset" else torch.ones(num_classes)
        if pixels is None or pixels.shape != (num_classes,) or not pixels.any():
            raise UsageError("ATC with init: dataset needs the labeled pixels of every class.")
        self.register_buffer("prior", pixels.float() / pixels.sum())
        self.register_buffer("predicted", self.prior.clone())
        self.register_buffer("accuracy", torch.ones(num_classes))
        if params.difficulty == "confidence":
            self.register_buffer("confidence", torch.ones(num_classes))
        if params.bias_margin:
            images = torch.ones(num_classes) if labeled_images is None else labeled_images.float()
            self.register_buffer("doubt", images.clamp(min=1).rsqrt())
        self.register_buffer("bias_clamped_steps", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("tau_clamped_steps", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("skipped_steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def labels_of(self, logits: Tensor, valid: Tensor) -> PseudoLabels:
        """Pseudo-labels with class shares divided out; the commonest class has no confidence where it has a rival."""
        shares = self.prior.clamp(min=self.params.eps).log()[:, None, None]
        told = logits.float() - self.params.adjust * shares if self.params.adjust else logits
        pseudo = super().labels_of(told, valid)
        if self.params.rival is None:
            return pseudo
        common = int(self.prior.argmax())
        odds = logits.float() - shares
        least = odds[:, common] + math.log(self.params.rival)
        odds[:, common] = -math.inf
        contested = (pseudo.labels == common) & (odds.max(1).values >= least)
        return replace(pseudo, conf=pseudo.conf.masked_fill(contested, 0.0))

    @torch.no_grad()
    def observe(self, *, target: Tensor, logits: Tensor, pseudo: PseudoLabels, soft: Tensor | None = None) -> None:
        """Move P_l, P_u and A_l towards this step's; where a step holds nothing to count, they stay."""
        known = target != IGNORE
        truth, answer = target[known], logits.max(1).indices[known]  # on a CPU six times as fast as argmax
        mine = [self._count(truth), self._count(answer), self._count(truth[truth == answer]), self._seen(pseudo, soft)]
        if self.params.difficulty == "confidence":
            found = pseudo_counts(pseudo, pseudo.valid, self.num_classes)
            mine += [found.conf, found.seen.float()]
        # One nan or infinity turns every count on every rank into nan, so that all ranks skip the step or none does.
        poison = 0 * (logits.sum(dtype=torch.float32) + pseudo.conf.sum(dtype=torch.float32))
        labeled, answered, hit, seen, *sure = counts = sum_over_ranks(torch.stack(mine) + poison)
        if not counts.isfinite().all():
            self.skipped_steps += 1
            return
        judged = labeled if self.params.acc == "recall" else labeled + answered - hit
        absent = self.accuracy if self.params.absent == "keep" else torch.zeros_like(hit)
        step = 1 - self.params.momentum
        if self.params.pl == "batch":
            self.prior.lerp_(_shares(labeled, otherwise=self.prior), step)
        self.predicted.lerp_(_shares(seen, otherwise=self.predicted), step)
        self.accuracy.lerp_(torch.where(labeled > 0, hit / judged.clamp(min=1), absent), step)
        if sure:
            conf, called = sure
            self.confidence.lerp_(torch.where(called > 0, conf / called.clamp(min=1), self.confidence), step)
        now = self._calibrated()
        self.bias_clamped_steps += now["bias_clamped"]
        self.tau_clamped_steps += now["tau_clamped"]

    def difficulty(self) -> Tensor:
        """M_diff: what is missing to perfect accuracy, or to full confidence."""
        return 1 - (self.confidence if self.params.difficulty == "confidence" else self.accuracy)

    def bias(self) -> Tensor:
        """M_bias: positive where the teacher sees a class more often than labels hold it."""
        found = self._measured_bias()
        if not self.params.bias_margin:
            return found
        return found.sign() * (found.abs() - self.params.bias_margin * self.doubt).clamp(min=0)

    def _measured_bias(self) -> Tensor:
        p_l, p_u, eps = self.prior, self.predicted, self.params.eps
        if self.params.bias_form == "ratio":
            return p_u / (p_l + eps) - 1
        if self.params.bias_form == "log_ratio":
            return torch.log((p_u + eps) / (p_l + eps))
        return torch.logit(p_u, eps) - torch.logit(p_l, eps)

    def tau(self) -> Tensor:
        """The calibrated threshold of each class."""
        return self._calibrated()["tau"]

    def facts(self) -> dict[str, Tensor]:
        """Thresholds, signals, statistics, which clamps bind now, and in how many steps they have bound."""
        return self._calibrated() | {name: buffer.clone() for name, buffer in self.named_buffers()}

    def _calibrated(self) -> dict[str, Tensor]:
        params, m_diff, m_bias = self.params, self.difficulty(), self.bias()
        lambda_d = params.lambda_d if params.mode != "bias" else 0
        lambda_b = params.lambda_b if params.mode != "difficulty" else 0
        push = lambda_b * m_bias
        held = push if params.bias_clip is None else push.clamp(-params.bias_clip, params.bias_clip)
        free = params.tau0 - lambda_d * m_diff + held
        tau = free if params.clip is None else free.clamp(*params.clip)
        clamped = {"bias_clamped": push != held, "tau_clamped": free != tau}
        return {"tau": tau, "m_diff": m_diff, "m_bias": m_bias} | clamped

    def _seen(self, pseudo: PseudoLabels, soft: Tensor | None) -> Tensor:
        if self.params.pu == "soft":
            assert soft is not None, "a method hands in soft_counts to a rule that needs_soft"
            return soft.float()
        return self._count(pseudo.labels[pseudo.valid if self.params.pu == "all" else self.accept(pseudo)])

    def _count(self, labels: Tensor) -> Tensor:
        return class_counts(labels, self.num_classes).float()


def _shares(counts: Tensor, *, otherwise: Tensor) -> Tensor:
    total = counts.sum()
    return torch.where(total > 0, counts / total.clamp(min=1), otherwise)
