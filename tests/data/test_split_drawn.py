"""Splits drawn from a set in a folder: what may share a scene with what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ftcseg.cli import app
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.drawing import Whole, drawn
from ftcseg.errors import UsageError

SCENES, FRAMES = 6, 5


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six unrelated scenes of five frames each, an object in every mask."""
    folder = tmp_path_factory.mktemp("film")
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    mask = np.zeros((24, 24), dtype=np.uint8)
    mask[8:16, 8:16] = 1
    for scene in range(SCENES):
        chance = np.random.default_rng(scene)
        still = chance.uniform(20, 235, mask.shape)
        for frame in range(FRAMES):
            shown = (still + chance.normal(0, 5, still.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(shown).save(folder / "images" / f"{frame}-{scene}x.png")
            Image.fromarray(mask).save(folder / "masks" / f"{frame}-{scene}x.png")
    return folder


@pytest.fixture(scope="module")
def examined(film: Path) -> Examination:
    return examine_set(film)


def scenes(names: list[str] | tuple[str, ...]) -> set[str]:
    return {name.split("-")[1] for name in names}


@pytest.mark.parametrize("seed", range(5))
def test_whole_scenes_judge_and_labels_are_single_frames(examined: Examination, seed: int) -> None:
    split, held = drawn(examined, 4, seed=seed, by_sequence="val", val=10)
    assert len(held["val"]) == 2 * FRAMES
    assert not scenes(held["val"]) & scenes((*split.labeled, *split.unlabeled))
    assert len(split.labeled) == 4  # whole scenes would have been five
    assert len(split.unlabeled) == 20 - 4
    assert scenes(split.labeled) & scenes(split.unlabeled)
    assert split.options["val_by_sequence"] is True
    assert split.options["by_sequence"] is False


@pytest.mark.parametrize(("whole", "parted"), [(False, True), (True, False)])
def test_in_every_list_or_in_none(examined: Examination, whole: Whole, parted: bool) -> None:
    split, held = drawn(examined, 5, seed=0, by_sequence=whole, val=10)
    assert bool(scenes(held["val"]) & scenes(split.unlabeled)) is parted
    assert bool(scenes(split.labeled) & scenes(split.unlabeled)) is parted


def test_whole_scenes_to_judge_by_need_a_number(examined: Examination) -> None:
    with pytest.raises(UsageError, match="--val or --tune"):
        drawn(examined, 4, seed=0, by_sequence="val")


def test_the_command_knows_both_and_refuses_them_together(film: Path, tmp_path: Path) -> None:
    told = ["split", str(film), "--labels", "4", "--val", "10", "--val-by-sequence", "--out", str(tmp_path / "s")]
    assert "4 labelled, 16 unlabelled, 0 left out, 10 val" in CliRunner().invoke(app, told).output
    both = CliRunner().invoke(app, [*told, "--by-sequence"])
    assert isinstance(both.exception, UsageError)
    assert "choose one" in str(both.exception)
