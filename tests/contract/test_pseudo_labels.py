"""What becomes of pseudo-labels in any method: counted, filtered by the rule of the run, cut as their views are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ftcseg.teaching.answers import Answers
from ftcseg.types import Clock, Labeled, PseudoLabels, Unlabeled
from tiny_methods import LATE, PIXELS, SEMI, WIDTH, Variant, batch_for, train

EVERY_SEMI = pytest.mark.parametrize("variant", SEMI, ids=str)
SEMI_NAMES = list(dict.fromkeys(variant.name for variant in SEMI))

MIXED = ("fixmatch", "flexmatch", "freematch", "unimatch-v2", "ftc")
"""Pairs whose strong views get the boxes of the reversed batch."""
WHEN_TOLD: dict[str, dict[str, Any]] = {"cowmix": {"filter": True}}
"""Methods that filter by the rule of the run only where this is set; else they weigh pixels, and the rule is logged."""


@EVERY_SEMI
def test_every_valid_pixel_is_seen_and_no_more_are_kept(variant: Variant) -> None:
    method = variant.build()
    counts = method.step(batch_for(method.views), LATE).pseudo
    assert counts is not None
    assert int(counts.seen.sum()) == 2 * PIXELS
    assert bool((counts.kept <= counts.seen).all())
    assert int(counts.kept.sum()) > 0


@pytest.mark.parametrize("name", SEMI_NAMES)
def test_what_nobody_is_sure_of_weighs_nothing(name: str) -> None:
    method = Variant(name, rule="closed", params=WHEN_TOLD.get(name, {})).build()
    result = method.step(batch_for(method.views), LATE)
    assert result.pseudo is not None
    assert int(result.pseudo.kept.sum()) == 0
    assert float(result.parts["unsup"].detach()) == 0.0
    result.loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize("rule", ["atc", "flexmatch", "freematch"])
@pytest.mark.parametrize("name", SEMI_NAMES)
def test_a_rule_that_learns_sees_every_step(name: str, rule: str) -> None:
    method = Variant(name, rule=rule).build()
    _, thresholds = method.labeler()
    before = {key: value.clone() for key, value in thresholds.named_buffers()}
    losses = train(method, range(18, 20))
    assert all(torch.tensor(losses).isfinite())
    assert any(not torch.equal(before[key], value) for key, value in thresholds.named_buffers())
    result = method.step(batch_for(method.views), LATE)
    result.loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)
    assert result.pseudo is not None
    assert bool((result.pseudo.kept <= result.pseudo.seen).all())
    assert bool(method.facts()["tau"].isfinite().all())
    assert all(bool(value.isfinite().all()) for value in thresholds.buffers() if value.is_floating_point())


@pytest.mark.parametrize("variant", [v for v in SEMI if v.name in MIXED], ids=str)
def test_views_and_pseudo_labels_are_cut_by_the_same_boxes(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    pair, seen = method.pair, {}
    ask, judge, compare = pair.ask, pair.judge, pair.compare

    def watched_ask(labeled: Labeled, unlabeled: Unlabeled, strong: list[Tensor], *drop: Any) -> Answers:
        seen["strong"] = strong
        return ask(labeled, unlabeled, strong, *drop)

    def watched_judge(*asked: Any) -> PseudoLabels:
        seen["pseudo"] = judge(*asked)
        return seen["pseudo"]

    def watched_compare(strong: list[Tensor], mixed: list[PseudoLabels]) -> Tensor:
        seen["mixed"] = mixed
        return compare(strong, mixed)

    monkeypatch.setattr(pair, "ask", watched_ask)
    monkeypatch.setattr(pair, "judge", watched_judge)
    monkeypatch.setattr(pair, "compare", watched_compare)
    method.step(batch, LATE)
    # The left half of the first image is the second's; the second image has no box.
    half, views = WIDTH // 2, batch.unlabeled.strong
    assert len(seen["strong"]) == len(seen["mixed"]) == len(views) == method.views.strong
    for shown, view, mixed in zip(seen["strong"], views, seen["mixed"], strict=True):
        assert torch.equal(shown[0, :, :, :half], view[1, :, :, :half])
        assert torch.equal(shown[0, :, :, half:], view[0, :, :, half:])
        assert torch.equal(shown[1], view[1])
        for name in ("labels", "conf"):
            cut, whole = getattr(mixed, name), getattr(seen["pseudo"], name)
            assert torch.equal(cut[0, :, :half], whole[1, :, :half])
            assert torch.equal(cut[0, :, half:], whole[0, :, half:])
            assert torch.equal(cut[1], whole[1])


@pytest.mark.parametrize(("name", "drops"), [("fixmatch", False), ("unimatch-v2", True), ("ftc", True)])
def test_complementary_dropout_is_drawn_anew_each_step(name: str, drops: bool) -> None:
    at = {}
    for step in (20, 21):
        method = Variant(name).build()
        at[step] = float(method.step(batch_for(method.views), Clock(step=step, total=40)).parts["unsup"].detach())
    assert (at[20] != at[21]) == drops


def test_ftc_without_opr_and_with_a_fixed_threshold_is_unimatch_v2() -> None:
    assert train(Variant("ftc").build(), range(3)) == train(Variant("unimatch-v2").build(), range(3))
