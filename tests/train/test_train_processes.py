"""Two processes train as one with the double batch, and agree on everything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
from test_train_optim import big_stream
from toy_processes import PARAMS
from toy_training import Kit, Toy, lines_in, tensors_in

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_equal_one_with_the_double_batch(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parents[1] / "src"),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "toy",
    }
    both = [
        subprocess.Popen(
            [sys.executable, str(HERE / "toy_processes.py"), str(tmp_path)],
            env={**environment, "RANK": rank, "LOCAL_RANK": rank},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in ("0", "1")
    ]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [out.split()[-1:] for out, _ in outputs] == [["done"], ["done"]], outputs

    Kit(tmp_path / "one", params=PARAMS, method=Toy(plain=True), stream=big_stream).go()
    ours, theirs = tensors_in(tmp_path / "both"), tensors_in(tmp_path / "one")
    assert {name for name in ours if name.startswith("optim/")} == {
        name for name in theirs if name.startswith("optim/")
    }
    for name in (n for n in ours if n.startswith(("model/student", "model/teacher", "optim/"))):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    lines = [[line for line in lines_in(tmp_path / name) if "seen" in line] for name in ("both", "one")]
    assert [sum(line["seen"]) for line in lines[0]] == [sum(line["seen"]) for line in lines[1]]
