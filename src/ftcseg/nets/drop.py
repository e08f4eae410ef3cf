"""Perturbations of encoder features: whole channels are silenced between encoder and head.

A perturbation is a callable `perturb(features) -> features` made for one call with an integer seed of its own
(`ComplementaryDrop(seed=...)`): nothing is remembered between steps, so a resumed run draws what the first run drew.
The masks are drawn on the CPU and moved, so every device sees the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from ftcseg.errors import UsageError

Perturb: TypeAlias = Callable[[list[Tensor]], list[Tensor]]
"""Feature maps (B, C_i, H_i, W_i), shallow to deep -> maps of the same shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementaryDrop:
    """UniMatch V2's channel dropout for pairs of strong views: what one view loses, the other gets twice.

    The batch holds all first views, then all second views in the same order. Each pair draws one mask of 0 and 2 per
    channel; its second view gets 2 - mask. Some pairs are exempt and keep both views whole.

    All levels of a ViT share one mask: there a channel is the same feature at every depth. Where the levels differ in
    width, as in convolutional encoders, channel 7 of one has nothing to do with channel 7 of the next, and each level
    draws its own mask; the exempt pairs are the same at all levels.
    """

    seed: int
    exempt: float = 0.5
    """Share of pairs left whole, rounded down: a single pair never is."""

    def __call__(self, features: list[Tensor]) -> list[Tensor]:
        """The maps with complementary channels silenced."""
        if len(features[0]) % 2:
            raise UsageError(
                f"Complementary dropout wants pairs of views, first views before second ones; "
                f"{len(features[0])} images do not pair up."
            )
        rng = torch.Generator().manual_seed(self.seed)
        pairs = len(features[0]) // 2
        whole = torch.randperm(pairs, generator=rng)[: int(pairs * self.exempt)]
        widths = [x.shape[1] for x in features]
        if len(set(widths)) == 1:
            masks = [_pair_masks(pairs, widths[0], whole, rng)] * len(widths)
        else:
            masks = [_pair_masks(pairs, width, whole, rng) for width in widths]
        return _silence(features, masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDrop:
    """UniMatch V1's feature perturbation, Dropout2d: each image loses channels of its own at every level."""

    seed: int
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise UsageError(f"Feature dropout wants a rate from 0 to below 1, not {self.rate}.")

    def __call__(self, features: list[Tensor]) -> list[Tensor]:
        """The maps with random channels silenced and the others raised, so that the mean stays."""
        rng = torch.Generator().manual_seed(self.seed)
        masks = [torch.rand(x.shape[:2], generator=rng).ge(self.rate) / (1 - self.rate) for x in features]
        return _silence(features, masks)


def _pair_masks(pairs: int, width: int, whole: Tensor, rng: torch.Generator) -> Tensor:
    """(2 * pairs, width): 0 or 2 for the first views, 2 - that for the second, 1 for exempt pairs."""
    first = torch.randint(2, (pairs, width), generator=rng) * 2
    first[whole] = 1
    return torch.cat([first, 2 - first])


def _silence(features: list[Tensor], masks: list[Tensor]) -> list[Tensor]:
    return [x * mask.to(x)[:, :, None, None] for x, mask in zip(features, masks, strict=True)]
