"""Sets as cells need them: made once, whole, and beside the user's own files."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ftcseg import api
from ftcseg.config.load import shipped
from ftcseg.data.split_files import read_split
from ftcseg.errors import DataError, UsageError
from ftcseg.studies import sets
from ftcseg.studies.plan import Cell, Prepared
from ftcseg.studies.sets import Place, Sets, settled

SPECKLE = Prepared(corrupt="speckle", severity=3, parts=("train",))


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty simulated frames, 16 for training and 4 for test."""
    return api.simulate(tmp_path_factory.mktemp("set") / "frames", 20, seed=0, size=(96, 64), workers=1)


@pytest.fixture
def cell(frames: Path) -> Cell:
    return Cell(row="a", method="supervised", dataset=str(frames), labels="50%", seed=0, steps=3)


def _tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_only_the_named_parts_are_corrupted_and_the_users_files_stay(cell: Cell, frames: Path, tmp_path: Path) -> None:
    before = _tree(frames)
    ground = Sets(Place(tmp_path)).ground(replace(cell, prepared=SPECKLE))
    assert _tree(frames) == before
    made = _tree(Path(ground.source))
    images = [name for name in before if name.startswith("images/")]
    assert {made[name] != before[name] for name in images if "/train/" in name} == {True}
    assert {made[name] == before[name] for name in images if "/test/" in name} == {True}
    assert {made[name] == before[name] for name in before if name.startswith("masks/")} == {True}
    told = json.loads(made["prepared.json"])
    assert (told["corrupt"], told["severity"], told["parts"]) == ("speckle", 3, ["train"])
    assert "corrupt.json" not in made


def test_all_parts_may_be_named(cell: Cell, frames: Path, tmp_path: Path) -> None:
    everywhere = Prepared(corrupt="fog", severity=1, parts=("test", "train", "val"))
    made = _tree(Path(Sets(Place(tmp_path)).ground(replace(cell, prepared=everywhere)).source))
    before = _tree(frames)
    assert {made[name] != before[name] for name in before if name.startswith("images/")} == {True}


@pytest.mark.parametrize("by_sequence", [False, True])
def test_the_lists_do_not_depend_on_what_the_images_look_like(cell: Cell, tmp_path: Path, by_sequence: bool) -> None:
    maker = Sets(Place(tmp_path))
    clean = maker.ground(replace(cell, prepared=Prepared(long_tail=3.0, by_sequence=by_sequence)))
    noisy = maker.ground(replace(cell, prepared=replace(SPECKLE, long_tail=3.0, by_sequence=by_sequence)))
    assert clean.source == cell.dataset
    assert noisy.source != clean.source
    assert clean.split is not None
    assert noisy.split is not None
    assert read_split(clean.split)[0].digest() == read_split(noisy.split)[0].digest()
    assert read_split(clean.split)[1] == read_split(noisy.split)[1]


def test_a_long_tail_leaves_images_out(cell: Cell, tmp_path: Path) -> None:
    maker = Sets(Place(tmp_path))
    split = maker.ground(replace(cell, prepared=Prepared(long_tail=20.0))).split
    assert split is not None
    cut, held = read_split(split)
    plain = api.split(cell.dataset, "50%", seed=0)
    assert set(cut.labeled) < set(plain.labeled)
    assert cut.options["long_tail"] == 20.0
    assert len(held["test"]) == 4


def test_a_validation_part_may_be_drawn_anew(cell: Cell, tmp_path: Path) -> None:
    ground = Sets(Place(tmp_path)).ground(replace(cell, prepared=Prepared(val="4", by_sequence="val")))
    assert ground.source == cell.dataset
    assert ground.split is not None
    split, held = read_split(ground.split)
    assert len(held["val"]) == 4
    assert not set(held["val"]) & {*split.labeled, *split.unlabeled}
    assert split.options["val_by_sequence"] is True


def test_a_run_on_a_corrupted_set_draws_the_lists_of_the_clean_one(cell: Cell, tmp_path: Path) -> None:
    source = Sets(Place(tmp_path)).ground(replace(cell, prepared=SPECKLE)).source
    assert api.split(source, "50%", seed=0).digest() == api.split(cell.dataset, "50%", seed=0).digest()


