"""Which labelled images show which objects: every class alike, however rare, when one is drawn to be pasted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ftcseg.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Drawn:
    """An object: all pixels of one class in one labelled image."""

    index: int
    class_id: int


class Objects:
    """The object classes of a labelled set and where they are seen; looked up once, when the first is drawn."""

    def __init__(self, labeled: Dataset) -> None:
        self.labeled = labeled

    @cached_property
    def places(self) -> dict[int, list[int]]:
        """The images that show each object class; classes that none shows are left out."""
        wanted = set(self.labeled.classes.foreground or range(len(self.labeled.classes)))
        found: dict[int, list[int]] = {}
        for index, sample in enumerate(self.labeled):
            assert sample.labels is not None
            for class_id in sorted(wanted.intersection(np.unique(sample.labels).tolist())):
                found.setdefault(class_id, []).append(index)
        return dict(sorted(found.items()))

    def draw(self, rng: np.random.Generator) -> Drawn | None:
        """A class, each as likely as any other, and an image that shows it; None where labels show no object."""
        if not self.places:
            return None
        class_id = int(rng.choice(list(self.places)))
        return Drawn(int(rng.choice(self.places[class_id])), class_id)
