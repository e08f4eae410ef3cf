"""Beyond Pixels by hand: patches and their labels, which of them are doubted, and how doubt grows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.patch import area_loss, trusted_loss
from ftcseg.methods.beyond_pixels import BeyondPixels, BeyondPixelsParams
from ftcseg.nets.patches import FAR, NEAR, PATCH, PatchClassifier, mean_around, odd_cells
from ftcseg.teaching.patches import DoubtRates, PatchLabels, cell_counts, doubtful, patch_labels, without_doubt
from ftcseg.types import IGNORE, Clock, PseudoLabels
from tiny_methods import LATE, Variant, batch_for, train

CELL = 14  # pixels, as a ViT's: then a patch is three cells wide


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def strip(*classes: int) -> Tensor:
    """One image, one cell high, whose cells are filled with these classes."""
    return torch.tensor(classes).repeat_interleave(CELL).expand(1, CELL, -1).clone()


# Patches


@pytest.mark.parametrize(
    ("cell", "cells"),
    [
        (4, (9, 7, 19)),  # 36 of 39 pixels, which beats 44; the paper's windows
        (14, (3, 3, 5)),  # 42, 42 and 70 pixels; 28 lies between 1 and 3 cells and takes the larger
        (16, (3, 1, 5)),
        (64, (1, 1, 1)),
    ],
)
def test_patches_keep_their_size_in_pixels(cell: int, cells: tuple[int, int, int]) -> None:
    assert tuple(odd_cells(reach, cell) for reach in (PATCH, NEAR, FAR)) == cells


def test_pixels_are_counted_cell_by_cell() -> None:
    labels = torch.tensor([[0, 0, 1, 1, 1], [0, 2, 1, 1, IGNORE]])[None]
    counts = cell_counts(labels, 3, (1, 2))
    # Column x belongs to cell x * 2 // 5: columns 0 to 2, and 3 and 4.
    assert counts[0, :, 0].T.tolist() == [[3, 2, 1], [0, 3, 0]]


def test_patch_labels_by_hand() -> None:
    # Five cells; class 1 fills the first, the last two are unknown. A patch is a cell and its two neighbours.
    patches = patch_labels(strip(1, 0, 0, IGNORE, IGNORE), 2, (1, 5))
    assert patches.side == 3
    assert patches.present[0, 1, 0].tolist() == [True, True, False, False, False]
    assert patches.present[0, 0, 0].tolist() == [True, True, True, True, False]
    assert patches.share[0, 1, 0].tolist() == pytest.approx([1 / 2, 1 / 3, 0, 0, 0])
    assert patches.share[0, 0, 0].tolist() == pytest.approx([1 / 2, 2 / 3, 1, 1, 0])
    assert patches.known[0, 0, 0].tolist() == [True, True, True, True, False]


def test_images_do_not_see_each_other() -> None:
    both = patch_labels(torch.cat([strip(1, 1), strip(0, 0)]), 2, (1, 2))
    assert both.present[:, 1].flatten(1).tolist() == [[True, True], [False, False]]


def test_means_around_a_cell_stop_at_the_edge() -> None:
    maps = torch.tensor([3.0, 0.0, 0.0, 9.0]).view(1, 1, 1, 4)
    assert mean_around(maps, 3).flatten().tolist() == pytest.approx([1.5, 1, 3, 4.5])
    assert mean_around(maps, 1).flatten().tolist() == [3, 0, 0, 9]
    assert mean_around(maps, 19).flatten().tolist() == pytest.approx([3] * 4)


def test_the_classifier_has_the_papers_widths_on_a_resnets_first_map() -> None:
    net = PatchClassifier(256, 19)
    shapes = [tuple(p.shape[:3]) for name, p in net.named_parameters() if p.dim() == 4]
    stack = [(256, 768, 1), *[(256, 256, 3)] * 3, (128, 256, 1), *[(128, 128, 3)] * 2, (64, 128, 1), (64, 64, 3)]
    assert shapes == [*stack, (32, 64, 1), (19, 32, 1)]
    assert PatchClassifier(24, 5)(torch.randn(1, 24, 1, 3), cell=4).shape == (1, 5, 1, 3)


# Losses


def test_a_class_counts_by_the_area_it_fills() -> None:
    # One patch, wholly class 0: weights e / (e + 1) and 1 / (e + 1). The classifier gives it 3/4 and class 1 1/2.
    logits = torch.tensor([math.log(3), 0.0]).view(1, 2, 1, 1)
    present, share = torch.tensor([True, False]).view(1, 2, 1, 1), torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    known = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    expected = (math.e * math.log(4 / 3) + math.log(2)) / (math.e + 1)
    assert float(area_loss(logits, present, share, known)) == pytest.approx(expected, rel=1e-5)
    assert float(area_loss(logits, present, share, ~known)) == 0


def test_labels_that_are_not_trusted_cost_nothing_but_count() -> None:
    # Three patches, the last unknown. Four labels remain: ln 2 each, but one is not trusted.
    logits = torch.zeros(1, 2, 1, 3)
    present = torch.tensor([[True, False, False], [False, True, False]]).view(1, 2, 1, 3)
    trusted = torch.tensor([[False, True, True], [True, True, True]]).view(1, 2, 1, 3)
    known = torch.tensor([True, True, False]).view(1, 1, 1, 3)
    assert float(trusted_loss(logits, present, trusted, known)) == pytest.approx(3 / 4 * math.log(2))
    assert float(trusted_loss(logits, present, trusted, torch.zeros_like(known))) == 0


# Doubt


def shown(present: Tensor, side: int = 3) -> PatchLabels:
    return PatchLabels(present, present.float(), present.any(1, keepdim=True), side)


def test_the_least_believed_positives_are_doubted() -> None:
    # Class 0 is in three patches of two images, with logits 3, 1 and 2; in the fourth it is not, whatever the logit.
    # Half of three, rounded up, are two: those of 1 and 2. Class 1 is in one patch. Class 2 is in none.
    logits = torch.tensor([[[3.0, 1.0], [0.0, 9.0], [0.0, 0.0]], [[2.0, -5.0], [0.0, 0.0], [0.0, 0.0]]])[:, :, None]
    present = torch.zeros(2, 3, 1, 2, dtype=torch.bool)
    present[0, 0], present[1, 0, 0, 0], present[0, 1, 0, 1] = True, True, True
    doubted = doubtful(logits, shown(present), torch.tensor([0.5, 1e-5, 1.0]))
    assert doubted[:, 0, 0].tolist() == [[False, True], [True, False]]
    assert doubted[:, 1, 0].tolist() == [[False, True], [False, False]]  # one at least
    assert not doubted[:, 2].any()
    assert not doubtful(logits, shown(present), torch.zeros(3)).any()


def test_pixels_of_a_doubted_class_are_left_out_all_over_the_patch() -> None:
    labels = strip(1, 1, 0, 1, 1)
    pseudo = PseudoLabels(labels, torch.ones(labels.shape), torch.ones(labels.shape, dtype=torch.bool))
    doubted = torch.zeros(1, 2, 1, 5, dtype=torch.bool)
    doubted[0, 1, 0, 2] = True  # the middle patch is said to show class 1, by its two neighbours
    left = without_doubt(pseudo, doubted, shown(doubted)).valid
    assert left[0, :, ::CELL].tolist() == [[True, False, True, False, True]] * CELL
    assert torch.equal(left, left[:, :, ::CELL].repeat_interleave(CELL, dim=2))


def period(rates: DoubtRates, *probabilities: float | None, periods: int = 10) -> None:
    """One period in which each class has two true positives of this mean probability; None: it has none."""
    for off in (0.05, -0.05):
        logits = torch.tensor([torch.tensor(p + off).logit().item() if p is not None else 5.0 for p in probabilities])
        present = torch.tensor([p is not None for p in probabilities]).view(1, -1, 1, 1)
        rates.observe(logits.view(1, -1, 1, 1), shown(present))
    rates.turn(periods)


def test_doubt_grows_when_a_class_is_less_sure_than_at_its_best() -> None:
    rates = DoubtRates(3, start=0.01, base=1.0, most=1.0)
    period(rates, 0.8, 0.8, None)
    assert rates.delta.tolist() == pytest.approx([0.01] * 3)
    assert rates.best.tolist() == pytest.approx([0.8, 0.8, 0])
    period(rates, 0.6, 0.9, None)
    # ((0.8 - 0.6) / 0.8) ** 1.5 = 0.25 ** 1.5 = 1 / 8
    assert rates.delta.tolist() == pytest.approx([0.135, 0.01, 0.01], abs=1e-6)
    assert rates.best.tolist() == pytest.approx([0.8, 0.9, 0])
    assert rates.best_period.tolist() == [0, 1, 0]
    period(rates, None, 0.9, 0.7)  # a class that was not seen stays as it is
    assert rates.delta.tolist() == pytest.approx([0.135, 0.01, 0.01], abs=1e-5)
    assert rates.sums.tolist() == [[0] * 3] * 2


def test_growth_depends_on_how_long_ago_the_best_was_and_has_an_end() -> None:
    rates = DoubtRates(1, start=0.0, base=16.0, most=0.5)
    period(rates, 0.8, periods=4)
    period(rates, 0.6, periods=4)
    # One period of four after the best: 16 ** (1 / 4) = 2 times 1 / 8.
    assert float(rates.delta) == pytest.approx(0.25, abs=1e-6)
    period(rates, 0.6, periods=4)
    # Two of four: 4 times 1 / 8 would make 0.75.
    assert float(rates.delta) == 0.5


def test_only_true_positives_are_remembered() -> None:
    rates = DoubtRates(2, start=0.0, base=1.0, most=1.0)
    # Class 0 is in both patches, but found in the first only, with 3/4. Class 1 is found where it is not.
    logits = torch.tensor([[math.log(3), -2.0], [4.0, 4.0]]).view(1, 2, 1, 2)
    rates.observe(logits, shown(torch.tensor([[True, True], [False, False]]).view(1, 2, 1, 2)))
    assert rates.sums.tolist() == [pytest.approx([0.75, 0]), [1, 0]]


# The method


def beyond(teaching: dict[str, float] | None = None, **params: float) -> BeyondPixels:
    method = Variant("beyond-pixels", teaching=teaching or {}, params=params).build()
    assert isinstance(method, BeyondPixels)
    return method


def parts_at(method: BeyondPixels, clock: Clock) -> tuple[float, dict[str, float]]:
    result = method.step(batch_for(method.views), clock)
    return float(result.loss.detach()), {name: float(part.detach()) for name, part in result.parts.items()}


def test_the_loss_is_the_papers_sum() -> None:
    loss, parts = parts_at(beyond(), LATE)
    assert set(parts) == {"sup", "multi", "unsup", "patch"}
    assert loss == pytest.approx(sum(parts.values()) / 3.3, rel=1e-6)
    _, double = parts_at(beyond(patch_weight=0.2), LATE)
    assert double["patch"] == pytest.approx(2 * parts["patch"], rel=1e-6)
    ramped, young = parts_at(beyond({"ramp": 40}), LATE)
    # Half way up the ramp pseudo-labels weigh exp(-5 / 4).
    taught = math.exp(-1.25) * (young["unsup"] + young["patch"])
    assert ramped == pytest.approx((young["sup"] + young["multi"] + taught) / 3.3, rel=1e-6)


@pytest.mark.parametrize(("burn_in", "first"), [(0, 4), (7, 7)])  # a tenth of the run, where nobody asked for more
def test_the_first_epoch_learns_from_labels_alone(burn_in: int, first: int) -> None:
    method = beyond({"burn_in": burn_in})
    loss, parts = parts_at(method, Clock(step=first - 1, total=40))
    assert set(parts) == {"sup", "multi"}
    assert loss == pytest.approx((parts["sup"] + parts["multi"]) / 2, rel=1e-6)
    _, parts = parts_at(method, Clock(step=first, total=40))
    assert "unsup" in parts


def test_what_is_doubted_wholly_teaches_no_pixel() -> None:
    _, some = parts_at(beyond(), LATE)
    _, none = parts_at(beyond(delta=1.0, delta_most=1.0), LATE)
    assert some["unsup"] > 0
    assert none["unsup"] == 0
    assert 0 < none["patch"] < some["patch"]  # what a patch does not show is not doubted


@pytest.mark.parametrize(("period", "turned"), [(None, [0, 0, 0, 1, 1, 1]), (3, [0, 0, 1, 1, 1, 2])])
def test_doubt_is_looked_at_when_a_period_ends(period: int | None, turned: list[int]) -> None:
    # By itself a period is a tenth of the 40 steps.
    method = Variant("beyond-pixels", params={"period": period}).build()
    assert isinstance(method, BeyondPixels)
    seen = []
    for step in range(6):
        train(method, range(step, step + 1))
        seen.append(int(method.patches.rates.period))
    assert seen == turned
    assert float(method.patches.rates.best.max()) > 0


def test_doubting_leaves_no_trace_in_batch_statistics() -> None:
    method = beyond({"norms": "labeled"})
    labels_only = beyond({"norms": "labeled"})
    batch = batch_for(method.views)
    method.step(batch, LATE)
    labels_only.step(type(batch)(batch.labeled), LATE)
    mine, theirs = dict(method.named_buffers()), dict(labels_only.named_buffers())
    names = [name for name in mine if "running" in name]
    assert any(name.startswith("patches.") for name in names)
    assert all(torch.allclose(mine[name], theirs[name], atol=1e-5) for name in names)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="delta"):
        BeyondPixelsParams(delta=0.6)