def test_a_set_is_made_once(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Sets(Place(tmp_path)).ground(replace(cell, prepared=SPECKLE))
    monkeypatch.setattr(api, "corrupt", lambda *a, **k: pytest.fail("made twice"))
    assert Sets(Place(tmp_path)).ground(replace(cell, seed=1, prepared=SPECKLE)) == first


def test_an_interrupted_set_is_gone_on_with(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _tree(Path(Sets(Place(tmp_path / "a")).ground(replace(cell, prepared=SPECKLE)).source))
    real = sets._check_copy

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sets, "_check_copy", killed)
    with pytest.raises(KeyboardInterrupt):
        Sets(Place(tmp_path / "b")).ground(replace(cell, prepared=SPECKLE))
    visible = [p.name for p in (tmp_path / "b" / "data").iterdir() if not p.name.startswith(".")]
    assert not visible  # half a set has no name
    monkeypatch.setattr(sets, "_check_copy", real)
    assert _tree(Path(Sets(Place(tmp_path / "b")).ground(replace(cell, prepared=SPECKLE)).source)) == whole


def test_who_comes_second_waits_for_the_first(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made, said = api.corrupt, [], []

    def slowly(*args: object, **kwargs: object) -> object:
        made.append(args)
        time.sleep(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "corrupt", slowly)
    with ThreadPoolExecutor(2) as both:  # the kernel's lock tells them apart as it would two processes
        asked = [both.submit(Sets(Place(tmp_path), said.append).ground, replace(cell, prepared=SPECKLE)) for _ in "ab"]
        found = {one.result().source for one in asked}
    assert len(found) == len(made) == len(said) == 1
    assert [p.name for p in (tmp_path / "data").iterdir() if not p.name.startswith(".")] == [Path(found.pop()).name]
    assert not list((tmp_path / "data").glob(".*.part"))


@pytest.fixture
def maker(tmp_path: Path) -> Sets:
    return Sets(Place(tmp_path))


def test_what_is_done_to_a_set_is_part_of_the_key(cell: Cell, maker: Sets) -> None:
    kinds = [
        None,
        SPECKLE,
        replace(SPECKLE, severity=1),
        replace(SPECKLE, corrupt="fog"),
        replace(SPECKLE, parts=("train", "test")),
        Prepared(long_tail=20.0),
        Prepared(by_sequence=True),
        Prepared(by_sequence="val", val="20%"),
        Prepared(val="20%"),
        replace(SPECKLE, long_tail=20.0),
    ]
    assert len({maker.key(replace(cell, prepared=one)) for one in kinds}) == len(kinds)


def test_one_preparation_has_one_key_however_it_is_spelled(cell: Cell, maker: Sets) -> None:
    assert maker.key(replace(cell, prepared=Prepared())) == maker.key(cell)
    assert maker.key(replace(cell, prepared=Prepared(severity=4))) == maker.key(cell)
    spelled = [replace(SPECKLE, parts=parts) for parts in (("train", "test"), ("test", "train"))]
    assert len({maker.key(replace(cell, prepared=one)) for one in spelled}) == 1


def test_impossible_preparations_are_told() -> None:
    with pytest.raises(UsageError, match="speckle"):
        settled(Prepared(corrupt="spekle", severity=3))
    with pytest.raises(UsageError, match="severity 9"):
        settled(Prepared(corrupt="speckle", severity=9))
    with pytest.raises(UsageError, match="train"):
        settled(Prepared(corrupt="speckle", severity=1, parts=("training",)))


def test_a_description_that_leads_back_to_the_original_is_refused(cell: Cell, frames: Path, tmp_path: Path) -> None:
    copied = api.simulate(tmp_path / "own", 20, seed=0, size=(96, 64), workers=1)
    description = copied / "dataset.yaml"
    description.write_text(description.read_text().replace("root: .", f"root: {copied}"))
    with pytest.raises(DataError, match=r"root: \."):
        Sets(Place(tmp_path / "out")).ground(replace(cell, dataset=str(copied), prepared=SPECKLE))


def test_another_preset_is_another_run(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, ours = (Sets(Place(tmp_path)).key(replace(cell, method=name)) for name in ("supervised", "ftc"))
    monkeypatch.setattr(sets, "shipped", lambda method: {"tau": 0.9} if method == "ftc" else shipped(method))
    assert Sets(Place(tmp_path)).key(replace(cell, method="supervised")) == before
    assert Sets(Place(tmp_path)).key(replace(cell, method="ftc")) != ours
