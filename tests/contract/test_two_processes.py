"""Every method in two processes that see other images: they count together, learn together, and stay alike."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from ftcseg.methods import METHODS
from ftcseg.methods.base import Method
from ftcseg.train.machine import open_machine
from ftcseg.train.optim import Optim, OptimParams
from ftcseg.types import IGNORE, Clock, SemiBatch
from tiny_methods import TOTAL, WHOLE, batch_for, with_labels, with_valid

STEPS = (0, 19, 20)
"""The first of a run, and two that are past every burn-in; at these, rounds and turns of a run of 40 may end."""
EMPTY = 19
"""Here the second process is shown nothing: no label is known, and all of the other images is padding."""
OF_NORMS = ("running_mean", "running_var", "num_batches_tracked")
"""What batch norms have seen is each process's own until the gradients are averaged, and this with them."""


def statistics(method: Method) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in method.named_buffers() if not name.endswith(OF_NORMS)}


def shown(method: Method, step: int, rank: int) -> SemiBatch:
    batch = batch_for(method.views, seed=2 * step + rank)
    if (step, rank) != (EMPTY, 1):
        return batch
    blank = with_labels(batch, IGNORE)
    return blank if blank.unlabeled is None else with_valid(blank, torch.zeros_like(blank.unlabeled.valid))


def work(rank: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # as in conftest.py
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {**place, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "t"}
    machine, found = open_machine("cpu", processes=2), {}
    for variant in WHOLE:
        method = variant.build()  # both from the same seed, as a run builds it
        machine.adopt(method)
        optim, counted, losses = Optim(method, OptimParams(lr=1e-3), machine), [], []
        for step in STEPS:
            clock = Clock(step, TOTAL, epoch_steps=5)
            result = method.step(shown(method, step, rank), clock)
            counted.append(statistics(method))
            losses.append(result.loss.detach())
            optim.backward(result.loss)
            optim.collect()
            optim.step(clock)
            method.after_update(clock)
        found[variant.name] = {"losses": torch.stack(losses), "counted": counted, "end": method.state_dict()}
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


def test_two_processes_count_together_and_end_with_the_same_weights(tmp_path: Path) -> None:
    """One test for all methods: starting processes takes longer than the steps of any of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    mp.start_processes(work, args=(str(tmp_path), port), nprocs=2, start_method="spawn")
    ranks: list[dict[str, Any]] = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert list(ranks[0]) == list(METHODS)
    for name in METHODS:
        first, second = (rank[name] for rank in ranks)
        assert bool((first["losses"] != second["losses"]).all()), name  # they saw other images
        assert bool(torch.cat([first["losses"], second["losses"]]).isfinite().all()), name
        for step, mine, theirs in zip(STEPS, first["counted"], second["counted"], strict=True):
            assert not differing(mine, theirs), (name, step)
        assert not differing(first["end"], second["end"]), name
        assert all(bool(value.isfinite().all()) for value in first["end"].values() if value.is_floating_point()), name
