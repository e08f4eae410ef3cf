"""How many pixels of every class a fixed threshold drops, image by image, with the images as they are or corrupted.

The same images, masks and network under conditions that differ in one thing at a time: whether the image is corrupted,
and whether the list is long-tailed or balanced (reading D3). Counts per image are kept, so that intervals can be
drawn over images and over sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ftcseg.data.dataset import Dataset, thinned
from ftcseg.data.split import Balance
from ftcseg.evaluate.batches import ahead, by_size
from ftcseg.evaluate.bootstrap import Floats, rate
from ftcseg.evaluate.predictor import InputFacts, Predictor, Prepared, opinion, prepare
from ftcseg.parallel import Progress, silent
from ftcseg.rng import random_for
from ftcseg.types import Labels, Pixels
from ftcseg.views.corrupt import check, corrupt

PIXELS, DROPPED = range(2)
"""Places in the last dimension: pixels of a class, and those of them below the threshold."""
BY = ("truth", "prediction")
LISTS = ("long", "balanced")
CELLS = ("OB", "OL", "CB", "CL")
"""Original or corrupted images, of the balanced or of the long-tailed list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is done to the images before the network sees them."""

    kind: str = ""
    """A kind of corruption; none where empty."""
    severity: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind:
            check(self.kind, self.severity)

    def of(self, image: Pixels, name: str) -> Pixels:
        """The image as it is shown. An image meets the same noise at every severity, only stronger."""
        if not self.kind:
            return image
        return corrupt(image, self.kind, self.severity, random_for(self.seed, "decouple", self.kind, name))


@dataclass(frozen=True, slots=True, eq=False)
class Filtered:
    """What was dropped in one condition, from the long-tailed and from the balanced list."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]  # (lists, images, by, classes, 2); zeros where a list does not hold an image


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    place: int
    prepared: Prepared
    labels: tuple[Labels | None, Labels | None]  # in the long list, in the balanced list


def filtered_pixels(  # noqa: PLR0913  each choice has a name
    net: nn.Module,
    images: Dataset,
    balance: Balance,
    facts: InputFacts,
    condition: Condition,
    *,
    tau: float,
    batch: int = 8,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
) -> Filtered | None:
    """Count what `tau` drops of each labelled image; None when stopped. Of a balanced list, `thin` is seeded as it."""
    names = tuple(record.image for record in images.records)
    kept = {candidate.id for candidate in balance.kept}
    classes = len(images.classes)
    counts = np.zeros((len(LISTS), len(names), len(BY), classes, 2), dtype=np.int64)
    predictor = Predictor(net, facts, batch=batch)
    read = partial(_seen, images, kept, balance.thin, facts, condition)
    done = 0
    for group in by_size(ahead(read, range(len(names)), 2 * batch), lambda seen: seen.prepared.size, batch):
        if stop():
            return None
        for seen, scores in zip(group, predictor.scores([one.prepared for one in group]), strict=True):
            said = opinion(scores)
            for number, labels in enumerate(seen.labels):
                if labels is not None:
                    truth = torch.from_numpy(labels).long()
                    counts[number, seen.place] = dropped_of(
                        said.labels[0].cpu(), said.conf[0].cpu() < tau, truth, classes
                    )
        done += len(group)
        progress(done, len(names))
    return Filtered(names, counts)


def dropped_of(said: Tensor, dropped: Tensor, truth: Tensor, num_classes: int) -> NDArray[np.int64]:
    """(by, classes, 2) pixels and dropped pixels, by truth and by prediction; where the truth is unknown, neither."""
    known = truth >= 0
    counts = np.zeros((len(BY), num_classes, 2), dtype=np.int64)
    for side, ids in enumerate((truth[known], said[known])):
        counts[side, :, PIXELS] = torch.bincount(ids, minlength=num_classes).numpy()
        counts[side, :, DROPPED] = torch.bincount(ids[dropped[known]], minlength=num_classes).numpy()
    return counts


def filtered_rate(counts: NDArray[np.int64]) -> float | None:
    """Dropped pixels as a share of (..., 2) counts, all added up; None of no pixel."""
    total = counts.reshape(-1, 2).sum(axis=0)
    return float(total[DROPPED] / total[PIXELS]) if total[PIXELS] else None


def interaction(sums: Floats) -> Floats:
    """I = CL - OL - CB + OB of each draw: what corruption and long tail drop together beyond what each drops alone.

    `sums` are (draws, 4, 2) pixels in the order of CELLS; nan where a cell has no pixel.
    """
    ob, ol, cb, cl = rate(sums[..., DROPPED], sums[..., PIXELS]).T
    found: Floats = cl - ol - cb + ob
    return found


def _seen(
    images: Dataset,
    kept: set[str],
    thin: Mapping[int, float],
    facts: InputFacts,
    condition: Condition,
    index: int,
) -> _Seen:
    sample = images[index]
    assert sample.labels is not None, "only labelled images are measured"
    picture = condition.of(sample.image, sample.id)
    balanced = thinned(sample.labels, thin, condition.seed, sample.id) if sample.id in kept else None
    return _Seen(index, prepare(picture, facts), (sample.labels, balanced))
