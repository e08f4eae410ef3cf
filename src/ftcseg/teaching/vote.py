"""Several opinions of the same pixels: what they say together, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def vote(said: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Logits of the mean probabilities, (B, C, H, W), and the agreement, (B, H, W) from 0 to 1.

    Agreement is 1 less the Jensen-Shannon divergence of the opinions, the entropy of their mean less the mean of their
    entropies, as a share of the most it can be. One opinion agrees with itself.
    """
    logs = torch.stack([logits.float().log_softmax(1) for logits in said])
    mean = logs.logsumexp(0) - math.log(len(said))
    most = math.log(min(len(said), mean.shape[1]))
    if most == 0:
        return mean, torch.ones_like(mean[:, 0])
    divergence = _entropy(mean, 1) - _entropy(logs, 2).mean(0)
    return mean, (1 - divergence / most).clamp(0, 1)


def _entropy(logs: Tensor, dim: int) -> Tensor:
    return -(logs.exp() * logs).sum(dim)
