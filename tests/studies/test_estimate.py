"""What runs will take: computed from what was timed, or from runs like them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ftcseg import api
from ftcseg.config.schema import EvalConfig, RunConfig
from ftcseg.errors import FtcsegError
from ftcseg.studies import estimate
from ftcseg.studies.estimate import Estimates, Look, Timed, bytes_of, looks, measure, outlook, seconds_of
from ftcseg.studies.plan import Cell, Prepared
from ftcseg.studies.running import PlannedRun, run_cell
from ftcseg.studies.sets import Place, Sets
from ftcseg.teaching.params import TeachingParams

TINY = ("model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32")
MB = 1_000_000
TIMED = Timed(start=10.0, early=1.0, late=3.0, image=0.1, final=0.5, method=4 * MB, optimizer=6 * MB, model=2 * MB)


def _look(**changed: object) -> Look:
    config = RunConfig(
        steps=100, teaching=TeachingParams(burn_in=40), evaluation=EvalConfig(every=30, images=20), keep_at=(1.0, 50)
    )
    return Look(replace(config, **changed), frame=(100, 200), judged=50, audited=30)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty simulated frames, 16 for training and 4 for test."""
    return api.simulate(tmp_path_factory.mktemp("set") / "frames", 20, size=(96, 64), workers=1)


@pytest.fixture
def cell(frames: Path) -> Cell:
    return Cell(row="a", method="fixmatch", dataset=str(frames), labels="50%", seed=0, steps=3, settings=TINY)


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """What was timed; nothing is."""
    asked: list[Cell] = []

    def note(cell: Cell, _found: object) -> Timed:
        asked.append(cell)
        return replace(TIMED, late=1.0 + len(asked))

    monkeypatch.setattr(estimate, "measure", note)
    return asked


def test_time_is_start_steps_evaluations_and_the_end() -> None:
    # 10 to start; 40 steps of 1 and 60 of 3; at 30, 60, 90 and 100 twenty images of 0.1; twice 50 of 0.5, 30 of 0.1
    assert seconds_of(TIMED, _look()) == pytest.approx(10 + 220 + 8 + 50 + 3)


def test_a_burn_in_longer_than_the_run_is_all_of_it() -> None:
    assert seconds_of(TIMED, _look(steps=20, keep_at=())) == pytest.approx(10 + 20 + 2 + 50 + 3)


def test_the_end_always_has_an_evaluation() -> None:
    assert looks(RunConfig(steps=100, evaluation=EvalConfig(every=0))) == 1
    assert looks(RunConfig(steps=100, evaluation=EvalConfig(every=50))) == 2
    assert looks(RunConfig(steps=100, evaluation=EvalConfig(every=60))) == 2


def test_disk_is_checkpoints_models_and_pictures() -> None:
    # three checkpoints of 4 + 6, two models kept on the way, the model, 24 pictures of 60 kB and again on the page
    assert bytes_of(TIMED, _look()) == 30 * MB + 8 * MB + 2 * MB + 24 * (60_000 + 60_000)


def test_what_is_timed_once_is_remembered_for_other_seeds_labels_and_lengths(
    cell: Cell, tmp_path: Path, timings: list[Cell]
) -> None:
    sets = Sets(Place(tmp_path))
    first = Estimates(sets).of(cell)
    assert first.basis == "steps timed now"
    again = Estimates(sets)
    for other in (cell, replace(cell, seed=1), replace(cell, labels="25%"), replace(cell, steps=70)):
        assert again.of(other).basis == "steps timed before"
    assert len(timings) == 1
    assert again.of(replace(cell, settings=(*TINY, "data.labeled_batch=2"))).basis == "steps timed now"
    assert again.of(replace(cell, method="cps")).basis == "steps timed now"
    assert len(json.loads((tmp_path / "estimates.json").read_text())) == 3


