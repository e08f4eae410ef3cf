"""Measurements that need a process of their own: peak memory, which must not mix, and runs of several processes.

`python -m ftcseg.bench.fresh ASKED.json FOUND.json` is that process; `elsewhere` starts it and reads what it found.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftcseg.bench.case import Case, from_json
from ftcseg.bench.rig import Rig, warm
from ftcseg.bench.ways import WAYS, opened
from ftcseg.errors import FtcsegError
from ftcseg.files import read_json, write_json
from ftcseg.parallel import available_cores
from ftcseg.train.memory import device_peak_bytes, resident_bytes

WARM_UP = 2
"""Steps before memory is watched: the first one makes the optimiser's moments."""
ANSWERS = 3
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_RESET_PEAK = "5"
_PAUSE = 0.002  # seconds between two looks, where the system keeps no peak
_LINES_TOLD = 3


def elsewhere(errand: str, case: Case, told: Mapping[str, Any]) -> dict[str, Any]:
    """What a fresh process found; FtcsegError with its last words where it failed."""
    with tempfile.TemporaryDirectory(prefix="ftcseg-bench-") as folder:
        asked, found = Path(folder) / "asked.json", Path(folder) / "found.json"
        write_json(asked, {"errand": errand, "case": case.as_json() | {"dataset": case.dataset}, "told": dict(told)})
        command = [sys.executable, "-m", "ftcseg.bench.fresh", str(asked), str(found)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603, ourselves
        if done.returncode or not found.is_file():
            words = " ".join(done.stderr.strip().splitlines()[-_LINES_TOLD:]) or f"exit code {done.returncode}"
            raise FtcsegError(f"A measurement in a process of its own failed: {words}")
        result: dict[str, Any] = read_json(found)
        return result


def peak_memory(case: Case, told: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes this process holds before anything is built, between steps, and at most within one."""
    _settle()
    before = resident_bytes() or 0
    with Rig(case) as rig:
        warm(rig, WARM_UP)
        idle = resident_bytes() or 0
        peak, how = _peak_of(lambda: warm(rig, int(told["steps"])), rig.device)
        if how == "device":
            before = idle = 0  # nothing else lives there
    return {"before": before, "idle": idle, "peak": peak, "above": peak - before, "how": how}


def step_times(case: Case, told: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each step, of a run with as many processes as the case says; the first process speaks for all."""
    with Rig(case) as rig:
        warm(rig, int(told["warm_up"]))
        seconds = [rig.step().seconds for _ in range(int(told["steps"]))]
        rig.machine.part()
        return {"seconds": seconds, "images": rig.images, "first": rig.machine.is_first}


def answers(_case: Case, told: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes this process holds before it opens a model, and at most while the model answers."""
    torch.set_num_threads(available_cores())
    images = torch.rand(told["shape"], generator=torch.Generator().manual_seed(0))
    before = resident_bytes() or 0
    answer = opened(WAYS[told["way"]], Path(told["folder"]))
    answer(images)  # some runtimes plan their memory at the first call
    idle = resident_bytes() or 0
    peak, how = _peak_of(lambda: [answer(images) for _ in range(ANSWERS)], torch.device("cpu"))
    return {"before": before, "idle": idle, "peak": peak, "above": peak - before, "how": how}


ERRANDS: Mapping[str, Callable[[Case, Mapping[str, Any]], dict[str, Any]]] = {
    "memory": peak_memory,
    "steps": step_times,
    "answers": answers,
}
"""What can be done elsewhere."""


def _settle() -> None:
    """Have libraries imported and started that every run pays for, whatever it trains."""
    import_module("lightning_fabric")
    net = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    torch.autograd.backward(net(torch.ones(1, 3, 8, 8)).sum())
    optimizer.step()
    gc.collect()


def _peak_of(work: Callable[[], object], device: torch.device) -> tuple[int, str]:
    """The most memory during some work, and how that is known."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        work()
        return device_peak_bytes(device) or 0, "device"
    if _reset_peak():
        work()
        return _kept_peak(), "the system's own peak"
    return _looked_at(work), "looked at every 2 ms"


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:  # no such file elsewhere than on Linux, and not writable in some containers
        return False
    return _STATUS.is_file()


def _kept_peak() -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _looked_at(work: Callable[[], object]) -> int:
    most, done = [resident_bytes() or 0], threading.Event()

    def look() -> None:
        while not done.wait(_PAUSE):
            most[0] = max(most[0], resident_bytes() or 0)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(most[0], resident_bytes() or 0)


def main(asked: str, found: str) -> None:
    """Run an errand; what a user can meet is a sentence, not a traceback."""
    values = read_json(Path(asked))
    try:
        result = ERRANDS[values["errand"]](from_json(values["case"]), values["told"])
    except FtcsegError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    if result.pop("first", True):
        write_json(Path(found), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
