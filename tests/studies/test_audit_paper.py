"""The paper's own numbers against each other: every arithmetic worked out by hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from ftcseg.studies import STUDIES, audit_paper, paper_points
from ftcseg.studies.paper_points import agreeing, all_points, places_of, pooled, products, swapped
from ftcseg.studies.plan import Ask, Bench
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, FTC, WITH_ATC, WITH_OPR

PIXELS = {"background": 9000, "standing-bottle": 10, "valve": 40, "wall": 950}


@pytest.fixture(scope="module")
def networks() -> dict[str, dict[str, int]]:
    return audit_paper.count_networks(Bench((), "", None, Path()))


def point(number: int, **given: object) -> paper_points.Point:
    (found,) = [p for p in all_points(given.get("networks"), given.get("pixels")) if p.number == number]  # type: ignore[arg-type]
    return found


def test_there_are_fifteen_points_in_order_each_with_all_its_words() -> None:
    points = all_points(None, None)
    assert [p.number for p in points] == list(range(1, 16))
    assert all(all(str(value).strip() for value in asdict(p).values()) for p in points)


def test_products_by_hand() -> None:
    found = {(c.row, c.group): c for c in products()}
    # 67.03 x (1 - 0.1315) = 67.03 x 0.8685 = 58.2156
    assert found[BASELINE, "global"].product == pytest.approx(58.2156, abs=1e-4)
    assert {cell for cell, one in found.items() if one.holds} == {
        (BASELINE, "global"),
        (BASELINE, "tail"),  # 56.56 x 0.8217 = 46.4754, printed 46.47: within rounding
        (WITH_OPR, "tail"),  # 87.80 x 0.8876 = 77.9313
        (WITH_ATC, "tail"),  # 88.65 x 0.8961 = 79.4393
    }
    assert found[FTC, "tail"].product == pytest.approx(89.03 * 0.9157)


def test_a_cell_that_prints_another_rows_product() -> None:
    ((one, other),) = swapped()
    assert (one.row, one.group, one.printed) == (WITH_OPR, "head", 71.34)
    assert (other.row, other.group) == (WITH_ATC, "head")  # 79.60 x 0.8962 = 71.3375


def test_values_outside_head_and_tail() -> None:
    outside = {(one.row, one.kind) for one in pooled() if not one.is_between}
    assert outside == {
        (WITH_OPR, "accuracy"),  # 72.33 below 74.08 and 87.80
        (WITH_ATC, "accuracy"),  # 69.73 below 79.60 and 88.65
        (FTC, "accuracy"),  # 73.83 below 84.13 and 89.03
        (WITH_ATC, "filtered"),  # 11.63 above 10.38 and 10.39
    }


def test_one_number_in_seven_places() -> None:
    places = places_of(62.55)
    assert len(places) == 7
    assert any("FLSMD" in place for place in places)
    assert places_of(62.56) == ["main tables, SUIM 5%, supervised DINOv2-S"]


def test_ablation_and_joint_calibration() -> None:
    told = point(2).arithmetic
    assert "M3 differs by 1.68, M4 by 0.66, M5 by 0.00" in told  # 62.55 - 60.87, 61.90 - 61.24
    assert "in 1 of 12 settings (FSSG 2%)" in told
    assert "63.07 against 62.55" in told
    assert "differ by 0.03" in point(3).arithmetic


def test_costs_by_our_own_count(networks: dict[str, dict[str, int]]) -> None:
    assert [networks[str(n)]["parameters"] for n in range(5)] == [24_794_987 + 10_379 * n for n in range(5)]
    assert [networks[f"wide {n}"]["parameters"] for n in range(2)] == [24_983_147, 24_983_147 + 6_144]
    assert networks["0"]["operations"] / 1e9 == pytest.approx(56.944, abs=5e-4)
    assert paper_points.fitting(networks) == "1"  # 24.8054 M and 56.961 G; two stages: 24.8157 M, 56.978 G
    told = point(4, networks=networks).arithmetic
    assert "M4 - M2 = 0.06 G" in told  # 56.94 - 56.88
    assert "2 x 16 x 384 x 1369 = 0.0168 G" in told
    assert "our count of the network without OPR is 56.94 G" in told
    assert "both numbers are those of 1" in point(5, networks=networks).arithmetic


def test_tail_iou_of_one_baseline() -> None:
    assert "differ by 44.64" in point(8).arithmetic  # 49.97 - 5.33


def test_shares_are_counted_where_the_set_is_at_hand() -> None:
    told = point(9, pixels=PIXELS)
    assert "0.100 % of all and 1.00 % of the foreground pixels; valve is 0.400 % and 4.00 %" in told.arithmetic
    assert "measured now" in told.arithmetic
    assert "neither" in told.verdict
    quoted = point(9)
    assert "0.045 % of all and 1.19 %" in quoted.arithmetic
    assert "measured earlier" in quoted.arithmetic
    assert "valve's share" in quoted.verdict


def test_results_that_run_against_the_others() -> None:
    assert paper_points.reversed_encoders() == ["FSSG 10%"]
    assert "leads by 2.60" in point(10).arithmetic  # 70.13 - 67.53
    assert "adds 40.75" in point(10).arithmetic  # 58.39 - 17.64
    told = point(11).arithmetic
    assert "without gate drops most (8.01), to 64.32, 2.71 below no OPR" in told  # 72.33 - 64.32, 67.03 - 64.32
    assert "without L_O drops most (6.76)" in told  # 87.80 - 81.04
    assert "26.60 above no OPR" in told  # 83.16 - 56.56
    assert paper_points.not_first() == ["SUIM 2% RN-101: semivl 55.99 > 54.71"]
    assert "in 1 of 24 cells" in point(14).arithmetic
    assert "1 of 12 settings (ACDC 2%, 0.0769)" in point(14).arithmetic


def test_settings_and_labels() -> None:
    assert "0.75 times the epochs, 1/8 of the rate. 19 of 19 ACDC classes" in point(12).arithmetic
    assert "semivl 12 cells" in point(15).arithmetic
    assert "vc 6 cells" in point(15).arithmetic


def test_what_agrees_is_said_too() -> None:
    assert all(holds == count for _, holds, count in agreeing())
    assert sum(count for *_, count in agreeing()) == 12 + 4 + 4 + 3 + 3 + 1 + 4


def test_a_wrong_digit_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_points, "VOC_GAINS", (4.60, 5.92))
    assert ("VOC: changes and gains", 3, 4) in agreeing()


def test_it_trains_nothing_and_counts_flsmd_where_it_is_given() -> None:
    study = STUDIES["audit-paper"]
    assert study.plan(Ask()) == []
    assert [m.name for m in study.measures(Ask())] == [audit_paper.NETWORKS]
    measures = study.measures(Ask(datasets=("flsmd", "embedded")))
    assert [m.dataset for m in measures] == ["embedded", "flsmd"]


def test_the_pixels_of_a_set_are_those_of_its_masks(sonar12: Path) -> None:
    told = audit_paper.count_pixels(Bench((), str(sonar12), None, Path()))["classes"]
    assert next(iter(told)) == "background"
    assert sum(told.values()) == 12 * 160 * 240


def test_the_answer_has_the_arithmetic_and_the_readings(networks: dict[str, dict[str, int]]) -> None:
    ask = Ask(datasets=("flsmd",))
    measured = {audit_paper.NETWORKS: networks, f"{audit_paper.PIXELS} 0": {"classes": PIXELS}}
    answer = audit_paper.read(ask, Evidence([], measured))
    assert answer.finding == (
        "15 places of the paper do not fit together; 31 of 31 sums and ranges that can be formed anew come out as "
        "printed.",
        "Of the pseudo-label table, kept = accuracy x (1 - filtered) holds in 4 of 12 cells, and 4 of 8 values for all "
        "classes lie outside those of head and tail.",
        "The printed cost of FTC-Seg is 24.81 M and 56.96 G; our network has both with 1 of its stages in OPR, where "
        "the text says two.",
    )
    points, kept, _, _, costs = answer.tables
    assert len(points.rows) == 15
    assert points.paper == {2}
    assert "measured now" in points.rows[8][3]
    assert kept.rows[0] == (f"{BASELINE}, global", "58.22", "58.22", "+0.00", "yes")
    assert costs.rows[1] == ("1", "24.8054", "24.9893", "24.80", "56.9611", costs.rows[1][5], "56.90")
    assert 73 < float(costs.rows[1][5]) < 74


def test_without_counts_it_still_answers() -> None:
    answer = audit_paper.read(Ask(), Evidence([]))
    assert len(answer.tables) == 4
    assert "our network is not counted yet" in answer.tables[0].rows[3][3]
    assert len(answer.finding) == 3
