"""Noise-robust consistency by hand: the vote, the agreement, and what disagreement costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ftcseg.errors import FtcsegError, UsageError
from ftcseg.methods.noise_consistency import NoiseConsistency, NoiseConsistencyParams
from ftcseg.teaching.vote import vote
from tiny_methods import LATE, Variant, batch_for


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def built(**params: Any) -> NoiseConsistency:
    return Variant("noise-consistency", params=params).build()  # type: ignore[return-value]


def opinion(*probs: float) -> Tensor:
    return torch.tensor(probs).clamp(min=1e-30).log().view(1, -1, 1, 1)


def entropy(*probs: float) -> float:
    return -sum(p * math.log(p) for p in probs if p)


# The vote


def test_the_mean_of_probabilities_decides() -> None:
    # Two of three views prefer class 0 a little, the third class 1 by far: the means are 0.4 and 0.6.
    mean, _ = vote([opinion(0.6, 0.4), opinion(0.55, 0.45), opinion(0.05, 0.95)])
    assert mean.softmax(1).flatten().tolist() == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([(0.7, 0.3), (0.7, 0.3)], 1.0),
        ([(1.0, 0.0), (0.0, 1.0)], 0.0),
        # The mean is (3/4, 1/4).
        (
            [(0.9, 0.1), (0.6, 0.4)],
            1 - (entropy(0.75, 0.25) - (entropy(0.9, 0.1) + entropy(0.6, 0.4)) / 2) / math.log(2),
        ),
        # Three views of two classes: the most they can differ by is ln 2, not ln 3.
        ([(1.0, 0.0), (1.0, 0.0), (0.0, 1.0)], 1 - entropy(2 / 3, 1 / 3) / math.log(2)),
        ([(0.2, 0.8)], 1.0),
    ],
)
def test_agreement_by_hand(views: list[tuple[float, float]], expected: float) -> None:
    _, agreement = vote([opinion(*probs) for probs in views])
    assert float(agreement) == pytest.approx(expected, abs=1e-5)


def test_three_views_of_three_classes_can_disagree_wholly() -> None:
    views = [opinion(*(1.0 if c == k else 0.0 for c in range(3))) for k in range(3)]
    assert float(vote(views)[1]) == pytest.approx(0.0, abs=1e-6)


def test_extreme_logits_stay_finite() -> None:
    mean, agreement = vote([torch.tensor([1e4, -1e4]).view(1, 2, 1, 1), torch.tensor([-1e4, 1e4]).view(1, 2, 1, 1)])
    assert bool(mean.isfinite().all())
    assert float(agreement) == pytest.approx(0.0, abs=1e-6)


# The step


def test_the_teacher_reads_denoised_views_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for with_weak in (False, True):
        method, seen = built(with_weak=with_weak), []
        batch = batch_for(method.views)
        assert batch.unlabeled is not None
        assert method.views.filters == ("median", "gaussian", "lee")
        ask = method.pair.ask

        def watched(labeled: Any, unlabeled: Any, strong: Any, ask: Any = ask, seen: list[Tensor] = seen) -> Any:
            seen.append(unlabeled.weak)
            return ask(labeled, unlabeled, strong)

        monkeypatch.setattr(method.pair, "ask", watched)
        method.step(batch, LATE)
        expected = [batch.unlabeled.filtered[name] for name in method.views.filters]
        expected += [batch.unlabeled.weak] if with_weak else []
        assert torch.equal(seen[0], torch.cat(expected))


def test_disagreement_costs_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    import ftcseg.methods.noise_consistency as module

    batch = batch_for(built().views)

    def unsup(agreement: float, sharpness: float) -> float:
        monkeypatch.setattr(module, "vote", lambda said: (vote(said)[0], torch.full((2, 32, 48), agreement)))
        return float(built(sharpness=sharpness).step(batch, LATE).parts["unsup"].detach())

    whole = unsup(1.0, 1.0)
    assert whole > 0
    assert unsup(0.5, 1.0) == pytest.approx(whole / 2, rel=1e-5)
    assert unsup(0.5, 2.0) == pytest.approx(whole / 4, rel=1e-5)
    assert unsup(0.5, 0.0) == pytest.approx(whole, rel=1e-5)


def test_the_loss_is_the_stated_sum() -> None:
    method = built()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert float(result.loss.detach()) == pytest.approx((parts["sup"] + parts["unsup"]) / 2, rel=1e-5)


def test_views_are_names_that_exist() -> None:
    with pytest.raises(FtcsegError, match="median"):
        NoiseConsistencyParams(views=("medain",))
    with pytest.raises(UsageError, match="with_weak"):
        NoiseConsistencyParams(views=())
    assert NoiseConsistencyParams(views=(), with_weak=True).views == ()
