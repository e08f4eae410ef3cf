"""From the teacher's logits to pseudo-labels: made, mixed, counted."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.types import IGNORE, PseudoCounts, PseudoLabels
from ftcseg.views.mix import paste


@torch.no_grad()
def pseudo_labels(logits: Tensor, valid: Tensor) -> PseudoLabels:
    """The teacher's best class and its probability at every pixel.

    `logits` is (B, C, H, W), `valid` (B, H, W). Only the winner's probability is formed: exp(max - logsumexp).
    """
    logits = logits.float()  # bfloat16 knows no number between 0.9492 and 0.9531: too coarse to test against 0.95
    best, labels = logits.max(1)
    return PseudoLabels(labels, (best - logits.logsumexp(1)).exp(), valid)


@torch.no_grad()
def probability_of(labels: Tensor, logits: Tensor) -> Tensor:
    """What these logits, (B, C, H, W), think of labels that somebody else gave: (B, H, W) float, no gradient."""
    logits = logits.float()
    return (logits.gather(1, labels[:, None])[:, 0] - logits.logsumexp(1)).exp()


@torch.no_grad()
def soft_counts(logits: Tensor, valid: Tensor) -> Tensor:
    """Valid pixels per class, (C,) float, where each pixel splits its vote by the teacher's probabilities."""
    votes = logits.float().softmax(1).masked_fill_(~valid.unsqueeze(1), 0)
    return votes.sum((2, 3)).sum(0)


def mix_pseudo(pseudo: PseudoLabels, box: Tensor) -> PseudoLabels:
    """Pseudo-labels cut like their views: inside the box, (B, H, W) bool, those of the batch-reversed partner."""
    return PseudoLabels(
        labels=torch.where(box, pseudo.labels.flip(0), pseudo.labels),
        conf=torch.where(box, pseudo.conf.flip(0), pseudo.conf),
        valid=torch.where(box, pseudo.valid.flip(0), pseudo.valid),
    )


def paste_pseudo(pseudo: PseudoLabels, other: PseudoLabels, where: Tensor) -> PseudoLabels:
    """Pseudo-labels with those of `other` pasted in, as `paste` does with their views; `where` is (B, H, W) bool."""
    return PseudoLabels(
        labels=paste(pseudo.labels, other.labels, where),
        conf=paste(pseudo.conf, other.conf, where),
        valid=paste(pseudo.valid, other.valid, where),
    )


def with_pasted(pseudo: PseudoLabels, pasted: Tensor | None) -> PseudoLabels:
    """Pseudo-labels of images into which objects were pasted: of those nobody has to guess, they are certain.

    `pasted` is (B, H, W) int64 class ids, IGNORE where nothing was; None pastes nothing.
    """
    if pasted is None:
        return pseudo
    known = pasted != IGNORE
    return PseudoLabels(
        labels=torch.where(known, pasted, pseudo.labels),
        conf=pseudo.conf.masked_fill(known, 1.0),
        valid=pseudo.valid | known,
    )


def reordered(pseudo: PseudoLabels, order: Tensor) -> PseudoLabels:
    """The same pseudo-labels with their images in another order, (B,) int64."""
    return PseudoLabels(pseudo.labels[order], pseudo.conf[order], pseudo.valid[order])


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """How often each class id occurs, (num_classes,) int64; every label must be a class id."""
    return torch.bincount(labels.flatten(), minlength=num_classes)


@torch.no_grad()
def pseudo_counts(pseudo: PseudoLabels, keep: Tensor, num_classes: int) -> PseudoCounts:
    """What one batch of pseudo-labels holds per predicted class; `keep` is (B, H, W) bool."""
    return PseudoCounts(
        seen=class_counts(pseudo.labels[pseudo.valid], num_classes),
        kept=class_counts(pseudo.labels[pseudo.valid & keep], num_classes),
        conf=sum_by_class(pseudo.conf * pseudo.valid, pseudo.labels, num_classes),
    )


def sum_by_class(values: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The values, (B, H, W) float, summed over the pixels of each class: (num_classes,)."""
    # Row by row first: one float32 sum over millions of pixels would round most of them away.
    values, labels = values.flatten(0, -2), labels.flatten(0, -2)
    return values.new_zeros(len(values), num_classes).scatter_add_(1, labels, values).sum(0)
