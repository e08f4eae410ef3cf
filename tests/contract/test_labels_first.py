"""A method says how many steps look at labels alone, and is right: for these steps nothing else is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ftcseg.types import Clock
from tiny_methods import TOTAL, WHOLE, Variant, batch_for

SEMI = [variant for variant in WHOLE if variant.name != "supervised"]
BURN_IN = 3


@pytest.mark.parametrize("variant", SEMI, ids=str)
def test_the_last_of_the_first_steps_is_the_same_without_unlabeled_images(variant: Variant) -> None:
    burning = variant.but(teaching={"burn_in": BURN_IN})
    assert burning.build().labels_first(Clock(0, TOTAL)) == BURN_IN
    clock, outcomes = Clock(BURN_IN - 1, TOTAL), []
    for is_whole in (True, False):
        method = burning.build()
        batch = batch_for(method.views)
        torch.manual_seed(0)
        result = method.step(batch if is_whole else replace(batch, unlabeled=None), clock)
        method.after_update(clock)
        outcomes.append((float(result.loss.detach()), result.parts.keys(), method.state_dict()))
    (loss, parts, state), (loss_alone, parts_alone, state_alone) = outcomes
    assert (loss, parts) == (loss_alone, parts_alone)
    assert all(torch.equal(state[name], state_alone[name]) for name in state)
