"""Noise and long tail apart and together: the 2x2 by hand, and from a run of three steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_conditions import CORRUPTED, ORIGINAL, evidence
from small_sets import shrink

from ftcseg.data.doctor import examine_set
from ftcseg.data.split import Candidate, balance
from ftcseg.data.split_files import read_split
from ftcseg.errors import UsageError
from ftcseg.evaluate.filtering import CELLS
from ftcseg.files import read_json
from ftcseg.studies import STUDIES, decouple, severity
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.conditions import Choices, condition_measure, plan, square
from ftcseg.studies.plan import Ask, Bench
from ftcseg.studies.results import Evidence
from ftcseg.studies.running import planned, run_study
from ftcseg.studies.sets import Place

TINY = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "evaluation.audit=false",
    "threads=1",
)
FRAMES = 24
ASK = Ask(labels=("50%",), options={"severity": "5", "kind": "speckle"})
SMALL = Ask(
    labels=("30%",),
    steps=2,
    settings=TINY,
    options={"kind": "scattering", "kinds": "scattering", "tau": "0.3"},
)


def test_the_square_by_hand() -> None:
    found = square(ORIGINAL, CORRUPTED)
    rates = found.rates("tail")
    assert [rates[cell] for cell in CELLS] == pytest.approx([0.1, 0.2, 0.3, 0.45])
    assert found.together() == pytest.approx(0.05)  # 45 - 20 - 30 + 10 points
    assert found.class_together(1) == pytest.approx(0.05)
    assert found.class_together(0) is None
    assert found.rates("head") == dict.fromkeys(CELLS)


def test_the_interval_is_over_images_drawn_again() -> None:
    found = square(ORIGINAL, CORRUPTED).interval()
    assert found is not None
    assert found.value == pytest.approx(0.05)
    # A draw of two is image 1 twice (both lists alike: I = 0), both (0.05), or image 2 twice (no balanced pixel: none).
    assert (found.low, found.high) == pytest.approx((0.0, 0.05))
    assert 1300 < found.draws < 1700  # three quarters of 2000


def test_the_answer_says_the_four_rates_and_their_interaction() -> None:
    answer = decouple.read(ASK, evidence(ASK, ("speckle", 5)))
    assert "OB 10.00, OL 20.00, CB 30.00, CL 45.00: I = +5.00 points" in answer.finding[0]
    assert "+1.2 to +2.9" in answer.finding[0]
    assert "+0.00 to +5.00 over 2 images" in answer.finding[1]
    assert len(answer.finding) <= 3
    assert answer.tables[0].rows[0] == (
        "tail, by truth", "10.00", "20.00", "30.00", "45.00", "5.00", "+1.2 to +2.9 (its sets)",
    )  # fmt: skip
    assert answer.tables[0].paper == {6}
    assert any("1 of 2 images with tail pixels" in remark for remark in answer.remarks)


def test_the_papers_number_stands_beside_its_own_set() -> None:
    ask = Ask(datasets=("flsmd",), options=ASK.options)
    answer = decouple.read(ask, evidence(ask, ("speckle", 5)))
    assert "the paper prints +2.92" in answer.finding[0]


def test_without_measurements_it_says_so() -> None:
    assert decouple.read(ASK, Evidence([])).finding == ("With 50% of the labels nothing is measured yet.",)


def test_both_studies_share_their_measurements() -> None:
    ours = {m.name: dict(m.told) for m in decouple.measures(ASK)}
    theirs = {m.name: dict(m.told) for m in severity.measures(ASK)}
    assert len(ours) == 2
    assert len(theirs) == 10  # the images as they are once, three kinds at three severities
    assert ours.items() <= theirs.items()


@pytest.mark.parametrize(
    ("key", "value"),
    [("tau", "high"), ("tau", "1.5"), ("tau", "nan"), ("balance", "row"), ("severity", "6"), ("kind", "rain")],
)
def test_a_choice_without_meaning_is_refused_before_anything_runs(key: str, value: str) -> None:
    with pytest.raises(UsageError):
        decouple.measures(Ask(options={**ASK.options, key: value}))


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError):
        decouple.plan(Ask(options={"method": "unimatch-v3"}))
    assert [c.method for c in decouple.plan(Ask(options={"method": "unimatch-v2"}))] == ["unimatch-v2"]


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both studies on 24 frames, one network of two steps; of the unlabelled images one shows a tail class."""
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, FRAMES)
        patch.setenv("FTCSEG_CACHE", str(folder / "cache"))
        for name in ("decouple", "severity"):
            run_study(Inquiry(name, STUDIES[name], SMALL, Place(folder)))
    return folder


def test_one_network_and_four_measurements_serve_both_studies(studied: Path) -> None:
    assert len(list((studied / "runs").iterdir())) == 1
    assert len(list((studied / "measures").iterdir())) == 4  # as they are, and scattering at 1, 3 and 5
    told = json.loads((studied / "decouple" / "study.json").read_text())
    assert "I = " in told["finding"][0]


def test_the_counts_are_those_of_the_masks(studied: Path) -> None:
    """Every known pixel of the unlabelled images is counted once by truth, whatever the condition."""
    (run,) = (studied / "runs").iterdir()
    (source,) = (studied / "data").iterdir()
    found = examine_set(source)
    split, _ = read_split(run)
    rows = [(r.image, p or {}, s) for r, p, s in zip(found.records, found.pixels, found.sequences.of, strict=True)]
    listed = [Candidate(name, pixels, seq) for name, pixels, seq in rows if name in split.unlabeled]
    groups = {row.id: row.group for row in found.classes}
    kept = balance(listed, groups, 0).kept
    for folder in (studied / "measures").iterdir():
        numbers = read_json(folder / "numbers.json")
        for name, members in (("long", listed), ("balanced", kept)):
            pixels = [row[0] for row in numbers["totals"]["truth"][name]]
            assert pixels == [sum(c.pixels.get(i, 0) for c in members) for i in range(len(groups))]
            assert sum(row[0] for row in numbers["totals"]["prediction"][name]) == sum(pixels)
        tail = [c for c, group in groups.items() if group == "tail"]
        each = [image[0] for image in numbers["tail"]["truth"]["long"]]
        assert each == [sum(c.pixels.get(i, 0) for i in tail) for c in sorted(listed, key=lambda c: c.id)]


def test_taken_again_the_numbers_are_the_same(studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, FRAMES)
    inquiry = Inquiry("decouple", STUDIES["decouple"], SMALL, Place(studied))
    (one,) = [m for m in planned(inquiry).measures if "scattering" in m.measure.name]
    before = (one.folder / "numbers.json").read_bytes()
    (one.folder / "numbers.json").unlink()
    run_study(inquiry)
    assert (one.folder / "numbers.json").read_bytes() == before


def test_at_the_pixel_level_the_tail_is_the_same_in_both_lists(studied: Path) -> None:
    (run,) = (studied / "runs").iterdir()
    (source,) = (studied / "data").iterdir()
    cell = plan(SMALL)[0]
    told = Choices(balance="pixel", tau=0.3, images=None)
    bench = Bench((run,), str(source), None, studied / "pixel")
    measures = [condition_measure(cell, told, *of).take(bench) for of in (("", 0), ("scattering", 5))]
    found = square(measures[0], measures[1])
    assert found.together("tail", "truth") == 0.0
    assert found.classes["truth"][:, 0, 0].sum() < found.classes["truth"][:, 1, 0].sum()  # the head was thinned
