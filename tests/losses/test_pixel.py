"""Pixel losses by hand, empty cases included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from ftcseg.losses.extra import consistency
from ftcseg.losses.pixel import balanced_kept_loss, kept_loss, ohem_loss, pixel_loss, weighted_loss
from ftcseg.types import IGNORE, PseudoLabels


def logits_for(probs: Sequence[Sequence[float]]) -> Tensor:
    """(1, C, 1, W) logits whose softmax is the probabilities given pixel by pixel."""
    return torch.tensor(probs).log().T.reshape(1, -1, 1, len(probs)).requires_grad_()


def row(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(1, 1, -1)


# Cross-entropies with class 0, 1, 1, 2: -log 0.5, -log 0.8, -log 0.2, -log 0.1
PROBS = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4], [0.6, 0.3, 0.1]]
CE = [-math.log(p) for p in (0.5, 0.8, 0.2, 0.1)]
LABELS = [0, 1, 1, 2]


def pseudo(valid: Sequence[bool] = (True, True, True, True)) -> PseudoLabels:
    return PseudoLabels(row(LABELS).long(), row([0.9, 0.8, 0.7, 0.6]), row(valid))


def test_mean_over_known_pixels() -> None:
    loss = pixel_loss(logits_for(PROBS), row([0, 1, IGNORE, IGNORE]))
    assert loss.item() == pytest.approx((CE[0] + CE[1]) / 2)


NOTHING = row([False] * 4)
EMPTY: dict[str, Callable[[Tensor], Tensor]] = {
    "pixel": lambda z: pixel_loss(z, row([IGNORE] * 4)),
    "ohem": lambda z: ohem_loss(z, row([IGNORE] * 4)),
    "ohem without minimum": lambda z: ohem_loss(z, row([IGNORE] * 4), min_kept=0),
    "kept": lambda z: kept_loss(z, pseudo(), NOTHING),
    "kept over kept": lambda z: kept_loss(z, pseudo(), NOTHING, normaliser="kept"),
    "kept in padding": lambda z: kept_loss(z, pseudo([False] * 4), ~NOTHING),
    "balanced": lambda z: balanced_kept_loss(z, pseudo(), NOTHING),
    "balanced over valid": lambda z: balanced_kept_loss(z, pseudo([False] * 4), ~NOTHING, normaliser="valid"),
    "weighted": lambda z: weighted_loss(z, pseudo([False] * 4), ~NOTHING),
    "consistency": lambda z: consistency(z, z.detach() + 1, NOTHING),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_costs_nothing_and_keeps_its_graph(name: str) -> None:
    logits = logits_for(PROBS)
    loss = EMPTY[name](logits)
    assert loss.item() == 0
    loss.backward()
    assert logits.grad is not None
    assert torch.all(logits.grad == 0)


# ---------------------------------------------------------------- OHEM


def test_ohem_takes_pixels_at_most_as_sure_as_its_threshold() -> None:
    # The true classes get 0.5, 0.8, 0.2, 0.1: three are below 0.7.
    loss = ohem_loss(logits_for(PROBS), row(LABELS).long(), thresh=0.7, min_kept=1)
    assert loss.item() == pytest.approx((CE[0] + CE[2] + CE[3]) / 3)


def test_ohem_takes_the_hardest_when_too_few_are_hard() -> None:
    loss = ohem_loss(logits_for(PROBS), row(LABELS).long(), thresh=0.15, min_kept=2)
    assert loss.item() == pytest.approx((CE[2] + CE[3]) / 2)


def test_ohem_takes_all_known_pixels_when_there_are_fewer_than_its_minimum() -> None:
    loss = ohem_loss(logits_for(PROBS), row([0, 1, 1, IGNORE]).long(), thresh=0.15, min_kept=100)
    assert loss.item() == pytest.approx(sum(CE[:3]) / 3)


def test_ohem_does_not_hide_a_nan() -> None:
    logits = logits_for(PROBS).detach()
    logits[0, 0, 0, 0] = float("nan")
    assert ohem_loss(logits, row(LABELS).long(), min_kept=1).isnan()


# ---------------------------------------------------------------- kept pixels

KEEP = row([True, False, True, True])
VALID = (True, True, True, False)  # the last pixel is padding, so it is not kept either


@pytest.mark.parametrize(("normaliser", "pixels"), [("valid", 3), ("hw", 4), ("kept", 2)])
def test_kept_loss_and_what_divides_it(normaliser: str, pixels: int) -> None:
    loss = kept_loss(logits_for(PROBS), pseudo(VALID), KEEP, normaliser=normaliser)  # type: ignore[arg-type]
    assert loss.item() == pytest.approx((CE[0] + CE[2]) / pixels)


def test_valid_pixels_divide_by_default() -> None:
    logits = logits_for(PROBS)
    assert kept_loss(logits, pseudo(VALID), KEEP) == kept_loss(logits, pseudo(VALID), KEEP, normaliser="valid")


def test_dropped_pixels_get_no_gradient() -> None:
    logits = logits_for(PROBS)
    kept_loss(logits, pseudo(VALID), KEEP).backward()
    assert logits.grad is not None
    assert (logits.grad.abs().sum(1) > 0).tolist() == [[[True, False, True, False]]]


def test_balanced_classes_count_alike() -> None:
    # All kept: class 0 has CE[0], class 1 the mean of two, class 2 CE[3].
    loss = balanced_kept_loss(logits_for(PROBS), pseudo(), row([True] * 4))
    assert loss.item() == pytest.approx((CE[0] + (CE[1] + CE[2]) / 2 + CE[3]) / 3)


def test_balanced_over_kept_forgets_classes_without_kept_pixels() -> None:
    loss = balanced_kept_loss(logits_for(PROBS), pseudo(), row([False, False, True, True]))
    assert loss.item() == pytest.approx((CE[2] + CE[3]) / 2)


def test_balanced_over_valid_lets_little_kept_weigh_little() -> None:
    # Three classes are predicted; of class 1 one pixel of two is kept, of class 0 none.
    loss = balanced_kept_loss(logits_for(PROBS), pseudo(), row([False, False, True, True]), normaliser="valid")
    assert loss.item() == pytest.approx((0 + CE[2] / 2 + CE[3]) / 3)


def test_a_power_between_balances_half_way() -> None:
    # Classes of 1, 2 and 1 pixels count as 1, sqrt 2 and 1: of class 1 each pixel weighs sqrt 2 / 2.
    loss = balanced_kept_loss(logits_for(PROBS), pseudo(), row([True] * 4), power=0.5)
    assert loss.item() == pytest.approx((CE[0] + (CE[1] + CE[2]) / 2**0.5 + CE[3]) / (2 + 2**0.5))


def test_a_power_of_nothing_is_the_plain_loss() -> None:
    keep = row([False, True, True, True])
    for over in ("valid", "kept"):
        plain = kept_loss(logits_for(PROBS), pseudo(), keep, normaliser=over)
        assert balanced_kept_loss(
            logits_for(PROBS), pseudo(), keep, normaliser=over, power=0.0
        ).item() == pytest.approx(plain.item())


def test_weighted_loss_trusts_a_pixel_as_far_as_the_teacher_does() -> None:
    target = pseudo(VALID)
    loss = weighted_loss(logits_for(PROBS), target, target.valid)
    assert loss.item() == pytest.approx((0.9 * CE[0] + 0.8 * CE[1] + 0.7 * CE[2]) / 3)


@pytest.mark.parametrize("loss", [kept_loss, balanced_kept_loss, weighted_loss])
def test_half_precision_logits_are_fine(loss: Callable[..., Tensor]) -> None:
    logits = logits_for(PROBS).to(torch.bfloat16)
    assert loss(logits, pseudo(VALID), KEEP).isfinite()


def test_consistency_by_hand() -> None:
    # Squared distances of (0.5, 0.5) and (0.75, 0.25): 0.0625 in both classes; the second pixel is padding.
    student = logits_for([[0.5, 0.5], [0.9, 0.1]])
    teacher = logits_for([[0.75, 0.25], [0.1, 0.9]])
    loss = consistency(student, teacher, row([True, False]))
    assert loss.item() == pytest.approx(0.0625)
    loss.backward()
    assert teacher.grad is None
    assert student.grad is not None
