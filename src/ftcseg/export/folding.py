"""OPR after training: prototypes, gates and lengths are constants, and what is left are two thin products a pixel.

    F* = F + sum_k gamma_k cos(F, mu_k) mu_k  =  F + B (A F) / |F|

The rows of A are the prototypes at length one, the columns of B the prototypes times their gates. Closed prototypes are
dropped from both; where all are closed nothing is left. Where 2·K exceeds C, the one product B·A is cheaper.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.nets.opr import OPR, Classify, length, unit


class Folded(nn.Module):
    """One stage of OPR with its constants worked out: F* from F, both (B, C, H, W)."""

    look: Tensor  # (K, C, 1, 1)
    say: Tensor | None  # (C, open, 1, 1); None where the two products became one
    is_open: Tensor | None  # numbers of the open prototypes, where a softmax asks the closed ones too

    def __init__(self, stage: OPR, classify: Classify | None) -> None:
        super().__init__()
        params = stage.params
        self.residual, self.temperature = params.residual, params.temperature
        with torch.no_grad():
            gates = stage.gates(classify)
            mu = stage.prototypes.detach()
            open_ones = gates.nonzero()[:, 0]
            look, say = unit(mu), ((unit(mu) if params.aggregate == "unit" else mu) * gates[:, None])[open_ones]
        self.count = len(open_ones)
        is_softmax = params.similarity == "softmax"
        if not is_softmax:
            look = look[open_ones]
        joined = not is_softmax and 2 * self.count > look.shape[1]
        self.register_buffer("look", (say.T @ look if joined else look)[:, :, None, None])
        self.register_buffer("say", None if joined else say.T[:, :, None, None])
        self.register_buffer("is_open", open_ones if is_softmax else None)

    def forward(self, features: Tensor) -> Tensor:
        """The map drawn towards its prototypes."""
        if not self.count:
            return features if self.residual else torch.zeros_like(features)
        said = F.conv2d(features, self.look)
        if self.is_open is None:  # dividing comes last: it costs the same and saves a copy of the map
            correction = (said if self.say is None else F.conv2d(said, self.say)) / length(features, dim=1)
        else:
            assert self.say is not None
            shares = (said / length(features, dim=1) / self.temperature).softmax(dim=1)
            correction = F.conv2d(shares[:, self.is_open], self.say)
        return features + correction if self.residual else correction
