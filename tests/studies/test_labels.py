"""What unlabelled images are worth, worked out by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_results import cells_of, made, split_note

from ftcseg.studies import labels
from ftcseg.studies.figures import Lines
from ftcseg.studies.labels import equal_labels
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence

ASK = Ask(labels=("5%", "10%", "40%"), seeds=(0, 1), options={"points": "10%"})
IMAGES = {"5%": 10, "10%": 20, "40%": 80}
CURVE = {"5%": 0.2, "10%": 0.3, "40%": 0.5}


def _evidence(tmp_path: Path, ask: Ask, semi: dict[str, list[float | None]]) -> Evidence:
    """Labels alone as in CURVE, a tenth higher with seed 1; `semi` by seed."""
    results = []
    for number, cell in enumerate(labels.plan(ask)):
        score = CURVE[cell.labels] + 0.1 * cell.seed if cell.row == "supervised" else semi[cell.row][cell.seed]
        if score is not None:
            results.append(made(cell, score, run=split_note(tmp_path / str(number), IMAGES[cell.labels])))
    return Evidence(results)


def test_the_curve_has_every_amount_and_the_points_theirs() -> None:
    cells = labels.plan(Ask(labels=("5%", "20%"), seeds=(3, 1), options={"points": "10%, 20%"}))
    assert [(c.seed, c.row, c.labels) for c in cells[:7]] == [
        (3, "supervised", "5%"),
        (3, "supervised", "20%"),
        (3, "supervised", "10%"),
        (3, "unimatch-v2", "10%"),
        (3, "ftc", "10%"),
        (3, "unimatch-v2", "20%"),
        (3, "ftc", "20%"),
    ]
    assert {c.seed for c in cells[7:]} == {1}


def test_a_score_half_way_between_two_amounts_is_their_geometric_mean() -> None:
    curve = [(10.0, 0.2), (40.0, 0.4), (80.0, 0.5)]
    assert equal_labels(curve, 0.3) == (pytest.approx(20.0), "20")  # sqrt(10 * 40)
    assert equal_labels(curve, 0.2) == (10.0, "10")
    assert equal_labels(curve, 0.5) == (pytest.approx(80.0), "80")


def test_beyond_what_was_tried_nothing_is_made_up() -> None:
    curve = [(10.0, 0.2), (40.0, 0.4)]
    assert equal_labels(curve, 0.41) == (None, "more than 40")
    assert equal_labels(curve, 0.19) == (None, "fewer than 10")
    assert equal_labels(curve[:1], 0.3) == (None, "more than 10")


def test_a_curve_that_falls_by_chance_is_levelled() -> None:
    # 0.4 and 0.3 become 0.35 both: 0.35 is reached with 20 already, 0.45 half way between 40 and 160
    curve = [(10.0, 0.2), (20.0, 0.4), (40.0, 0.3), (160.0, 0.55)]
    assert equal_labels(curve, 0.35) == (pytest.approx(20.0), "20")
    assert equal_labels(curve, 0.45) == (pytest.approx(80.0), "80")


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1)), min_size=1, max_size=8, unique_by=lambda p: p[0]),
    st.lists(st.floats(-0.1, 1.1), min_size=2, max_size=6),
)
def test_higher_scores_never_equal_fewer_labels(curve: list[tuple[int, float]], scores: list[float]) -> None:
    line = sorted((float(images), score) for images, score in curve)
    found = [equal_labels(line, score)[0] for score in sorted(scores)]
    there = [images for images in found if images is not None]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(there))
    assert all(line[0][0] * (1 - 1e-9) <= images <= line[-1][0] * (1 + 1e-9) for images in there)


def test_points_are_read_off_the_curve_of_the_same_seeds(tmp_path: Path) -> None:
    answer = labels.read(ASK, _evidence(tmp_path, ASK, {"ftc": [0.4, 0.5], "unimatch-v2": [0.28, None]}))
    (table,) = answer.tables
    # both seeds: the curve is 0.25, 0.35, 0.55; ftc 0.45 is half way between 20 and 80
    # less and plus 0.0707: 0.379 at 20 * 4 ** 0.1464 = 24.503, 0.521 at 20 * 4 ** 0.8536 = 65.3
    assert cells_of(table, "ftc, 10%") == {
        "run": "ftc, 10%",
        "labelled images": "20",
        "mIoU, last": "45.0 ± 7.1",
        "over labels alone": "+10.0",
        "equals labels": "40",
        "less and plus the spread": "25 to 65",
    }
    # seed 0 only: labels alone have 0.3 there, not 0.35
    assert cells_of(table, "unimatch-v2, 10%")["equals labels"] == "none"
    assert cells_of(table, "unimatch-v2, 10%")["over labels alone"] == "-2.0"
    assert cells_of(table, "supervised, 40%")["mIoU, last"] == "55.0 ± 7.1"
    assert answer.finding == (
        "With 20 labels ftc ends at 45.0 ± 7.1 mIoU, for which labels alone need 40, 20 more than it had "
        "(25 to 65 less and plus its spread; 2 seeds).",
        "With 20 labels unimatch-v2 ends at 28.0 mIoU, no more than labels alone (30.0): its unlabelled images are "
        "worth none (1 seed).",
        "1 of 10 runs are missing.",
    )


def test_a_point_above_the_whole_curve_is_worth_more_than_was_tried(tmp_path: Path) -> None:
    ask = Ask(labels=("5%", "40%"), options={"points": "10%"})
    answer = labels.read(ask, _evidence(tmp_path, ask, {"ftc": [0.6], "unimatch-v2": [0.31]}))
    assert "for which labels alone need more than 80 (1 seed)." in answer.finding[0]
    (figure,) = answer.figures
    assert isinstance(figure, Lines)
    assert figure.log
    assert [(name, [place for place, _ in line]) for name, line in figure.series] == [
        ("labels alone", [10.0, 20.0, 80.0]),
        ("ftc", [20.0]),
        ("unimatch-v2", [20.0]),
    ]


def test_a_seed_whose_curve_has_holes_is_left_out(tmp_path: Path) -> None:
    whole = _evidence(tmp_path, ASK, {"ftc": [0.4, 0.9], "unimatch-v2": [0.3, 0.9]})
    holes = Evidence([r for r in whole.results if (r.cell.row, r.cell.labels, r.cell.seed) != ("supervised", "40%", 1)])
    answer = labels.read(ASK, holes)
    assert cells_of(answer.tables[0], "ftc, 10%")["mIoU, last"] == "40.0"
    assert cells_of(answer.tables[0], "ftc, 10%")["equals labels"] == "40"
    only = Evidence([r for r in whole.results if r.cell.row == "ftc"])
    assert labels.read(ASK, only).finding[0] == "There is no point to read yet."
