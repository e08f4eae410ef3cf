"""AEL by hand: the bank, what is drawn by it, what is pasted, and what is remembered."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ftcseg.distributed import join_ranks
from ftcseg.errors import UsageError
from ftcseg.losses.pixel import weight_map_loss
from ftcseg.methods import METHODS
from ftcseg.methods.ael import AEL, AELParams
from ftcseg.teaching.confidence import ConfidenceBank
from ftcseg.teaching.memory import ImageMemory, Partners, classes_present
from ftcseg.types import IGNORE, Labeled, PseudoLabels
from ftcseg.views.mix import copy_classes, object_box, object_boxes, share_box
from tiny_methods import HEIGHT, LATE, WIDTH, Variant, batch_for, moved, train, weights_of


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bank_of(*levels: float) -> ConfidenceBank:
    bank = ConfidenceBank(len(levels), momentum=0.5)
    bank.level.copy_(torch.tensor(levels))
    return bank


def ael(**params: Any) -> AEL:
    """AEL on the tiny network, with a memory: the kit knows the size of the views."""
    kit = replace(Variant("ael").kit(), view=(3, HEIGHT, WIDTH))
    return AEL(kit, AELParams(**params)).train()  # type: ignore[return-value]


# The confidence bank


@pytest.mark.parametrize(("absent", "second"), [("keep", 0.5), ("zero", 0.25)])
def test_the_bank_goes_half_way_to_the_mean_probability_of_the_truth(absent: Any, second: float) -> None:
    bank = ConfidenceBank(2, momentum=0.5, absent=absent)
    assert bank.level.tolist() == [0.5, 0.5]
    # Two pixels are class 0 and get 0.8 and 0.4 for it: 0.6. The third is unknown. Nothing is class 1.
    probs = torch.tensor([[0.8, 0.4, 0.9], [0.2, 0.6, 0.1]]).view(1, 2, 1, 3)
    bank.observe(probs.log(), torch.tensor([0, 0, IGNORE]).view(1, 1, 3))
    assert bank.level.tolist() == pytest.approx([0.55, second])


def test_a_batch_without_labels_teaches_the_bank_nothing() -> None:
    bank = bank_of(0.3, 0.6)
    bank.observe(torch.zeros(1, 2, 2, 2), torch.full((1, 2, 2), IGNORE))
    assert bank.level.tolist() == pytest.approx([0.3, 0.6])


def test_little_known_classes_are_drawn_more() -> None:
    bank = bank_of(0.75, 0.0, 1.0)  # lacking 1/4, 1 and 0
    whole = math.exp(0.25) + math.e + 1
    assert bank.chances() == pytest.approx([math.exp(0.25) / whole, math.e / whole, 1 / whole])
    root = math.exp(0.5) + math.e  # of the first two alone, their square roots: 1/2 and 1
    assert bank.chances([0, 1], power=0.5) == pytest.approx([math.exp(0.5) / root, math.e / root])


def test_pixels_of_well_known_classes_are_kept_less() -> None:
    assert bank_of(0.75, 0.0, 1.0).keep_rates().tolist() == [0.25, 1.0, 0.0]
    assert bank_of(1.0, 1.0).keep_rates().tolist() == [1.0, 1.0]  # nothing is lacking: nothing is left out


def test_pixels_are_drawn_by_what_the_student_takes_them_for() -> None:
    answer = torch.arange(3).repeat(2, 1000, 1)  # columns of 0, 1 and 2
    logits = torch.nn.functional.one_hot(answer, 3).movedim(-1, 1).float()
    drawn = bank_of(0.75, 0.0, 1.0).draw_pixels(logits, seed=1)
    assert torch.equal(drawn, bank_of(0.75, 0.0, 1.0).draw_pixels(logits, seed=1))
    kept = drawn.float().mean((0, 1)).tolist()
    assert kept[0] == pytest.approx(0.25, abs=0.03)
    assert kept[1:] == [1.0, 0.0]


def test_weights_say_only_how_pixels_compare() -> None:
    # Cross-entropies ln 2 and ln 4/3; confidences 0.5 and 1, squared 1/4 and 1; the third pixel is padding.
    logits = torch.tensor([[0.0, 0.0, 0.0], [0.0, math.log(3), 0.0]]).view(1, 2, 1, 3)
    valid = torch.tensor([True, True, False]).view(1, 1, 3)
    pseudo = PseudoLabels(torch.tensor([0, 1, 0]).view(1, 1, 3), torch.tensor([0.5, 1.0, 1.0]).view(1, 1, 3), valid)
    weights = pseudo.conf**2
    expected = (0.25 * math.log(2) + math.log(4 / 3)) / 1.25
    for factor in (1.0, 7.0):
        loss = weight_map_loss(logits, pseudo, factor * weights, normaliser="weights")
        assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(weight_map_loss(logits, pseudo, weights)) == pytest.approx(1.25 * expected / 2, rel=1e-5)
    assert float(weight_map_loss(logits, pseudo, weights, normaliser="hw")) == pytest.approx(1.25 * expected / 3)
    assert float(weight_map_loss(logits, pseudo, 0 * weights, normaliser="weights")) == 0.0


# Copy-paste


def test_only_drawn_classes_are_copied_with_their_labels() -> None:
    labels = torch.tensor([[0, 1, 2, IGNORE]]).repeat(2, 1, 1)
    partner = Labeled(torch.ones(2, 3, 1, 4), labels, ("c", "d"))
    shown = Labeled(torch.zeros(2, 3, 1, 4), torch.zeros(2, 1, 4, dtype=torch.int64), ("a", "b"), partner=partner)
    pasted = copy_classes(shown, [[1, 2, 2], []])
    assert pasted.labels[0, 0].tolist() == [0, 1, 2, 0]  # neither background nor what nobody knows
    assert pasted.images[0, 0, 0].tolist() == [0, 1, 1, 0]
    assert not pasted.labels[1].any()
    assert not pasted.images[1].any()


def test_without_a_partner_nothing_is_copied() -> None:
    shown = Labeled(torch.zeros(1, 3, 1, 4), torch.zeros(1, 1, 4, dtype=torch.int64), ("a",))
    assert copy_classes(shown, [[0]]) is shown


def test_foreground_is_copied_and_background_never_is() -> None:
    method = ael(paste_chance=1.0, paste_classes=20)
    assert method.targets == [1, 2]
    batch = batch_for(method.views)
    assert batch.labeled.partner is not None
    pasted = method._pasted(batch.labeled, rng())
    # Of twenty draws with returning, each of two classes is among them but once in 500,000 times.
    copied = batch.labeled.partner.labels > 0
    assert torch.equal(pasted.labels, torch.where(copied, batch.labeled.partner.labels, batch.labeled.labels))


def test_targets_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="0 to 2"):
        ael(targets=(1, 3))
    assert ael(targets=(2,)).targets == [2]


# Adaptive CutMix


def test_the_box_goes_around_a_piece_that_is_large_enough() -> None:
    region = torch.zeros(6, 6, dtype=torch.bool)
    region[0, 0] = True  # one pixel
    region[2:5, 3] = True
    region[4, 4] = True  # four pixels in the shape of an L: its box has six
    box = object_box(region, 2, rng())
    assert box is not None
    assert int(box.sum()) == 6
    assert bool(box[2:5, 3:5].all())
    assert object_box(region, 5, rng()) is None
    assert object_box(torch.zeros(3, 3, dtype=torch.bool), 1, rng()) is None


def test_where_the_class_is_missing_half_of_the_view_is_pasted() -> None:
    labels = torch.zeros(2, 20, 30, dtype=torch.int64)
    labels[0, 5:9, 6:12] = 2
    boxes = object_boxes(labels, torch.ones_like(labels, dtype=torch.bool), [2, 2], 0.005, rng())
    assert int(boxes[0].sum()) == 24
    assert bool(boxes[0, 5:9, 6:12].all())
    assert int(boxes[1].sum()) == 14 * 21  # 20 and 30 times the root of a half
    hidden = torch.zeros_like(labels, dtype=torch.bool)
    assert int(object_boxes(labels, hidden, [2, 2], 0.005, rng())[0].sum()) == 14 * 21  # padding shows nothing


@pytest.mark.parametrize("share", [0.001, 0.25, 1.0])
def test_a_box_of_a_share_lies_inside(share: float) -> None:
    for seed in range(5):
        box = share_box(10, 20, share, rng(seed))
        assert int(box.sum()) == {0.001: 1, 0.25: 50, 1.0: 200}[share]


# The memory


def stored(value: float, count: int = 1) -> Tensor:
    return torch.full((count, 1, 2, 2), value)


def flags(*classes: int) -> Tensor:
    return torch.tensor([[c in classes for c in range(3)]])


def filled() -> ImageMemory:
    memory = ImageMemory(3, (1, 2, 2), 3)
    for value, present in ((1.0, (0,)), (2.0, (0, 1)), (3.0, (0,)), (4.0, (0,))):  # the fourth replaces the first
        memory.remember(stored(value), torch.ones(1, 2, 2, dtype=torch.bool), flags(*present))
    return memory


NOTHING = Partners(stored(-1.0), torch.zeros(1, 2, 2, dtype=torch.bool))


def test_the_newest_replaces_the_oldest() -> None:
    memory = filled()
    assert memory.images[:, 0, 0, 0].tolist() == [4.0, 2.0, 3.0]
    assert int(memory.stored) == 4


def test_the_wanted_class_is_found_and_else_anything() -> None:
    memory = filled()
    found = {float(memory.find([1], NOTHING, rng(seed)).images[0, 0, 0, 0]) for seed in range(30)}
    assert found == {2.0}
    found = {float(memory.find([2], NOTHING, rng(seed)).images[0, 0, 0, 0]) for seed in range(30)}
    assert found == {2.0, 3.0, 4.0}


def test_an_empty_memory_and_one_without_room_say_so() -> None:
    assert ImageMemory(3, (1, 2, 2), 3).find([1], NOTHING, rng()) is NOTHING
    none = ImageMemory(0, (0, 0, 0), 3)
    none.remember(stored(1.0), torch.ones(1, 2, 2, dtype=torch.bool), flags(0))
    assert none.find([0], NOTHING, rng()) is NOTHING


def test_of_more_than_there_is_room_for_the_last_are_kept() -> None:
    memory = ImageMemory(2, (1, 2, 2), 3)
    images = torch.stack([stored(float(v))[0] for v in range(5)])
    memory.remember(images, torch.ones(5, 2, 2, dtype=torch.bool), flags(0).repeat(5, 1))
    assert sorted(memory.images[:, 0, 0, 0].tolist()) == [3.0, 4.0]


def test_a_class_is_present_from_its_share_on() -> None:
    labels = torch.zeros(1, 10, 10, dtype=torch.int64)
    labels[0, 0, :2], labels[0, 1, 0] = 1, 2
    pseudo = PseudoLabels(labels, torch.ones(1, 10, 10), torch.ones(1, 10, 10, dtype=torch.bool))
    assert classes_present(pseudo, 4, 0.02).tolist() == [[True, True, False, False]]  # 97, 2, 1 and 0 of 100
    assert classes_present(pseudo, 4, 0.0).tolist() == [[True, True, True, False]]  # none of a class is not present


def test_alone_joining_is_the_tensor_itself() -> None:
    tensor = torch.arange(3)
    assert join_ranks(tensor) is tensor


# The step


def test_the_loss_is_the_sum_of_its_parts() -> None:
    method = ael()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert set(parts) == {"sup", "unsup", "agree"}
    assert float(result.loss.detach()) == pytest.approx(sum(parts.values()), rel=1e-5)


def test_a_step_remembers_weak_views_and_the_next_cuts_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    method, seen = ael(), []
    find = method.memory.find

    def watched(*asked: Any) -> Partners:
        seen.append(find(*asked))
        return seen[-1]

    monkeypatch.setattr(method.memory, "find", watched)
    first, second = (batch_for(method.views, seed=seed) for seed in (1, 2))
    assert first.unlabeled is not None
    method.step(first, LATE)
    assert torch.equal(seen[0].images, first.unlabeled.weak.flip(0))  # nothing to remember yet: the reversed batch
    assert torch.equal(method.memory.images[:2], first.unlabeled.weak)
    method.step(second, LATE)
    for image in seen[1].images:
        assert any(torch.equal(image, known) for known in first.unlabeled.weak)


def test_the_burn_in_pastes_and_remembers_nothing_else() -> None:
    kit = replace(Variant("ael", teaching={"burn_in": 30}).kit(), view=(3, HEIGHT, WIDTH))
    method = AEL(kit, AELParams())
    result = method.step(batch_for(method.views), LATE)
    assert set(result.parts) == {"sup"}
    assert int(method.memory.stored) == 0


def test_memory_and_bank_survive_a_restart() -> None:
    first, second = ael(memory=3), ael(memory=3)
    train(first, range(18, 21))
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert train(first, range(21, 23)) == train(second, range(21, 23))
    assert not moved(weights_of(first), weights_of(second))
    assert "bank" in first.facts()


def test_a_short_run_remembers_its_share() -> None:
    assert ael().bank.momentum == pytest.approx(0.95)  # 20 steps at least
    assert ael(momentum=0.999).bank.momentum == 0.999


def test_the_preset_names_the_papers_teacher() -> None:
    assert METHODS["ael"].preset == {"tau": 0.7, "teaching": {"ema": 0.99}}
