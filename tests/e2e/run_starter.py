"""Imports once, then runs one command line per line of input, each in a process of its own that can be killed.

A line is {"argv": [...], "out": FILE, "die": [WHERE, NTH], "limit": BYTES, "leave": true}: with `die`, the process
kills itself (SIGKILL) on the nth call of a function, so that every moment of a run can be hit exactly; with `limit`,
no file it writes may grow larger; with `leave`, nobody waits for its end.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kornia.enhance
import kornia.filters
import lightning_fabric
import torch

import ftcseg.training
from ftcseg import cli

assert kornia.enhance
assert kornia.filters
assert lightning_fabric
assert ftcseg.training


def arm(where: str, nth: int) -> None:
    """Let the nth call of this function be the end."""
    module, _, name = where.rpartition(".")
    place = importlib.import_module(module)
    function, calls = getattr(place, name), iter(range(1, 1000))

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(place, name, deadly)


@contextlib.contextmanager
def output_to(path: str) -> Iterator[None]:
    with Path(path).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield


def work(order: dict[str, Any]) -> int:
    os.setsid()  # a group of its own, for signals to the whole group
    sys.argv = ["ftcseg", *order["argv"]]
    if order.get("die"):
        arm(*order["die"])
    if order.get("limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
    with output_to(order["out"]):
        try:
            cli.main()
        except SystemExit as leaving:
            return int(leaving.code or 0)
        except BaseException:
            traceback.print_exc()  # into the file, before it goes: the only trace of what nothing had foreseen
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        told = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 70  # what an exception leaves behind
            try:
                code = work(told)
            finally:
                os._exit(code)
        print(child, flush=True)
        if not told.get("leave"):
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
