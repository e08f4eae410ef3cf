"""Expected pixels are worked out by hand or by the slow rule in exact fractions, never by the code under test."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ftcseg.data.shapes import (
    blamed_on,
    box_points,
    decode_box_runs,
    decode_compressed,
    decode_runs,
    encode_box_runs,
    encode_compressed,
    encode_runs,
    fill_circle,
    fill_polygon,
    polygon_area,
)
from ftcseg.errors import MaskError

REGIONS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def drawn(points: list[tuple[float, float]], height: int, width: int, value: int = 1) -> NDArray[np.int16]:
    labels = np.zeros((height, width), dtype=np.int16)
    fill_polygon(labels, np.array(points, dtype=np.float64).reshape(-1, 2), value)
    return labels


def inside_by_the_book(points: list[tuple[int, int]], row: int, column: int, scale: int) -> bool:
    """Even-odd in exact fractions: crossings at or to the left of the centre, edges half open from the top."""
    x, y = Fraction(2 * column + 1, 2), Fraction(2 * row + 1, 2)
    crossings = 0
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        (px, py), (qx, qy) = sorted([(ax, ay), (bx, by)], key=lambda p: p[1])
        if Fraction(py, scale) <= y < Fraction(qy, scale):
            crossings += Fraction(px, scale) + (y - Fraction(py, scale)) * Fraction(qx - px, qy - py) <= x
    return crossings % 2 == 1


def test_a_rectangle_covers_the_pixels_between_its_corners() -> None:
    assert drawn([(1, 1), (4, 1), (4, 3), (1, 3)], 4, 5, value=7).tolist() == [
        [0, 0, 0, 0, 0],
        [0, 7, 7, 7, 0],
        [0, 7, 7, 7, 0],
        [0, 0, 0, 0, 0],
    ]


def test_a_triangle_covers_the_pixels_whose_centres_it_covers() -> None:
    # The edge from (4, 0) to (0, 4) passes through the centres with x + y = 4: they belong to what is right of it.
    assert drawn([(0, 0), (4, 0), (0, 4)], 4, 4).tolist() == [
        [1, 1, 1, 0],
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
    ]


def test_an_outline_that_crosses_itself_is_even_odd() -> None:
    # A box drawn round a smaller box in one stroke: the inner one is a hole.
    points = [(0, 0), (5, 0), (5, 5), (0, 5), (0, 0), (1, 1), (4, 1), (4, 4), (1, 4), (1, 1)]
    expected = np.ones((5, 5))
    expected[1:4, 1:4] = 0
    assert drawn(points, 5, 5).tolist() == expected.tolist()


def test_an_outline_thinner_than_a_pixel_between_centres_paints_nothing() -> None:
    assert not drawn([(0.6, 0), (1.4, 0), (1.4, 3), (0.6, 3)], 3, 3).any()


def test_parts_outside_the_image_are_cut_off() -> None:
    assert drawn([(-10, -10), (2, -10), (2, 1), (-10, 1)], 3, 4).tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert not drawn([(10, 10), (20, 10), (20, 20)], 3, 4).any()


@pytest.mark.parametrize("far", [1e6, 1e12, 1e100, 1.7e308])
def test_huge_coordinates_cost_nothing(far: float) -> None:
    assert drawn([(-far, -far), (far, -far), (far, far), (-far, far)], 3, 4).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_points_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(MaskError, match="Point 2 of an outline is not a finite number"):
        drawn([(0, 0), (1, 0), (1, bad), (0, 1)], 4, 4)


@pytest.mark.parametrize("points", [[], [(1, 1)], [(1, 1), (2, 2)]])
def test_fewer_than_three_points_are_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(MaskError, match="three or more points"):
        drawn(points, 4, 4)


CORNERS = st.lists(st.tuples(st.integers(-6, 30), st.integers(-6, 30)), min_size=3, max_size=9)


@given(CORNERS, st.sampled_from([1, 2, 4]))
def test_pixels_follow_the_written_rule(corners: list[tuple[int, int]], scale: int) -> None:
    labels = drawn([(x / scale, y / scale) for x, y in corners], 8, 7)
    expected = [[int(inside_by_the_book(corners, r, c, scale)) for c in range(7)] for r in range(8)]
    assert labels.tolist() == expected


@given(st.lists(st.tuples(st.floats(-5, 15), st.floats(-5, 15)), min_size=3, max_size=8), st.floats(0, 8))
def test_neighbours_share_an_edge_without_gap_or_overlap(outline: list[tuple[float, float]], y: float) -> None:
    # A zigzag cuts the image in two; the upper part walks it one way, the lower part the other way.
    zigzag = [(-20.0, y), *sorted(outline), (30.0, y)]
    above = drawn([*zigzag, (30, -50), (-20, -50)], 9, 11)
    below = drawn([*zigzag[::-1], (-20, 50), (30, 50)], 9, 11)
    assert (above + below == 1).all()


def test_a_long_outline_is_drawn_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    angle = np.linspace(0, 40 * np.pi, 500, endpoint=False)
    points = np.stack([30 + angle / 5 * np.cos(angle), 30 + angle / 5 * np.sin(angle)], axis=1)
    whole, blocks = np.zeros((2, 60, 60), dtype=np.int16)
    fill_polygon(whole, points, 1)
    monkeypatch.setattr("ftcseg.data.shapes._CROSSINGS_AT_ONCE", 7)
    fill_polygon(blocks, points, 1)
    assert whole.any()
    assert (whole == blocks).all()


def test_a_circle_covers_the_centres_within_its_radius() -> None:
    labels = np.zeros((4, 5), dtype=np.int16)
    fill_circle(labels, (1.5, 1.5), 1.0, 3)  # the centre's pixel and its four neighbours at distance exactly 1
    assert labels.tolist() == [[0, 3, 0, 0, 0], [3, 3, 3, 0, 0], [0, 3, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_circles_are_cut_off_and_checked() -> None:
    labels = np.zeros((3, 3), dtype=np.int16)
    fill_circle(labels, (50.0, 50.0), 2.0, 1)
    assert not labels.any()
    fill_circle(labels, (0.0, 0.0), 1e300, 1)
    assert labels.all()
    with pytest.raises(MaskError, match="radius nan"):
        fill_circle(labels, (0.0, 0.0), float("nan"), 1)


def test_area_is_the_same_both_ways_round() -> None:
    box = box_points(1, 1, 4, 3)
    assert polygon_area(box) == polygon_area(box[::-1]) == 6.0


# A 3 x 4 region worked by hand. Down the columns it reads 0 0 0 | 1 1 0 | 0 1 1 | 0 0 0, so 3 2 2 2 3.
REGION = np.array([[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], dtype=bool)


def test_coco_runs_go_down_the_columns() -> None:
    assert decode_runs([3, 2, 2, 2, 3], 3, 4).tolist() == REGION.tolist()
    assert encode_runs(REGION) == [3, 2, 2, 2, 3]


def test_cvat_runs_go_along_the_rows() -> None:
    # Along the rows it reads 0 1 0 0 | 0 1 1 0 | 0 0 1 0, so 1 1 3 2 3 1 1.
    assert decode_box_runs([1, 1, 3, 2, 3, 1, 1], 3, 4).tolist() == REGION.tolist()
    assert encode_box_runs(REGION) == [1, 1, 3, 2, 3, 1, 1]


def test_compressed_runs_by_hand() -> None:
    # 3 2 2 stand for themselves; then 2 - 2 = 0 and 3 - 2 = 1: characters 48 + 3, 2, 2, 0, 1.
    assert encode_compressed(REGION) == "32201"
    assert decode_compressed("32201", 3, 4).tolist() == REGION.tolist()
    assert decode_compressed(b"32201", 3, 4).tolist() == REGION.tolist()


def test_compressed_runs_of_more_than_five_bits_and_less_than_nothing() -> None:
    # Runs 20 9 6 3 2 in one column of 40. 20 = 0b10100: its low five bits alone would read as negative, so one more
    # character follows: 48 + (20 | 32) = 100 "d", then 48 "0". 9 -> "9". 6 -> "6".
    # 3 - 9 = -6 = 0b11010 with the sign bit set: 48 + 26 = 74 "J". 2 - 6 = -4 = 0b11100: 48 + 28 = 76 "L".
    region = np.zeros((40, 1), dtype=bool)
    region[20:29] = True
    region[35:38] = True
    assert encode_compressed(region) == "d096JL"
    assert decode_compressed("d096JL", 40, 1).tolist() == region.tolist()


@given(REGIONS)
def test_runs_come_back_as_they_went(region: NDArray[np.bool_]) -> None:
    height, width = region.shape
    assert (decode_runs(encode_runs(region), height, width) == region).all()
    assert (decode_box_runs(encode_box_runs(region), height, width) == region).all()
    assert (decode_compressed(encode_compressed(region), height, width) == region).all()


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_long_runs_come_back_as_they_went(a: int, b: int, c: int, d: int) -> None:
    region = np.zeros((a + b + c + d + 1, 1), dtype=bool)
    region[a : a + b] = True
    region[a + b + c :] = True
    assert (decode_compressed(encode_compressed(region), len(region), 1) == region).all()


@pytest.mark.parametrize(
    "counts",
    [
        [],
        [3, 2],
        [3, 2, 2, 2, 4],
        [20, -8],
        [2**62, 2**62, 2**62, 2**62, 12],
        [2**80],
        [1.5, 10.5],
        ["12"],
        [[12]],
        [None],
    ],
)
def test_runs_that_do_not_fill_the_image_are_refused(counts: list[int]) -> None:
    with pytest.raises(MaskError, match=r"[Rr]un lengths") as caught:
        decode_runs(counts, 3, 4)
    assert caught.value.kind == "bad-runs"


@pytest.mark.parametrize("text", ["", "3", "32201P", "3220 1", "p", "32é", "P" * 40 + "0", "ooooooooo0"])
def test_compressed_runs_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(MaskError, match=r"run lengths"):
        decode_compressed(text, 3, 4)


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    with contextlib.suppress(MaskError):
        assert decode_compressed(raw, 3, 4).shape == (3, 4)


def test_the_file_at_fault_is_named() -> None:
    said = r"^a\.json, annotation 7: Run lengths must be .* Export .* again"
    with pytest.raises(MaskError, match=said), blamed_on("a.json, annotation 7"):
        decode_runs([], 3, 4)
