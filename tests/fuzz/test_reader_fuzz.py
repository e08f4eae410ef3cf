"""Whatever the bytes, every reader gives back or raises an FtcsegError: the seeds that once did not, and new damage."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fuzz_mutations import mutated
from fuzz_targets import TARGETS, judge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftcseg.data import scan
from ftcseg.errors import FtcsegError
from ftcseg.types import MaskFile, Record
from picture_sets import picture, save

SEEDS = Path(__file__).parent / "seeds"
"""TARGET/WHAT-IT-WAS/FILE...: files that are laid over those of a target."""
CASES = sorted(path.relative_to(SEEDS).as_posix() for path in SEEDS.glob("*/*"))
SLOW = ("run", "film", "model", "doctor")
"""Targets of which one input takes more than a few hundredths of a second."""
QUICK = [name for name in TARGETS if name not in SLOW]

few = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Places:
    """A folder of each target, made when it is first asked for; whoever damages a file puts it back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, dict[str, bytes]] = {}

    def root(self, name: str) -> Path:
        return self._folder / name

    def files(self, name: str) -> dict[str, bytes]:
        if name not in self._made:
            self.root(name).mkdir()
            made = list(TARGETS[name].make(self.root(name)))
            self._made[name] = {file: (self.root(name) / file).read_bytes() for file in made}
        return self._made[name]

    def outcome(self, name: str, changed: dict[str, bytes]) -> str:
        """What reading comes to when these files hold something else."""
        whole = self.files(name)
        for file, data in changed.items():
            (self.root(name) / file).write_bytes(data)
        try:
            return judge(TARGETS[name], self.root(name), next(iter(changed)))
        finally:
            for file in changed:
                (self.root(name) / file).write_bytes(whole[file])


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("targets"))


@pytest.mark.parametrize("name", QUICK)
def test_what_the_writers_wrote_is_read(name: str, places: Places) -> None:
    read = [places.outcome(name, {file: data}) for file, data in places.files(name).items()]
    assert read.count("read") >= len(read) / 2, read  # an animated picture or colours without a table are refused


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_once_broke_a_reader_is_read_or_refused(case: str, places: Places) -> None:
    name = case.split("/")[0]
    folder = SEEDS / case
    changed = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert places.outcome(name, changed) in ("read", "LayoutError", "MaskError", "ImageError", "ModelError")


@pytest.mark.parametrize("name", QUICK)
@few
@given(seed=st.integers(0, 2**32))
def test_damage_is_read_or_refused(name: str, places: Places, seed: int) -> None:
    rng = random.Random(seed)
    whole = places.files(name)
    file = rng.choice(sorted(whole))
    places.outcome(name, {file: mutated(file, whole[file], rng, list(whole.values()))})  # anything else is raised


@pytest.mark.parametrize("name", [name for name in QUICK if name not in ("mask", "image")])
@settings(few, max_examples=8)
@given(data=st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode(errors="ignore"))))
def test_any_bytes_are_read_or_refused(name: str, places: Places, data: bytes) -> None:
    for file in places.files(name):
        places.outcome(name, {file: data})


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("name", "file", "path"),
    [
        ("coco", "annotations/instances_train.json", ("annotations", 0, "segmentation")),
        ("coco", "annotations/instances_train.json", ("annotations", 2, "segmentation", "counts")),
        ("coco", "annotations/instances_train.json", ("images", 0, "id")),
        ("labelme", "a.json", ("shapes", 0, "points")),
        ("labelme", "a.json", ("shapes", 2)),
        ("label-studio", "export.json", (0, "annotations", 0, "result", 1, "value", "rotation")),
        ("label-studio", "export.json", (0, "annotations", 0, "result", 0, "value")),
        ("nnunet", "dataset.json", ("labels",)),
        ("split", "split/split.json", ("classes", 0, "pixels")),
        ("sheet", "export.json", ("model", "opr")),
    ],
)
@few
@given(value=json_values)
def test_any_value_in_its_place_is_read_or_refused(
    name: str, file: str, path: tuple[Any, ...], places: Places, value: Any
) -> None:
    file = file if file in places.files(name) else next(iter(places.files(name)))
    data = json.loads(places.files(name)[file])
    *above, last = path
    place = data
    for key in above:
        place = place[key]
    place[last] = value
    places.outcome(name, {file: json.dumps(data).encode()})


def test_remembered_facts_that_changed_are_forgotten(tmp_path: Path, cache: Path) -> None:
    """One digit of a pixel count in the database: it would be believed, and change the classes' groups."""
    save(tmp_path / "a.png", picture(1))
    save(tmp_path / "m.png", [[0, 1], [1, 1]])
    record = Record("a.png", MaskFile("m.png"))
    (first,) = scan.scan(tmp_path, [record], workers=1)
    assert first.mask is not None
    assert first.mask.values == {"0": 1, "1": 3}
    (database,) = cache.glob("scan-*.sqlite")
    with sqlite3.connect(database) as db:
        changed = db.execute("UPDATE files SET facts = replace(facts, '\"1\": 3', '\"1\": 4')").rowcount
    db.close()
    assert changed == 1
    assert scan.scan(tmp_path, [record], workers=1) == [first]


def test_a_run_that_says_nonsense_of_itself_is_refused(places: Places, tmp_path: Path) -> None:
    """A run folder whose notes were edited: before anything is built, so that no training is needed here."""
    from ftcseg import training

    run = tmp_path / "run"
    run.mkdir()
    for config, note in (
        ("", "{}"),
        ("[1]", "{}"),
        ("config: 5", "{}"),
        ("config: {steps: 2}", "[]"),
        ("config: {steps: 2}", '{"dataset": 5}'),
        ("config: {steps: 2}", '{"dataset": "x", "root": [1]}'),
        ("config: {steps: .nan}", '{"dataset": "x"}'),
    ):
        (run / "config.yaml").write_text(config)
        (run / "run.json").write_text(note)
        with pytest.raises(FtcsegError):
            training.resume(run)
    shutil.rmtree(run)
