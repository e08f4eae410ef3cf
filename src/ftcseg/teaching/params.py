"""What every teacher-student method can be told, whatever its paper says about the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import Normaliser
from ftcseg.teaching.answers import Norms
from ftcseg.teaching.thresholds.base import check_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingParams:
    """Teacher, burn-in, ramp, and how the unsupervised loss is summed. Lengths are in steps."""

    ema: float = 0.996
    """The teacher's decay once warm (reading C1)."""
    burn_in: int = 0
    """Steps on labels alone; at their end the teacher starts as a copy of the student."""
    ramp: int = 0
    """Steps after the burn-in over which the unsupervised weight grows to its full size."""
    unsup_weight: float = 1.0
    """Weight of the unsupervised loss beside the supervised one (reading C3)."""
    normaliser: Normaliser = "valid"
    """What kept pixels are divided by (reading C4)."""
    balance: Literal["none", "class"] = "none"
    """Ours: «class» averages each predicted class on its own first, so that background cannot outvote the rest."""
    balance_power: float = 1.0
    """Ours: how far «class» goes. At 1 all predicted classes count alike; at 0.5 as the square root of their pixels;
    at 0 by their pixels, as without balance."""
    norms: Norms = "joint"
    """Who moves batch statistics; only matters for encoders that have batch normalisation."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.balance_power <= 1:
            raise UsageError(f"teaching.balance_power cannot be {self.balance_power}: it must be from 0 to 1.")
