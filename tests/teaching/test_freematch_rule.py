"""FreeMatch's self-adaptive thresholds by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import pseudo_labels, soft_counts
from ftcseg.teaching.thresholds.freematch import FreeMatchParams, FreeThresholds

# Four pixels of two classes: 0.9, 0.9 and 0.6 for class 0, 0.8 for class 1. The last pixel is padding.
PROBS = torch.tensor([[0.9, 0.9, 0.6, 0.2, 0.5], [0.1, 0.1, 0.4, 0.8, 0.5]])
LOGITS = PROBS.log().view(1, 2, 1, 5)
VALID = torch.tensor([True, True, True, True, False]).view(1, 1, 5)


def rule(**params: Any) -> FreeThresholds:
    return FreeThresholds(2, FreeMatchParams(**{"momentum": 0.0, **params}))


def see(thresholds: FreeThresholds, logits: torch.Tensor = LOGITS, valid: torch.Tensor = VALID) -> FreeThresholds:
    thresholds.observe(
        target=torch.zeros(1, 1, 5, dtype=torch.int64),
        logits=logits,
        pseudo=pseudo_labels(logits, valid),
        soft=soft_counts(logits, valid),
    )
    return thresholds


def test_it_starts_as_unsure_as_one_can_be() -> None:
    assert FreeThresholds(4, FreeMatchParams()).tau().tolist() == [0.25] * 4


def test_one_step_by_hand() -> None:
    # Level: (0.9 + 0.9 + 0.6 + 0.8) / 4 = 0.8. p: 2.6 / 4 and 1.4 / 4. h: 3/4 and 1/4.
    seen = see(rule())
    assert float(seen.level) == pytest.approx(0.8)
    assert seen.probs.tolist() == pytest.approx([0.65, 0.35])
    assert seen.hist.tolist() == pytest.approx([0.75, 0.25])
    assert seen.tau().tolist() == pytest.approx([0.8, 0.8 * 0.35 / 0.65])
    # Moved before anything is filtered: of class 0 the two at 0.9 pass, of class 1 the one at 0.8.
    assert seen.accept(pseudo_labels(LOGITS, VALID)).flatten().tolist() == [True, True, False, True, False]


def test_the_momentum_moves_all_three() -> None:
    seen = see(rule(momentum=0.5))
    assert float(seen.level) == pytest.approx(0.65)
    assert seen.probs.tolist() == pytest.approx([0.575, 0.425])
    assert seen.hist.tolist() == pytest.approx([0.625, 0.375])


def test_a_quantile_instead_of_the_mean() -> None:
    assert float(see(rule(quantile=0.8)).level) == pytest.approx(0.9)  # the fourth of four
    assert float(see(rule(quantile=0.5)).level) == pytest.approx(0.8)  # the second


def test_a_clip_holds_the_level_and_not_what_is_remembered() -> None:
    seen = see(rule(clip=(0.0, 0.7)))
    assert float(seen.level) == pytest.approx(0.8)
    assert seen.tau().tolist() == pytest.approx([0.7, 0.7 * 0.35 / 0.65])


def test_padding_alone_changes_nothing() -> None:
    seen = see(rule(momentum=0.5))
    before = {name: value.clone() for name, value in seen.named_buffers()}
    see(seen, valid=torch.zeros_like(VALID))
    assert all(torch.equal(before[name], value) for name, value in seen.named_buffers())


def test_non_finite_numbers_never_enter_the_statistics() -> None:
    seen = see(rule(momentum=0.5))
    before = {name: value.clone() for name, value in seen.named_buffers()}
    broken = LOGITS.clone()
    broken[..., 0] = float("nan")
    see(seen, logits=broken)
    assert all(torch.equal(before[name], value) for name, value in seen.named_buffers())


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"quantile": 0.0}, {"quantile": 1.1}])
def test_wrong_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="FreeMatch needs"):
        rule(**wrong)


def test_facts_are_numbers_of_classes_or_single_ones() -> None:
    facts = see(rule()).facts()
    assert {name: tuple(value.shape) for name, value in facts.items()} == {
        "tau": (2,),
        "level": (),
        "probs": (2,),
        "hist": (2,),
    }
