"""Losses that compare answers instead of labels."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12
"""Keeps logarithms finite."""


def consistency(logits: Tensor, teacher_logits: Tensor, valid: Tensor) -> Tensor:
    """Mean squared distance of the two networks' probabilities over valid pixels and classes (Mean Teacher).

    Logits are (B, C, H, W), `valid` (B, H, W) bool. No gradient reaches the teacher; no valid pixel costs nothing.
    """
    distance = (logits.softmax(1) - teacher_logits.detach().softmax(1)).square().mean(1)
    return (distance * valid).sum() / valid.sum().clamp(min=1)


def fairness(logits: Tensor, keep: Tensor, probs: Tensor, hist: Tensor) -> Tensor:
    """FreeMatch's self-adaptive fairness over kept pixels: the sum of a_c log b_c, to be made small.

    a is probs / hist, the running mean of the teacher's probabilities over the running share of the classes it calls;
    b is the same of the student and of these pixels alone; both are brought to a sum of 1. A class that the student
    calls nowhere has no share to divide by and is left out: whatever stood there, it would have no gradient. Logits are
    (B, C, H, W), `keep` (B, H, W) bool; nothing kept costs nothing and keeps its graph.
    """
    answers = logits.softmax(1).movedim(1, -1)[keep]
    if not len(answers):
        return answers.sum()
    called = torch.bincount(answers.argmax(1), minlength=answers.shape[1]) / len(answers)
    wanted, given = _relative(probs, hist), _relative(answers.mean(0), called)
    seen = called > 0
    return (wanted[seen] * given[seen].clamp(min=TINY).log()).sum()


def _relative(probs: Tensor, hist: Tensor) -> Tensor:
    ratio = torch.where(hist > 0, probs / hist.clamp(min=TINY), 0)
    return ratio / ratio.sum().clamp(min=TINY)


def soft_loss(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Cross-entropy with probabilities instead of labels, the mean over valid pixels; none of them costs nothing.

    Logits and target are (B, C, H, W), `valid` (B, H, W) bool. A class of which the target says 0 may have logits of
    any size, even minus infinity.
    """
    surprise = logits.float().log_softmax(1).masked_fill(target == 0, 0)
    return -((surprise * target).sum(1) * valid).sum() / valid.sum().clamp(min=1)
