"""The set a cell runs on: the user's own, or one made from it inside the study's folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ftcseg import __version__, api
from ftcseg.config.load import hardware_here, preset, shipped
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.drawing import drawn
from ftcseg.data.index import DESCRIPTION, open_source
from ftcseg.data.scan import files_of
from ftcseg.data.split_files import SPLIT, write_split
from ftcseg.errors import DataError, unknown_name
from ftcseg.files import atomic, inside, write_json
from ftcseg.studies.plan import EMBEDDED, Cell, Prepared, digest
from ftcseg.train.lock import RunInUse, RunLock
from ftcseg.types import PARTS
from ftcseg.views import corrupt as corruptions

FRAMES = 240  # of the embedded set, as in the demo
CORRUPTION_SEED = 0
"""A corrupted set is one set, as ImageNet-C is: the seeds of a study vary the split and the start, not the weather."""
NOTE = "prepared.json"
_LOOK_AGAIN = 0.5  # seconds between two looks at a set that another process is making


@dataclass(frozen=True, slots=True)
class Place:
    """Where studies keep their things, and where named sets are kept.

    folder/NAME/       the answer of each study
    folder/runs/       runs, shared by all studies: what one has trained the others need not
    folder/measures/   measurements, shared likewise
    folder/data/       sets made for them, and lists of which images are labelled
    """

    folder: Path
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class Ground:
    """What a cell's run is given: a set, and the lists where the run does not draw them itself."""

    source: str
    split: Path | None = None


class Sets:
    """The sets of one study, each made and examined once."""

    def __init__(self, place: Place, say: Callable[[str], None] = lambda _: None) -> None:
        self.place = place
        self._say = say
        self._examined: dict[str, Examination] = {}
        self._facts: dict[str, str] = {}

    def source(self, dataset: str, seed: int) -> str:
        """Where a set is; the embedded one is simulated from the seed when it is first needed."""
        if dataset != EMBEDDED:
            return dataset
        folder = self._data / f"sonar-{FRAMES}-seed{seed}"
        api.simulate(folder, FRAMES, seed=seed)
        return str(folder)

    def examined(self, dataset: str, seed: int) -> Examination:
        """What the set holds, before anything is done to it."""
        source = self.source(dataset, seed)
        if source not in self._examined:
            self._examined[source] = examine_set(source, root=self.place.root)
        return self._examined[source]

    def facts(self, dataset: str, seed: int) -> str:
        """What of a set and of the program determines numbers, in letters."""
        source = self.source(dataset, seed)
        if source not in self._facts:
            self._facts[source] = facts_of(self.examined(dataset, seed))
        return self._facts[source]

    def key(self, cell: Cell) -> str:
        """By which a cell's run is found again: what is done to its set counts as much as the set.

        So do the presets it starts from: where they changed, it is another run.
        """
        presets = digest({"hardware": preset(hardware_here()), "method": shipped(cell.method)})
        facts = f"{self.facts(cell.dataset, cell.seed)} {presets}"
        return replace(cell, prepared=settled(cell.prepared)).key(facts)

    def ground(self, cell: Cell) -> Ground:
        """The cell's set as its run shall see it, made now if need be.

        The lists of a prepared set are drawn from the set as it was, so that cells which differ in the images alone
        have the same lists.
        """
        prepared = settled(cell.prepared)
        if prepared is None:
            return Ground(self.source(cell.dataset, cell.seed))
        source = self._corrupted(cell, prepared) if prepared.corrupt else self.source(cell.dataset, cell.seed)
        drawn_here = prepared.long_tail is not None or bool(prepared.by_sequence) or bool(prepared.val)
        return Ground(source, self._split(cell, prepared) if drawn_here else None)

    def copy_of(self, cell: Cell) -> Path | None:
        """The folder of the corrupted copy a cell needs, made or not; None where it needs none."""
        prepared = settled(cell.prepared)
        if prepared is None or not prepared.corrupt:
            return None
        found = self.examined(cell.dataset, cell.seed)
        told = {"content": content_of(found), "kind": prepared.corrupt, "severity": prepared.severity}
        told |= {"parts": prepared.parts, "seed": CORRUPTION_SEED}
        name = f"{found.description.name}-{prepared.corrupt}{prepared.severity}-{'+'.join(prepared.parts)}"
        return self._data / f"{name}-{digest(told)}"

    @property
    def _data(self) -> Path:
        return self.place.folder / "data"

    def _corrupted(self, cell: Cell, prepared: Prepared) -> str:
        folder = self.copy_of(cell)
        assert folder is not None
        source = self.source(cell.dataset, cell.seed)
        self._make_once(folder, lambda staging: _corrupt(source, self.place.root, staging, prepared))
        (folder / "corrupt.json").unlink(missing_ok=True)  # it speaks of all images; prepared.json knows better
        manifest = folder / Path(source).name  # a set that is read by a file of its own
        is_manifest = Path(source).is_file() and not (folder / DESCRIPTION).is_file() and manifest.is_file()
        return str(manifest if is_manifest else folder)

    def _split(self, cell: Cell, prepared: Prepared) -> Path:
        found = self.examined(cell.dataset, cell.seed)
        told = {"content": content_of(found), "labels": cell.labels, "seed": cell.seed}
        told |= {"long_tail": prepared.long_tail, "by_sequence": prepared.by_sequence, "val": prepared.val}
        folder = self._data / "splits" / digest(told)
        if not (folder / SPLIT).is_file():
            whole, cuts, val = prepared.by_sequence, (prepared.long_tail, None), prepared.val or None
            split, held = drawn(found, cell.labels, seed=cell.seed, by_sequence=whole, cuts=cuts, val=val)
            write_split(folder, split, found, held)
        return folder

    def _make_once(self, folder: Path, make: Callable[[Path], None]) -> None:
        """Have `make` fill a folder that appears under its name when it is whole, whoever else wants it too."""
        staging = folder.with_name(f".{folder.name}.part")  # what a killed process left there is gone on with
        waited = False
        while not folder.is_dir():
            try:
                with RunLock(self._data / ".locks" / folder.name):
                    if not folder.is_dir():
                        make(staging)
                        staging.rename(folder)
            except RunInUse:
                if not waited:
                    self._say(f"waiting for {folder.name}, which another process is making")
                waited = True
                time.sleep(_LOOK_AGAIN)


