"""How much a term counts while a run is young."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from ftcseg.types import Clock

RampShape: TypeAlias = Literal["sigmoid", "linear"]

STEEPNESS = 5.0
"""exp(-5 (1 - t)^2), the ramp of temporal ensembling (Laine and Aila 2017): starts at 0.0067, not at 0."""


def ramp(clock: Clock, start: int, length: int, shape: RampShape = "sigmoid") -> float:
    """The weight of a term that is absent before step `start` and whole from step `start + length` on."""
    if clock.step < start:
        return 0.0
    if clock.step >= start + length:
        return 1.0
    t = (clock.step - start) / length
    return t if shape == "linear" else math.exp(-STEEPNESS * (1 - t) ** 2)


def is_burn_in(clock: Clock, steps: int) -> bool:
    """Whether the run still learns from labels only: its first `steps` updates."""
    return clock.step < steps
