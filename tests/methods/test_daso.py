"""DASO by hand: queues, likeness, how far it is trusted, and what blending makes of a pseudo-label."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.extra import soft_loss
from ftcseg.methods.daso import DASO, DASOParams
from ftcseg.teaching.blend import LabelShares, blend
from ftcseg.teaching.queues import ClassQueues, draw_by_class
from ftcseg.types import IGNORE, Clock, PseudoLabels
from tiny_methods import LATE, Variant, batch_for, train, with_labels


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def push(queues: ClassQueues, *values: float, to: int = 0) -> None:
    """Vectors of width 1 for one of two classes."""
    vectors = torch.zeros(2, len(values), 1)
    vectors[to, :, 0] = torch.tensor(values)
    queues.push(vectors, torch.tensor([len(values) if c == to else 0 for c in range(2)]))


# Queues


def test_the_oldest_vectors_leave_first() -> None:
    queues = ClassQueues(2, 1, size=3)
    push(queues, 1, 2)
    assert queues.means().flatten().tolist() == [1.5, 0]
    push(queues, 3, 4)  # 4 takes the place of 1
    assert queues.vectors[0, :, 0].tolist() == [4, 2, 3]
    assert queues.means().flatten().tolist() == [3, 0]
    assert queues.known().tolist() == [True, False]
    push(queues, 7, to=1)
    assert queues.means().flatten().tolist() == [3, 7]
    assert queues.filled.tolist() == [3, 1]


def test_more_vectors_than_a_queue_holds_fill_it_once() -> None:
    queues = ClassQueues(2, 1, size=2)
    push(queues, 1, 2, 3)
    assert queues.vectors[0, :, 0].tolist() == [1, 2]
    assert (queues.filled.tolist(), queues.place.tolist()) == ([2, 0], [0, 0])


def test_numbers_that_are_none_stay_outside() -> None:
    queues = ClassQueues(2, 1, size=2)
    push(queues, 1, math.nan)
    assert queues.known().tolist() == [False, False]


def test_pixels_are_drawn_from_their_class() -> None:
    # Each pixel's vector is its class; four of class 0, one of class 2, none of class 1, one unknown.
    labels = torch.tensor([0, 0, 0, 0, 2, IGNORE]).view(1, 1, 6)
    vectors, counts = draw_by_class(labels[:, None].float(), labels, 3, each=3, seed=0)
    assert counts.tolist() == [3, 0, 1]
    assert vectors[..., 0].tolist() == [[0, 0, 0], [0, 0, 0], [2, 0, 0]]


def test_which_pixels_are_drawn_depends_on_the_seed_alone() -> None:
    embedding = torch.arange(64.0).view(1, 1, 8, 8)
    labels = torch.zeros(1, 8, 8, dtype=torch.int64)
    first, second, other = (draw_by_class(embedding, labels, 1, each=8, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert len(first.unique()) == 8  # no pixel twice


def test_likeness_is_a_cosine_over_the_temperature() -> None:
    queues = ClassQueues(3, 2, size=1)
    queues.push(torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]], [[0.0, 0.0]]]), torch.tensor([1, 1, 0]))
    pixel = torch.tensor([4.0, 4.0]).view(1, 2, 1, 1)  # half way between the two, whatever its length
    logits = queues.likeness(pixel, (1, 1), temperature=0.5).flatten().tolist()
    assert logits[:2] == pytest.approx([math.sqrt(0.5) / 0.5] * 2)
    assert logits[2] == -math.inf  # nobody has seen class 2


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    queues = ClassQueues(2, 1, size=4)
    mine = ([[1.0, 2.0], [0.0, 0.0]], [2, 0]) if rank == 0 else ([[0.0, 0.0], [5.0, 0.0]], [0, 1])
    queues.push(torch.tensor(mine[0])[..., None], torch.tensor(mine[1]))
    push(queues, 3 + rank)
    torch.save(queues.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_hold_the_same_queues(tmp_path: Path) -> None:
    mp.start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    for rank in (0, 1):
        state: dict[str, Tensor] = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert state["vectors"][..., 0].tolist() == [[1, 2, 3, 4], [5, 0, 0, 0]]
        assert state["filled"].tolist() == [4, 1]


# Trust


def seen(*counts: int) -> PseudoLabels:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).view(1, 1, -1)
    return PseudoLabels(labels, torch.ones(labels.shape), torch.ones(labels.shape, dtype=torch.bool))


def test_the_commonest_pseudo_label_is_left_to_likeness() -> None:
    shares = LabelShares(3)
    shares.observe(seen(5, 1, 0))
    shares.observe(seen(3, 1, 0))
    assert shares.trust(1.5).tolist() == [0, 0, 0]  # no period is over
    shares.turn()
    assert shares.shares.tolist() == pytest.approx([0.8, 0.2, 0])
    # (0.2 / 0.8) ** (1 / 1.5) = 0.25 ** (2 / 3)
    assert shares.trust(1.5).tolist() == pytest.approx([1, 0.25 ** (2 / 3), 0])
    shares.observe(seen(0, 0, 2))
    assert shares.trust(1.5)[0] == 1  # the period that runs has no say yet
    shares.turn()
    assert shares.trust(1.5).tolist() == pytest.approx([0, 0, 1])
    shares.turn()  # a period without a pixel
    assert shares.trust(1.5).tolist() == pytest.approx([0, 0, 1])


def pixel(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log().view(1, -1, 1, 1)


def test_a_blended_label_by_hand() -> None:
    # p sees class 0, which is trusted to likeness by half. q knows classes 0 and 1 and says 0.1 and 0.9. It may give
    # out what p gave these two, 0.9: 0.09 and 0.81; class 2 keeps 0.1. p' = ((0.7 + 0.09) / 2, (0.2 + 0.81) / 2, 0.1).
    trust = torch.tensor([0.5, 0.0, 1.0])
    likeness = torch.tensor([math.log(0.1), math.log(0.9), -math.inf]).view(1, 3, 1, 1)
    mixed = blend(pixel(0.7, 0.2, 0.1), likeness, trust).softmax(1).flatten()
    assert mixed.tolist() == pytest.approx([0.395, 0.505, 0.1])
    # A pixel that p calls class 1 is not likeness's business.
    alone = blend(pixel(0.2, 0.7, 0.1), likeness, trust).softmax(1).flatten()
    assert alone.tolist() == pytest.approx([0.2, 0.7, 0.1])


def test_likeness_that_knows_nothing_or_one_class_changes_nothing() -> None:
    trust = torch.ones(3)
    for known in (0, 1):
        likeness = torch.full((1, 3, 1, 1), -math.inf)
        likeness[:, :known] = 5.0
        assert blend(pixel(0.7, 0.2, 0.1), likeness, trust).softmax(1).flatten().tolist() == pytest.approx(
            [0.7, 0.2, 0.1]
        )


def test_the_alignment_loss_by_hand() -> None:
    # Two classes are known. The strong view is torn between them: ln 2, whatever the weak one says. The second pixel is
    # padding.
    logits = torch.tensor([[1.0, 1.0, -math.inf], [9.0, 1.0, -math.inf]]).T.reshape(1, 3, 1, 2).requires_grad_()
    target = torch.tensor([[0.25, 0.75, 0.0], [0.25, 0.75, 0.0]]).T.reshape(1, 3, 1, 2)
    loss = soft_loss(logits, target, torch.tensor([[[True, False]]]))
    assert float(loss.detach()) == pytest.approx(math.log(2))
    loss.backward()
    assert logits.grad is not None
    # softmax - target at the first pixel, nothing at the second
    assert logits.grad[0, :, 0].T.tolist() == [pytest.approx([0.25, -0.25, 0]), [0, 0, 0]]
    assert float(soft_loss(logits, target, torch.zeros(1, 1, 2, dtype=torch.bool)).detach()) == 0


# The method


def daso(**params: float) -> DASO:
    method = Variant("daso", params=params).build()
    assert isinstance(method, DASO)
    return method


def test_it_begins_as_fixmatch() -> None:
    assert train(daso(), range(3)) == train(Variant("fixmatch").build(), range(3))


@pytest.mark.parametrize(
    ("params", "first"),
    [
        ({}, 16),  # a queue of 256 is full after 16 steps of 16 pixels; a fiftieth of 40 steps is less
        ({"queue": 32}, 2),
        ({"queue": 32, "pretrain": 0.25}, 10),  # a quarter of 40 steps
    ],
)
def test_the_pretraining_is_a_share_of_the_run(params: dict[str, float], first: int) -> None:
    for step, aligns in ((first - 1, False), (first, True)):
        method = daso(**params)
        result = method.step(batch_for(method.views), Clock(step=step, total=40))
        assert ("align" in result.parts) == aligns


def test_the_loss_is_half_of_three() -> None:
    method = daso()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert parts["align"] > 0
    assert float(result.loss.detach()) == pytest.approx((parts["sup"] + parts["unsup"]) / 2 + parts["align"], rel=1e-6)
    heavy = daso(align=4.0).step(batch_for(method.views), LATE).parts["align"]
    assert float(heavy.detach()) == pytest.approx(4 * parts["align"], rel=1e-6)


def test_shares_are_known_when_the_pretraining_ends() -> None:
    method = daso(queue=32)  # two steps
    train(method, range(1))
    assert method.facts()["trust"].tolist() == [0, 0, 0]
    train(method, range(1, 2))
    assert float(method.facts()["trust"].max()) == 1.0
    assert float(method.shares.shares.sum()) == pytest.approx(1.0)
    assert method.facts()["queued"].tolist() == [32, 32, 32]


def test_what_likeness_says_of_common_pixels_becomes_their_label() -> None:
    method = daso(queue=2, pixels=2, temperature=1e-3)
    net = method.pair.teacher.net
    with torch.no_grad():  # the teacher calls everything class 0, faintly
        net.head.classifier.weight.zero_()  # type: ignore[union-attr, operator]
        net.head.classifier.bias.copy_(torch.tensor([0.1, 0.0, 0.0]))  # type: ignore[union-attr, operator]
    method.shares.shares.copy_(torch.tensor([1.0, 0.0, 0.0]))
    batch = batch_for(method.views)
    # All labelled pixels are class 2: likeness knows no other class and shares nothing out.
    one = method.step(with_labels(batch, 2), LATE).pseudo
    assert one is not None
    assert one.seen.tolist() == [3072, 0, 0]
    # Now it knows all three, and with so low a temperature it is sure of whatever is nearest.
    three = method.step(batch, LATE).pseudo
    assert three is not None
    assert int(three.seen.sum()) == 3072
    assert int(three.seen[0]) < 3072
    assert float(three.conf.sum()) > 0.9 * 3072


def test_without_a_labelled_pixel_there_is_nothing_to_look_like() -> None:
    method = daso()
    batch = batch_for(method.views)
    result = method.step(with_labels(batch, IGNORE), LATE)
    assert "align" not in result.parts
    assert bool(result.loss.isfinite())


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="queue"):
        DASOParams(queue=0)
    with pytest.raises(UsageError, match="temperature"):
        DASOParams(temperature=0.0)
