"""Pseudo-labels: made, mixed, counted."""

from __future__ import annotations

import math

import pytest
import torch

from ftcseg.teaching.pseudo import class_counts, mix_pseudo, pseudo_counts, pseudo_labels, soft_counts, with_pasted
from ftcseg.types import IGNORE, PseudoLabels


def test_label_and_confidence_of_a_pixel() -> None:
    # softmax of (log 1, log 2, log 7) is (0.1, 0.2, 0.7)
    logits = torch.tensor([0.0, math.log(2), math.log(7)]).view(1, 3, 1, 1)
    pseudo = pseudo_labels(logits, torch.ones(1, 1, 1, dtype=torch.bool))
    assert pseudo.labels.item() == 2
    assert pseudo.conf.item() == pytest.approx(0.7)


def test_confidence_is_that_of_a_softmax_and_never_above_one() -> None:
    logits = torch.randn(2, 5, 4, 3, generator=torch.Generator().manual_seed(0)) * 30
    pseudo = pseudo_labels(logits, torch.ones(2, 4, 3, dtype=torch.bool))
    assert torch.allclose(pseudo.conf, logits.softmax(1).amax(1))
    assert pseudo.conf.max() <= 1


def test_half_precision_logits_give_full_precision_confidence() -> None:
    logits = torch.tensor([3.0, 0.0], dtype=torch.bfloat16).view(1, 2, 1, 1)
    pseudo = pseudo_labels(logits, torch.ones(1, 1, 1, dtype=torch.bool))
    assert pseudo.conf.dtype == torch.float32
    assert pseudo.conf.item() == pytest.approx(1 / (1 + math.exp(-3)), abs=1e-6)  # 0.95257


def test_pseudo_labels_carry_no_graph() -> None:
    logits = torch.zeros(1, 2, 1, 1, requires_grad=True)
    assert not pseudo_labels(logits, torch.ones(1, 1, 1, dtype=torch.bool)).conf.requires_grad


def two_images() -> PseudoLabels:
    return PseudoLabels(
        labels=torch.tensor([[[0, 1]], [[2, 2]]]),
        conf=torch.tensor([[[0.9, 0.8]], [[0.7, 0.6]]]),
        valid=torch.tensor([[[True, True]], [[True, False]]]),
    )


def test_boxes_paste_label_confidence_and_validity_of_the_partner() -> None:
    box = torch.tensor([[[False, True]], [[True, False]]])
    mixed = mix_pseudo(two_images(), box)
    assert mixed.labels.tolist() == [[[0, 2]], [[0, 2]]]
    assert mixed.conf.flatten().tolist() == pytest.approx([0.9, 0.6, 0.9, 0.6])
    assert mixed.valid.tolist() == [[[True, False]], [[True, False]]]


def test_what_was_pasted_is_certain_and_the_rest_stays() -> None:
    pasted = torch.tensor([[[IGNORE, 3]], [[IGNORE, 3]]])
    told = with_pasted(two_images(), pasted)
    assert told.labels.tolist() == [[[0, 3]], [[2, 3]]]
    assert told.conf.flatten().tolist() == pytest.approx([0.9, 1.0, 0.7, 1.0])
    assert told.valid.tolist() == [[[True, True]], [[True, True]]]


def test_where_nothing_is_pasted_pseudo_labels_are_the_same_object() -> None:
    pseudo = two_images()
    assert with_pasted(pseudo, None) is pseudo


def test_a_batch_of_one_is_its_own_partner() -> None:
    pseudo = two_images()
    one = PseudoLabels(pseudo.labels[:1], pseudo.conf[:1], pseudo.valid[:1])
    mixed = mix_pseudo(one, torch.ones(1, 1, 2, dtype=torch.bool))
    assert torch.equal(mixed.labels, one.labels)


def test_counts_by_predicted_class() -> None:
    keep = torch.tensor([[[True, False]], [[True, True]]])  # the last pixel is padding: kept or not, it does not count
    counts = pseudo_counts(two_images(), keep, num_classes=4)
    assert counts.seen.tolist() == [1, 1, 1, 0]
    assert counts.kept.tolist() == [1, 0, 1, 0]
    assert counts.conf.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.0])


def test_sums_of_many_confidences_do_not_drift() -> None:
    # A running float32 sum of 2^20 times 0.97 is off by thousands, once the sum has outgrown the addend's digits.
    shape = (1, 1024, 1024)
    pseudo = PseudoLabels(
        torch.zeros(shape, dtype=torch.long), torch.full(shape, 0.97), torch.ones(shape, dtype=torch.bool)
    )
    assert pseudo_counts(pseudo, pseudo.valid, 2).conf[0].item() == pytest.approx(0.97 * 2**20, rel=1e-4)


def test_soft_counts_split_the_vote_and_skip_padding() -> None:
    logits = torch.tensor([[0.0, 5.0], [math.log(3), -5.0]]).view(1, 2, 1, 2)  # first pixel: 1/4 and 3/4
    assert soft_counts(logits, torch.tensor([[[True, False]]])).tolist() == pytest.approx([0.25, 0.75])


def test_class_counts_of_nothing_are_zeros() -> None:
    assert class_counts(torch.empty(0, dtype=torch.long), 3).tolist() == [0, 0, 0]
