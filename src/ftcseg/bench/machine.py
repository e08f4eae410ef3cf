"""What times were taken on: the processor, the versions, and how fast it multiplies matrices."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ftcseg import __version__
from ftcseg.parallel import available_cores

SIDES = (512, 1024, 2048)
"""Of the square float32 matrices that are tried. The fastest side counts: that one saturates the machine."""
SECONDS = 0.4
"""For each side."""
LEAST = 3  # multiplications of each side, however long they take
_CPUINFO = Path("/proc/cpuinfo")


def versions() -> dict[str, str]:
    """Of what computes."""
    return {
        "ftcseg": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def facts(device: torch.device) -> dict[str, Any]:
    """The machine, without its name."""
    return {
        "device": device.type if device.type != "cuda" else torch.cuda.get_device_name(device),
        "cpu": cpu_model(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def cpu_model() -> str:
    """As the processor calls itself; the kind of machine where it says nothing."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or platform.machine()


def now(device: torch.device) -> float:
    """Seconds, once the device has caught up: it may run ahead of us."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class RateMeter:
    """The machine's own rate of float32 matrix products in FLOP a second, asked again and again as one measures."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._taken: list[list[float]] = []
        self.side = 0

    def take(self) -> None:
        """Measure now, with the threads that are set; the first time also finds the side that is fastest."""
        sides = (self.side,) if self.side else SIDES
        rates = {side: self._rates(side) for side in sides}
        self.side = max(rates, key=lambda side: statistics.median(rates[side]))
        self._taken.append(rates[self.side])

    @property
    def rate(self) -> float:
        """The median over the times it was asked, each with the median of its own multiplications."""
        return statistics.median(map(statistics.median, self._taken))

    def as_json(self) -> dict[str, Any]:
        """The rate, and each time's own: where they differ, the machine was busy."""
        each = [statistics.median(taken) for taken in self._taken]
        return {"flops_per_second": self.rate, "each_time": each, "side": self.side, "dtype": "float32"}

    @torch.inference_mode()
    def _rates(self, side: int) -> list[float]:
        generator = torch.Generator().manual_seed(side)
        left, right = (torch.rand(side, side, generator=generator).to(self._device) for _ in range(2))
        out = torch.empty_like(left)
        torch.mm(left, right, out=out)
        rates: list[float] = []
        began = now(self._device)
        while len(rates) < LEAST or now(self._device) - began < SECONDS:
            start = now(self._device)
            torch.mm(left, right, out=out)
            rates.append(2 * side**3 / (now(self._device) - start))
        return rates


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None
