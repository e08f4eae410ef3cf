"""FreeMatch: the step, and its fairness term by hand; the rule itself is tested with the thresholds."""

from __future__ import annotations

import math

import pytest
import torch

from ftcseg.errors import UsageError
from ftcseg.losses.extra import fairness
from ftcseg.methods import METHODS
from ftcseg.methods.freematch import FreeMatchStepParams
from tiny_methods import LATE, Variant, batch_for

# Four pixels: three times (4/5, 1/5), once (2/5, 3/5). The fifth is not kept.
PROBS = torch.tensor([[0.8, 0.8, 0.8, 0.4, 0.01], [0.2, 0.2, 0.2, 0.6, 0.99]])
LOGITS = PROBS.log().view(1, 2, 1, 5)
KEEP = torch.tensor([True, True, True, True, False]).view(1, 1, 5)
P, H = torch.tensor([0.6, 0.4]), torch.tensor([0.5, 0.5])


def test_fairness_by_hand() -> None:
    # The student: mean (0.7, 0.3), called (3/4, 1/4), so 0.9333 and 1.2, of which 7/16 and 9/16 are the shares.
    # So far: (0.6, 0.4) over (1/2, 1/2), as shares 0.6 and 0.4.
    expected = 0.6 * math.log(7 / 16) + 0.4 * math.log(9 / 16)
    assert float(fairness(LOGITS, KEEP, P, H)) == pytest.approx(expected, rel=1e-5)


def test_a_class_that_is_called_nowhere_is_left_out() -> None:
    keep = torch.tensor([True, True, True, False, False]).view(1, 1, 5)
    logits = LOGITS.clone().requires_grad_()
    loss = fairness(logits, keep, P, H)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)  # class 0 alone has all of it: 0.6 ln 1
    loss.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert float(fairness(LOGITS, KEEP, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))) == pytest.approx(
        math.log(7 / 16), rel=1e-5
    )


def test_nothing_kept_costs_nothing_and_keeps_its_graph() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = fairness(logits, torch.zeros_like(KEEP), P, H)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())


def test_pushing_down_what_is_too_common() -> None:
    # The sum is to be made small: the gradient descends by taking from class 0, which has more than its share so far.
    logits = LOGITS.clone().requires_grad_()
    fairness(logits, KEEP, torch.tensor([0.9, 0.1]), H).backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 0, 0, 0]) > 0


@pytest.mark.parametrize("weight", [0.0, 0.01, 2.0])
def test_the_loss_is_the_sum_of_its_parts(weight: float) -> None:
    method = Variant("freematch", rule="freematch", params={"fairness": weight}).build()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert ("fairness" in parts) == (weight > 0)
    whole = (parts["sup"] + parts["unsup"] + weight * parts.get("fairness", 0.0)) / 2
    assert float(result.loss.detach()) == pytest.approx(whole, rel=1e-5)
    assert parts.get("fairness", 0.0) <= 0  # a logarithm of shares


def test_fairness_needs_the_statistics_of_its_own_rule() -> None:
    assert METHODS["freematch"].preset == {"thresholds": "freematch"}
    assert FreeMatchStepParams().fairness == 0.01
    with pytest.raises(UsageError, match="fairness=0"):
        Variant("freematch", rule="atc", params={"fairness": 0.01}).build()
    Variant("freematch", rule="atc", params={"fairness": 0.0}).build()
