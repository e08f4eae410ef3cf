"""VC by hand: the virtual category's weights and loss, the second opinion, and who learns what."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.losses.virtual import likeness_loss, virtual_loss
from ftcseg.methods.vc import VC, VCParams
from ftcseg.nets.virtual import WeightGenerator
from ftcseg.teaching.potential import flipped_opinion, hardest, potential_labels
from ftcseg.types import IGNORE, Clock, PseudoLabels
from ftcseg.views.mix import erase
from tiny_methods import LATE, WIDTH, Variant, batch_for


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# Weights


def generator(width: int = 8) -> WeightGenerator:
    torch.manual_seed(0)
    return WeightGenerator(width, hidden=4)


def test_one_token_is_what_the_whole_layer_would_put_first() -> None:
    layer, weights, maps = generator(), torch.randn(5, 8), torch.randn(2, 8, 3, 4)
    made = layer(maps, weights)
    pixels = maps.movedim(1, -1).reshape(-1, 1, 8)
    whole = layer.layer(torch.cat([pixels, weights.expand(len(pixels), -1, -1)], dim=1))[:, 0]
    expected = nn.functional.normalize(whole, dim=1).view(2, 3, 4, 8).movedim(-1, 1) * weights.norm(dim=1).min()
    torch.testing.assert_close(made, expected)


def test_made_weights_are_as_long_as_the_shortest_of_the_classifier() -> None:
    weights = torch.eye(8)[:3] * torch.tensor([5.0, 0.5, 2.0])[:, None]
    made = generator()(torch.randn(1, 8, 2, 2), weights)
    assert made.norm(dim=1).flatten().tolist() == pytest.approx([0.5] * 4)


def test_making_weights_teaches_nobody_but_the_generator() -> None:
    layer, maps, weights = (
        generator(),
        torch.randn(1, 8, 2, 2, requires_grad=True),
        torch.randn(3, 8, requires_grad=True),
    )
    layer(maps, weights).square().sum().mul(0.5).add(layer(maps, weights).sum()).backward()
    assert maps.grad is None
    assert weights.grad is None
    assert all(p.grad is not None for p in layer.parameters())


def test_likeness_is_learnt_by_cosine() -> None:
    made, wanted = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    assert float(likeness_loss(made, wanted)) == pytest.approx((0 + 1) / 2)
    assert float(likeness_loss(made[:0], wanted[:0])) == 0


# The loss

# Four pixels, logits (0, ln 2, ln 4) each. The first is agreed to be class 1, which has 2 / 7. Of the second one says 1
# and one 2: class 0 remains against the virtual category, 1 against 3, ln(1 + 1/3). The third is dropped, and the last
# is padding.
LOGITS = torch.tensor([0.0, math.log(2), math.log(4)]).view(1, 3, 1, 1).expand(1, 3, 1, 4)
VIRTUAL = torch.full((1, 1, 4), math.log(3))
PSEUDO = PseudoLabels(
    torch.tensor([1, 1, 0, 0]).view(1, 1, 4),
    torch.ones(1, 1, 4),
    torch.tensor([True, True, True, False]).view(1, 1, 4),
)
OTHER = torch.tensor([1, 2, 1, 0]).view(1, 1, 4)
COUNTS = torch.tensor([1.0, 3.0, 0.0, 1.0]).view(1, 1, 4)


@pytest.mark.parametrize(("normaliser", "pixels"), [("valid", 3), ("kept", 2), ("hw", 4)])
def test_the_loss_by_hand(normaliser: Any, pixels: int) -> None:
    loss = virtual_loss(LOGITS, VIRTUAL, PSEUDO, OTHER, COUNTS, normaliser)
    assert float(loss) == pytest.approx((math.log(7 / 2) + 3 * math.log(4 / 3)) / pixels, rel=1e-5)


def test_the_two_classes_in_question_get_no_gradient() -> None:
    logits, virtual = LOGITS.clone().requires_grad_(), VIRTUAL.clone().requires_grad_()
    virtual_loss(logits, virtual, PSEUDO, OTHER, COUNTS).backward()
    assert logits.grad is not None
    assert virtual.grad is not None
    # Of the second pixel: 3 / 3 valid pixels, times the share of the rest, 1 / 4.
    assert logits.grad[0, :, 0, 1].tolist() == pytest.approx([0.25, 0, 0])
    assert virtual.grad[0, 0].tolist() == pytest.approx([0, -0.25, 0, 0])


def test_of_two_classes_that_are_both_in_question_nothing_remains() -> None:
    logits, virtual = torch.randn(1, 2, 1, 4, requires_grad=True), torch.randn(1, 1, 4, requires_grad=True)
    loss = virtual_loss(logits, virtual, PSEUDO, 1 - PSEUDO.labels, torch.ones(1, 1, 4))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())
    assert virtual.grad is not None
    assert bool((virtual.grad == 0).all())


# Second opinions


def test_potential_labels_by_hand() -> None:
    # The teacher's order of classes is 2, 0, 1 at both pixels. It is sure of the first: there the student is asked.
    logits = torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1, 1).expand(1, 3, 1, 2)
    sure = torch.tensor([[[True, False]]])
    assert potential_labels(logits, sure, torch.tensor([[[1, 1]]])).tolist() == [[[1, 0]]]


class LeftHanded(nn.Module):
    """Calls the left half of whatever it sees class 1."""

    seen: Tensor
    asked_in_training = True

    def forward(self, images: Tensor) -> Tensor:
        self.seen, self.asked_in_training = images, self.training
        logits = torch.zeros(len(images), 2, *images.shape[-2:])
        logits[:, 1, :, : images.shape[-1] // 2] = 1
        logits[:, 0, :, images.shape[-1] // 2 :] = 1
        return logits


def test_a_mirror_turns_left_into_right_and_back() -> None:
    student = LeftHanded().train()
    images = torch.arange(4.0).view(1, 1, 1, 4)
    said = flipped_opinion(student, images)  # type: ignore[arg-type]
    assert student.seen.flatten().tolist() == [3, 2, 1, 0]
    assert said.flatten().tolist() == [0, 0, 1, 1]
    assert not student.asked_in_training
    assert student.training


def test_the_hardest_fifth_of_every_class() -> None:
    # Of class 0 two of five at 0.4; of class 1 one of two, rounded up; a pixel nobody knows is never hard.
    scores = torch.tensor([0.9, 0.1, 0.5, 0.2, 0.8, 0.7, 0.6, 0.0])
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, IGNORE])
    assert hardest(scores, labels, 3, 0.4).nonzero().flatten().tolist() == [1, 3, 6]
    assert hardest(scores, labels, 3, 1.0).tolist() == [True] * 7 + [False]
    assert not hardest(scores, torch.full_like(labels, IGNORE), 3, 0.4).any()


def test_erased_boxes_hold_the_mean_colour() -> None:
    images, boxes = torch.ones(2, 3, 1, 2), torch.tensor([[[True, False]], [[False, False]]])
    assert erase(images, boxes)[:, 0, 0].tolist() == [[0, 1], [1, 1]]


# The method


def vc(**params: float) -> VC:
    method = Variant("vc", params=params).build()
    assert isinstance(method, VC)
    return method


def test_what_is_erased_is_not_seen() -> None:
    method = vc()
    assert method.views.labeled_strong
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    plain = method.step(batch, LATE)
    half = WIDTH // 2  # boxes cover the left half of the first image
    labeled, (strong,) = batch.labeled.images.clone(), (view.clone() for view in batch.unlabeled.strong)
    labeled[0, :, :, :half] += 5
    strong[0, :, :, :half] += 5
    same = replace(
        batch,
        labeled=replace(batch.labeled, images=labeled),
        unlabeled=replace(batch.unlabeled, strong=(strong,)),
    )
    assert float(vc().step(same, LATE).loss.detach()) == float(plain.loss.detach())
    labeled[0, :, :, half:] += 5
    other = replace(batch, labeled=replace(batch.labeled, images=labeled))
    assert float(vc().step(other, LATE).loss.detach()) != float(plain.loss.detach())


def test_the_teacher_is_sharpened() -> None:
    # A probability of 0.6 in two classes, squared and brought to a sum of one, is 0.36 / 0.52.
    method = Variant("vc", classes=2).build()
    net: Any = method.pair.teacher.net
    with torch.no_grad():
        net.head.classifier.weight.zero_()
        net.head.classifier.bias.copy_(torch.tensor([0.6, 0.4]).log())
    counts = method.step(batch_for(method.views, classes=2), LATE).pseudo
    assert counts is not None
    assert float(counts.conf[0] / counts.seen[0]) == pytest.approx(0.36 / 0.52, rel=1e-4)


def test_pixels_below_the_lower_bound_are_dropped() -> None:
    # Nobody is sure: all pixels have a potential label other than their own, and count where they reach `low`.
    unsure = Variant("vc", rule="closed")
    assert float(unsure.but(params={"low": 1.0}).build().step(batch_for(vc().views), LATE).parts["unsup"].detach()) == 0
    assert float(unsure.but(params={"low": 0.0}).build().step(batch_for(vc().views), LATE).parts["unsup"].detach()) > 0


def test_a_virtual_pixel_counts_three_times() -> None:
    unsure = Variant("vc", rule="closed", params={"low": 0.0})
    batch = batch_for(vc().views)
    once, thrice = (
        float(unsure.but(params={"low": 0.0, "weight": weight}).build().step(batch, LATE).parts["unsup"].detach())
        for weight in (1.0, 3.0)
    )
    assert thrice == pytest.approx(3 * once, rel=1e-5)


def test_the_generator_learns_by_itself() -> None:
    method = vc()
    result = method.step(batch_for(method.views), LATE)
    result.parts["generator"].backward()
    taught = {name.split(".")[0] for name, p in method.named_parameters() if p.grad is not None and p.grad.any()}
    assert taught == {"generator"}
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    whole = (parts["sup"] + parts["unsup"]) / 2 + parts["generator"]
    assert float(result.loss.detach()) == pytest.approx(whole, rel=1e-6)
    other = vc()
    other.step(batch_for(other.views), LATE).parts["unsup"].backward()
    assert all(p.grad is None for p in other.generator.parameters())


def test_the_generator_learns_from_labels_in_the_burn_in_too() -> None:
    method = Variant("vc", teaching={"burn_in": 3}).build()
    result = method.step(batch_for(method.views), Clock(step=0, total=40))
    assert set(result.parts) == {"sup", "generator"}
    assert float(result.parts["generator"].detach()) > 0


def test_the_generator_is_drawn_from_the_seed_of_the_run() -> None:
    first, second, other = (
        Variant("vc", weights=weights, seed=seed).build() for weights, seed in ((0, 0), (1, 0), (0, 1))
    )
    mine, same, different = (
        dict(m.named_parameters())["generator.layer.linear1.weight"] for m in (first, second, other)
    )
    assert torch.equal(mine, same)
    assert not torch.equal(mine, different)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="low"):
        VCParams(low=1.5)
    with pytest.raises(UsageError, match="hard"):
        VCParams(hard=0.0)
