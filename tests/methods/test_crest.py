"""CReST: when generations turn, what is added to the labels, and how CReST+ aligns."""

from __future__ import annotations

import math

import pytest
import torch
from round_kits import SIZE, batch_at, go, same, say, small_kit, state
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.methods import METHODS
from ftcseg.methods.crest import CReST, CReSTParams
from ftcseg.teaching.selection import BINS
from ftcseg.types import IGNORE, Clock

TOTAL = 12  # generations of 4 steps: 0-3, 4-7, 8-11


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def crest(name: str = "crest", *, steps: int = TOTAL, burn_in: int = 0, **params: float) -> CReST:
    entry = METHODS[name]
    method = entry.build(small_kit(steps=steps, burn_in=burn_in), entry.params(**{"anew": True, **params})).train()
    assert isinstance(method, CReST)
    return method


class Says(nn.Module):
    """A labeler that is 0.9 sure of class 1 on the left and 0.6 sure of class 2 on the right."""

    def forward(self, images: Tensor) -> Tensor:
        probs = torch.tensor([0.05, 0.9, 0.05]).view(1, 3, 1, 1).repeat(len(images), 1, *SIZE)
        probs[:, :, :, SIZE[1] // 2 :] = torch.tensor([0.2, 0.2, 0.6]).view(1, 3, 1, 1)
        return probs.log()


def test_the_teacher_becomes_the_labeler_and_the_student_begins_anew() -> None:
    method = crest()
    first = state(method.pair.student)
    go(method, range(3), TOTAL)
    assert not same(first, state(method.pair.student))
    assert same(first, state(method.labeler_net.net))
    clock = Clock(3, TOTAL)
    loss = method.step(batch_at(3, method.views), clock).loss
    trained = [p for p in method.parameters() if p.requires_grad]
    for parameter, grad in zip(trained, torch.autograd.grad(loss, trained), strict=True):
        parameter.data.sub_(0.01 * grad)
    # The teacher's decay is 0.5 from the second step on: half itself, half the student.
    teacher, student = state(method.pair.teacher.net), state(method.pair.student)
    goal = {name: (teacher[name] + student[name]) / 2 for name in teacher if teacher[name].is_floating_point()}
    method.after_update(clock)
    for name, value in goal.items():
        torch.testing.assert_close(method.labeler_net.net.state_dict()[name], value)
    assert same(first, state(method.pair.student))
    assert same(first, state(method.pair.teacher.net))
    assert (int(method.rounds.number), int(method.rounds.born)) == (1, 4)
    labeler = state(method.labeler_net.net)
    go(method, range(4, 7), TOTAL)
    assert same(labeler, state(method.labeler_net.net))  # until the next turn


def test_scores_are_counted_in_the_last_quarter_and_become_cuts() -> None:
    method = crest()
    go(method, range(3), TOTAL)
    assert int(method.selection.counts.sum()) == 0
    method.step(batch_at(3, method.views), Clock(3, TOTAL))  # the last of 4
    assert int(method.selection.counts.sum()) == 2 * SIZE[0] * SIZE[1]
    assert method.selection.cut.tolist() == [BINS] * 3
    method.after_update(Clock(3, TOTAL))
    assert int(method.selection.counts.sum()) == 0
    assert min(method.selection.cut.tolist()) < BINS
    # Labelled pixels 8 : 4 : 1 and alpha 3: (1 / 8)^(1/3) = 0.5, (4 / 8)^(1/3) = 0.7937, 1.
    assert method.selection.rates.tolist() == pytest.approx([0.5, 0.7937, 1.0], abs=1e-4)


def test_the_last_generation_looks_for_no_cut() -> None:
    method = crest()
    method.step(batch_at(11, method.views), Clock(11, TOTAL))
    assert int(method.selection.counts.sum()) == 0


def test_what_the_labeler_is_surest_of_joins_the_labels() -> None:
    method = crest()
    method.labeler_net.net = Says()
    # In bins of -log(1 - conf): 0.9 lies in bin 138 of 1000 (2.3026 / 16.6355), 0.6 in bin 55. Class 1 is cut at 0.8
    # (bin 96), class 2 at 0.7 (bin 72): the left half of every image is added, the right half is not.
    method.selection.cut.copy_(torch.tensor([0, 96, 72]))
    batch, clock = batch_at(5, method.views), Clock(5, TOTAL)
    assert batch.unlabeled is not None
    (added,) = method._added(batch.unlabeled, clock)
    half = SIZE[1] // 2
    assert bool((added[:, :, :half] == 1).all())
    assert bool((added[:, :, half:] == IGNORE).all())
    assert method._added(batch.unlabeled, Clock(3, TOTAL)) == []  # nobody came before
    # The student says the same of every pixel: 1/2, 1/4, 1/4. Labels of class 0 cost ln 2, all others ln 4; the 384
    # added ones are of class 1. One mean over 768 + 384 pixels.
    say(method.pair.student, (0.5, 0.25, 0.25))
    result = method.step(batch, clock)
    zeros = int((batch.labeled.labels == 0).sum())
    expected = (zeros * math.log(2) + (768 - zeros + 384) * math.log(4)) / (768 + 384)
    parts = {name: float(value.detach()) for name, value in result.parts.items()}
    assert parts["sup"] == pytest.approx(expected, rel=1e-5)
    assert float(result.loss.detach()) == pytest.approx((parts["sup"] + parts["unsup"]) / 2, rel=1e-5)


def test_the_burn_in_belongs_to_the_first_generation() -> None:
    # 12 steps, 3 of burn-in: 9 are left, 3 for each generation; the first ends at 6, the next at 9.
    method = crest(burn_in=3)
    assert method.rounds.starts == (0, 6, 9)
    assert "unsup" not in method.step(batch_at(2, method.views), Clock(2, TOTAL)).parts
    go(method, range(7), TOTAL)
    assert int(method.rounds.born) == 6
    assert "unsup" in method.step(batch_at(7, method.views), Clock(7, TOTAL)).parts


def test_every_generation_has_the_whole_schedule() -> None:
    method = crest()
    assert [method.pace(Clock(step, TOTAL)) for step in (0, 3)] == [Clock(0, 4), Clock(3, 4)]
    go(method, range(4), TOTAL)
    assert [method.pace(Clock(step, TOTAL)) for step in (4, 7)] == [Clock(0, 4), Clock(3, 4)]


@pytest.mark.parametrize("name", ["crest", "crest-plus"])
def test_a_run_that_goes_on_turns_as_the_first_would(name: str) -> None:
    first = crest(name)
    go(first, range(2), TOTAL)
    second = crest(name)
    second.load_state_dict(state(first))
    assert go(first, range(2, 6), TOTAL) == go(second, range(2, 6), TOTAL)  # over the turn after step 3
    assert same(state(first), state(second))


def test_one_generation_is_fixmatch() -> None:
    # Whose loss is that of the first generation, which has no labeler to listen to.
    one, fixmatch = crest(generations=1), METHODS["fixmatch"]
    other = fixmatch.build(small_kit(steps=TOTAL), fixmatch.params()).train()
    clock = Clock(2, TOTAL)
    losses = [float(m.step(batch_at(2, one.views), clock).loss.detach()) for m in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# CReST+


def test_alignment_fades_over_the_generations() -> None:
    method = crest("crest-plus")
    assert [method._t(Clock(step, TOTAL)) for step in (0, 4, 8)] == [1.0, 0.75, 0.5]
    assert crest("crest-plus", generations=1)._t(Clock(0, TOTAL)) == 1.0
    assert crest().alignment is None


def test_the_teachers_classes_are_held_to_the_labels_shares() -> None:
    method = crest("crest-plus")
    assert method.alignment is not None
    seen: list[Tensor] = []
    judge = method.pair.judge
    method.pair.judge = lambda said, *rest: (seen.append(said.weak), judge(said, *rest))[1]  # type: ignore[method-assign]
    batch = batch_at(0, method.views)
    assert batch.unlabeled is not None
    method.step(batch, Clock(0, TOTAL))
    with torch.no_grad():
        plain = method.pair.teacher.net(batch.unlabeled.weak)
    # After one batch the mean is that batch's own: with t = 1 the shift is log(target / mean).
    mean = plain.softmax(1).mean((0, 2, 3))
    shift = (torch.tensor([8.0, 4.0, 1.0]) / 13 / mean).log()
    torch.testing.assert_close(seen[0], plain + shift[:, None, None], rtol=1e-4, atol=1e-5)
    go(method, range(1, 4), TOTAL)
    assert int(method.alignment.seen) == 0  # a new student, a new mean


def test_facts_name_generation_cuts_and_mean() -> None:
    facts = crest("crest-plus").facts()
    assert int(facts["generation"]) == 0
    assert facts["cut"].shape == facts["aligned_from"].shape == facts["aligned_to"].shape == (3,)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="generations >= 1"):
        CReSTParams(generations=0)


def test_in_a_short_run_the_student_goes_on() -> None:
    method = crest(anew=None)
    first = state(method.pair.student)
    go(method, range(4), TOTAL)  # after the fourth step a student anew would be as at the first
    assert int(method.rounds.number) == 1
    assert not same(first, state(method.pair.student))
    assert method.pace(Clock(5, TOTAL)) == Clock(5, TOTAL)
    assert crest(anew=None, steps=1200).rounds.anew
