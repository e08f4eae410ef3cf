"""What a finished run keeps of every image it was judged on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ftcseg import api, training
from ftcseg.data.dataset import open_dataset
from ftcseg.evaluate.bootstrap import bootstrap
from ftcseg.evaluate.per_image import COUNTS, HIT, SAID, TRUE, read_counts
from ftcseg.files import read_json
from ftcseg.finish import finish

TINY = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "evaluation.audit=false",
    "evaluation.every=2",
    "threads=1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finish")
    frames = api.simulate(folder / "frames", 20, size=(96, 96), classes=4, workers=1)
    api.train(frames, method="supervised", labels="50%", steps=3, out=folder / "run", settings=TINY)
    return folder / "run"


def test_the_counts_add_up_to_the_scores(run: Path) -> None:
    scores = read_json(run / "scores.json")
    confusion = np.array(scores["confusion"])
    last = read_counts(run / COUNTS)
    total = last.counts.sum(0)
    assert total[:, HIT].tolist() == confusion.diagonal().tolist()
    assert total[:, SAID].tolist() == confusion.sum(0).tolist()
    assert total[:, TRUE].tolist() == confusion.sum(1).tolist()
    assert len(last.names) == scores["images"]
    assert list(last.names) == sorted(last.names)  # the order of the set
    for checkpoint, found in scores["checkpoints"].items():
        values = bootstrap(read_counts(run / COUNTS, checkpoint).counts).classes
        told = [c["iou"] for c in found[scores["predictor"]]["classes"]]
        assert [v and v.value for v in values] == pytest.approx(told)


def test_the_first_predictor_has_intervals(run: Path) -> None:
    scores = read_json(run / "scores.json")
    assert set(scores["checkpoints"]) == {"last", "best"}
    for found in scores["checkpoints"].values():
        score = found[scores["predictor"]]
        over = score["intervals"]["images"]
        assert (over["units"], over["share"]) == (scores["images"], 0.95)
        for one, ends in zip(score["classes"], over["classes"], strict=True):
            assert (one["iou"] is None) == (ends is None)
            assert ends is None or ends[0] <= ends[1]
        low, high = over["miou"]
        assert 0 <= low <= high <= 1
    assert scores["groups"][0] == "background"
    assert len(scores["groups"]) == len(scores["classes"])


def test_what_is_written_again_is_the_same(run: Path) -> None:
    before = {name: (run / name).read_bytes() for name in (COUNTS, "scores.json")}
    for name in before:
        (run / name).unlink()
    api.resume(run)
    assert {name: (run / name).read_bytes() for name in before} == before


def test_neighbours_are_drawn_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = read_counts(run / COUNTS).names
    known = dict.fromkeys(names[:2], "dive")
    before = read_json(run / "scores.json")
    (run / "scores.json").unlink()
    monkeypatch.setattr(training, "finish", lambda *args, **named: finish(*args, **{**named, "sequences": known}))
    api.resume(run)
    assert read_counts(run / COUNTS).sequences == ("dive", "dive", *(f"\0{name}" for name in names[2:]))
    scores = read_json(run / "scores.json")
    teacher = scores["checkpoints"]["last"][scores["predictor"]]["intervals"]
    assert teacher["sequences"]["units"] == len(names) - 1
    assert teacher["images"] == before["checkpoints"]["last"][scores["predictor"]]["intervals"]["images"]


def test_frames_that_look_alike_are_one_sequence(tmp_path: Path) -> None:
    frames = api.simulate(tmp_path / "frames", 20, size=(96, 96), classes=4, workers=1)
    first, second = (record.image for record in open_dataset(frames).part("test").records[:2])
    for folder in ("images", "masks"):  # the same moment twice
        source, copy = (frames / name.replace("images", folder, 1) for name in (first, second))
        copy.write_bytes(source.read_bytes())
    api.train(frames, method="supervised", labels="50%", steps=2, out=tmp_path / "run", settings=TINY)
    kept = read_counts(tmp_path / "run" / COUNTS)
    of = dict(zip(kept.names, kept.sequences, strict=True))
    assert of[first] == of[second]
    assert len(set(kept.sequences)) < len(kept.names)
    found = api.evaluate(tmp_path / "run", frames)
    assert found["intervals"]["sequences"]["units"] == len(set(kept.sequences))
    assert found["intervals"]["images"]["units"] == len(kept.names)
    assert "over whole sequences is the honest one" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
