"""Class-rebalanced selection (CReST): each class keeps the surest share of its pseudo-labels, rare ones more."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ftcseg.distributed import sum_over_ranks
from ftcseg.types import PseudoLabels

BINS = 1000
LEAST_DOUBT = 2.0**-24
"""Below 1 a float32 has no number nearer than this: a smaller doubt is none."""


def selection_rates(pixels: Tensor, alpha: float = 3.0) -> Tensor:
    """The share of its pseudo-labels that each class keeps, (C,).

    (N_{C+1-k} / N_1) ** (1 / alpha) for the k-th commonest class, where N, `pixels`, are the labelled pixels. The
    commonest class keeps as small a share as the rarest is rarer than it, softened by alpha; the rarest keeps all. A
    class without labels counts as one pixel.
    """
    ordered, order = pixels.float().clamp(min=1).sort(descending=True, stable=True)
    rates = torch.empty_like(ordered)
    rates[order] = (ordered.flip(0) / ordered[0]) ** (1 / alpha)
    return rates


class Selection(nn.Module):
    """Histograms of scores by predicted class, and the cuts that came out of them.

    Bins are even in -log(1 - confidence): a network is surer than 0.999 of most of the background, and the upper tenth
    of that must still be told from the rest. Pixels in the bin of a cut are kept, so a class keeps its share or more.
    """

    counts: Tensor  # (C, BINS) int64, pixels seen since the last cut
    cut: Tensor  # (C,) int64, the lowest bin that is kept; BINS keeps nothing
    rates: Tensor  # (C,) share to keep

    def __init__(self, rates: Tensor) -> None:
        super().__init__()
        self.register_buffer("rates", rates.clone())
        self.register_buffer("counts", torch.zeros(len(rates), BINS, dtype=torch.int64))
        self.register_buffer("cut", torch.full((len(rates),), BINS))

    @torch.no_grad()
    def observe(self, pseudo: PseudoLabels) -> None:
        """Add one batch of a labeler's opinions."""
        places = (pseudo.labels * BINS + _bins(pseudo.conf))[pseudo.valid]
        self.counts += sum_over_ranks(torch.bincount(places, minlength=self.counts.numel())).view_as(self.counts)

    @torch.no_grad()
    def settle(self) -> None:
        """Cut each class where its share is reached, and begin to count anew. A class nobody saw keeps nothing."""
        at_least = self.counts.flip(1).cumsum(1).flip(1)  # pixels in this bin or above
        total = at_least[:, 0]
        wanted = (self.rates.double() * total).ceil().clamp(min=1)
        # Counts fall from bin to bin: as many as are high enough, less one, is the highest of them.
        self.cut.copy_(torch.where(total > 0, (at_least >= wanted[:, None]).sum(1) - 1, BINS))
        self.counts.zero_()

    def select(self, pseudo: PseudoLabels) -> Tensor:
        """Which pixels to learn from, (B, H, W) bool."""
        return (_bins(pseudo.conf) >= self.cut[pseudo.labels]) & pseudo.valid

    def facts(self) -> dict[str, Tensor]:
        """The confidence from which each class is kept; 1 may also mean never."""
        return {"cut": 1 - torch.exp(self.cut * (math.log(LEAST_DOUBT) / BINS))}


def _bins(conf: Tensor) -> Tensor:
    doubt = (1 - conf.float()).clamp(LEAST_DOUBT, 1)
    return (doubt.log() * (BINS / math.log(LEAST_DOUBT))).long().clamp(max=BINS - 1)
