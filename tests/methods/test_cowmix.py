"""CowMix: masks, who weighs what, which steps learn from labels alone, and when a student begins anew."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from round_kits import SIZE, batch_at, go, same, small_kit, state
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.methods import METHODS
from ftcseg.methods.cowmix import CowMix, CowMixParams
from ftcseg.teaching.pseudo import probability_of
from ftcseg.types import Clock
from ftcseg.views.mix import COW_SIGMAS, draw_cow_mask, paste_partner

TOTAL = 12  # without a burn-in three tenths of it, 4 steps, are the supervised part


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def cowmix(*, steps: int = TOTAL, burn_in: int = 0, **params: object) -> CowMix:
    entry = METHODS["cowmix"]
    method = entry.build(small_kit(steps=steps, burn_in=burn_in), entry.params(**{"anew": True, **params})).train()
    assert isinstance(method, CowMix)
    return method


# Masks


def test_a_cow_is_half_black_and_blotchy() -> None:
    masks = [draw_cow_mask(129, 129, np.random.default_rng(seed)) for seed in range(8)]
    assert all(0.3 < float(mask.float().mean()) < 0.7 for mask in masks)
    assert float(torch.stack(masks).float().mean()) == pytest.approx(0.5, abs=0.08)
    # Blotches: neighbours nearly always agree. In plain noise half of them would not.
    assert all(float((mask[1:] != mask[:-1]).float().mean()) < 0.1 for mask in masks)
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], draw_cow_mask(129, 129, np.random.default_rng(0)))


def test_blotches_grow_with_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    blur = "ftcseg.views.mix.ndimage.gaussian_filter"
    monkeypatch.setattr(blur, lambda noise, sigma: (used.append(float(sigma)), noise)[1])
    for seed in range(40):
        draw_cow_mask(513, 513, np.random.default_rng(seed))
    assert set(used) == set(COW_SIGMAS) == {13, 15, 17, 19, 21, 23, 25}
    small = used[:]
    used.clear()
    for seed in range(40):
        draw_cow_mask(171, 171, np.random.default_rng(seed))  # a third of the side
    assert used == pytest.approx([sigma / 3 for sigma in small])


def test_a_view_of_one_pixel_has_a_mask() -> None:
    assert draw_cow_mask(1, 1, np.random.default_rng(0)).shape == (1, 1)


def test_masks_are_drawn_anew_each_step_and_the_same_again() -> None:
    method, like = cowmix(), torch.ones(2, *SIZE, dtype=torch.bool)
    at = [method._masks(like, Clock(step, TOTAL)) for step in (6, 7)]
    assert not torch.equal(at[0], at[1])
    assert not torch.equal(at[0][0], at[0][1])  # each image has its own
    assert torch.equal(at[0], cowmix()._masks(like, Clock(6, TOTAL)))


# Weights


def test_a_label_weighs_what_the_student_believes_of_it() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]).view(1, 2, 1, 2)  # 1/2 and 1/2; 3/4 and 1/4
    labels = torch.tensor([[[1, 1]]])
    assert probability_of(labels, logits).flatten().tolist() == pytest.approx([0.5, 0.25])


class Fixed(nn.Module):
    """A network that says the same of every pixel, whatever it sees; with a weight, so that it can learn."""

    num_classes = 3
    opr = None

    def __init__(self, probs: tuple[float, float, float]) -> None:
        super().__init__()
        self.encoder = nn.Identity()
        self.logits = nn.Parameter(torch.tensor(probs).log())

    def features(self, images: Tensor) -> list[Tensor]:
        return [images]

    def embed(self, features: list[Tensor], perturb: object = None) -> Tensor:
        return self.logits.view(1, 3, 1, 1).expand(len(features[0]), 3, *features[0].shape[-2:])

    def classify(self, embedding: Tensor, size: object) -> Tensor:
        return embedding


@pytest.mark.parametrize(("weights", "factor"), [(True, 0.25), (False, 1.0)])
def test_the_loss_by_hand(weights: bool, factor: float) -> None:
    # The teacher calls every pixel class 2. The student gives that 1/4: each pixel weighs 1/4 and costs ln 4.
    method = cowmix(weights=weights)
    method.pair.student, method.labeler_net.net = Fixed((0.5, 0.25, 0.25)), Fixed((0.1, 0.1, 0.8))
    result = method.step(batch_at(6, method.views), Clock(6, TOTAL))
    assert float(result.parts["unsup"].detach()) == pytest.approx(factor * math.log(4))
    assert float(result.loss.detach()) == pytest.approx(
        float((result.parts["sup"] + result.parts["unsup"]).detach()) / 2
    )
    assert result.pseudo is not None
    assert result.pseudo.seen.tolist() == [0, 0, 2 * SIZE[0] * SIZE[1]]


def test_apart_the_labels_do_not_count_beside_mixed_images() -> None:
    method = cowmix(apart=True)
    result = method.step(batch_at(6, method.views), Clock(6, TOTAL))
    assert torch.equal(result.loss, result.parts["unsup"])
    assert "unsup" not in method.step(batch_at(7, method.views), Clock(7, TOTAL)).parts


def test_the_threshold_filters_where_it_is_asked_to() -> None:
    for filtered in (True, False):
        method = cowmix(filter=filtered)
        method.pair.thresholds.level.fill_(1.1)  # no probability reaches it
        result = method.step(batch_at(6, method.views), Clock(6, TOTAL))
        assert result.pseudo is not None
        assert int(result.pseudo.kept.sum()) == 0  # as the rule would have it
        assert (float(result.parts["unsup"].detach()) == 0.0) == filtered


def test_the_student_sees_images_mixed_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    method = cowmix()
    shown: list[Tensor] = []
    features = method.pair.student.features
    monkeypatch.setattr(method.pair.student, "features", lambda images: (shown.append(images), features(images))[1])
    batch, clock = batch_at(6, method.views), Clock(6, TOTAL)
    assert batch.unlabeled is not None
    weak = batch.unlabeled.weak
    method.step(batch, clock)
    mixed = paste_partner(weak, method._masks(batch.unlabeled.valid, clock))
    assert torch.equal(torch.cat(shown), torch.cat([batch.labeled.images, mixed, weak]))


# Steps and rounds


def test_every_fourth_step_learns_from_labels_alone() -> None:
    method = cowmix()
    unsup = ["unsup" in method.step(batch_at(s, method.views), Clock(s, TOTAL)).parts for s in range(TOTAL)]
    assert unsup == [False] * 4 + [True, True, True, False] * 2
    assert not any(cowmix(labels_every=0)._labels_alone(Clock(step, TOTAL)) for step in range(4, TOTAL))


def test_parts_of_a_run() -> None:
    assert cowmix().rounds.starts == (0, 4)
    assert cowmix(rounds=2).rounds.starts == (0, 4, 8)
    assert cowmix(rounds=2, burn_in=2).rounds.starts == (0, 2, 7)


def test_what_labels_taught_becomes_the_fixed_teacher_of_a_student_anew() -> None:
    method = cowmix(burn_in=3)
    first = state(method.pair.student)
    go(method, range(2), TOTAL)
    assert same(first, state(method.labeler_net.net))
    go(method, range(2, 3), TOTAL)
    taught = state(method.labeler_net.net)
    assert not same(first, taught)
    assert same(first, state(method.pair.student))
    assert same(first, state(method.pair.teacher.net))
    assert method.pace(Clock(3, TOTAL)) == Clock(0, TOTAL - 3)
    go(method, range(3, 6), TOTAL)
    assert same(taught, state(method.labeler_net.net))
    assert method.labeler()[0] is method.labeler_net.net


def test_a_run_that_goes_on_turns_as_the_first_would() -> None:
    first = cowmix(burn_in=3)
    go(first, range(2), TOTAL)
    second = cowmix(burn_in=3)
    second.load_state_dict(state(first))
    assert go(first, range(2, 5), TOTAL) == go(second, range(2, 5), TOTAL)
    assert same(state(first), state(second))


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="rounds >= 1"):
        CowMixParams(rounds=0)


def test_in_a_short_run_the_student_goes_on() -> None:
    method = cowmix(anew=None)
    first = state(method.pair.student)
    go(method, range(4), TOTAL)  # after the fourth step a student anew would be as at the first
    assert int(method.rounds.number) == 1
    assert not same(first, state(method.pair.student))
    assert method.pace(Clock(5, TOTAL)) == Clock(5, TOTAL)
    assert cowmix(anew=None, steps=1200).rounds.anew
