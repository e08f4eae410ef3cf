"""The methods whose loss is (L_sup + L_unsup) / 2 and what OPR adds (reading C3), and the baseline that is L_sup."""

from __future__ import annotations

import pytest

from tiny_methods import LATE, VARIANTS, Variant, batch_for

HALVED = ("fixmatch", "flexmatch", "unimatch-v1", "unimatch-v2", "ftc")


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in ("supervised", *HALVED)], ids=str)
def test_the_loss_is_the_sum_of_its_parts(variant: Variant) -> None:
    method = variant.build()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    base = parts["sup"] if variant.name == "supervised" else (parts["sup"] + parts["unsup"]) / 2
    opr = parts["ortho"] + parts["probe"] if variant.layers else 0.0
    assert float(result.loss.detach()) == pytest.approx(base + opr, rel=1e-5)


@pytest.mark.parametrize("name", HALVED)
def test_where_nothing_is_kept_half_of_the_labels_remain(name: str) -> None:
    method = Variant(name, rule="closed").build()
    result = method.step(batch_for(method.views), LATE)
    assert float(result.loss.detach()) == pytest.approx(float(result.parts["sup"].detach()) / 2)


@pytest.mark.parametrize(("name", "weight"), [(name, weight) for name in HALVED for weight in (0.0, 3.0)])
def test_the_weight_is_that_of_the_run(name: str, weight: float) -> None:
    method = Variant(name, teaching={"unsup_weight": weight}).build()
    result = method.step(batch_for(method.views), LATE)
    sup, unsup = (float(result.parts[part].detach()) for part in ("sup", "unsup"))
    assert float(result.loss.detach()) == pytest.approx((sup + weight * unsup) / 2, rel=1e-5)
