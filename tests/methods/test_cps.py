"""CPS: two networks learn each other's labels, on images mixed by three boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ftcseg.methods import METHODS
from ftcseg.methods.cps import CPS
from ftcseg.types import IGNORE, Clock
from ftcseg.views.mix import draw_xor_boxes
from tiny_methods import HEIGHT, LATE, TOTAL, WIDTH, Variant, batch_for, say, with_labels

LN3, LN4, LN43 = math.log(3), math.log(4), math.log(4 / 3)


def opposed(rule: str = "fixed", **params: Any) -> CPS:
    """The first network says class 0, the second class 1, each with 3/4."""
    built = Variant("cps", classes=2, rule=rule, params=params).build()
    assert isinstance(built, CPS)
    say(built.first.student, [LN3, 0.0])
    say(built.second.student, [0.0, LN3])
    return built


@pytest.mark.parametrize(
    ("params", "rule", "weight", "crossed"),
    [
        ({}, "fixed", 1.0, 2 * LN4),  # each gives 1/4 to what the other says
        ({"cutmix": False}, "fixed", 1.5, 2 * LN4),  # the same on labelled and on unlabelled images, and their mean
        ({"weight": 6.0}, "fixed", 6.0, 2 * LN4),
        ({}, "closed", 1.0, 0.0),
    ],
)
def test_the_loss_by_hand(params: dict[str, Any], rule: str, weight: float, crossed: float) -> None:
    method = opposed(rule, **params)
    # All labels are 0: the first network gives them 3/4, the second 1/4.
    result = method.step(with_labels(batch_for(method.views, classes=2), 0), LATE)
    assert float(result.parts["sup"].detach()) == pytest.approx(LN43 + LN4, rel=1e-5)
    assert float(result.parts["unsup"].detach()) == pytest.approx(crossed, abs=1e-5)
    assert float(result.loss.detach()) == pytest.approx(LN43 + LN4 + weight * crossed, rel=1e-5)


def test_without_cutmix_labelled_images_count_where_they_are_known() -> None:
    method = opposed(cutmix=False)
    result = method.step(with_labels(batch_for(method.views, classes=2), IGNORE), LATE)
    # Nothing is known: the cross supervision of the labelled half is 0, that of the unlabelled half 2 ln 4.
    assert float(result.parts["unsup"].detach()) == pytest.approx(LN4, rel=1e-5)


def test_nobody_learns_from_its_own_labels() -> None:
    method = opposed()
    say(method.second.student, [LN3, 0.0])
    loss = method.step(batch_for(method.views, classes=2), LATE).parts["unsup"]
    assert float(loss.detach()) == pytest.approx(2 * LN43, rel=1e-5)  # now they agree
    bias = method.first.student.head.classifier.bias
    assert bias is not None
    (grad,) = torch.autograd.grad(loss, [bias])
    # Softmax minus the second's label: (3/4 - 1, 1/4), the mean over all pixels.
    assert grad.tolist() == pytest.approx([-0.25, 0.25], rel=1e-4)


def test_labels_are_made_before_the_mixing_and_mixed_as_the_images_are(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Variant("cps").build()
    assert isinstance(built, CPS)
    batch, seen = batch_for(built.views), {}
    assert batch.unlabeled is not None
    ask, judge, compare = built.second.ask, built.second.judge, built.second.compare

    def watched_ask(labeled: Any, unlabeled: Any, strong: Any) -> Any:
        seen["shown"] = strong[0]
        return ask(labeled, unlabeled, strong)

    def watched_judge(*asked: Any) -> Any:
        seen["pseudo"] = judge(*asked)
        return seen["pseudo"]

    def watched_compare(strong: Any, mixed: Any) -> Any:
        seen["mixed"] = mixed[0]
        return compare(strong, mixed)

    monkeypatch.setattr(built.second, "ask", watched_ask)
    monkeypatch.setattr(built.second, "judge", watched_judge)
    monkeypatch.setattr(built.second, "compare", watched_compare)
    built.step(batch, LATE)
    boxes = built._boxes(batch.unlabeled, LATE)
    assert boxes.any(dim=(1, 2)).all()
    weak, whole = batch.unlabeled.weak, seen["pseudo"].conf
    assert torch.equal(seen["shown"], torch.where(boxes[:, None], weak.flip(0), weak))
    assert torch.equal(seen["mixed"].conf, torch.where(boxes, whole.flip(0), whole))
    assert not torch.equal(boxes, built._boxes(batch.unlabeled, Clock(21, TOTAL)))


def test_both_networks_can_be_used_and_differ() -> None:
    built = Variant("cps").build()
    nets = built.predictors()
    assert list(nets) == ["first", "second"]
    heads = [net.head.classifier.weight for net in nets.values()]  # type: ignore[union-attr]
    assert not torch.equal(*heads)
    assert built.teachers() == []
    assert METHODS["cps"].preset == {"tau": 0.0}


class Drawn:
    """A generator that says what it is told to."""

    def __init__(self, areas: list[float], rest: list[float]) -> None:
        self._areas, self._rest = iter(areas), iter(rest)

    def uniform(self, low: float, high: float) -> float:
        assert (low, high) == (0.25, 0.5)
        return next(self._areas)

    def random(self) -> float:
        return next(self._rest)


def test_three_boxes_by_hand() -> None:
    # Areas of 0.48 with the log of the height half way: sqrt(0.48) of height and width, times sqrt(1/3): 0.4 of each
    # side. On 10 x 20 pixels: 4 rows, 8 columns. Two of the boxes are at the upper left and cancel, the third is at
    # the lower right: rows 6 to 9, columns 12 to 19.
    rng: Any = Drawn([0.48] * 3, [0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 1.0, 1.0])
    mask = draw_xor_boxes(10, 20, rng)
    expected = torch.zeros(10, 20, dtype=torch.bool)
    expected[6:, 12:] = True
    assert torch.equal(mask, expected)


def test_boxes_that_overlap_are_off_where_they_do() -> None:
    # The same boxes at rows 0, 3 and 6, columns 0, 6 and 12: each pair of neighbours shares one row and two columns.
    rng: Any = Drawn([0.48] * 3, [0.5, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0])
    mask = draw_xor_boxes(10, 20, rng)
    assert int(mask.sum()) == 3 * 32 - 2 * 2 * 2
    assert not bool(mask[3, 6:8].any())


def test_a_box_is_as_tall_as_the_log_uniform_says() -> None:
    # Area 1/4: height (1/4) ** u, width the rest; u = 0 is the whole height, u = 1 the whole width; times sqrt(1/3).
    for u, rows, columns in ((0.0, 58, 14), (1.0, 14, 58), (0.5, 29, 29)):
        rng: Any = Drawn([0.25] * 3, [u, 0.0, 0.0] * 3)
        mask = draw_xor_boxes(100, 100, rng)  # three times the same box: on, off, on
        assert (int(mask.any(1).sum()), int(mask.any(0).sum())) == (rows, columns)


def test_masks_cover_about_a_third() -> None:
    rng = np.random.default_rng(0)
    shares = [float(draw_xor_boxes(HEIGHT, WIDTH, rng).float().mean()) for _ in range(400)]
    # Three boxes of an eighth each on average are 0.375; where they overlap it is less.
    assert 0.2 < sum(shares) / len(shares) < 0.375
    assert max(shares) <= 0.5 + 0.02
