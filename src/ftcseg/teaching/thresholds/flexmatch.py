"""FlexMatch's curriculum (Zhang et al. 2021), ported to pixels: a class that is learnt less is filtered less.

    learnt_c   share of the unlabelled pixels that are called c and pass the full threshold tau0
    unsure     share of those that pass for no class
    sigma_c  = learnt_c / max(learnt_1, ..., learnt_C, unsure)       how far class c is, from 0 to 1
    tau_c    = tau0 * M(sigma_c),  M(x) = x / (2 - x)

The paper remembers, for every unlabelled image, the last class that passed, and counts images. A pixel, under another
crop in every step, has no such memory. Here the shares are running means over the steps, which after a pass over the
images say the same; they start as the paper's memory does, with everything unsure, so that every threshold starts at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ftcseg.distributed import sum_over_ranks
from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import class_counts
from ftcseg.teaching.thresholds.base import Thresholds, check_choices
from ftcseg.types import PseudoLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexMatchParams:
    """What the curriculum can be told; the defaults are the paper's."""

    tau0: float = 0.95
    """The threshold of the class that is learnt best, and what a pixel must reach to count as learnt."""
    momentum: float = 0.999
    """Memory of the shares, ours for the paper's memory of one pass; shorter runs want `scaled_momentum`."""
    warm_up: bool = True
    """Whether the unsure take part in the maximum: low thresholds until most pixels have passed."""
    mapping: Literal["convex", "linear", "concave"] = "convex"
    """M: x / (2 - x), x, or ln(x + 1) / ln 2; the paper tries all three."""
    status: Literal["count", "rate"] = "count"
    """What is learnt: pixels, to the paper's letter, by which a rare class always looks unlearnt; or, ours, the part
    that passes of the pixels called c, by which a rare class may be well learnt."""
    floor: float = 0.0
    """Lowest threshold; 0 in the paper."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.momentum < 1:
            raise UsageError(f"FlexMatch needs 0 <= momentum < 1, not {self.momentum}.")


class FlexThresholds(Thresholds):
    """Class thresholds from how much of each class passes the full threshold."""

    learnt: Tensor  # (num_classes,) share of all valid pixels that are called c and pass tau0
    called: Tensor  # (num_classes,) share of all valid pixels that are called c

    def __init__(self, num_classes: int, params: FlexMatchParams) -> None:
        super().__init__()
        self.params, self.num_classes = params, num_classes
        self.register_buffer("learnt", torch.zeros(num_classes))
        self.register_buffer("called", torch.zeros(num_classes))

    @torch.no_grad()
    def observe(self, *, target: Tensor, logits: Tensor, pseudo: PseudoLabels, soft: Tensor | None = None) -> None:  # noqa: ARG002 - labels teach it nothing
        """Move the shares towards this step's; without a valid pixel, or with a number that is none, they stay."""
        passed = pseudo.valid & (pseudo.conf >= self.params.tau0)
        counts = [class_counts(pseudo.labels[where], self.num_classes) for where in (passed, pseudo.valid)]
        poison = 0 * pseudo.conf.sum(dtype=torch.float32)  # one nan on one rank, and all ranks skip the step
        learnt, called = sum_over_ranks(torch.stack(counts) + poison)
        total = called.sum()
        if total > 0:  # which nan is not
            self.learnt.lerp_(learnt / total, 1 - self.params.momentum)
            self.called.lerp_(called / total, 1 - self.params.momentum)

    def status(self) -> Tensor:
        """Sigma: how far each class is compared with the one that is furthest, 0 to 1."""
        own = self.learnt if self.params.status == "count" else self.learnt / self.called.clamp(min=1e-12)
        most = own.max()
        if self.params.warm_up:
            most = torch.maximum(most, 1 - self.learnt.sum())
        return own / most.clamp(min=1e-12)

    def tau(self) -> Tensor:
        """The threshold of each class, from 0 to tau0."""
        x = self.status().clamp(max=1)  # a rounded division may end above
        mapped = {"convex": x / (2 - x), "linear": x, "concave": (x + 1).log() / math.log(2)}[self.params.mapping]
        return (self.params.tau0 * mapped).clamp(min=self.params.floor)

    def facts(self) -> dict[str, Tensor]:
        """Thresholds, status and what they come from."""
        return {
            "tau": self.tau(),
            "status": self.status(),
            "learnt": self.learnt.clone(),
            "called": self.called.clone(),
        }
