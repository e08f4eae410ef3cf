"""The set a cell runs on: the user's own, or one made from it inside the study's folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from ftcseg import __version__, api
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.studies.plan import EMBEDDED, Cell

FRAMES = 240  # of the embedded set, as in the demo


@dataclass(frozen=True, slots=True)
class Place:
    """Where studies keep their things, and where named sets are kept.

    folder/NAME/       the answer of each study
    folder/runs/       runs, shared by all studies: what one has trained the others need not
    folder/measures/   measurements, shared likewise
    folder/data/       sets made for them
    """

    folder: Path
    root: Path | None = None


class Sets:
    """The sets of one study, each made and examined once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._facts: dict[str, str] = {}

    def source(self, dataset: str, seed: int) -> str:
        """Where a set is; the embedded one is simulated from the seed when it is first needed."""
        if dataset != EMBEDDED:
            return dataset
        folder = self.place.folder / "data" / f"sonar-{FRAMES}-seed{seed}"
        api.simulate(folder, FRAMES, seed=seed)
        return str(folder)

    def facts(self, dataset: str, seed: int) -> str:
        """What of a set and of the program determines numbers, in letters."""
        source = self.source(dataset, seed)
        if source not in self._facts:
            self._facts[source] = facts_of(examine_set(source, root=self.place.root))
        return self._facts[source]

    def key(self, cell: Cell) -> str:
        """By which a cell's run is found again."""
        return cell.key(self.facts(cell.dataset, cell.seed))


def facts_of(found: Examination) -> str:
    """What besides its settings determines a run: the images, their masks, the program."""
    digest = hashlib.sha256(f"{__version__} {torch.__version__}".encode())
    for record, facts, pixels in zip(found.records, found.facts, found.pixels, strict=True):
        told = [record.image, record.part, facts.image.digest, sorted((pixels or {}).items())]
        digest.update(json.dumps(told).encode())
    return digest.hexdigest()
