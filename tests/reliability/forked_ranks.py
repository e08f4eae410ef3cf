"""Two processes of toy runs, forked after one import, that lose each other: python forked_ranks.py FOLDER.

They are started as torchrun starts them, so that nobody watches over them: what is tried is the broken connection. Each
line of output is {"name": ..., "codes": [of rank 0, of rank 1], "said": [...], "seconds": ...}.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

import lightning_fabric
import torch
from torch import Tensor
from toy_processes import share_of
from toy_training import Kit, Toy

from ftcseg.distributed import ProcessLost
from ftcseg.errors import FtcsegError
from ftcseg.train import checkpoint
from ftcseg.train.machine import open_machine
from ftcseg.types import Clock

assert lightning_fabric
STEPS, SAVE_EVERY = 10, 2
Deadly = Callable[[int], None]
"""What is done to a process, given its rank, before it trains."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def train(folder: Path, rank: int, port: int, die: Deadly, step: int | None) -> str:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {**place, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "t"}
    machine = open_machine("cpu", processes=2)

    def accident(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        if clock.step == step:
            die(rank)
        return loss

    kit = Kit(folder, STEPS, SAVE_EVERY, machine=machine, method=Toy(accident=accident), stream=share_of(machine))
    try:
        kit.go()
    except ProcessLost as lost:
        return str(lost)
    return "done"


def both(folder: Path, name: str, die: Deadly = lambda _rank: None, step: int | None = None) -> None:
    """Fork both, wait for both, say what became of them."""
    port, began, children = free_port(), time.monotonic(), []
    for rank in (0, 1):
        child = os.fork()
        if child == 0:
            code, said = 70, Path(f"{folder}.{rank}.txt")
            said.unlink(missing_ok=True)
            try:
                words = train(folder, rank, port, die, step)
                said.write_text(words)
                code = 0 if words == "done" else ProcessLost.exit_code
            except FtcsegError as error:
                said.write_text(repr(error))
                code = error.exit_code
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    files = [Path(f"{folder}.{rank}.txt") for rank in (0, 1)]
    told = [file.read_text() if file.exists() else "" for file in files]
    print(json.dumps({"name": name, "codes": codes, "said": told, "seconds": time.monotonic() - began}), flush=True)


def second_dies(rank: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def first_dies_while_it_writes(rank: int) -> None:
    """The next checkpoint's tensors are written, its state is not."""
    if rank == 0:
        checkpoint._write_state = lambda *_args: os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    both(root / "straight", "straight")
    both(root / "second", "second", second_dies, 5)
    both(root / "second", "second again")
    both(root / "first", "first", first_dies_while_it_writes, 5)
    print(json.dumps({"left": sorted(path.name for path in (root / "first" / "checkpoints").iterdir())}), flush=True)
    both(root / "first", "first again")
