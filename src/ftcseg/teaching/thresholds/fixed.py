"""One threshold for all classes, for ever: FixMatch's rule, and UniMatch V2's."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import PseudoLabels


class Fixed(Thresholds):
    """The same threshold for every class and step; 0.95 in FixMatch and UniMatch V2."""

    level: Tensor  # (num_classes,) float

    def __init__(self, num_classes: int, tau0: float = 0.95) -> None:
        super().__init__()
        self.register_buffer("level", torch.full((num_classes,), tau0))

    def observe(self, *, target: Tensor, logits: Tensor, pseudo: PseudoLabels, soft: Tensor | None = None) -> None:
        """Nothing to learn."""

    def tau(self) -> Tensor:
        """The level, once per class."""
        return self.level
