"""Window places and sizes, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftcseg.evaluate.windows import default_stride, nearest_multiple, window_starts, windows


def test_windows_of_a_full_hd_frame() -> None:
    assert default_stride(798) == 532
    assert window_starts(1080, 798, 532) == [0, 282]
    assert window_starts(1920, 798, 532) == [0, 532, 1064, 1122]
    places = windows(1080, 1920, 798)
    assert len(places) == 8
    assert [(w.top, w.left) for w in places[3:6]] == [(0, 1122), (282, 0), (282, 532)]


@pytest.mark.parametrize(("length", "starts"), [(10, [0]), (7, [0]), (11, [0, 1]), (16, [0, 6]), (17, [0, 6, 7])])
def test_edge_cases(length: int, starts: list[int]) -> None:
    assert window_starts(length, window=10, stride=6) == starts


@given(st.integers(1, 300), st.integers(1, 60))
def test_windows_cover_every_pixel_and_stay_inside(length: int, window: int) -> None:
    starts = window_starts(length, window, default_stride(window))
    assert {p for s in starts for p in range(s, min(s + window, length))} == set(range(length))
    assert len(set(starts)) == len(starts)
    assert all(s + window <= max(length, window) for s in starts)


@pytest.mark.parametrize(("size", "nearest"), [(320, 322), (480, 476), (14, 14), (21, 28), (20, 14), (3, 14)])
def test_nearest_multiple_of_a_patch(size: int, nearest: int) -> None:
    assert nearest_multiple(size, 14) == nearest
