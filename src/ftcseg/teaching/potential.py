"""A second opinion of every pixel, and which labelled pixels are hardest (VC)."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.nets.norms import as_evaluated
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import IGNORE


@torch.no_grad()
def flipped_opinion(student: Segmenter, images: Tensor) -> Tensor:
    """What the student, as it would be evaluated, calls each pixel when it sees the images in a mirror: (B, H, W)."""
    with as_evaluated(student):
        logits: Tensor = student(images.flip(-1))
    return logits.flip(-1).max(1).indices


def potential_labels(logits: Tensor, sure: Tensor, opinion: Tensor) -> Tensor:
    """q, (B, H, W): where the teacher is `sure`, the student's `opinion`; else the teacher's second choice.

    `logits` are the teacher's, (B, C, H, W).
    """
    return torch.where(sure, opinion, logits.topk(2, dim=1).indices[:, 1])


@torch.no_grad()
def hardest(scores: Tensor, labels: Tensor, num_classes: int, share: float) -> Tensor:
    """Which pixels are among this share of their class with the lowest scores, at least one of each: bool.

    Scores, float, and labels have one shape; pixels with IGNORE are never among them.
    """
    flat, classes = scores.flatten(), labels.flatten()
    order = flat.argsort()
    order = order[classes[order].argsort(stable=True)]  # class after class, each from the lowest score up
    totals = torch.bincount(classes[classes != IGNORE], minlength=num_classes)
    starts = (classes == IGNORE).sum() + totals.cumsum(0) - totals  # IGNORE is below every class id
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    known = classes.clamp(min=0)
    chosen = (ranks - starts[known] < (share * totals).ceil()[known]) & (classes != IGNORE)
    return chosen.view(scores.shape)
