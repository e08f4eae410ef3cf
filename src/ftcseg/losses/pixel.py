"""Cross-entropy in its kinds. Every empty case is decided here: what holds nothing costs nothing, and keeps its graph.

Shapes: logits (B, C, H, W); target, keep and the fields of pseudo-labels (B, H, W).
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ftcseg.types import IGNORE, PseudoLabels

Normaliser: TypeAlias = Literal["valid", "hw", "kept"]
"""What a sum over kept pixels is divided by: the valid, all of them as printed, or the kept (reading C4)."""


def pixel_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over known pixels; an all-ignored crop costs nothing."""
    return _summed(logits, target) / _at_least_one((target != IGNORE).sum())


def ohem_loss(logits: Tensor, target: Tensor, *, thresh: float = 0.7, min_kept: int = 100_000) -> Tensor:
    """Mean cross-entropy over hard pixels: those whose true class gets at most `thresh`, and at least `min_kept`.

    Where fewer are that hard, the `min_kept` hardest of the batch count; where fewer are known, all known ones do.
    """
    losses = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")[target != IGNORE]
    hard, bar = losses.detach(), losses.new_tensor(-math.log(thresh))
    enough = min(min_kept, losses.numel())
    if enough and (hard >= bar).sum() < enough:
        bar = hard.kthvalue(losses.numel() - enough + 1).values
    return _mean(losses[~(hard < bar)])  # written so that a nan counts as hard and reaches the guard


def kept_loss(logits: Tensor, pseudo: PseudoLabels, keep: Tensor, *, normaliser: Normaliser = "valid") -> Tensor:
    """Cross-entropy with the pseudo-labels, summed over kept pixels and divided by the count of valid ones."""
    keep = keep & pseudo.valid
    total = _summed(logits, _where(keep, pseudo))
    if normaliser == "hw":
        return total / keep.numel()
    return total / _at_least_one((pseudo.valid if normaliser == "valid" else keep).sum())


def balanced_kept_loss(
    logits: Tensor,
    pseudo: PseudoLabels,
    keep: Tensor,
    *,
    normaliser: Literal["valid", "kept"] = "kept",
    power: float = 1.0,
) -> Tensor:
    """Like `kept_loss`, but each predicted class is averaged on its own first, and then all classes count alike.

    "kept" takes the mean over a class's kept pixels, and over classes that have any. "valid" divides by all pixels
    predicted as the class, so that a class of which little is kept weighs little, as in `kept_loss`. A `power` below 1
    meets that loss on the way: a class of n pixels then counts as n to the power of 1 - `power`, and with 0 as n.
    """
    keep = keep & pseudo.valid
    base = pseudo.valid if normaliser == "valid" else keep
    pixels = torch.bincount(pseudo.labels[base], minlength=logits.shape[1])
    counts = _at_least_one(pixels).float() ** (1 - power) * (pixels > 0)
    weights = counts / (_at_least_one(pixels) * counts.sum().clamp(min=1))
    return _summed(logits, _where(keep, pseudo), weights.to(logits.dtype))


def weighted_loss(logits: Tensor, pseudo: PseudoLabels, keep: Tensor) -> Tensor:
    """Cross-entropy where each kept pixel weighs as much as the teacher is sure of it, over the count of valid ones.

    With `keep=pseudo.valid` there is no filter at all, only weights.
    """
    losses = F.cross_entropy(logits, _where(keep & pseudo.valid, pseudo), ignore_index=IGNORE, reduction="none")
    return (losses * pseudo.conf).sum() / _at_least_one(pseudo.valid.sum())


def weight_map_loss(
    logits: Tensor, pseudo: PseudoLabels, weights: Tensor, *, normaliser: Normaliser | Literal["weights"] = "valid"
) -> Tensor:
    """Cross-entropy where every pixel has a weight of its own, (B, H, W) float; padding has none, whatever is said.

    «weights» divides by the sum of the weights, so that they only say how pixels compare; «kept» by how many have any.
    """
    weights = weights * pseudo.valid
    total = (F.cross_entropy(logits, pseudo.labels, reduction="none") * weights).sum()
    if normaliser == "weights":
        return total / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
    if normaliser == "hw":
        return total / weights.numel()
    return total / _at_least_one((pseudo.valid if normaliser == "valid" else weights > 0).sum())


def kept_share(keep: Tensor, valid: Tensor, *, of_each: bool) -> Tensor:
    """The share of valid pixels that are kept: of each image, (B, 1, 1), or of the batch, (1, 1, 1). 0 of none is 0."""
    dims = (1, 2) if of_each else (0, 1, 2)
    return (keep & valid).sum(dims, keepdim=True) / _at_least_one(valid.sum(dims, keepdim=True))


def _summed(logits: Tensor, target: Tensor, class_weights: Tensor | None = None) -> Tensor:
    return F.cross_entropy(logits, target, weight=class_weights, ignore_index=IGNORE, reduction="sum")


def _where(keep: Tensor, pseudo: PseudoLabels) -> Tensor:
    return pseudo.labels.masked_fill(~keep, IGNORE)


def _mean(losses: Tensor) -> Tensor:
    return losses.sum() / max(losses.numel(), 1)


def _at_least_one(count: Tensor) -> Tensor:
    return count.clamp(min=1)
