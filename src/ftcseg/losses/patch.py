"""Losses of a patch classifier, which says yes or no to every class.

Shapes: logits, `present`, `share` and `trusted` (B, C, h, w); `known` (B, 1, h, w) bool, False where a patch shows
nothing that is known. Such a patch costs nothing, and where there are only such, neither does the batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def area_loss(logits: Tensor, present: Tensor, share: Tensor, known: Tensor) -> Tensor:
    """Binary cross-entropy where a class counts the more, the more of the patch it fills: softmax of the shares."""
    weights = share.softmax(1) * known
    return (_binary(logits, present) * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def trusted_loss(logits: Tensor, present: Tensor, trusted: Tensor, known: Tensor) -> Tensor:
    """Mean binary cross-entropy; labels that are not trusted cost nothing, but count in the mean."""
    losses = _binary(logits, present) * (trusted & known)
    return losses.sum() / (known.sum() * logits.shape[1]).clamp(min=1)


def _binary(logits: Tensor, present: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits.float(), present.float(), reduction="none")
