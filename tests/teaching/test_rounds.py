"""Rounds, class-rebalanced selection and distribution alignment, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ftcseg.errors import UsageError
from ftcseg.teaching.align import Alignment
from ftcseg.teaching.rounds import Rounds, equal_starts, long_enough
from ftcseg.teaching.selection import BINS, Selection, selection_rates
from ftcseg.types import Clock, PseudoLabels

# Rounds


def test_rounds_share_what_follows_the_burn_in() -> None:
    assert equal_starts(900, 3) == (0, 300, 600)
    assert equal_starts(1000, 3, before=400) == (0, 600, 800)  # 200 each; the first has the 400 before as well
    assert equal_starts(7, 1) == (0,)
    assert equal_starts(10, 3, before=10) == (0, 10, 10)  # a run that is all burn-in never turns
    with pytest.raises(UsageError, match="at least one round"):
        equal_starts(10, 0)


def test_a_round_begins_with_the_first_weights_and_a_clock_of_its_own() -> None:
    student = nn.BatchNorm1d(2)
    first = {name: value.clone() for name, value in student.state_dict().items()}
    rounds = Rounds(student, (0, 4, 8), 12)
    student(torch.randn(5, 2))
    student.weight.data.add_(1)
    assert [rounds.turns(Clock(step, 12)) for step in range(5)] == [False, False, False, True, True]
    assert rounds.pace(Clock(3, 12)) == Clock(3, 4)
    rounds.begin(student, Clock(3, 12))
    assert all(torch.equal(first[name], value) for name, value in student.state_dict().items())
    assert not rounds.turns(Clock(3, 12))
    assert [rounds.pace(Clock(step, 12)) for step in (4, 7)] == [Clock(0, 4), Clock(3, 4)]


def test_a_turn_that_was_missed_is_made_up_for() -> None:
    # The step 3, after which the second round should have begun, was skipped; the student begins after step 4.
    rounds = Rounds(nn.Linear(1, 1), (0, 4, 8), 12)
    rounds.begin(nn.Linear(1, 1), Clock(4, 12))
    assert (int(rounds.number), int(rounds.born)) == (1, 5)
    assert rounds.pace(Clock(5, 12)) == Clock(0, 3)


def test_later_rounds_begin_where_the_burn_in_ends() -> None:
    rounds = Rounds(nn.Linear(1, 1), (0, 4), 12)
    assert rounds.teaching(Clock(1, 12), burn_in=2).step == 1
    rounds.begin(nn.Linear(1, 1), Clock(3, 12))
    assert rounds.teaching(Clock(4, 12), burn_in=2).step == 2
    assert rounds.teaching(Clock(9, 12), burn_in=2).step == 7


def test_a_student_that_goes_on_keeps_its_weights_and_the_runs_clock() -> None:
    student = nn.Linear(1, 1)
    rounds = Rounds(student, (0, 4, 8), 12, anew=False)
    student.weight.data.fill_(7)
    assert rounds.turns(Clock(3, 12))
    rounds.begin(student, Clock(3, 12))
    assert not rounds.turns(Clock(3, 12))
    assert (student.weight.item(), int(rounds.number)) == (7.0, 1)
    assert rounds.pace(Clock(4, 12)) == Clock(4, 12)
    assert rounds.teaching(Clock(9, 12), burn_in=2) == Clock(9, 12)


def test_only_long_rounds_are_begun_anew() -> None:
    assert long_enough((0, 600, 900), 1200)  # 300 each after the first
    assert not long_enough((0, 600, 900), 1199)
    assert not long_enough((0, 100), 200)
    assert long_enough((0,), 300)


def test_what_is_saved_is_two_numbers() -> None:
    assert list(Rounds(nn.Linear(9, 9), (0,), 1).state_dict()) == ["number", "born"]


# Selection


def test_the_rarest_class_keeps_all_and_the_commonest_least() -> None:
    # Shares 1000 : 125 : 8 : 1, alpha 3: the commonest keeps (1 / 1000)^(1/3) = 0.1, the next (8 / 1000)^(1/3) = 0.2,
    # the third (125 / 1000)^(1/3) = 0.5, the rarest everything.
    rates = selection_rates(torch.tensor([1000.0, 1.0, 125.0, 8.0]), alpha=3)
    assert rates.tolist() == pytest.approx([0.1, 1.0, 0.2, 0.5])


def test_a_class_without_labels_counts_as_one_pixel() -> None:
    assert selection_rates(torch.tensor([8.0, 0.0])).tolist() == pytest.approx([0.5, 1.0])
    assert selection_rates(torch.tensor([4.0, 4.0])).tolist() == [1.0, 1.0]


def pseudo(labels: list[int], conf: list[float], valid: list[bool] | None = None) -> PseudoLabels:
    known = torch.tensor(valid or [True] * len(labels))
    return PseudoLabels(torch.tensor(labels)[None, None], torch.tensor(conf)[None, None], known[None, None])


def test_each_class_keeps_its_surest_share() -> None:
    selection = Selection(torch.tensor([0.25, 0.5, 1.0]))
    # Class 0: a quarter of 8 is 2, so the cut lies at 0.9999. Class 1: half of 3, rounded up, is 2: the cut is at 0.7.
    selection.observe(pseudo([0, 0, 0, 0, 0, 1], [0.5, 0.6, 0.99, 0.999, 0.9999, 0.9]))
    selection.observe(pseudo([0, 0, 0, 1, 1, 0], [0.7, 0.8, 0.99999, 0.7, 0.6, 1.0], [True] * 5 + [False]))
    selection.settle()
    asked = pseudo([0, 0, 0, 1, 1, 1, 2], [0.999, 0.9999, 1.0, 0.69, 0.7, 0.95, 1.0])
    assert selection.select(asked).flatten().tolist() == [False, True, True, False, True, True, False]
    assert selection.facts()["cut"].tolist() == pytest.approx([0.9999, 0.7, 1.0], abs=0.006)
    assert int(selection.counts.sum()) == 0


def test_nothing_is_chosen_before_a_cut_and_padding_never() -> None:
    selection = Selection(torch.ones(2))
    assert not selection.select(pseudo([0, 1], [1.0, 1.0])).any()
    selection.observe(pseudo([0, 1], [0.5, 0.5]))
    selection.settle()
    assert selection.select(pseudo([0, 1], [0.6, 0.6], [True, False])).flatten().tolist() == [True, False]
    selection.settle()  # a generation that saw nothing
    assert selection.cut.tolist() == [BINS, BINS]


def test_certainty_is_told_apart_far_up() -> None:
    # Half of these four are wanted; all four are surer than 0.999.
    sure = [1 - 10**-k for k in (3.5, 4.5, 5.5, 6.5)]
    selection = Selection(torch.tensor([0.5, 1.0]))
    selection.observe(pseudo([0] * 4, sure))
    selection.settle()
    assert selection.select(pseudo([0] * 4, sure)).flatten().tolist() == [False, False, True, True]


def test_scores_and_shares_are_counted_over_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("selection", "align"):  # as if another process had seen the same
        monkeypatch.setattr(f"ftcseg.teaching.{part}.sum_over_ranks", lambda tensor: 2 * tensor)
    selection, alignment = Selection(torch.ones(2)), Alignment(torch.ones(2), momentum=0.5)
    selection.observe(pseudo([0, 1], [0.5, 0.5]))
    alignment.observe(logits_of([[0.9, 0.1], [0.7, 0.3]]), EVERYWHERE)
    assert selection.counts.sum(1).tolist() == [2, 2]
    assert alignment.mean.tolist() == pytest.approx([0.8, 0.2])


# Alignment


def logits_of(probs: list[list[float]]) -> torch.Tensor:
    """(1, C, 1, pixels) from one list per pixel."""
    return torch.tensor(probs).T.log()[None, :, None]


EVERYWHERE = torch.ones(1, 1, 2, dtype=torch.bool)


def test_what_is_seen_too_often_is_held_back() -> None:
    # Labels hold 0.5 and 0.5, the teacher says 0.8 and 0.2 on average: 0.6 * 0.5 / 0.8 = 0.375 stands against
    # 0.4 * 0.5 / 0.2 = 1, so that the first class gets 0.375 / 1.375 = 0.2727.
    alignment = Alignment(torch.tensor([5.0, 5.0]), momentum=0.9)
    alignment.observe(logits_of([[0.9, 0.1], [0.7, 0.3]]), EVERYWHERE)
    assert alignment.mean.tolist() == pytest.approx([0.8, 0.2])
    aligned = alignment.align(logits_of([[0.6, 0.4]])).softmax(1).flatten()
    assert aligned.tolist() == pytest.approx([0.375 / 1.375, 1 / 1.375])


def test_t_flattens_the_target() -> None:
    # Target 0.8 and 0.2, the mean is the same. At t = 1 nothing changes; at t = 0.5 the odds are multiplied by
    # (0.8 / 0.2)^(-1/2) = 1/2: even odds become 1 to 2.
    alignment = Alignment(torch.tensor([80.0, 20.0]), momentum=0.9)
    alignment.observe(logits_of([[0.8, 0.2], [0.8, 0.2]]), EVERYWHERE)
    even = logits_of([[0.5, 0.5]])
    assert alignment.align(even, t=1.0).softmax(1).flatten().tolist() == pytest.approx([0.5, 0.5])
    assert alignment.align(even, t=0.5).softmax(1).flatten().tolist() == pytest.approx([1 / 3, 2 / 3])


def test_the_first_batches_are_averaged_plainly() -> None:
    alignment = Alignment(torch.ones(2), momentum=0.5)
    for share, mean in ((0.8, 0.8), (0.6, 0.7), (0.3, 0.5)):  # the third would weigh 1/3, but the momentum says 1/2
        alignment.observe(logits_of([[share, 1 - share]] * 2), EVERYWHERE)
        assert float(alignment.mean[0]) == pytest.approx(mean)


def test_padding_and_bad_numbers_do_not_move_the_mean() -> None:
    alignment = Alignment(torch.ones(2), momentum=0.5)
    alignment.observe(logits_of([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([[[True, False]]]))
    assert alignment.mean.tolist() == pytest.approx([0.9, 0.1])
    alignment.observe(logits_of([[0.1, 0.9]] * 2), torch.zeros_like(EVERYWHERE))
    alignment.observe(torch.full((1, 2, 1, 2), math.nan), EVERYWHERE)
    assert alignment.mean.tolist() == pytest.approx([0.9, 0.1])
    alignment.forget()
    assert (alignment.mean.tolist(), int(alignment.seen)) == ([0.5, 0.5], 0)


def test_a_class_that_nobody_labelled_stays_possible() -> None:
    alignment = Alignment(torch.tensor([10.0, 0.0]), momentum=0.5)
    assert alignment.align(logits_of([[0.5, 0.5]])).softmax(1).flatten()[1] > 0
