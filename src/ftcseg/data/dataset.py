"""Records to samples: a set opened for reading."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ftcseg.data.decoded import DecodedCache, content, key_of
from ftcseg.data.describe import Description
from ftcseg.data.doctor import examine_set
from ftcseg.data.images import read_header, read_image
from ftcseg.data.index import open_source
from ftcseg.data.masks import read_labels
from ftcseg.data.scan import files_of
from ftcseg.data.sets import SETS
from ftcseg.errors import LayoutError
from ftcseg.files import inside
from ftcseg.parallel import Progress, silent
from ftcseg.rng import random_for
from ftcseg.types import IGNORE, ClassTable, Labels, Part, Pixels, Record, Sample

_LARGEST_SMALL_ID = 254  # of those that are written down as bytes, one up: IGNORE is 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """A list of records that decodes one when asked: `dataset[3].image`, `dataset[3].labels`."""

    description: Description
    records: list[Record]
    thin: Mapping[int, float] = field(default_factory=dict)
    """Class id -> share of its pixels that keep their label (pixel-level balance); the others become IGNORE."""
    thin_seed: int = 0
    cache: DecodedCache | None = field(default=None, compare=False, repr=False)
    """Where decoded images are kept on disk; None decodes each time."""

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Sample:
        record = self.records[index]
        image, labels = self._decode(record) if self.cache is None else self._recall(record, self.cache)
        if labels is not None:
            labels = thinned(labels, self.thin, self.thin_seed, record.image)
        return Sample(record.image, image, labels)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    @property
    def classes(self) -> ClassTable:
        """The set's classes."""
        return self.description.classes

    def part(self, part: Part) -> Dataset:
        """Only the images of one part: train, val or test."""
        return replace(self, records=[r for r in self.records if r.part == part])

    def labeled(self) -> Dataset:
        """Only the images that have a mask."""
        return replace(self, records=[r for r in self.records if r.mask is not None])

    def only(self, images: list[str]) -> Dataset:
        """These images, in this order."""
        by_name = {r.image: r for r in self.records}
        missing = [name for name in images if name not in by_name]
        if missing:
            what = f"{len(missing)} of {len(images)} listed images are not in {self.description.name}: {missing[0]} ..."
            raise LayoutError(what, remedy="Was the list drawn from another set?")
        return replace(self, records=[by_name[name] for name in images])

    def _decode(self, record: Record) -> tuple[Pixels, Labels | None]:
        known = self.description
        path = inside(known.root, record.image)
        image = read_image(path, known.max_pixels)
        if record.mask is None:
            return image, None
        labels = read_labels(
            known.root,
            record.mask,
            read_header(path, known.max_pixels),
            known.coding,
            max_pixels=known.max_pixels,
            first_row=self._first_row(record),
        )
        return image, labels

    def _recall(self, record: Record, cache: DecodedCache) -> tuple[Pixels, Labels | None]:
        """What `_decode` gives, from the disk where somebody has been here before."""
        key, source = self._key(record)
        known = cache.recall(key) if key else None
        if known is not None:
            planes, *rest = known
            return np.moveaxis(planes, 0, -1), _as_labels(rest[0]) if rest else None
        began = time.thread_time()
        image, labels = self._decode(record)
        seconds = time.thread_time() - began
        if key and key == self._key(record)[0]:  # else a file changed under our eyes
            planes = np.moveaxis(image, -1, 0)  # each in one piece there: a view is cut from it without copying it
            arrays = [planes] if labels is None else [planes, _as_stored(labels)]
            cache.keep(key, arrays, seconds=seconds, source=source)
        return image, labels

    def _key(self, record: Record) -> tuple[str, int]:
        """The name of a record's entry in the cache, and the bytes of its files; "" where one cannot be read."""
        known = self.description
        how: dict[str, Any] = {"max_pixels": known.max_pixels}
        if record.mask is not None:  # what a mask means depends on more than what its file holds
            how |= {"mask": record.mask, "coding": known.coding, "classes": known.classes}
            how |= {"first_row": self._first_row(record)}
        paths = [inside(known.root, name) for name in files_of(record)]
        try:
            return key_of([content(path) for path in paths], how), sum(path.stat().st_size for path in paths)
        except OSError:
            return "", 0  # decoding will say so in its own words

    def _first_row(self, record: Record) -> int | None:
        name = self.description.set_name
        return SETS[name].mask_rows.get(PurePosixPath(record.image).stem) if name is not None else None


def open_dataset(path: str | Path, *, root: Path | None = None, progress: Progress = silent) -> Dataset:
    """Open a folder, a dataset.yaml, a manifest or a named set.

    Where nothing says how masks are written they are looked at first, as doctor does, and what cannot be understood
    stops here with the finding.
    """
    source = open_source(path, root)
    if source.description is not None:
        return Dataset(source.description, source.found.records)
    if source.found.coding is None or source.found.classes is None:
        examination = examine_set(path, root=root, progress=progress)
        for finding in examination.errors:
            if finding.kind in ("too-many-values", "too-many-colours", "unknown-value", "mixed-encoding"):
                raise LayoutError(f"{finding.file}: {finding.detail}", remedy=finding.remedy, kind=finding.kind)
        return Dataset(examination.description, examination.records)
    description = Description(
        name=source.name,
        root=source.root,
        layout=source.found.layout,
        classes=source.found.classes,
        coding=source.found.coding,
        set_name=source.sheet.name if source.sheet else None,
    )
    return Dataset(description, source.found.records)


def _as_stored(labels: Labels) -> np.ndarray[Any, np.dtype[Any]]:
    """Labels as small as they go: bytes, one up, where there are not too many classes."""
    small = not labels.size or labels.max() <= _LARGEST_SMALL_ID
    return (labels - IGNORE).astype(np.uint8) if small else labels


def _as_labels(stored: np.ndarray[Any, np.dtype[Any]]) -> Labels:
    """Labels of this process's own, as they were before `_as_stored`."""
    return stored.astype(np.int16) + np.int16(IGNORE) if stored.dtype == np.uint8 else stored.copy()


def thinned(labels: Labels, thin: Mapping[int, float], seed: int, name: str) -> Labels:
    """Labels of which each class keeps only its share, drawn per pixel and per image; the rest becomes IGNORE."""
    if not thin:
        return labels
    draw = random_for(seed, "thin", name).random(labels.shape, dtype=np.float32)
    kept = labels.copy()
    for class_id, share in thin.items():
        kept[(labels == class_id) & (draw >= share)] = IGNORE
    return kept
