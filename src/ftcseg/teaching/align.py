"""Distribution alignment: a teacher that sees a class too often is held to the share that labels show.

    aligned = normalise(p * target^t / mean)

`mean` is what the teacher has said of unlabelled pixels lately. CReST+ lets t fall over its generations: at t = 1 the
classes get the shares they have on labels, below that rare ones get more.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ftcseg.distributed import sum_over_ranks

LEAST_SHARE = 1e-6
"""A class without a pixel is treated as this rare; a share of 0 would forbid it for ever."""


class Alignment(nn.Module):
    """The target shares, and a running mean of probabilities."""

    target: Tensor  # (C,) class shares on labels
    mean: Tensor  # (C,) class shares on unlabelled images
    seen: Tensor  # () int64, steps in the mean

    def __init__(self, pixels: Tensor, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("target", pixels.float() / pixels.float().sum().clamp(min=1))
        self.register_buffer("mean", torch.full((len(pixels),), 1 / len(pixels)))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, logits: Tensor, valid: Tensor) -> None:
        """Move the mean towards this batch's; the first batches are averaged plainly. No valid pixel, no move.

        `logits` is (B, C, H, W), `valid` (B, H, W).
        """
        probs = logits.float().softmax(1) * valid[:, None]
        sums = sum_over_ranks(torch.cat([probs.sum((2, 3)).sum(0), valid.sum()[None].float()]))
        if not (sums.isfinite().all() and sums[-1] > 0):
            return
        weight = max(1 - self.momentum, 1 / (int(self.seen) + 1))
        self.mean.lerp_(sums[:-1] / sums[-1], weight)
        self.seen += 1

    def align(self, logits: Tensor, t: float = 1.0) -> Tensor:
        """Logits whose softmax is the aligned distribution: a shift per class, (B, C, H, W) as they came."""
        shift = t * self.target.clamp(min=LEAST_SHARE).log() - self.mean.clamp(min=LEAST_SHARE).log()
        return logits.float() + shift[:, None, None]

    @torch.no_grad()
    def forget(self) -> None:
        """Begin anew, for a network that begins anew."""
        self.mean.fill_(1 / len(self.mean))
        self.seen.zero_()

    def facts(self) -> dict[str, Tensor]:
        """The running mean, beside its target."""
        return {"aligned_from": self.mean.clone(), "aligned_to": self.target.clone()}