def test_another_version_or_machine_is_timed_anew(
    cell: Cell, tmp_path: Path, timings: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = Sets(Place(tmp_path))
    Estimates(sets).of(cell)
    monkeypatch.setattr(estimate, "__version__", "99")
    Estimates(sets).of(cell)
    monkeypatch.setattr(estimate.platform, "node", lambda: "elsewhere")
    Estimates(sets).of(cell)
    assert len(timings) == 3


def test_effort_has_an_end(cell: Cell, tmp_path: Path, timings: list[Cell]) -> None:
    hasty = Estimates(Sets(Place(tmp_path)), effort=0.0)
    hasty.of(cell)  # the first is timed in any case
    cost = hasty.of(replace(cell, method="cps"))
    assert len(timings) == 1
    assert "not timed itself" in cost.basis


def test_a_damaged_memory_is_none(cell: Cell, tmp_path: Path, timings: list[Cell]) -> None:
    (tmp_path / "estimates.json").write_text('{"x": 3')
    assert Estimates(Sets(Place(tmp_path))).of(cell).basis == "steps timed now"


def test_a_corrupted_copy_takes_disk_until_it_is_made(cell: Cell, tmp_path: Path, timings: list[Cell]) -> None:
    sets = Sets(Place(tmp_path / "out"))
    noisy = replace(cell, prepared=Prepared(corrupt="speckle", severity=3))
    run = PlannedRun(noisy, "k", tmp_path / "out" / "runs" / "k")
    masks_and_tests = sum(p.stat().st_size for p in Path(cell.dataset).rglob("*.png") if "images/train" not in str(p))
    assert outlook([run], sets).copies == 16 * 96 * 64 + masks_and_tests  # grey pixels of 16 frames
    sets.ground(noisy)
    assert outlook([run], sets).copies == 0


def test_what_cannot_be_built_is_told_and_costs_nothing(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Timed:
        raise FtcsegError("There are no weights.")

    monkeypatch.setattr(estimate, "measure", fails)
    found = outlook([PlannedRun(cell, "k", tmp_path / "runs" / "k")], Sets(Place(tmp_path)))
    assert [(line.cost, line.problem) for line in found.lines] == [(None, "There are no weights.")]
    assert found.seconds == found.bytes == 0


def test_real_steps_are_timed_and_a_real_run_is_as_large_as_was_said(cell: Cell, tmp_path: Path) -> None:
    sets = Sets(Place(tmp_path))
    before = set(tmp_path.rglob("*"))
    estimates = Estimates(sets)
    timed = measure(cell, sets.examined(cell.dataset, cell.seed))
    assert set(tmp_path.rglob("*")) == before
    assert min(timed.start, timed.early, timed.late, timed.image, timed.final) > 0
    run = PlannedRun(cell, "k", tmp_path / "runs" / "k")
    run_cell(run, Place(tmp_path))
    folder = tmp_path / "runs" / "k"
    last = {p.name: p.stat().st_size for p in (folder / "checkpoints" / "last").iterdir()}
    assert timed.method == pytest.approx(last["model.safetensors"], rel=0.1)
    assert timed.optimizer == pytest.approx(last["optim.safetensors"], rel=0.1)
    assert timed.model == pytest.approx((folder / "model" / "model.safetensors").stat().st_size, rel=0.1)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert size < bytes_of(timed, estimates.look(cell)) * 1.1
    # A run like it tells more than any timing: same machine, settings and images, about the same length.
    seconds = json.loads((folder / "run.json").read_text())["seconds"]
    like_it = Estimates(sets).of(replace(cell, seed=1, steps=6))
    assert like_it.basis == "1 finished run like it"
    assert (like_it.seconds, like_it.bytes) == (pytest.approx(2 * seconds), size)
    assert outlook([run], sets).lines[0].state == "done"
    assert not Estimates(sets)._alike(replace(cell, steps=13), Estimates(sets).look(replace(cell, steps=13)))
    other = replace(cell, settings=(*TINY, "data.unlabeled_batch=2"))
    assert not Estimates(sets)._alike(other, Estimates(sets).look(other))
