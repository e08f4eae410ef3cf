"""What prototypes answer to, from a run that kept its model on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_sets import shrink

from ftcseg.files import read_json
from ftcseg.studies import STUDIES, prototypes
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.painting import ABOVE, BELOW, signed_map
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence
from ftcseg.studies.running import planned, run_study
from ftcseg.studies.sets import Place
from ftcseg.types import Sample

SMALL = Ask(
    labels=("50%",),
    steps=3,
    settings=(
        "model.encoder=tiny",
        "model.weights=null",
        "model.features=8",
        "data.short_side=32",
        "data.labeled_batch=2",
        "data.unlabeled_batch=2",
        "evaluation.audit=false",
        "opr.count=3",
        "threads=1",
    ),
)


def test_the_moments_are_shares_of_the_run() -> None:
    assert prototypes.checkpoints(200) == {"early": "step-20", "middle": "step-100", "final": "last"}
    assert prototypes.checkpoints(3) == {"early": "step-1", "middle": "step-2", "final": "last"}
    assert prototypes.plan(Ask())[0].settings == ("keep_at=[0.1, 0.5]",)


def test_the_paper_in_its_own_words() -> None:
    """Its text: purity 12.7 to 18.0, entropy 99.2 to 99.9, selectivity 29.7 to 79.2."""
    assert len(prototypes.PAPER) == 16
    _, purity, selectivity, entropy = zip(*prototypes.PAPER, strict=True)
    assert (min(purity), max(purity)) == (12.7, 18.0)
    assert (min(selectivity), max(selectivity)) == (29.7, 79.2)
    assert (min(entropy), max(entropy)) == (99.2, 99.9)
    assert "14 end with another class" in prototypes._papers()  # all but 4 and 9, which return to CC


class Images(list):  # type: ignore[type-arg]
    @property
    def records(self) -> list[Any]:
        return [type("Record", (), {"image": sample.id}) for sample in self]


def test_the_image_with_most_foreground_classes_is_shown() -> None:
    def sample(name: str, *held: int) -> Sample:
        return Sample(name, np.zeros((1, len(held), 1), np.uint8), np.array([held], dtype=np.int16))

    images = Images([sample("d", 0, 1, 1), sample("c", 0, 1, 2), sample("b", 1, 2, -1), sample("a", 0, 0, 0)])
    assert images[prototypes.telling(images, [1, 2])].id == "b"  # two classes as c has, and first by name
    assert images[prototypes.telling(images, [2])].id == "b"
    assert images[prototypes.telling(images, [3])].id == "a"


def moment(dominant: list[str | None], gates: list[float]) -> dict[str, Any]:
    stats = [
        {"mass": 1.0, "dominant": name, "purity": 0.5 + k / 10, "selectivity": 0.2 + k / 10, "entropy": 0.9}
        for k, name in enumerate(dominant)
    ]
    chance = {"cells": 10, "foreground": 3, "purity": 0.4, "selectivity": 0.25}
    return {"prototypes": stats, "chance": chance, "gates": gates, "corrections": [0.01] * len(gates), "change": 0.02}


def test_the_answer_by_hand(tmp_path: Path) -> None:
    ask = Ask()
    (cell,) = prototypes.plan(ask)
    name = prototypes.measure_name(cell)
    told = {
        "images": 4,
        "moments": {
            "early": moment(["wall", "tire"], [0.0, 1.0]),
            "middle": moment(["wall", None], [0.0, 1.0]),
            "final": moment(["wall", "hook"], [0.0, 1.0]),
        },
        "shown": "a.png",
        "pictures": {"truth": "truth.png", "scale": 0.5, **{m: ["x.png", "y.png"] for m in prototypes.MOMENTS}},
    }
    answer = prototypes.read(ask, Evidence([], {name: told}, {name: tmp_path}))
    assert "1 of 2 prototypes end with another dominant class" in answer.finding[0]
    assert "P 50.0 to 60.0 (chance 40.0), F 20.0 to 30.0 (chance 25.0, above it 1), H 90.0 to 90.0" in answer.finding[0]
    assert "1 gates are open and the correction is 2.0 %" in answer.finding[0]
    assert "Seed 0: 4 images of 10 cells in all, 3 of them foreground" in answer.remarks[-1]
    (table,) = answer.tables
    assert table.rows[0] == (
        "μ1", "wall→wall→wall", "50.0", "20.0", "90.0", "shut", "1.00", "SP→SP→TI", "14.8", "63.6", "99.9",
    )  # fmt: skip
    assert table.rows[1][1] == "tire→none→hook"
    assert table.rows[2][:5] == ("chance", "n/a", "40.0", "25.0", "100.0")
    assert table.paper == {7, 8, 9, 10}
    (grid,) = answer.figures
    assert grid.rows[1] == (  # type: ignore[union-attr]
        "μ2 tire→none→hook, open",
        (tmp_path / "truth.png", *[tmp_path / "y.png"] * 3),
    )


def test_without_a_run_it_says_so() -> None:
    assert prototypes.read(Ask(), Evidence([])).finding == ("No run is measured yet.",)


def test_a_signed_map_is_white_at_zero_and_keeps_its_cells() -> None:
    picture = signed_map(np.array([[-1.0, 0.0], [0.5, 2.0]], dtype=np.float32), 1.0, (4, 4))
    assert picture.shape == (4, 4, 3)
    assert picture[0, 0].tolist() == list(BELOW)
    assert picture[1, 2].tolist() == [255, 255, 255]
    assert picture[3, 3].tolist() == list(ABOVE)  # beyond the scale is its end
    assert picture[2, 1].tolist() == [234, 174, 128]  # half way: 255 + (213 - 255) / 2, and so on, to even
    assert signed_map(np.zeros((2, 2), dtype=np.float32), 0.0, (2, 2)).min() == 255


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study on twenty frames, one run of three steps."""
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, 20)
        patch.setenv("FTCSEG_CACHE", str(folder / "cache"))
        run_study(Inquiry("prototypes", STUDIES["prototypes"], SMALL, Place(folder)))
    return folder


def test_a_trained_run_is_measured_at_three_moments(studied: Path) -> None:
    (run,) = (studied / "runs").iterdir()
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["best", "last", "last_good", "step-1", "step-2"]
    (folder,) = (studied / "measures").iterdir()
    told = read_json(folder / "numbers.json")
    assert [told["moments"][m]["checkpoint"] for m in prototypes.MOMENTS] == ["step-1", "step-2", "last"]
    for moment_told in told["moments"].values():
        assert len(moment_told["prototypes"]) == 3
        for one in moment_told["prototypes"]:
            shares = [one[key] for key in ("purity", "selectivity", "entropy") if one[key] is not None]
            assert all(0 <= value <= 1 + 1e-9 for value in shares)
    early, final = (told["moments"][m]["prototypes"][0]["mass"] for m in ("early", "final"))
    assert early != final  # the run moved
    files = [told["pictures"]["truth"], *(file for m in prototypes.MOMENTS for file in told["pictures"][m])]
    assert len(files) == 10
    for file in files:
        with Image.open(folder / file) as picture:
            assert min(picture.size) >= 32


def test_taken_again_the_numbers_and_pictures_are_the_same(studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, 20)
    inquiry = Inquiry("prototypes", STUDIES["prototypes"], SMALL, Place(studied))
    (one,) = planned(inquiry).measures
    before = {path.name: path.read_bytes() for path in one.folder.iterdir()}
    (one.folder / "numbers.json").unlink()
    run_study(inquiry)
    assert {path.name: path.read_bytes() for path in one.folder.iterdir()} == before
