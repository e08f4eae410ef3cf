"""VC's losses: learning from a pixel of which two classes are in question."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ftcseg.losses.pixel import Normaliser
from ftcseg.types import PseudoLabels


def virtual_loss(
    logits: Tensor,
    virtual: Tensor,
    pseudo: PseudoLabels,
    other: Tensor,
    weights: Tensor,
    normaliser: Normaliser = "valid",
) -> Tensor:
    """Cross-entropy where the label t and the potential label q agree; where not, the virtual category is the positive.

        t == q   -log softmax(z)_t                              over the real classes
        t != q   log(1 + e^-z_vc * sum_{j not t, q} e^z_j)      neither t nor q takes part

    Args:
        logits: z, (B, C, H, W).
        virtual: z_vc, (B, H, W).
        pseudo: t.
        other: q, (B, H, W).
        weights: what each pixel counts, (B, H, W) float; 0 leaves it out.
        normaliser: what the sum is divided by, as in `kept_loss`.
    """
    weights = weights * pseudo.valid
    agreed = F.cross_entropy(logits, pseudo.labels, reduction="none")
    losses = torch.where(pseudo.labels == other, agreed, _against_the_rest(logits, virtual, pseudo.labels, other))
    total = (losses * weights).sum()
    if normaliser == "hw":
        return total / weights.numel()
    return total / (pseudo.valid if normaliser == "valid" else weights > 0).sum().clamp(min=1)


def likeness_loss(made: Tensor, wanted: Tensor) -> Tensor:
    """Mean of 1 - cosine between (N, width) vectors and what they should look like; of none, nothing."""
    return (1 - F.cosine_similarity(made, wanted.detach(), dim=1)).sum() / max(len(made), 1)


def _against_the_rest(logits: Tensor, virtual: Tensor, label: Tensor, other: Tensor) -> Tensor:
    # Finite, and not minus infinity: with two classes nothing remains, and a loss of 0 must have a gradient of 0.
    nothing = torch.finfo(torch.float32).min
    named = torch.stack([label, other], dim=1)
    rest = logits.float().scatter(1, named, nothing).logsumexp(1)
    return F.softplus(rest - virtual.float())
