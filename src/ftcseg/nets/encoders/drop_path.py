"""Stochastic depth: whole residual branches are left out at random while training."""

from __future__ import annotations

from torch import Tensor, nn


class DropPath(nn.Module):
    """Drops the branch of each image with probability `rate`; the others grow so that the mean stays."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        """The branch of any shape (B, ...), scaled or zero per image; unchanged outside training."""
        if not self.training or self.rate == 0:
            return branch
        keep = branch.new_empty((len(branch),) + (1,) * (branch.ndim - 1)).bernoulli_(1 - self.rate)
        return branch * keep / (1 - self.rate)


def rising_rates(rate: float, depth: int) -> list[float]:
    """One rate per block, growing linearly from 0 to `rate`: deep blocks are the ones a network can miss."""
    return [rate * index / max(1, depth - 1) for index in range(depth)]
