"""FreeMatch's self-adaptive thresholds (Wang et al. 2023), ported to pixels: as sure as the teacher is by now.

    level   running mean of the confidence                        how sure the teacher is of anything
    p_c     running mean of the probability of class c            how sure it is of c
    h_c     running share of the pixels called c                  only the fairness term asks for it
    tau_c = level * p_c / max(p_1, ..., p_C)

All three are means over images in the paper and over valid pixels here; nothing else changes. They start at 1 / C and
move before anything is filtered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import class_counts
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import PseudoLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeMatchParams:
    """What the self-adaptive thresholds can be told; the defaults are the paper's."""

    momentum: float = 0.999
    """Memory of the three statistics; shorter runs want `scaled_momentum`."""
    quantile: float | None = None
    """Take this quantile of the confidences instead of their mean, 0.8 in the public code; off there too."""
    clip: tuple[float, float] | None = None
    """Range of the level, [0, 0.95] in the public code; off there too."""

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UsageError(f"FreeMatch needs 0 <= momentum < 1, not {self.momentum}.")
        if self.quantile is not None and not 0 < self.quantile <= 1:
            raise UsageError(f"FreeMatch needs a quantile above 0 and up to 1, not {self.quantile}.")


class FreeThresholds(Thresholds):
    """Class thresholds from how sure the teacher is, of anything and of each class."""

    needs_soft = True
    level: Tensor  # () float
    probs: Tensor  # (num_classes,) p, sums to 1
    hist: Tensor  # (num_classes,) h, sums to 1

    def __init__(self, num_classes: int, params: FreeMatchParams) -> None:
        super().__init__()
        self.params, self.num_classes = params, num_classes
        self.register_buffer("level", torch.tensor(1 / num_classes))
        self.register_buffer("probs", torch.full((num_classes,), 1 / num_classes))
        self.register_buffer("hist", torch.full((num_classes,), 1 / num_classes))

    @torch.no_grad()
    def observe(self, *, target: Tensor, logits: Tensor, pseudo: PseudoLabels, soft: Tensor | None = None) -> None:  # noqa: ARG002 - labels teach it nothing
        """Move level, p and h towards this step's; without a valid pixel, or with a number that is none, they stay."""
        assert soft is not None, "a method hands in soft_counts to a rule that needs_soft"
        conf = pseudo.conf[pseudo.valid]
        called = class_counts(pseudo.labels[pseudo.valid], self.num_classes).float()
        # Weighted by its pixels, so that the sum over processes divided by all pixels is the mean over all of them.
        sure = self._sure(conf) * len(conf)
        seen = sum_over_ranks(torch.cat([soft.float(), called, sure.view(1)]))
        probs, hist, level = torch.split(seen, [self.num_classes, self.num_classes, 1])
        total = hist.sum()
        if not seen.isfinite().all() or total == 0:
            return
        for buffer, now in ((self.probs, probs), (self.hist, hist), (self.level, level[0])):
            buffer.lerp_(now / total, 1 - self.params.momentum)

    def tau(self) -> Tensor:
        """The threshold of each class: the level for the class it is surest of, less for the others."""
        level = self.level if self.params.clip is None else self.level.clamp(*self.params.clip)
        return level * self.probs / self.probs.max().clamp(min=1e-12)

    def facts(self) -> dict[str, Tensor]:
        """Thresholds and the three statistics."""
        return {"tau": self.tau()} | {name: buffer.clone() for name, buffer in self.named_buffers()}

    def _sure(self, conf: Tensor) -> Tensor:
        if not len(conf):
            return conf.new_zeros(())
        if self.params.quantile is None:
            return conf.mean()
        return conf.kthvalue(math.ceil(self.params.quantile * len(conf))).values
