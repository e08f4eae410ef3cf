"""The page on FLSMD says what its records say, and the records are read as they should be."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ftcseg.evaluate.per_image import COUNTS, PerImage, write_counts
from ftcseg.studies.plan import Cell
from ftcseg.studies.running import PlannedRun

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, reading records from an empty folder."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    module = script("flsmd_tables")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


def kept(folder: Path, row: str, seed: int, miou: float, called: int | None = None, **counts: int) -> None:
    """A record of one run: two classes, of which `hook` is the tail and `called` pixels are called so."""
    classes = {name: {"iou": miou, "recall": 0.5, "precision": 0.25} for name in ("bed", "hook")}
    told = {"miou": miou, "ece": 0.01, "groups": {"head": None, "tail": miou / 2}, "classes": classes}
    tally = {"pixels": 200, "kept": 40, "correct": 50, "correct_kept": 30} | counts
    side = {"bed": {**tally, "pixels": 9000}, "hook": tally}
    record: dict[str, Any] = {"row": row, "labels": "2%", "steps": 10, "seed": seed, "predictor": "teacher"}
    record |= {"method": row, "key": str(seed), "seconds": 120.0, "labelled": 30}
    record["scores"] = {"last": {"teacher": told}, "best": {"teacher": told}}
    told_so = side if called is None else {**side, "hook": {**tally, "pixels": called}}
    record["audit"] = {"by_truth": side, "by_prediction": told_so}
    record["over_time"] = [{"step": 9}, {"step": 10, "seen": [10, 0], "kept": [4, 0], "tau": [0.95, 0.8]}]
    folder.mkdir(exist_ok=True)
    (folder / f"{row}-{seed}.json").write_text(json.dumps(record), encoding="utf-8")


def test_the_tables_are_those_of_the_records() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "flsmd_tables.py"), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"Run scripts/flsmd_tables.py. {done.stderr}"


def test_means_and_gaps_over_seeds(tables: ModuleType, tmp_path: Path) -> None:
    for seed, (labels, ours) in enumerate([(0.30, 0.34), (0.32, 0.37), (0.34, 0.40)]):
        kept(tmp_path / "a", tables.LABELS_ONLY, seed, labels)
        kept(tmp_path / "a", "ftc", seed, ours)
    lines = tables.scores("a", tables.LABELS_ONLY, "ftc").splitlines()
    # gaps 4, 5, 6: mean 5, standard deviation 1, t = 5 sqrt 3, p = 1 - 5 sqrt 3 / sqrt 77
    assert lines[3].split(" | ")[1:5] == ["3", "37.0 ± 3.0", "37.0 ± 3.0", ""]
    assert "| 18.5 ± 1.5 | +5.0 ± 1.0 (p 0.013) |" in lines[3]
    assert lines[2].split(" | ")[8] == "–"


def test_a_row_under_a_condition_is_compared_within_it(tables: ModuleType, tmp_path: Path) -> None:
    for row, miou in (("supervised", 0.5), ("supervised, fog", 0.3), ("unimatch-v2, fog", 0.4), ("ftc, fog", 0.45)):
        kept(tmp_path / "a", row, 0, miou)
    (line,) = tables.scores("a", "ftc; fog").splitlines()[2:]
    assert "| +15.0 | +5.0 |" in line
    (line,) = tables.scores("a", "supervised; fog").splitlines()[2:]
    assert "| – | -10.0 |" in line


def test_seeds_that_only_one_row_has_are_no_gap(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", tables.LABELS_ONLY, 0, 0.30)
    kept(tmp_path / "a", "ftc", 0, 0.34)
    kept(tmp_path / "a", "ftc", 1, 0.90)
    assert "| +4.0 |" in tables.scores("a", "ftc")


def test_what_is_kept_right_and_wrong(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "ftc", 0, 0.3)
    lines = tables.pseudo("a", "ftc").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| bed", "| hook"]  # most pixels first
    assert lines[3] == "| hook | 15.0 | 25.0 |"  # 30 of 200; 10 of 40


def test_how_far_thresholds_reach_by_group(tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tables, "GROUPS", {"tail": ("bed", "hook")})
    kept(tmp_path / "a", "ftc", 0, 0.3, called=800)
    # 40 of 9000 and 40 of 800 are kept, 30 of either right: 80 of 9800, 20 of 80 wrong
    assert tables.reach("a@10steps/ftc").splitlines()[2] == "| `ftc` | 10 | 1 | 1 | 25 |"


def test_what_is_dropped_over_time(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "ftc", 0, 0.3)
    assert tables.moments("a", "ftc").splitlines()[2:] == ["| bed | 60 |", "| hook | – |"]
    assert tables.moments("a", "ftc", "tau").splitlines()[3] == "| hook | 0.80 |"


def test_recall_and_precision_stand_behind(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "ftc", 0, 0.3)
    assert "| hook | 30.0 (50 / 25) |" in tables.by_class("a", "ftc")


def test_classes_are_in_order_even_where_the_first_row_has_no_pseudo_labels(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "alone", 0, 0.3)
    kept(tmp_path / "a", "ftc", 0, 0.3)
    file = tmp_path / "a" / "alone-0.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    told["audit"] = None
    last = told["scores"]["last"]["teacher"]
    last["classes"] = dict(reversed(last["classes"].items()))  # hook before bed, which has more pixels
    file.write_text(json.dumps(told), encoding="utf-8")
    lines = tables.by_class("a", "alone", "ftc").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| bed", "| hook"]


def test_records_of_other_label_amounts_are_apart(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "ftc", 0, 0.3)
    assert len(tables.records("a@2%")) == 1
    assert not tables.records("a@5%")
    assert len(tables.records("a@10steps")) == 1
    assert not tables.records("a@20steps")
    assert len(tables.records("a@2%@10steps")) == 1
    assert not tables.records("a@2%@20steps")


def test_studies_that_call_the_baselines_by_their_method(tables: ModuleType, tmp_path: Path) -> None:
    for row, miou in (("supervised", 0.30), ("unimatch-v2", 0.31), ("ftc", 0.34)):
        kept(tmp_path / "a", row, 0, miou)
    assert "| +4.0 | +3.0 |" in tables.scores("a", "ftc")


def test_rows_of_other_lengths(tables: ModuleType, tmp_path: Path) -> None:
    for seed in (0, 1):
        kept(tmp_path / "a", "supervised", seed, 0.30)
        kept(tmp_path / "b", "ftc", seed, 0.34)
    lines = tables.lengths("a@10steps/supervised", "b/ftc").splitlines()
    assert lines[2].startswith("| `supervised` | 10 | 2 | 30.0 ± 0.0 |")
    assert lines[2].endswith("| 30.0, 30.0 | +4.0 ± 0.0 |")
    assert lines[3].endswith("| 34.0, 34.0 | – |")


def test_runs_of_before_and_of_another_machine_are_named(tables: ModuleType, tmp_path: Path) -> None:
    for folder, row, miou in (
        ("a", "um", 0.30),
        ("a", "ftc", 0.34),
        ("balanced-a", "ftc", 0.32),
        ("again-a", "um", 0.31),
    ):
        kept(tmp_path / folder, row, 0, miou)
    places = ("balanced-a/um", "balanced-a/ftc", "again-a/um", "matched-a/um", "matched-a/ftc", "a/ftc")
    lines = tables.lengths(*places).splitlines()[2:]
    names = ["`um`", "`ftc`, balanced", "`um`, other machine", "`um`", "`ftc`", "`ftc`"]
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name in names]
    # balanced has an unchanged row of a, matched has a's where nothing was trained again
    assert [line.split(" | ")[-1] for line in lines] == ["+4.0 |", "+2.0 |", "+3.0 |", "+3.0 |", "– |", "– |"]
    assert [record["packed"] for record in tables.of("matched-a", "um")] == ["again-finished"]


def test_what_two_machines_make_of_a_run(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", "um", 0, 0.30)
    kept(tmp_path / "a", "um", 1, 0.50)  # trained once only
    kept(tmp_path / "again-a", "um", 0, 0.32)
    assert tables.chance("a").splitlines()[2:] == ["| `um` | 10 | 0 | 30.0 (15.0) | 32.0 (16.0) | +2.0 |"]


def test_gains_by_condition(tables: ModuleType, tmp_path: Path) -> None:
    for condition, ours, theirs in (("as it is", 0.34, 0.30), ("added noise", 0.28, 0.20)):
        kept(tmp_path / "a", f"ftc, {condition}", 0, ours)
        kept(tmp_path / "a", f"unimatch-v2, {condition}", 0, theirs)
    lines = tables.conditions("a", "ftc", "unimatch-v2").splitlines()
    assert lines[3] == "| `ftc` | 34.0 (17.0) | 28.0 (14.0) | – |"
    assert lines[4] == "| `ftc` over `unimatch-v2` | +4.0 (+2.0) | +8.0 (+4.0) | – |"


def judged(folder: Path, run: str, hits: tuple[int, int]) -> None:
    """A packed run: one class, two sequences of one image each, four true and four called pixels in both."""
    made = folder / "runs" / run
    made.mkdir(parents=True)
    counts = np.array([[(hit, 4, 4)] for hit in hits], dtype=np.int64)
    write_counts(made / COUNTS, {"last": PerImage(counts, ("a", "b"), ("film", "dive"))})
    (made / "run.json").write_text(json.dumps({"status": "done", "steps": 10, "seconds": 120.0}), encoding="utf-8")
    script("flsmd_records").pack(made, folder / "finished" / f"{run}.tar.xz")


def test_classes_by_how_much_of_them_is_called_so(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "BACKGROUND", "bed")
    # of 200 true pixels: 60 and 80 are called so, a third and two fifths; 180 are nine tenths, no longer «half to»
    for seed, (theirs, ours, gain) in enumerate(((60, 120, 0.1), (80, 160, -0.02), (180, 220, -0.05))):
        kept(tmp_path / "a", "unimatch-v2", seed, 0.3, called=theirs)
        kept(tmp_path / "a", "ftc", seed, 0.3 + gain, called=ours)
    assert tables.calling("a", "ftc", "unimatch-v2").splitlines()[2:] == [
        "| less than half | 0.35 | 0.70 | +4.0 | 1 of 2 |",
        "| half to 90 % |  |  |  | 0 of 0 |",
        "| 90 % and more | 0.90 | 1.10 | -5.0 | 0 of 1 |",
    ]


def test_the_same_classes_by_the_length_of_runs(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "BACKGROUND", "bed")
    runs = {"a": ((60, 0.1), (80, 0.06), (180, -0.02)), "b": ((60, 0.02), (190, -0.04), (200, 0.0))}
    for folder, cases in runs.items():
        for seed, (called, gain) in enumerate(cases):
            kept(tmp_path / folder, "unimatch-v2", seed, 0.3, called=called)
            kept(tmp_path / folder, "ftc", seed, 0.3 + gain, called=called)
    assert tables.bands("ftc", "unimatch-v2", "a", "b").splitlines()[2:] == [
        "| less than half | 2 | +8.0 | 1 | +2.0 |",
        "| half to 90 % | 0 |  | 0 |  |",
        "| 90 % and more | 1 | -2.0 | 2 | -2.0 |",
        "| all | 3 | +4.7 | 3 | -0.7 |",
        "| all, each gaining as in the first | 3 | +4.7 | 3 | +1.3 |",  # 8, -2 and -2
    ]


def four_rows(tables: ModuleType, folder: Path) -> None:
    """M2 to M5, three seeds: ATC brings 1, 2, 3 points without OPR and 2, 4, 6 with it."""
    ends = {
        tables.BASELINE: (0.30, 0.30, 0.30),
        tables.WITH_OPR: (0.30, 0.31, 0.29),
        tables.WITH_ATC: (0.31, 0.32, 0.33),
        tables.FTC: (0.32, 0.35, 0.35),
    }
    calls = {tables.BASELINE: (50, 150, 100), tables.WITH_OPR: (150, 100, 50)}  # of 200 that are hooks
    for row, scores in ends.items():
        for seed, miou in enumerate(scores):
            kept(folder, row, seed, miou, called=calls.get(row, (200, 200, 200))[seed])


def test_a_part_is_measured_with_and_without_the_other(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "OBJECTS", ("bed", "hook"))
    four_rows(tables, tmp_path / "a")
    opr, atc = tables.effects("a").splitlines()[2:]
    # by seed (1 + 2) / 2, (2 + 4) / 2, (3 + 6) / 2; t = 3 / (1.5 / sqrt 3), p = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(6 / 7)
    assert atc.startswith("| ATC | +3.0 ± 1.5 |")
    assert "| +1.5 ± 0.8 | +1.5, +3.0, +4.5 | 0.074 | +1.00" in atc  # the tail has half of it
    # (0 + 1) / 2, (1 + 3) / 2, (-1 + 2) / 2; ranks 2 3 1 and 1 3 2: 1 - 6 * 2 / (3 * 8)
    assert opr.startswith("| OPR | +1.0 ± 0.9 |")
    assert "| +0.5, +2.0, +0.5 | 0.18 | +0.50" in opr


def test_what_the_classes_that_gain_have_in_common(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "OBJECTS", ("hook",))
    monkeypatch.setattr(tables, "label_shares", lambda record: {"hook": (0.5, 1.0, 4.0)[record["seed"]]})
    four_rows(tables, tmp_path / "a")
    called, share, off, calling, sharing = (line.split(" | ") for line in tables.reasons("a").splitlines()[2:])
    # Gains rise by seed. M3 calls 150, 100, 50 of them: the other way; M2 50, 150, 100: ranks 1 3 2.
    assert [cell.split()[0] for cell in called[1:]] == ["-1.00", "+0.50"]
    assert [cell.split()[0] for cell in share[1:]] == ["+1.00", "+1.00"]
    assert [cell.split()[0] for cell in off[1:]] == ["+0.50", "+0.50"]  # log 2, 0, log 4: ranks 2 1 3
    # With OPR gains and shares have one order, and 0.5 with what is called: nothing is left of that, all of the share.
    assert [cell.strip(" |") for cell in calling[1:]] == ["–", "–"]
    assert [cell.strip(" |") for cell in sharing[1:]] == ["–", "+1.00"]  # (1 - 0.5 * 0.5) / sqrt(0.75 * 0.75)


def test_what_a_run_sees_of_the_classes_that_gain(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "OBJECTS", ("hook",))
    four_rows(tables, tmp_path / "a")
    sure = {tables.WITH_OPR: (0.9, 0.8, 0.7), tables.BASELINE: (0.5, 0.9, 0.6)}
    known = {tables.FTC: (0.5, 0.6, 0.7), tables.WITH_ATC: (0.7, 0.6, 0.5)}
    for file in (tmp_path / "a").iterdir():
        told = json.loads(file.read_text(encoding="utf-8"))
        row, seed = told["row"], told["seed"]
        conf, accuracy = (side.get(row, (0.0, 0.0, 0.0))[seed] for side in (sure, known))
        late = {"accuracy": [1, accuracy], "prior": [0.9, 0.1], "predicted": [0.9, (0.1, 0.2, 0.3)[seed]]}
        moments = [{"conf": [0.9, conf + far], "seen": [10, 10], "kept": [9, int(10 * conf)]} for far in (-0.1, 0.1)]
        # A first half without pseudo-labels says nothing, nor does a stretch in which a class was never called.
        unseen = {"conf": [0.9, None], "seen": [10, 0], "kept": [9, 0]}
        told["over_time"] = [{"accuracy": [1, 0]}, *(moment | late for moment in (*moments, unseen))]
        file.write_text(json.dumps(told), encoding="utf-8")
    found = [[cell.split()[0] for cell in line.split(" | ")[1:]] for line in tables.signals("a").splitlines()[2:]]
    # Called by seed 150, 100, 50 in M3 and 50, 150, 100 in M2; gains rise. Ranks 1 2 3 and 1 3 2 have 0.5.
    accuracy, bias, confidence, above = found
    assert accuracy == ["-1.00", "+1.00", "-0.50", "-1.00"]
    assert bias == ["-1.00", "+1.00", "+0.50", "+1.00"]
    assert confidence == above == ["+1.00", "-1.00", "+1.00", "+0.50"]


def test_shares_of_the_labels_over_true_ones(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "OBJECTS", ("hook",))
    monkeypatch.setattr(tables, "TRAIN_PIXELS", {"bed": 90, "hook": 10})
    run = tmp_path / "run"
    run.mkdir()
    classes = [{"name": "bed", "pixels": 8}, {"name": "hook", "pixels": 2}]
    (run / "split.json").write_text(json.dumps({"classes": classes}), encoding="utf-8")
    (run / "run.json").write_text('{"status": "done", "steps": 1, "seconds": 1.0}', encoding="utf-8")
    script("flsmd_records").pack(run, tmp_path / "finished" / "ftc-7.tar.xz")
    shares = tables.label_shares({"packed": "finished", "method": "ftc", "key": "7"})
    assert shares == pytest.approx({"hook": 2.0})  # a fifth of the labels, a tenth of all


def test_m2_is_the_baseline_where_no_other_row_is(tables: ModuleType, tmp_path: Path) -> None:
    kept(tmp_path / "a", tables.BASELINE, 0, 0.30)
    kept(tmp_path / "a", tables.FTC, 0, 0.34)
    assert "| `ftc` (M5) | 1 | 34.0 | 34.0 |  |  |  | 17.0 | – | +4.0 |" in tables.scores("a", tables.FTC)
    assert tables.said(tables.BASELINE, "a") == "`unimatch-v2` (M2)"
    assert tables.said(tables.BASELINE, "balanced-a") == "M2: `ftc` without both"


def test_differences_had_other_scenes_been_judged(tables: ModuleType, tmp_path: Path) -> None:
    # IoU of a and b: ours 2/6 and 1, theirs 1/7 and 1, of both 6/10 and 5/11; the second seed of theirs is as ours.
    for seed, theirs in enumerate(((1, 4), (2, 4))):
        kept(tmp_path / "a", "ftc", seed, 0.5)
        kept(tmp_path / "b", "supervised", seed, 0.5)
        judged(tmp_path, f"ftc-{seed}", (2, 4))
        judged(tmp_path, f"supervised-{seed}", theirs)
    line = tables.drawn("a/ftc > b@10steps/supervised").splitlines()[2]
    # 8/55 / 2 in all, 4/21 / 2 of a alone, 0 of b alone
    assert line == "| `ftc` over `supervised` | 2% | 10 / 10 | 2 | 2 | +7.3 | +0.0 to +9.5 |"


def test_figures_read_the_records(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flsmd_tables", tables)
    figures = script("flsmd_figures")
    monkeypatch.setattr(figures, "STUDY", "matched-methods@10steps")
    monkeypatch.setattr(figures, "LENGTHS", ("methods@10steps",))
    monkeypatch.setattr(figures, "SHARES", ("methods@2%@10steps",))
    monkeypatch.setattr(figures, "PARTS", "ablation@10steps")
    monkeypatch.setattr(figures, "NOISY", "gain@10steps")
    monkeypatch.setattr(figures, "OBJECTS", ("hook",))
    monkeypatch.setattr(figures, "GROUPS", {"head": ("bed",)})
    monkeypatch.setattr(figures, "ENDS", ("head",))
    monkeypatch.setattr(figures, "FOLLOWED", ("hook",))
    for seed, miou in enumerate((0.3, 0.5)):
        for row in figures.NAMES:
            kept(tmp_path / "methods", row, seed, miou)
            kept(tmp_path / "gain", f"{row}, added noise", seed, miou - 0.1)
        for row in figures.PART_NAMES:
            kept(tmp_path / "ablation", row, seed, miou)
    (_, (iou,)), *_ = figures.iou_by_class().series
    assert (iou.mean, iou.spread) == (pytest.approx(40), pytest.approx(200**0.5))  # 30 and 50
    ends = {name: points for name, points in figures.by_length().series}
    assert list(ends)[:4] == ["all, labels alone", "all, unimatch-v2", "all, ftc", "tail, labels alone"]
    assert [(step, at.mean) for step, at in ends["tail, ftc"]] == [(10.0, pytest.approx(20))]  # 15 and 25
    more = {name: points for name, points in figures.by_labels().series}
    assert [(labels, at.mean) for labels, at in more["all, ftc"]] == [(30.0, pytest.approx(40))]
    *_, (ours, heights) = figures.by_noise().series
    assert ours == "ftc"
    noisy = dict(zip(figures.by_noise().groups, (at.mean for at in heights), strict=True))
    assert noisy == pytest.approx(
        {"all, as it is": 40, "tail, as it is": 20, "all, speckle": 30, "tail, speckle": 15}  # 20 and 40, half of it
    )
    assert figures.by_part().groups == ("all", "head", "middle", "tail")
    (_, (all_classes, *_, tail)), *_ = figures.by_part().series
    assert (all_classes.mean, tail.mean) == (pytest.approx(40), pytest.approx(20))
    assert figures.kept_right().series[0] == ("unimatch-v2", (figures.Height(15.0, 0.0),))  # 30 of 200, both seeds
    assert figures.kept_over_time().series[1] == ("head, ftc", ((10.0, figures.Height(40.0, 0.0)),))  # 4 of 10
    assert figures.thresholds().series == (("hook", ((10.0, figures.Height(0.8)),)),)


def test_every_figure_of_the_page_is_drawn_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setitem(sys.modules, "flsmd_tables", script("flsmd_tables"))  # one that reads the true records
    figures = script("flsmd_figures")
    shown = set(re.findall(r"]\(flsmd/([a-z-]+)\.png\)", figures.FOLDER.with_suffix(".md").read_text(encoding="utf-8")))
    assert {figure().name for figure in figures.DRAWN} == shown


def test_numbers_are_shortened_however_deep() -> None:
    assert script("flsmd_records").rounded({"a": [0.1234567, {"b": 1.0000001}], "c": "word"}) == {
        "a": [0.12346, {"b": 1.0}],
        "c": "word",
    }


def test_packed_runs_are_laid_back_for_a_study_to_go_on(tmp_path: Path) -> None:
    records, run = script("flsmd_records"), tmp_path / "here" / "runs" / "ftc-0123abcd"
    run.mkdir(parents=True)
    noted = {"status": "done", "steps": 9, "seconds": 1.5, "root": "somewhere of mine"}
    files = {"run.json": json.dumps(noted), "scores.json": "{}", "labeled.txt": "a.png\n", "log.txt": "long\n"}
    for name, text in files.items():
        (run / name).write_text(text, encoding="utf-8")
    packed, again = tmp_path / "kept" / f"{run.name}.tar.xz", tmp_path / "again.tar.xz"
    records.pack(run, packed)
    records.pack(run, again)
    assert packed.read_bytes() == again.read_bytes()

    records.lay_back(packed.parent, tmp_path / "there")
    laid = tmp_path / "there" / "runs" / run.name
    assert sorted(file.name for file in laid.iterdir()) == ["labeled.txt", "run.json", "scores.json"]
    assert json.loads((laid / "run.json").read_text(encoding="utf-8")) == {"status": "done", "steps": 9, "seconds": 1.5}
    cell = Cell(row="ftc", method="ftc", dataset="d", labels="2%", seed=0, steps=9)
    assert PlannedRun(cell, "0123abcd", laid).done

    (laid / "labeled.txt").write_text("mine\n", encoding="utf-8")
    records.lay_back(packed.parent, tmp_path / "there")
    assert (laid / "labeled.txt").read_text(encoding="utf-8") == "mine\n"


def test_a_run_that_was_laid_back_is_recorded_under_the_name_of_a_further_study(tmp_path: Path) -> None:
    records, out, studies = script("flsmd_records"), tmp_path / "kept", tmp_path / "studies"
    out.mkdir()
    kept(out / "methods", "ftc", 0, 0.34)
    (out / "methods" / "ftc-0.json").rename(out / "methods" / "ftc-2--seed0-0123ab.json")
    for other in ("again-a", "again-methods", "again-z"):  # as another machine trained it: not this study's
        kept(out / other, "ftc", 0, 0.31)
        (out / other / "ftc-0.json").rename(out / other / "ftc-2--seed0-0123ab.json")
    (studies / "runs" / "ftc-0123abcd").mkdir(parents=True)
    (studies / "ablation").mkdir()
    told = {"results": [{"row": "M5 FTC-Seg", "method": "ftc", "key": "0123abcd"}]}
    (studies / "ablation" / "study.json").write_text(json.dumps(told), encoding="utf-8")
    records.keep(studies, out, None)
    (made,) = (out / "ablation").iterdir()
    found = json.loads(made.read_text(encoding="utf-8"))
    assert (found["study"], found["row"], found["scores"]["last"]["teacher"]["miou"]) == (
        "ablation",
        "M5 FTC-Seg",
        0.34,
    )
    told["results"][0]["key"] = "ffffffff"
    (studies / "ablation" / "study.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(SystemExit, match="no record of ftc-ffffffff"):
        records.keep(studies, out, None)
