"""Two processes that count together: the same statistics as one process that saw everything."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from ftcseg.distributed import join_ranks, sum_over_ranks
from ftcseg.evaluate.confusion import Confusion
from ftcseg.teaching.confidence import ConfidenceBank
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.types import PseudoLabels

TARGET = torch.tensor([0, 0, 0, 1, 1, 2, 0, 0]).view(2, 1, 4)
ANSWER = torch.tensor([0, 0, 1, 1, 0, 2, 0, 2]).view(2, 1, 4)
SEEN = torch.tensor([0, 1, 1, 1, 2, 0, 0, 0]).view(2, 1, 4)
VALID = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0], dtype=torch.bool).view(2, 1, 4)  # unequal: 4 pixels and 1


def observe(atc: ATC, images: slice, poison: float = 0.0) -> None:
    logits = torch.nn.functional.one_hot(ANSWER[images], 3).movedim(-1, 1) + poison
    pseudo = PseudoLabels(SEEN[images], torch.full(SEEN[images].shape, 0.9), VALID[images])
    atc.observe(target=TARGET[images], logits=logits, pseudo=pseudo)


def bank_after(images: slice) -> Tensor:
    bank = ConfidenceBank(3, momentum=0.5)
    bank.observe(torch.nn.functional.one_hot(ANSWER[images], 3).movedim(-1, 1).float(), TARGET[images])
    return bank.level


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mine = slice(rank, rank + 1)
    atc, confusion = ATC(3, ATCParams(momentum=0.5)), Confusion(3)
    observe(atc, mine)
    observe(atc, mine, poison=float("nan") if rank else 0.0)  # a bad number on one rank stops both
    confusion.add(ANSWER[mine], TARGET[mine])
    found = {**atc.state_dict(), "counts": confusion.summed().counts, "own": confusion.counts}
    found |= {"bank": bank_after(mine), "joined": join_ranks(TARGET[mine]), "flags": join_ranks(VALID[mine])}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_agree_with_one_process(tmp_path: Path) -> None:
    mp.start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    ranks: list[dict[str, Tensor]] = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    alone, confusion = ATC(3, ATCParams(momentum=0.5)), Confusion(3)
    observe(alone, slice(0, 2))
    alone.skipped_steps += 1
    confusion.add(ANSWER, TARGET)
    for rank in ranks:
        assert torch.equal(rank["counts"], confusion.counts)
        assert not torch.equal(rank["own"], confusion.counts)
        torch.testing.assert_close(rank["bank"], bank_after(slice(0, 2)))
        assert torch.equal(rank["joined"], TARGET)
        assert torch.equal(rank["flags"], VALID)
        for name, buffer in alone.named_buffers():
            assert torch.equal(rank[name], buffer), name


def test_alone_the_sum_is_the_tensor_itself() -> None:
    tensor = torch.arange(3)
    assert sum_over_ranks(tensor) is tensor
