"""What a method may be shown: one image, nothing known, an absent class, two classes or forty, any channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ftcseg.data.dataset import Dataset
from ftcseg.methods import METHODS
from ftcseg.teaching.thresholds.atc import ATC
from ftcseg.types import IGNORE, Sample
from ftcseg.views.geometry import GeometryParams
from ftcseg.views.loader import BatchMaker, ViewParams
from tiny_methods import (
    HEIGHT,
    KINDS,
    LATE,
    PIXELS,
    WHOLE,
    WIDTH,
    Variant,
    batch_for,
    train,
    with_labels,
    with_valid,
)

EVERY = pytest.mark.parametrize("variant", KINDS, ids=str)
EVERY_SEMI = pytest.mark.parametrize("variant", [v for v in KINDS if v.name != "supervised"], ids=str)
EACH = pytest.mark.parametrize("variant", WHOLE, ids=str)

SELF_LABELED = {"crest", "crest-plus"}
"""Their supervised loss is of labels and of what an earlier student said."""


@EVERY
def test_a_batch_of_one_image(variant: Variant) -> None:
    method = variant.build()
    method.step(batch_for(method.views, labeled=1, unlabeled=1), LATE).loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@EACH
def test_more_unlabeled_images_than_labeled_ones(variant: Variant) -> None:
    method = variant.build()
    result = method.step(batch_for(method.views, labeled=1, unlabeled=3), LATE)
    assert bool(result.loss.isfinite())
    assert result.pseudo is None or int(result.pseudo.seen.sum()) == 3 * PIXELS


@EACH
def test_more_labeled_images_than_unlabeled_ones(variant: Variant) -> None:
    method = variant.build()
    result = method.step(batch_for(method.views, labeled=3, unlabeled=1), LATE)
    assert bool(result.loss.isfinite())
    assert result.pseudo is None or int(result.pseudo.seen.sum()) == PIXELS


@EVERY
def test_a_crop_without_a_known_pixel_costs_nothing(variant: Variant) -> None:
    method = variant.build()
    result = method.step(with_labels(batch_for(method.views), IGNORE), LATE)
    result.loss.backward()
    if variant.name not in SELF_LABELED:
        assert float(result.parts["sup"].detach()) == 0.0
    assert bool(result.loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)
    assert all(bool(b.isfinite().all()) for b in method.buffers() if b.is_floating_point())


@EVERY
def test_a_class_that_is_absent_from_the_batch(variant: Variant) -> None:
    method = variant.build()
    result = method.step(with_labels(batch_for(method.views), 0), LATE)
    assert bool(result.loss.isfinite())
    _, rule = method.labeler()
    if isinstance(rule, ATC):
        assert rule.accuracy.tolist()[1:] == [1.0, 1.0]  # nobody asked about these classes: nothing was learnt of them
        # Half of uniform thirds, half of a batch that is all background.
        assert rule.prior.tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@EVERY_SEMI
def test_padding_is_neither_counted_nor_learnt(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    half = batch.unlabeled.valid.clone()
    half[0] = False
    counts = method.step(with_valid(batch, half), LATE).pseudo
    assert counts is not None
    assert int(counts.seen.sum()) == PIXELS  # of one image
    nothing = method.step(with_valid(batch, torch.zeros_like(half)), LATE)
    assert nothing.pseudo is not None
    assert int(nothing.pseudo.seen.sum()) == 0
    assert float(nothing.parts["unsup"].detach()) == 0.0
    assert bool(nothing.loss.isfinite())
    nothing.loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)
    assert all(bool(b.isfinite().all()) for b in method.buffers() if b.is_floating_point())


@EVERY_SEMI
def test_nothing_known_and_nothing_shown_is_still_a_step(variant: Variant) -> None:
    method = variant.build()
    batch = with_labels(batch_for(method.views), IGNORE)
    assert batch.unlabeled is not None
    result = method.step(with_valid(batch, torch.zeros_like(batch.unlabeled.valid)), LATE)
    result.loss.backward()
    assert bool(result.loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize("classes", [2, 40])
@EACH
def test_any_number_of_classes(variant: Variant, classes: int) -> None:
    method = variant.but(classes=classes).build()
    result = method.step(batch_for(method.views, classes=classes), LATE)
    assert bool(result.loss.isfinite())
    assert result.pseudo is None or result.pseudo.seen.shape == (classes,)
    assert method.facts()["tau"].shape == (classes,)


@EACH
def test_many_channels(variant: Variant) -> None:
    """Grey ones are below."""
    method = variant.but(channels=5).build()
    assert all(torch.tensor(train(method, range(2), channels=5)).isfinite())


# From the loader


@dataclass
class Pictures:
    """As many images of noise as asked for, with or without masks; instead of a set on disk."""

    count: int
    labeled: bool
    channels: int = 3

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        rng = np.random.default_rng([index, self.labeled])
        image = rng.integers(0, 256, (40, 50, self.channels), dtype=np.uint8)
        labels = rng.integers(0, 3, (40, 50)).astype(np.int16) if self.labeled else None
        return Sample(f"{index}.png", image, labels)


def maker(name: str, labeled: int, unlabeled: int, channels: int = 3) -> BatchMaker:
    params = ViewParams(GeometryParams((HEIGHT, WIDTH)), labeled_batch=2, unlabeled_batch=2)
    known: Dataset = Pictures(labeled, True, channels)  # type: ignore[assignment]
    unknown: Dataset = Pictures(unlabeled, False, channels)  # type: ignore[assignment]
    return BatchMaker(known, unknown, Variant(name).build().views, params, 0)


@pytest.mark.parametrize("name", METHODS)
def test_one_grey_image_of_each_kind_is_enough_to_train_on(name: str) -> None:
    method = Variant(name, channels=1).build()
    batches = maker(name, 1, 1, channels=1)
    for step in range(2):
        batch = batches[step]
        assert batch.labeled.ids == ("0.png",) * 2  # the same image in two crops
        assert batch.unlabeled is None or batch.unlabeled.ids == ("0.png",) * 2
        assert (batch.unlabeled is None) == (name == "supervised")
        method.step(batch, LATE).loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", METHODS)
def test_without_any_unlabeled_image_labels_are_learnt(name: str) -> None:
    method = Variant(name).build()
    result = method.step(maker(name, 2, 0)[0], LATE)
    assert bool(result.loss.isfinite())
    assert "unsup" not in result.parts


def test_the_tests_look_at_the_size_they_say() -> None:
    batch = batch_for(Variant("ftc").build().views)
    assert batch.unlabeled is not None
    assert len(batch.unlabeled.strong) == 2
    assert batch.labeled.images.shape == (2, 3, HEIGHT, WIDTH)
    assert maker("ftc", 3, 3)[0].labeled.images.shape == (2, 3, HEIGHT, WIDTH)
