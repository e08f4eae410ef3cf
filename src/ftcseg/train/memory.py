"""How much memory there is and who holds it, without asking for another package; and what to say when it is gone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from ftcseg.errors import OutOfMemory, is_out_of_memory

_STATM = Path("/proc/self/statm")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MB = 2**20
_BATCH = 8  # of whoever asks a model and says nothing else
_FIRST_WINDOW = 512  # pixels on a side, where nobody chose one
_LEAST_WINDOW = 64
_FEW = 10
P = ParamSpec("P")
Result = TypeVar("Result")


def resident_bytes() -> int | None:
    """Memory this process holds now; its peak where the system tells no more, None where it tells nothing."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_bytes()


def peak_bytes() -> int | None:
    """The most this process has held so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return _by_psutil()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_peak_bytes(device: torch.device) -> int | None:
    """The most that tensors have held on a CUDA device so far; None on other devices."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def asked_bytes(error: BaseException) -> int | None:
    """How much more was asked for when memory ran out, where the error says so."""
    told = re.search(r"tried to allocate ([\d.]+) ?([KMGT]?i?B?)", str(error), re.IGNORECASE)
    if told is None:
        told = re.search(r"Unable to allocate ([\d.]+) ?([KMGT]?iB)", str(error))
    return None if told is None else round(float(told[1]) * _UNITS.get(told[2], 1))


def in_mb(count: int) -> str:
    """A number of bytes to be read: «1,024 MB»."""
    return f"{count / _MB:,.{0 if count >= _FEW * _MB else 1}f} MB"


def memory_told(error: BaseException, device: torch.device | None = None) -> str:
    """What was asked for when memory ran out, what was held, and what there is: one sentence with the numbers."""
    asked = asked_bytes(error)
    facts = [] if asked is None else [f"{in_mb(asked)} more were asked for"]
    if device is not None and device.type == "cuda" and torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info(device)
        held = torch.cuda.max_memory_allocated(device)
        facts += [f"tensors held up to {in_mb(held)}", f"{in_mb(free)} of the device's {in_mb(total)} are free"]
    else:
        held_here, there = peak_bytes(), _machine_bytes()
        facts += [f"this process held up to {in_mb(held_here)}"] if held_here is not None else []
        facts += [f"{in_mb(there[0])} of the machine's {in_mb(there[1])} are free"] if there is not None else []
        facts += [f"the limit set for it is {in_mb(limit)}" for limit in _limits()]
    return ", ".join(facts) + "."


@contextmanager
def out_of_memory_told(doing: str, remedy: str) -> Iterator[None]:
    """Within it, memory that runs out is an OutOfMemory that says while doing what, the numbers, and what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"Out of memory {doing}: {memory_told(error)} {remedy}") from error


def smaller_windows_told(ask: Callable[P, Result]) -> Callable[P, Result]:
    """Have memory that runs out while a trained model is asked told with what to change in this very call.

    The network was asked about single images by then; but a batch of them waits, decoded, for its turn.
    """

    @wraps(ask)
    def told(*args: P.args, **kwargs: P.kwargs) -> Result:
        batch, window = kwargs.get("batch", _BATCH), kwargs.get("window")
        side = max(_LEAST_WINDOW, window // 2) if isinstance(window, int) else _FIRST_WINDOW
        less = [f"--batch 1 (now {batch}; fewer images wait in memory)"] if batch != 1 else []
        less += [f"--window {side} (now {window or 'whole images'}; predict needs another --out then)"]
        with out_of_memory_told("while the model was asked", f"Try, in this order: {'; '.join(less)}."):
            return ask(*args, **kwargs)

    return told


def _machine_bytes() -> tuple[int, int] | None:
    """Free and all of the machine's memory; None where the system does not tell."""
    if not _MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
    free, total = (int(lines[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    return free, total


def _limits() -> list[int]:
    """What a shell (ulimit) or a container allows, if less than everything."""
    found = []
    if _CGROUP.exists() and (text := _CGROUP.read_text().strip()).isdecimal():
        found.append(int(text))
    try:
        import resource
    except ImportError:  # Windows
        return found
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return found if soft == resource.RLIM_INFINITY else [*found, soft]


def _by_psutil() -> int | None:
    try:
        psutil = import_module("psutil")
    except ImportError:
        return None
    return int(psutil.Process().memory_info().rss)
