"""Confusion matrices counted by hand and by a plain loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.errors import UsageError
from ftcseg.evaluate.confusion import Confusion, pair_counts
from ftcseg.types import IGNORE


def test_rows_are_truth_and_columns_predictions() -> None:
    confusion = Confusion(3)
    confusion.add(pred=torch.tensor([[0, 0, 1]]), target=torch.tensor([[0, 1, IGNORE]]))
    confusion.add(pred=torch.tensor([[2]]), target=torch.tensor([[0]]))
    assert confusion.counts.tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert confusion.counts.dtype == torch.int64


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(IGNORE, 3)), max_size=30), st.integers(0, 30))
def test_counts_are_those_of_a_plain_loop(pairs: list[tuple[int, int]], cut: int) -> None:
    expected = [[0] * 4 for _ in range(4)]
    for pred, target in pairs:
        if target != IGNORE:
            expected[target][pred] += 1
    confusion = Confusion(4)
    for part in (pairs[:cut], pairs[cut:]):
        pred, target = torch.tensor(part, dtype=torch.int16).view(-1, 2).unbind(1)
        confusion.add(pred, target)
    assert confusion.counts.tolist() == expected


@pytest.mark.parametrize(("pred", "target", "who"), [(3, 0, "prediction"), (-1, 0, "prediction"), (0, 3, "truth")])
def test_ids_beyond_the_table_are_refused(pred: int, target: int, who: str) -> None:
    with pytest.raises(UsageError, match=who):
        pair_counts(torch.tensor([pred]), torch.tensor([target]), 3)


def test_what_is_predicted_where_nobody_knows_does_not_matter() -> None:
    assert pair_counts(torch.tensor([99, -1]), torch.tensor([IGNORE, IGNORE]), 2).sum() == 0
