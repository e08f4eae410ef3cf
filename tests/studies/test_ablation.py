"""M1 to M5, read off runs made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from made_results import cells_of, evidence_of, made

from ftcseg.evaluate.per_image import COUNTS, PerImage, write_counts
from ftcseg.studies import ablation
from ftcseg.studies.figures import Bars
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, FTC, LABELS_ONLY, PUBLISHED, WITH_ATC, WITH_OPR

READING = "ftc-paper"  # its M2 is another one than the published baseline, which gets a row of its own
ASK = Ask(seeds=(0, 1, 2), ftc=READING, options=ablation.OPTIONS)
SCORES = {
    LABELS_ONLY: [0.20, 0.22, 0.24],
    BASELINE: [0.30, 0.32, 0.34],
    PUBLISHED: [0.29, 0.32, 0.32],
    WITH_OPR: [0.32, 0.33, 0.37],
    WITH_ATC: [0.31, 0.31, 0.34],
    FTC: [0.34, 0.37, 0.40],
}


def test_the_rows_differ_in_what_they_should() -> None:
    told = {
        cell.row: (cell.method, cell.settings) for cell in ablation.plan(Ask(ftc=READING, options=ablation.OPTIONS))
    }
    assert told == {
        LABELS_ONLY: ("supervised", ()),
        BASELINE: ("ftc-paper", ("opr.layers=0", "thresholds=fixed")),
        PUBLISHED: ("unimatch-v2", ()),
        WITH_OPR: ("ftc-paper", ("thresholds=fixed",)),
        WITH_ATC: ("ftc-paper", ("opr.layers=0",)),
        FTC: ("ftc-paper", ()),
    }


def test_a_reading_built_on_the_published_baseline_trains_it_once() -> None:
    told = {cell.row: (cell.method, cell.settings) for cell in ablation.plan(Ask(options=ablation.OPTIONS))}
    assert told[BASELINE] == ("unimatch-v2", ())
    assert list(told) == [LABELS_ONLY, BASELINE, WITH_OPR, WITH_ATC, FTC]


def test_other_methods_stand_in_the_same_table() -> None:
    ask = Ask(seeds=(0, 1), options={"beside": "fixmatch, ftc-paper"})
    cells = ablation.plan(ask)
    told = {cell.row: (cell.method, cell.settings) for cell in cells}
    assert told["fixmatch"] == ("fixmatch", ())
    assert told["ftc-paper"] == ("ftc-paper", ())
    assert len(told) == 5 + 2
    scores = {BASELINE: [0.30, 0.32], "fixmatch": [0.29, 0.30], FTC: [0.34, 0.37]}
    (table,) = ablation.read(ask, evidence_of(cells, scores, tail=0.1)).tables
    assert [row[0] for row in table.rows] == list(scores)
    row = cells_of(table, "fixmatch")
    assert (row["mIoU, last"], row["over M2"], row["EMA"]) == ("29.5 ± 0.7", "-1.5", "")


def test_gains_over_m2_with_their_tests() -> None:
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), SCORES, tail=0.1))
    (table,) = answer.tables
    # gaps 0.04, 0.05, 0.06: mean 0.05, std 0.01, t = 5 sqrt 3, p = 1 - 5 sqrt 3 / sqrt 77 = 0.01307
    assert cells_of(table, FTC) == {
        "model": FTC,
        "EMA": "✓",
        "OPR": "✓",
        "ATC": "✓",
        "mIoU, last": "37.0 ± 3.0",
        "mIoU, best": "37.0 ± 3.0",
        "head": "50.0 ± 0.0",
        "middle": "n/a",
        "tail": "10.0 ± 0.0",
        "over M2": "+5.0",
        "p": "0.013",
        # p of the others: M1 none (all gaps -0.10); published 0.18; OPR 0.074; ATC 1: 4 x 0.01307
        "Holm p": "0.052",
        "FSSG, 2% (paper)": "63.20",
    }
    assert cells_of(table, BASELINE)["over M2"] == "–"
    assert [cells_of(table, WITH_ATC)[part] for part in ("EMA", "OPR", "ATC")] == ["✓", "–", "✓"]
    assert cells_of(table, LABELS_ONLY)["p"] == "no test"
    assert cells_of(table, PUBLISHED)["FSSG, 2% (paper)"] == "58.78 ± 1.32"
    assert [row[0] for row in table.rows] == list(SCORES)
    assert answer.finding == (
        "With 10% of the labels, FTC-Seg (M5) ends at 37.0 ± 3.0 mIoU, +5.0 over the baseline M2 "
        "(p 0.013 over 3 seeds, too few to trust); over M2, OPR alone +2.0, ATC alone +0.0.",
        "M2 itself is +10.0 over labels alone (the gaps are all equal), and +1.0 over UniMatch V2 as published.",
    )
    assert any("3 seeds" in remark for remark in answer.remarks)


def test_each_part_is_measured_with_and_without_the_other() -> None:
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), SCORES))
    # OPR, M3 - M2 and M5 - M4: 2 1 3 and 3 6 6, by seed 2.5 3.5 4.5: mean 3.5, std 1, t = 3.5 sqrt 3;
    # ATC, M4 - M2 and M5 - M3: 1 -1 0 and 2 4 3, by seed 1.5 1.5 1.5; p = 1 - t / sqrt(t^2 + 2)
    told = next(remark for remark in answer.remarks if "measured twice" in remark)
    assert told.startswith("With 10% of the labels each part is measured twice, the other one being off and on; ")
    assert told.endswith("OPR +3.5 ± 1.0 (p 0.026 over 3 seeds), ATC +1.5 ± 0.0 (the gaps are all equal).")


def test_a_part_is_measured_over_the_seeds_that_all_rows_have() -> None:
    some = {**SCORES, WITH_OPR: [None, 0.33, None]}
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), some))
    assert any("OPR +3.5 (one seed allows no test), ATC +1.5 (one seed" in remark for remark in answer.remarks)
    without = ablation.read(ASK, evidence_of(ablation.plan(ASK), {**SCORES, WITH_OPR: [None, None, None]}))
    assert not any("measured twice" in remark for remark in without.remarks)


def test_a_gain_inside_the_spread_is_called_so() -> None:
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), {**SCORES, FTC: [0.30, 0.33, 0.36]}))
    # gaps 0.00, 0.01, 0.02 beside a spread of 3 points
    assert "+1.0 over the baseline M2 (inside the spread of ±3.0, p 0.23 over 3 seeds" in answer.finding[0]


def test_missing_seeds_leave_gaps_over_the_shared_ones() -> None:
    scores = {BASELINE: [0.30, None, 0.34], FTC: [None, 0.9, 0.36]}
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), scores))
    assert "+2.0 over the baseline M2 (one seed allows no test)." in answer.finding[0]
    assert answer.finding[-1] == "14 of 18 runs are missing."
    assert any(f"{BASELINE} 2 of 3, {FTC} 2 of 3" in remark for remark in answer.remarks)
    assert [row[0] for row in answer.tables[0].rows] == [BASELINE, FTC]


def test_without_the_baseline_there_is_no_gain() -> None:
    answer = ablation.read(ASK, evidence_of(ablation.plan(ASK), {FTC: [0.3, 0.4, 0.5]}))
    assert answer.finding[0] == "With 10% of the labels, M2 and M5 have no seed in common yet."
    assert cells_of(answer.tables[0], FTC)["over M2"] == "n/a"


def test_two_settings_have_a_table_a_figure_and_files_each_and_three_sentences_together() -> None:
    ask = Ask(labels=("5%", "10%"), ftc=READING, options=ablation.OPTIONS)
    answer = ablation.read(ask, evidence_of(ablation.plan(ask), {row: [v[0], v[1]] for row, v in SCORES.items()}))
    assert len(answer.finding) == 3
    assert [table.title for table in answer.tables] == ["5% of the labels", "10% of the labels"]
    assert [figure.name for figure in answer.figures] == ["ablation-5", "ablation-10"]
    figure = answer.figures[0]
    assert isinstance(figure, Bars)
    assert figure.groups == ("all", "head", "middle", "tail")
    name, heights = figure.series[-1]
    assert name == FTC
    assert heights[0] is not None
    assert (heights[0].mean, heights[0].spread, heights[2]) == (34.0, None, None)


def _judged(folder: Path, hits: tuple[int, int], names: tuple[str, str] = ("a", "b")) -> Path:
    """A run folder: one class, two images of four true and four called pixels."""
    counts = np.array([[(hit, 4, 4)] for hit in hits], dtype=np.int64)
    folder.mkdir()
    write_counts(folder / COUNTS, {"last": PerImage(counts, names, ("film", "dive"))})
    return folder


def test_gaps_had_other_scenes_been_judged(tmp_path: Path) -> None:
    # IoU of a and b: ours 2/6 and 1, theirs 1/7 and 1. The gaps: both 8/55, a alone 4/21, b alone 0. Second seed: 0.
    ours, theirs = _judged(tmp_path / "ours", (2, 4)), _judged(tmp_path / "theirs", (1, 4))
    ask = Ask(seeds=(0, 1), options=ablation.OPTIONS)
    cells = {(cell.row, cell.seed): cell for cell in ablation.plan(ask)}
    runs = {(BASELINE, 0): theirs, (BASELINE, 1): ours, (FTC, 0): ours, (FTC, 1): ours}
    evidence = Evidence([made(cells[place], 0.5, run=run) for place, run in runs.items()])
    answer = ablation.read(ask, evidence)
    assert cells_of(answer.tables[0], FTC)["other scenes"] == "+0.0 to +9.5"  # half of 4/21
    assert cells_of(answer.tables[0], BASELINE)["other scenes"] == "–"
    assert any(remark.startswith("Other scenes: ") for remark in answer.remarks)


def test_runs_that_were_judged_on_other_images_have_no_such_gap(tmp_path: Path) -> None:
    runs = {
        BASELINE: _judged(tmp_path / "theirs", (1, 4)),
        WITH_ATC: tmp_path / "kept-no-counts",
        FTC: _judged(tmp_path / "ours", (2, 4), names=("a", "c")),
    }
    ask = Ask(seeds=(0,), options=ablation.OPTIONS)
    cells = {cell.row: cell for cell in ablation.plan(ask)}
    answer = ablation.read(ask, Evidence([made(cells[row], 0.5, run=run) for row, run in runs.items()]))
    assert "other scenes" not in answer.tables[0].headings
    assert not any(remark.startswith("Other scenes: ") for remark in answer.remarks)
