"""Rates, groups, accumulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from toy_training import Kit, Toy, batch_at, cpu, tensors_in

from ftcseg.errors import UsageError
from ftcseg.train.loop import learn
from ftcseg.train.optim import Optim, OptimParams, schedule
from ftcseg.types import Clock, SemiBatch


def test_the_first_two_steps_share_the_starting_rate() -> None:
    # UniMatch V2 sets lr0 * (1 - it / total) ** 0.9 after iteration it; with total = 10 by hand:
    # 0.9 ** 0.9 = 0.909533, 0.5 ** 0.9 = 0.535887, 0.2 ** 0.9 = 0.234924
    rates = [schedule(Clock(step=step, total=10), power=0.9) for step in range(10)]
    assert rates[0] == rates[1] == 1.0
    assert rates[2] == pytest.approx(0.909533, abs=1e-6)
    assert rates[6] == pytest.approx(0.535887, abs=1e-6)
    assert rates[9] == pytest.approx(0.234924, abs=1e-6)


def test_warm_up_rises_in_a_line() -> None:
    rates = [schedule(Clock(step=step, total=100), power=0.0, warmup=4) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Module()
        self.student.encoder = nn.Linear(2, 2)
        self.student.head = nn.Linear(2, 2)
        self.student.opr = nn.Module()
        self.student.opr.prototypes = nn.Parameter(torch.ones(3, 2))
        self.teacher = nn.Linear(2, 2).requires_grad_(False)


def test_every_part_has_its_rate() -> None:
    rates = Optim(Grouped(), OptimParams(opr_multiplier=10.0), cpu()).rates(Clock(total=10))
    assert rates == {"encoder": 5e-6, "head": 5e-6 * 40, "opr": 5e-5}
    assert Optim(Grouped(), OptimParams(), cpu()).rates(Clock(total=10))["opr"] == 5e-6 * 40


def test_vectors_decay_unless_they_are_spared() -> None:
    spared = Optim(Grouped(), OptimParams(decay_vectors=False), cpu())._optimizer.param_groups
    assert {group["name"]: group["weight_decay"] for group in spared} == {
        "encoder": 0.01,
        "encoder without decay": 0.0,
        "head": 0.01,
        "head without decay": 0.0,
        "opr": 0.01,
    }
    assert all(
        group["weight_decay"] == 0.01 for group in Optim(Grouped(), OptimParams(), cpu())._optimizer.param_groups
    )


def test_a_roll_back_lowers_every_rate() -> None:
    optim = Optim(Grouped(), OptimParams(), cpu())
    optim.scale = 0.25
    assert optim.rates(Clock(total=10)) == {"encoder": 5e-6 / 4, "head": 5e-5, "opr": 5e-5}


def joined(a: SemiBatch, b: SemiBatch) -> SemiBatch:
    """Both batches as one."""
    assert a.unlabeled is not None
    assert b.unlabeled is not None
    labeled = replace(
        a.labeled,
        images=torch.cat([a.labeled.images, b.labeled.images]),
        labels=torch.cat([a.labeled.labels, b.labeled.labels]),
    )
    unlabeled = replace(
        a.unlabeled,
        weak=torch.cat([a.unlabeled.weak, b.unlabeled.weak]),
        strong=(torch.cat([a.unlabeled.strong[0], b.unlabeled.strong[0]]),),
    )
    return SemiBatch(labeled, unlabeled)


def big_stream(start: int) -> Iterator[SemiBatch]:
    while True:
        yield joined(batch_at(2 * start), batch_at(2 * start + 1))
        start += 1


def test_accumulated_batches_move_weights_like_one_big_batch(tmp_path: Path) -> None:
    params = OptimParams(kind="sgd", lr=1e-2)  # AdamW would forgive a gradient of another length
    small = Kit(tmp_path / "small", method=Toy(plain=True), params=replace(params, accumulate=2))
    big = Kit(tmp_path / "big", method=Toy(plain=True), params=params, stream=big_stream)
    small.go()
    big.go()
    ours, theirs = tensors_in(tmp_path / "small"), tensors_in(tmp_path / "big")
    for name in (n for n in ours if n.startswith("model/student") or n.startswith("model/teacher")):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-6)


def test_the_gradient_is_clipped_as_a_whole() -> None:
    method = Toy(plain=True)
    optim = Optim(
        method, OptimParams(kind="sgd", lr=1.0, momentum=0.0, weight_decay=0.0, head_multiplier=1.0, clip=0.01), cpu()
    )
    before = [p.clone() for p in method.student.parameters()]
    learn(method, [batch_at(0)], optim, Clock(total=10))
    assert float(optim.collect()) > 0.01
    optim.step(Clock(total=10))
    moved = torch.cat([(p - b).detach().flatten() for p, b in zip(method.student.parameters(), before, strict=True)])
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


def test_fused_and_plain_optimisers_agree() -> None:
    ends = []
    for implementation in ("fused", "foreach", "loop"):
        method = Toy(plain=True)
        optim = Optim(method, OptimParams(lr=1e-3, implementation=implementation), cpu())
        for step in range(3):
            clock = Clock(step, total=10)
            learn(method, [batch_at(step)], optim, clock)
            optim.collect()
            optim.step(clock)
        ends.append(torch.cat([p.detach().flatten() for p in method.student.parameters()]))
    torch.testing.assert_close(ends[0], ends[1])
    torch.testing.assert_close(ends[1], ends[2])


def test_nothing_to_train_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="no trainable parameter"):
        Optim(nn.Linear(1, 1).requires_grad_(False), OptimParams(), cpu())
    with pytest.raises(UsageError, match="accumulate >= 1"):
        OptimParams(accumulate=0)


def test_a_stream_that_ends_is_an_error_and_not_a_short_run(tmp_path: Path) -> None:
    kit = Kit(tmp_path, stream=lambda start: iter([batch_at(start)]))
    with pytest.raises(UsageError, match="ended at step 1 of 8"):
        kit.go()
