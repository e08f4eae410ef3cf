"""The masks of unlabelled images never reach a loss, whatever they say and whether they are there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ftcseg import api
from ftcseg.config.build import build_network, view_params
from ftcseg.config.load import draft_for
from ftcseg.config.resolve import Facts, resolve
from ftcseg.data.doctor import examine_set
from ftcseg.data.split_files import read_split
from ftcseg.files import read_json
from ftcseg.training import gather
from ftcseg.types import ViewPlan
from ftcseg.views.loader import BatchMaker

SETTINGS = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "teaching.burn_in=1",
    "teaching.ramp=0",
    "atc.clip=[0.1, 0.2]",
    "evaluation.every=2",
    "threads=1",
)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("oracle-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("oracle") / "sonar", 15, size=(96, 96), classes=4, workers=1)


@pytest.fixture(scope="module")
def split(frames: Path) -> Path:
    api.split(frames, 4, out=frames.parent / "split")
    return frames.parent / "split"


def run_on(frames: Path, split: Path, out: Path) -> Path:
    found = api.train(frames, method="ftc", split=split, steps=4, out=out, settings=SETTINGS)
    assert found.finished
    return out


@pytest.fixture(scope="module")
def honest(frames: Path, split: Path) -> Path:
    """A run on the set as it is."""
    return run_on(frames, split, frames.parent / "honest")


def scramble(mask: Path) -> None:
    labels = np.asarray(Image.open(mask))
    Image.fromarray((3 - np.rot90(labels)).astype(labels.dtype)).save(mask)


@pytest.mark.parametrize("spoil", [scramble, Path.unlink], ids=["scrambled", "absent"])
def test_other_masks_of_unlabeled_images_give_the_same_weights(
    spoil: Callable[[Path], None], frames: Path, split: Path, honest: Path, tmp_path: Path
) -> None:
    shutil.copytree(frames, tmp_path / "spoilt")
    unlabeled = read_json(split / "split.json")["unlabeled"]
    assert len(unlabeled) == 8
    for image in unlabeled:
        spoil(tmp_path / "spoilt" / image.replace("images/", "masks/"))
    other = run_on(tmp_path / "spoilt", split, tmp_path / "run")
    for name in ("last", "best", "last_good"):
        file = Path("checkpoints") / name / "model.safetensors"
        assert (other / file).read_bytes() == (honest / file).read_bytes()
    audits = [(run / "audit.json") for run in (honest, other)]
    if audits[1].exists():  # the test would see nothing if the masks were not read at all
        assert audits[0].read_text() != audits[1].read_text()


def test_pseudo_labels_were_kept_so_that_there_was_something_to_leak_into(honest: Path) -> None:
    lines = [json.loads(line) for line in (honest / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["kept"] is not None and line["kept"] > 0 for line in trained] == [False, True, True, True]
    assert all(line["losses"]["unsup"] > 0 for line in trained[1:])


def test_unlabeled_records_have_lost_their_masks(frames: Path, split: Path) -> None:
    examination, parts = examine_set(frames), read_split(split)
    config = resolve(draft_for("ftc", "cpu", SETTINGS), Facts((96, 96), "test", (1, 2, 3)))
    data = gather(config, examination, parts)
    views = view_params(config, build_network(config, examination.description.classes, data.in_channels).spec)
    maker = BatchMaker(data.labeled, data.unlabeled, ViewPlan(strong=2), views, 0)
    assert maker.unlabeled is not None
    assert [record.mask for record in maker.unlabeled.dataset.records] == [None] * 8
    assert all(record.mask is not None for record in data.oracle.records)  # they were there to be lost
    assert all(record.mask is not None for record in maker.labeled.dataset.records)
    assert not {r.image for r in data.labeled.records} & {r.image for r in data.unlabeled.records}
