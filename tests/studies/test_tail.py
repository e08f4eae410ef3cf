"""The rarest classes, read off runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from made_results import cells_of, made

from ftcseg.evaluate.per_image import COUNTS, PerImage, write_counts
from ftcseg.studies import tail
from ftcseg.studies.figures import Bars
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence

ASK = Ask(datasets=("fssg",), labels=("2%",), seeds=(0, 1), only=("supervised", "unimatch-v2", "ftc"))
PLACE = ("fssg", "2%")


def _evidence(scores: dict[str, list[float | None]], ask: Ask = ASK, run: Path = Path()) -> Evidence:
    """Runs whose rarest class has these IoUs, by seed."""
    cells = [cell for cell in tail.plan(ask) if cell.row in scores]
    return Evidence([made(cell, 0.4, scores[cell.row][cell.seed], run=run) for cell in cells])


def test_classes_go_by_their_share_of_pixels_and_background_is_none() -> None:
    # hook 100 and wall 900 of 10000 pixels, twice
    shares = tail.class_shares(_evidence({"ftc": [0.3, 0.4]}), *PLACE)
    assert shares == {"hook": 0.01, "wall": 0.09}
    assert list(shares) == ["hook", "wall"]
    assert tail.class_shares(Evidence([]), *PLACE) == {}


def test_the_lead_on_the_rarest_class_is_over_shared_seeds() -> None:
    evidence = _evidence({"supervised": [0.1, 0.2], "unimatch-v2": [0.25, 0.30], "ftc": [0.3, 0.4]})
    answer = tail.read(ASK, evidence)
    rare, every = answer.tables
    assert cells_of(rare, "ftc") == {
        "method": "ftc",
        "hook (1 % of pixels)": "35.0 ± 7.1",
        "wall (9 % of pixels)": "50.0 ± 0.0",
        "all tail classes": "35.0 ± 7.1",
        "diver, lead over the second (paper)": "+10.04",
    }
    assert rare.paper == {4}
    assert every.headings == ("method", "wall (9 % of pixels)", "hook (1 % of pixels)")
    # gaps 0.05 and 0.10 to unimatch-v2: mean 0.075, std 0.0354, t = 3, one degree: p = 1 - 2 atan(3) / pi = 0.2048
    assert answer.finding == (
        "With 2% of the labels of fssg, ftc reaches an IoU of 35.0 ± 7.1 on hook, the rarest class, +7.5 against the "
        "best other row, unimatch-v2 (p 0.2 over 2 seeds, too few to trust).",
    )
    assert "8.91" in answer.remarks[0]
    (figure,) = answer.figures
    assert isinstance(figure, Bars)
    assert figure.groups == ("hook (1 % of pixels)", "wall (9 % of pixels)")
    assert [name for name, _ in figure.series] == ["supervised", "unimatch-v2", "ftc"]


def test_where_nobody_finds_the_rarest_the_second_is_told() -> None:
    answer = tail.read(ASK, _evidence({"supervised": [0.0, 0.0], "ftc": [0.005, 0.0]}))
    assert "nobody finds hook, the rarest class; ftc reaches an IoU of 50.0 ± 0.0 on wall" in answer.finding[0]
    assert "+0.0 against the best other row, supervised (the gaps are all equal)." in answer.finding[0]
    lost = [
        replace(r, last={**r.last, "classes": r.last["classes"][::2]}) for r in _evidence({"ftc": [0.0, 0.0]}).results
    ]
    answer = tail.read(ASK, Evidence(lost))
    assert answer.finding[0] == (
        "With 2% of the labels of fssg, none of 1 methods finds hook, the rarest class: every IoU is below 1 %."
    )


def test_an_absent_class_and_missing_rows_are_no_zeros() -> None:
    answer = tail.read(ASK, _evidence({"supervised": [None, 0.2], "ftc": [0.9, 0.3]}))
    assert cells_of(answer.tables[0], "supervised")["hook (1 % of pixels)"] == "20.0"
    assert "+10.0 against the best other row, supervised (one seed allows no test)." in answer.finding[0]
    assert answer.finding[1] == "2 of 6 runs are missing."
    alone = tail.read(ASK, _evidence({"ftc": [0.9, 0.3]}))
    assert "nothing to compare ftc with on hook, the rarest class, yet." in alone.finding[0]


def test_intervals_are_drawn_over_images_and_over_sequences(tmp_path: Path) -> None:
    # hook: two images of 10 true pixels, all hit in the one, none in the other: IoU 10 / 20
    counts = np.zeros((2, 3, 3), dtype=np.int64)
    counts[:, 2, 2] = 10
    counts[0, 2, :2] = 10
    write_counts(tmp_path / COUNTS, {"last": PerImage(counts, ("a", "b"), ("one", "one"))})
    ask = replace(ASK, seeds=(0,))
    answer = tail.read(ask, _evidence({"ftc": [0.5]}, ask, tmp_path))
    row = cells_of(answer.tables[2], "ftc")
    assert row["hook, over images"] == "50.0 [0.0, 100.0]"
    assert row["hook, over sequences"] == "n/a"  # both are of one sequence
    assert row["wall, over images"] == "n/a"
    assert any("One sequence cannot tell" in remark for remark in answer.remarks)
