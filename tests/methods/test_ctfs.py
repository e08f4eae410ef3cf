"""CTFS by hand: cells, cosines and weights; and which teacher teaches, follows and is asked."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ftcseg.methods.ctfs import CTFS
from ftcseg.teaching.reliability import Trust, cell_means, read, read_mirrored_and_resized, reliability, spread
from ftcseg.types import Clock
from tiny_methods import LATE, Variant, batch_for


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def ctfs(variant: dict[str, Any] | None = None, **params: Any) -> CTFS:
    return Variant("ctfs", **(variant or {}), params={"epoch_steps": 3, **params}).build()  # type: ignore[return-value]


def logits(*cells: tuple[float, float]) -> Tensor:
    """(1, 2, 1, W) logits whose softmax is these probabilities."""
    return torch.tensor(cells).clamp(min=1e-30).log().T.reshape(1, 2, 1, len(cells))


# Reliability

PIXELS = Trust(cell=1)
SURE, OTHER, TORN = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)
ROOT = 1 / math.sqrt(2)  # the cosine of (1, 0) and (1/2, 1/2)
ALL = torch.ones(1, 1, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("general", "sonar", "expected"),
    [
        ([SURE, SURE, SURE], [SURE, SURE, SURE], 1.0),
        ([SURE, SURE, OTHER], [SURE, SURE, SURE], 0.4 * 0.5 + 0.4 + 0.2),  # one of two views says something else
        ([SURE, TORN, TORN], [SURE, SURE, SURE], 0.4 * ROOT + 0.4 + 0.2),
        ([SURE, SURE, SURE], [OTHER, OTHER, OTHER], 0.8),  # each steady, but they contradict each other
        ([SURE, OTHER, OTHER], [SURE, OTHER, OTHER], 0.0),  # agreement alone is 0.2, below the least
        ([SURE, OTHER, OTHER], [OTHER, SURE, OTHER], 0.0),  # 0.4 / 2, below the least, too
        ([SURE, OTHER, OTHER], [SURE, SURE, OTHER], 0.4 / 2 + 0.2),
    ],
)
def test_reliability_by_hand(
    general: list[tuple[float, float]], sonar: list[tuple[float, float]], expected: float
) -> None:
    found = reliability([logits(p) for p in general], [logits(p) for p in sonar], ALL, PIXELS)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_every_image_is_judged_for_itself() -> None:
    steady, torn = [logits(SURE)] * 3, [logits(SURE), logits(OTHER), logits(OTHER)]
    both = [torch.cat(views) for views in zip(steady, torn, strict=True)]
    found = reliability(both, both, ALL.repeat(2, 1, 1), PIXELS)
    assert found.flatten().tolist() == pytest.approx([1.0, 0.0])


def test_cells_are_averaged_without_padding() -> None:
    # Five pixels in cells of two: (0.2, 0.6), (1.0, padding) and the last alone.
    probs = torch.tensor([0.2, 0.6, 1.0, 0.4, 0.7]).view(1, 1, 1, 5)
    valid = torch.tensor([True, True, True, False, True]).view(1, 1, 5)
    assert cell_means(probs, valid, 2).flatten().tolist() == pytest.approx([0.4, 1.0, 0.7])
    assert cell_means(probs, torch.zeros_like(valid), 2).flatten().tolist() == [0.0, 0.0, 0.0]
    assert spread(torch.tensor([[[1.0, 2.0]]]), 2).tolist() == [[[1, 1, 2, 2], [1, 1, 2, 2]]]


def test_a_view_that_no_cell_fits_is_one_cell() -> None:
    found = reliability([logits(SURE, OTHER)] * 3, [logits(SURE, OTHER)] * 3, torch.ones(1, 1, 2).bool(), Trust())
    assert found.shape == (1, 1, 2)
    assert found.flatten().tolist() == pytest.approx([1.0, 1.0])


def test_padding_alone_is_not_trusted() -> None:
    found = reliability([logits(SURE)] * 3, [logits(SURE)] * 3, ~ALL, PIXELS)
    assert float(found) == 0.0


def test_the_general_views_are_laid_back_in_place() -> None:
    method = ctfs()
    net = method._teacher(False)
    images = batch_for(method.views).labeled.images
    whole, mirrored, resized = read_mirrored_and_resized(net, images, 1.0)
    with torch.no_grad():
        assert torch.equal(whole, read(net, [images])[0])
        torch.testing.assert_close(mirrored.flip(-1), net(images.flip(-1)))
    torch.testing.assert_close(resized, whole)  # at the same size it is the same question
    assert all(r.shape == whole.shape for r in read_mirrored_and_resized(net, images, 0.7))


# The step


def _says(method: CTFS, is_sonar: bool, class_id: int) -> None:
    head = method._teacher(is_sonar).head.classifier
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
        head.bias[class_id] = 50.0


def test_teachers_take_turns_and_the_views_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import ftcseg.methods.ctfs as module

    method, shown = ctfs(), []
    ask = module.ask_student

    def watched(student: Any, labeled: Tensor, strong: list[Tensor], *rest: Any) -> Any:
        shown.append(strong[0])
        return ask(student, labeled, strong, *rest)

    monkeypatch.setattr(module, "ask_student", watched)
    _says(method, False, 1)
    _says(method, True, 2)
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    labels = []
    for step in (2 + 18, 2 + 21):  # the start takes two of forty steps; then three steps each
        counts = method.step(batch, Clock(step, 40)).pseudo
        assert counts is not None
        labels.append(int(counts.seen.argmax()))
    assert labels == [1, 2]
    # The second image has no box: it is shown as it is.
    assert torch.equal(shown[0][1], batch.unlabeled.strong[0][1])
    assert torch.equal(shown[1][1], batch.unlabeled.filtered["sonar-strong"][1])


def test_steady_teachers_who_contradict_each_other_weigh_four_fifths() -> None:
    agreed, apart = ctfs(), ctfs()
    for method, second in ((agreed, 1), (apart, 2)):
        _says(method, False, 1)
        _says(method, True, second)
    batch, clock = batch_for(agreed.views), Clock(20, 40)
    whole, less = (float(m.step(batch, clock).parts["unsup"].detach()) for m in (agreed, apart))
    assert less == pytest.approx(0.8 * whole, rel=1e-4)


def test_the_loss_is_the_stated_sum() -> None:
    method = ctfs()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert set(parts) == {"sup", "unsup"}
    assert float(result.loss.detach()) == pytest.approx((parts["sup"] + parts["unsup"]) / 2, rel=1e-5)


# Start and teachers


def test_the_start_is_a_share_of_the_run_unless_a_burn_in_is_asked_for() -> None:
    assert ctfs({"steps": 240}).pair.params.burn_in == 15
    assert ctfs({"steps": 240, "teaching": {"burn_in": 7}}).pair.params.burn_in == 7


def test_both_start_as_the_student_and_then_follow_in_turn() -> None:
    method = ctfs({"teaching": {"burn_in": 2, "ema": 0.5}})
    weight = method.pair.student.head.classifier.bias
    path = []
    for step in range(8):
        with torch.no_grad():
            weight.fill_(float(step))
        method.after_update(Clock(step=step, total=100))
        path.append(tuple(float(method._teacher(who).head.classifier.bias[0]) for who in (False, True)))
    assert path[:2] == [(0, 0), (1, 1)]
    # Three steps of the general teacher, half way each: 1 -> 1.5 -> 2.25 -> 3.125. The sonar teacher waits at 1.
    assert path[2:5] == [(1.5, 1), (2.25, 1), (3.125, 1)]
    # Then the sonar teacher, towards 5, 6 and 7, and the general one waits; nobody starts anew.
    assert path[5:8] == [(3.125, 3), (3.125, 4.5), (3.125, 5.75)]
    assert list(method.predictors()) == ["teacher", "sonar teacher", "student"]
    assert len(method.teachers()) == 2
