"""Two opinions of every pixel, blended by how common the class is that the first one sees (DASO).

    p' = (1 - v_k) p + v_k q,   k = argmax p,   v_k = m_k^(1/T) / max_j m_j^(1/T)

p is the classifier's opinion, which favours what it saw often; q goes by likeness and favours what is rare. The more
pixels lately became class k, the more q decides about the next ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ftcseg.distributed import sum_over_ranks
from ftcseg.teaching.pseudo import class_counts
from ftcseg.types import PseudoLabels

SMALLEST = torch.finfo(torch.float32).tiny
"""Keeps a logarithm and a quotient finite."""


class LabelShares(nn.Module):
    """m: the share of each class among recent pseudo-labels. Equal on all ranks."""

    shares: Tensor  # (num_classes,) of the last period; zeros before the first is over
    counts: Tensor  # (num_classes,) int64, valid pixels of the period that runs

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("shares", torch.zeros(num_classes))
        self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, pseudo: PseudoLabels) -> None:
        """Count all valid pixels, sure or not."""
        self.counts += sum_over_ranks(class_counts(pseudo.labels[pseudo.valid], len(self.counts)))

    @torch.no_grad()
    def turn(self) -> None:
        """A period is over: its counts become the shares. A period without a pixel changes nothing."""
        total = self.counts.sum()
        self.shares.copy_(torch.where(total > 0, self.counts / total.clamp(min=1), self.shares))
        self.counts.zero_()

    def trust(self, temperature: float) -> Tensor:
        """v, (num_classes,) from 0 to 1: how far q is trusted about pixels of each class. 0 while nothing is known."""
        flat = self.shares ** (1 / temperature)
        return flat / flat.max().clamp(min=SMALLEST)


@torch.no_grad()
def blend(logits: Tensor, likeness: Tensor, trust: Tensor) -> Tensor:
    """Logits of p', (B, C, H, W), of the logits of p and of q and of v, (C,).

    Classes that q does not know, with logits of minus infinity, keep what p gives them. The others share, as q says,
    what p gives them together. Without a class that it knows, q is p.
    """
    p = logits.float().softmax(1)
    unknown = likeness.isneginf()
    q = likeness.float().softmax(1) * p.masked_fill(unknown, 0).sum(1, keepdim=True)
    return torch.lerp(p, torch.where(unknown, p, q), trust[p.max(1).indices].unsqueeze(1)).clamp(min=SMALLEST).log()
