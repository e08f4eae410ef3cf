"""What a process and its children hold, looked at from outside through /proc; Linux only.

The trials use it so that nothing of what they measure comes from the program that is measured.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MB = 1024  # kB of /proc in one MB
_POLL = 0.05  # seconds between two looks at a command whose peak is asked for


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a process and those it started."""

    resident_mb: float
    """Of the process itself."""
    children_mb: float
    """Of all below it together; pages they share are counted for each."""
    children: int
    files: int
    """Open file descriptors of all of them."""
    threads: int
    cpu_seconds: float
    """Spent by all of them so far; a child that has ended counts with its parent once that has waited for it."""


def family(pid: int) -> list[int]:
    """The process and everything below it, itself first."""
    found = [pid]
    for member in found:
        for task in _listed(PROC / str(member) / "task"):
            children = _text(PROC / str(member) / "task" / task / "children")
            found += [int(word) for word in children.split() if int(word) not in found]
    return found


def look(pid: int) -> Look | None:
    """What the process and its children hold now; None where it is gone."""
    held = [_resident_mb(member) for member in family(pid)]
    if held[0] == 0:
        return None
    members = family(pid)
    return Look(
        resident_mb=held[0],
        children_mb=sum(held[1:]),
        children=len(held) - 1,
        files=sum(len(_listed(PROC / str(member) / "fd")) for member in members),
        threads=sum(len(_listed(PROC / str(member) / "task")) for member in members),
        cpu_seconds=sum(_cpu_seconds(member) for member in members),
    )


def folder_mb(folder: Path) -> float:
    """What the files below a folder add up to."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118  paths as strings: often and fast
            except FileNotFoundError:  # it was replaced while we looked
                continue
    return total / 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took."""

    code: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    """The most that any one of its processes held (VmHWM), up to the last few hundredths of a second."""
    family_mb: float
    """The most that all of them were seen to hold together."""


def run(argv: Sequence[str], out: Path, environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end, its words in `out`, and say what it took."""
    began = time.monotonic()
    with out.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=subprocess.STDOUT, env=environment)  # noqa: S603
        together = peak = 0.0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            members = family(process.pid)
            together = max(together, sum(map(_resident_mb, members)))
            peak = max(peak, *map(_peak_mb, members))
            time.sleep(_POLL)
    # used.ru_maxrss is of no use: a process begins with the peak of the one that started it.
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        code=process.returncode,
        seconds=time.monotonic() - began,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_mb=peak,
        family_mb=together,
    )


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line's rise, and the interval that holds the true one in 95 of 100 cases."""

    rise: float
    """Over the whole span of x."""
    low: float
    high: float

    @property
    def is_level(self) -> bool:
        """Whether a rise of nothing at all is inside the interval."""
        return self.low <= 0 <= self.high


def slope(x: Sequence[float] | NDArray[np.float64], y: Sequence[float] | NDArray[np.float64]) -> Slope:
    """By least squares over at least three points; values near each other should be averaged first.

    A series that wanders slowly has fewer independent values than points, and its interval would come out too narrow.
    """
    places, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    span = float(places[-1] - places[0])
    line = stats.linregress(places, values)
    reach = float(stats.t.ppf(0.975, len(places) - 2)) * float(line.stderr) * span
    rise = float(line.slope) * span
    return Slope(rise, rise - reach, rise + reach)


def _resident_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS:")


def _peak_mb(pid: int) -> float:
    return _status_mb(pid, "VmHWM:")


def _status_mb(pid: int, key: str) -> float:
    for line in _text(PROC / str(pid) / "status").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / _MB
    return 0.0  # gone, or waiting to be waited for


def _cpu_seconds(pid: int) -> float:
    """utime, stime, and those of children that were waited for; the name before them may hold spaces."""
    fields = _text(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK if fields else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process ended meanwhile
        return ""


def _listed(path: Path) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208  names are all that is wanted
    except OSError:
        return []
