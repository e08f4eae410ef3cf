"""The state of the global generators, as tensors.

Methods draw from seeds made of the clock and need none of this; but a network's dropout, or somebody else's code, may
draw from the global generators, and a resumed run must then draw on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def begin(seed: int) -> None:
    """Start the global generators from the run's seed, so that two runs of it agree in every file."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def capture(device: torch.device) -> dict[str, Tensor]:
    """The generators of Python, NumPy, torch and, on CUDA, the device."""
    legacy: Any = np.random.get_state(legacy=False)  # noqa: NPY002, saved for those who still use it
    legacy["state"]["key"] = legacy["state"]["key"].tolist()
    states = {"python": _pack(random.getstate()), "numpy": _pack(legacy), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["device"] = torch.cuda.get_rng_state(device)
    return states


def restore(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Draw on from where `capture` was."""
    version, words, gauss = _unpack(states["python"])
    random.setstate((version, tuple(words), gauss))
    legacy = _unpack(states["numpy"])
    legacy["state"]["key"] = np.array(legacy["state"]["key"], dtype=np.uint32)
    np.random.set_state(legacy)  # noqa: NPY002
    torch.set_rng_state(states["torch"].clone())
    if device.type == "cuda" and "device" in states:
        torch.cuda.set_rng_state(states["device"].clone(), device)


def _pack(value: object) -> Tensor:
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)


def _unpack(packed: Tensor) -> Any:
    return json.loads(bytes(packed.tolist()))
