"""Pictures of the same images by every method, chosen by the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_sets import shrink

from ftcseg.errors import UsageError
from ftcseg.files import read_json
from ftcseg.studies import STUDIES, qualitative
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.painting import color_key, painted
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.running import planned, run_study
from ftcseg.studies.sets import Place
from ftcseg.types import ClassInfo, ClassTable

SMALL = Ask(
    labels=("50%",),
    steps=2,
    settings=(
        "model.encoder=tiny",
        "model.weights=null",
        "model.features=8",
        "data.short_side=32",
        "data.labeled_batch=2",
        "data.unlabeled_batch=2",
        "evaluation.audit=false",
        "threads=1",
    ),
    options={"methods": "supervised, fixmatch"},
)


def test_the_rule_by_hand() -> None:
    names = ["f", "e", "d", "c", "b", "a"]
    held = np.array(
        # background, head, hook, can, valve
        [
            [9, 1, 0, 0, 0],
            [9, 0, 3, 5, 0],  # e: most of can, and of hook
            [9, 0, 3, 0, 0],  # d: as much hook
            [9, 2, 0, 0, 0],
            [9, 0, 0, 4, 0],
            [9, 0, 0, 0, 0],
        ]
    )
    scores = [0.1, 0.9, 0.8, 0.4, 0.3, None]
    found = qualitative.choose(names, held, scores, {2: "hook", 3: "can", 4: "valve"})
    assert {names[place]: why for place, why in found.items()} == {
        "d": "most pixels of hook",  # 6 pixels in all, fewer than can's 9; d before e by name
        "e": "most pixels of can",
        "b": "median of the first method",  # left: f 0.1, b 0.3, c 0.4; a has no score; the middle one
        "f": "lower quartile of the first method",  # left: f 0.1, c 0.4; the lower one
    }
    assert list(found) == [2, 1, 4, 0]


def test_a_class_whose_images_are_all_shown_is_passed_over() -> None:
    held = np.array([[5, 1, 2], [9, 0, 0]])
    assert qualitative.choose(["a", "b"], held, [None, None], {1: "hook", 2: "can"}) == {0: "most pixels of hook"}


def test_the_iou_of_one_image() -> None:
    truth = np.array([[0, 0, 1, -1]], dtype=np.int16)
    said = np.array([[0, 1, 1, 2]], dtype=np.int16)
    # background 1 of 2, class 1 1 of 2, class 2 nowhere that is known: (1/2 + 1/2) / 2
    assert qualitative.image_miou(said, truth, 3) == 0.5
    assert qualitative.image_miou(said, np.full((1, 4), -1, dtype=np.int16), 3) is None


def test_what_the_colours_stand_for() -> None:
    classes = ClassTable((ClassInfo(0, "sea", background=True), ClassInfo(1, "tire"), ClassInfo(2, "hook")))
    key = color_key(classes)
    assert key == {1: ("tire", "#e69f00"), 2: ("hook", "#56b4e9")}  # Okabe and Ito's orange and sky blue
    grey, labels = np.full((1, 2, 1), 128, dtype=np.uint8), np.array([[1, 2]], dtype=np.int32)
    told = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for _, color in key.values()])
    shown = painted(grey, labels, classes)[0].astype(int)
    assert (np.sign(shown - 128) == np.sign(told - 128)).all()  # the frame shines through


def test_methods_are_chosen_by_name() -> None:
    assert [c.row for c in qualitative.plan(Ask())] == ["supervised", "unimatch-v2", "ftc"]
    assert [c.row for c in qualitative.plan(Ask(ftc="ftc-paper"))] == ["supervised", "unimatch-v2", "ftc-paper"]
    with pytest.raises(UsageError, match="unimatch-v2"):
        qualitative.plan(Ask(options={"methods": "unimatch-v3"}))
    with pytest.raises(UsageError, match="no method"):
        qualitative.plan(Ask(options={"methods": " ,"}))


def test_runs_of_one_seed_stand_side_by_side() -> None:
    found = qualitative.together(Ask(seeds=(0, 1), options={"methods": "supervised,cps"}))
    assert [[(c.seed, c.row) for c in cells] for cells in found] == [
        [(0, "supervised"), (0, "cps")],
        [(1, "supervised"), (1, "cps")],
    ]
    assert len({m.name for m in qualitative.measures(Ask(seeds=(0, 1)))}) == 2


def shown(name: str, why: str, **miou: float | None) -> dict[str, Any]:
    files = {what: f"{name}-{what}.png" for what in ("input", "truth", *miou)}
    return {"id": name, "why": why, "files": files, "miou": miou}


def test_the_answer_by_hand(tmp_path: Path) -> None:
    ask = Ask(options={"methods": "supervised,cps"})
    (cells,) = qualitative.together(ask)
    name = qualitative.measure_name(cells)
    told = {
        "methods": ["supervised", "cps"],
        "images": 9,
        "shown": [
            shown("a", "most pixels of hook", supervised=0.2, cps=0.6),
            shown("b", "median of supervised", supervised=0.4, cps=0.3),
        ],
        "key": {"hook": "#0072b2"},
    }
    answer = qualitative.read(ask, Evidence([], {name: told}, {name: tmp_path}))
    assert "on the 2 images that the rule chose out of 9" in answer.finding[0]
    assert "supervised 30.0, cps 45.0; cps is highest or level on 1" in answer.finding[0]
    assert answer.tables[0].rows == (
        ("a", "most pixels of hook", "20.0", "60.0"),
        ("b", "median of supervised", "40.0", "30.0"),
    )
    (grid,) = answer.figures
    assert grid.heads == ("input", "truth", "supervised", "cps")  # type: ignore[union-attr]
    assert grid.rows[0][0] == "most pixels of hook: supervised 20.0, cps 60.0"  # type: ignore[union-attr]
    assert grid.rows[0][1][3] == tmp_path / "a-cps.png"  # type: ignore[union-attr]
    assert grid.key == (("hook", "#0072b2"),)  # type: ignore[union-attr]
    assert answer.remarks == (qualitative.RULE,)


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study on twenty frames, two runs of two steps."""
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, 20)
        patch.setenv("FTCSEG_CACHE", str(folder / "cache"))
        run_study(Inquiry("qualitative", STUDIES["qualitative"], SMALL, Place(folder)))
    return folder


def test_trained_runs_are_drawn_side_by_side(studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, 20)
    inquiry = Inquiry("qualitative", STUDIES["qualitative"], SMALL, Place(studied))
    (one,) = planned(inquiry).measures
    told = read_json(one.folder / "numbers.json")
    assert told["methods"] == ["supervised", "fixmatch"]
    assert told["shown"]
    assert told["key"]
    assert "background" not in told["key"]  # it is left as it is
    for image in told["shown"]:
        sizes = set()
        for what in ("input", "truth", "supervised", "fixmatch"):
            with Image.open(one.folder / image["files"][what]) as picture:
                sizes.add(picture.size)
        assert len(sizes) == 1
        assert all(0 <= value <= 1 for value in image["miou"].values())
    before = {path.name: path.read_bytes() for path in one.folder.iterdir()}
    (one.folder / "numbers.json").unlink()
    run_study(inquiry)
    assert {path.name: path.read_bytes() for path in one.folder.iterdir()} == before
