"""How much memory this process holds, without asking for another package."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import torch

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Memory this process holds now; its peak where the system tells no more, None where it tells nothing."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:  # Windows
        return _by_psutil()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_peak_bytes(device: torch.device) -> int | None:
    """The most that tensors have held on a CUDA device so far; None on other devices."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def _by_psutil() -> int | None:
    try:
        psutil = import_module("psutil")
    except ImportError:
        return None
    return int(psutil.Process().memory_info().rss)
