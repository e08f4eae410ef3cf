"""Rules that go by the teacher's confidence in two processes: the same statistics as in one that saw everything."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from ftcseg.teaching.pseudo import pseudo_labels, soft_counts
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.teaching.thresholds.flexmatch import FlexMatchParams, FlexThresholds
from ftcseg.teaching.thresholds.freematch import FreeMatchParams, FreeThresholds

LOGITS = torch.randn(2, 3, 1, 4, generator=torch.Generator().manual_seed(0)) * 3
VALID = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0], dtype=torch.bool).view(2, 1, 4)  # unequal: 4 pixels and 1


def rules() -> dict[str, Thresholds]:
    flex = FlexThresholds(3, FlexMatchParams(momentum=0.5, tau0=0.6))
    atc = ATC(3, ATCParams(momentum=0.5, difficulty="confidence"))
    return {"flex": flex, "free": FreeThresholds(3, FreeMatchParams(momentum=0.5)), "atc": atc}


def observe(rule: Thresholds, images: slice, poison: float = 0.0) -> None:
    logits, valid = LOGITS[images] + poison, VALID[images]
    pseudo, soft = pseudo_labels(logits, valid), soft_counts(logits, valid)
    rule.observe(target=torch.zeros_like(pseudo.labels), logits=logits, pseudo=pseudo, soft=soft)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mine, found = slice(rank, rank + 1), {}
    for name, rule in rules().items():
        observe(rule, mine)
        observe(rule, mine, poison=float("nan") if rank else 0.0)  # a bad number on one rank stops both
        found |= {f"{name}.{key}": value for key, value in rule.state_dict().items()}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_agree_with_one_process(tmp_path: Path) -> None:
    mp.start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    ranks: list[dict[str, Tensor]] = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    for name, alone in rules().items():
        observe(alone, slice(0, 2))
        observe(alone, slice(0, 2), poison=float("nan"))
        for rank in ranks:
            for key, value in alone.state_dict().items():
                torch.testing.assert_close(rank[f"{name}.{key}"], value)