def settled(prepared: Prepared | None) -> Prepared | None:
    """The same preparation in its only spelling; None where nothing is done. An impossible one is a UsageError."""
    if prepared is None:
        return None
    for part in prepared.parts:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    if prepared.corrupt and prepared.parts:
        corruptions.check(prepared.corrupt, prepared.severity)
        prepared = replace(prepared, parts=tuple(part for part in PARTS if part in prepared.parts))
    else:
        prepared = replace(prepared, corrupt="", severity=0, parts=())
    return None if prepared == Prepared(parts=()) else prepared


def facts_of(found: Examination) -> str:
    """What besides its settings determines a run: the images, their masks, the program."""
    return _hashed(found, f"{__version__} {torch.__version__}")


def content_of(found: Examination) -> str:
    """What of a set determines what is made from it, whatever the version of the program."""
    return _hashed(found, "")


def _hashed(found: Examination, salt: str) -> str:
    told = hashlib.sha256(salt.encode())
    for record, facts, pixels in zip(found.records, found.facts, found.pixels, strict=True):
        row = [record.image, record.part, facts.image.digest, sorted((pixels or {}).items())]
        told.update(json.dumps(row).encode())
    return told.hexdigest()


def _corrupt(source: str, root: Path | None, staging: Path, prepared: Prepared) -> None:
    """A copy of the set at `staging` in which the images of the named parts, and nothing else, are corrupted."""
    api.corrupt(source, staging, kind=prepared.corrupt, severity=prepared.severity, seed=CORRUPTION_SEED, root=root)
    found = open_source(source, root)
    for record in found.found.records:
        if record.part not in prepared.parts:
            original = inside(found.root, record.image)
            with original.open("rb") as read, atomic(staging / record.image) as copy:
                shutil.copyfileobj(read, copy)
    _check_copy(source, root, staging)
    write_json(staging / NOTE, {"source": found.name, **asdict(prepared), "seed": CORRUPTION_SEED})


def _check_copy(source: str, root: Path | None, staging: Path) -> None:
    """Refuse a copy that is read from elsewhere or lacks images: its runs would silently be others."""
    before = examine_set(source, root=root)
    usable = {r.image for r, f in zip(before.records, before.facts, strict=True) if f.image.problem is None}
    missing = sorted(image for image in usable if not (staging / image).is_file())
    if missing:
        raise DataError(
            f"{len(missing)} images of {source} cannot be corrupted, the first is {missing[0]}.",
            remedy="Float images must lie in [0, 1]; convert them, or take another set.",
        )
    description = staging / DESCRIPTION
    if description.is_file() and open_source(staging).root.resolve() != staging.resolve():
        raise DataError(
            f"The {DESCRIPTION} of {source} names its folder in full, so that a copy would still read the original.",
            remedy="Write «root: .» in it.",
        )


def size_of_copy(found: Examination, parts: tuple[str, ...]) -> int:
    """Bytes that a corrupted copy takes at most: noise does not compress, so corrupted images count by their pixels."""
    total = 0
    for record, facts in zip(found.records, found.facts, strict=True):
        header = facts.image.header
        names = set(files_of(record))
        if record.part in parts and header is not None:
            names.discard(record.image)
            total += header.width * header.height * facts.image.channels * _DEPTHS.get(facts.image.dtype, 1)
        total += sum(_size(found.description.root / name) for name in names)
    return total


_DEPTHS = {"uint16": 2, "float32": 4}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
