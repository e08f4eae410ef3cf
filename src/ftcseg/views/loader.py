"""Two lists of images and a plan to a resumable stream of batches.

Batch number k depends on the seed and on k alone: which images, which crops, which noise. So a run continues at any
step without replaying what came before, and the number of loader workers changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from ftcseg.data.dataset import Dataset
from ftcseg.errors import DataError
from ftcseg.rng import random_for
from ftcseg.types import Labeled, Sample, SemiBatch, Unlabeled, ViewPlan
from ftcseg.views.filters import FILTERS
from ftcseg.views.geometry import GeometryParams, draw_window, fit_channels, lay_image, lay_labels, shown_area
from ftcseg.views.mix import CutMixParams, draw_box
from ftcseg.views.photometric import PhotometricParams, apply_looks, draw_look

CACHE_BYTES = 1 << 30
"""Decoded images kept in memory per process: a small set is read from disk once."""
MAX_SKIPS = 100
"""Unreadable unlabelled images in a row before the batch gives up."""


@dataclass(frozen=True, slots=True)
class ViewParams:
    """How views are made."""

    geometry: GeometryParams = field(default_factory=GeometryParams)
    photometric: PhotometricParams = field(default_factory=PhotometricParams)
    cutmix: CutMixParams = field(default_factory=CutMixParams)
    labeled_batch: int = 4
    unlabeled_batch: int = 4
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    in_channels: int | None = None
    """What images are brought to; None takes them as they are."""


class Order:
    """An endless order of n items, reshuffled every pass, addressable at any place without state."""

    def __init__(self, count: int, seed: int, salt: str) -> None:
        self.count, self.seed, self.salt = count, seed, salt
        self._pass = -1
        self._permutation = np.arange(count)

    def __getitem__(self, place: int) -> int:
        number, offset = divmod(place, self.count)
        if number != self._pass:
            self._permutation = random_for(self.seed, self.salt, number).permutation(self.count)
            self._pass = number
        return int(self._permutation[offset])


class _Shelf:
    """Decoded samples of a dataset, the first so many bytes of them kept."""

    def __init__(self, dataset: Dataset, channels: int | None, limit: int = CACHE_BYTES) -> None:
        self.dataset, self.channels, self.room = dataset, channels, limit
        self._kept: dict[int, Sample] = {}

    def __getitem__(self, index: int) -> Sample:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        sample = self.dataset[index]
        if self.channels is not None:
            sample = replace(sample, image=fit_channels(sample.image, self.channels, sample.id))
        size = sample.image.nbytes + (sample.labels.nbytes if sample.labels is not None else 0)
        if size <= self.room:
            self._kept[index] = sample
            self.room -= size
        return sample


class BatchMaker(TorchDataset[SemiBatch]):
    """`maker[step]` is the batch of that step, for this rank."""

    def __init__(
        self, labeled: Dataset, unlabeled: Dataset | None, plan: ViewPlan, params: ViewParams, seed: int
    ) -> None:
        self.plan, self.params, self.seed = plan, params, seed
        self.labeled = _Shelf(labeled, params.in_channels)
        self.labeled_order = Order(len(labeled), seed, "labeled")
        wanted = unlabeled if plan.unlabeled else None
        self.unlabeled = _Shelf(wanted, params.in_channels) if wanted is not None and len(wanted) else None
        self.unlabeled_order = Order(len(unlabeled), seed, "unlabeled") if unlabeled is not None else None
        self.partner_order = Order(len(labeled), seed, "labeled partner")
        self.rank, self.world = 0, 1

    def on_rank(self, rank: int, world: int) -> BatchMaker:
        """The same maker for one of several processes: each takes its own slice of every step."""
        self.rank, self.world = rank, world
        return self

    @property
    def epoch_steps(self) -> int:
        """Steps of one pass over the unlabelled images, or over the labelled ones where there are no others."""
        if self.unlabeled is not None:
            return max(1, len(self.unlabeled.dataset) // (self.params.unlabeled_batch * self.world))
        return max(1, len(self.labeled.dataset) // (self.params.labeled_batch * self.world))

    def __len__(self) -> int:
        return 1 << 62  # steps do not run out

    def __getitem__(self, step: int) -> SemiBatch:
        labeled = self._labeled(step, self.labeled_order, "labeled view")
        if self.plan.labeled_partner:
            labeled = replace(labeled, partner=self._labeled(step, self.partner_order, "labeled partner view"))
        if self.unlabeled is None:
            return SemiBatch(labeled)
        unlabeled, skipped = self._unlabeled(step, "unlabeled view")
        if self.plan.partner:
            unlabeled = replace(unlabeled, partner=self._unlabeled(step, "unlabeled partner view")[0])
        return SemiBatch(labeled, unlabeled, skipped)

    def _places(self, step: int, batch: int) -> range:
        first = (step * self.world + self.rank) * batch
        return range(first, first + batch)

    def _labeled(self, step: int, order: Order, salt: str) -> Labeled:
        crop = self.params.geometry.crop
        images, labels, ids = [], [], []
        looks: list[Any] = []
        boxes: list[Tensor] = []
        for place in self._places(step, self.params.labeled_batch):
            sample = self.labeled[order[place]]
            rng = random_for(self.seed, salt, place)
            window = draw_window((sample.image.shape[0], sample.image.shape[1]), self.params.geometry, rng)
            images.append(lay_image(sample.image, window, crop))
            assert sample.labels is not None
            labels.append(lay_labels(sample.labels, window, crop))
            ids.append(sample.id)
            if self.plan.labeled_strong:
                looks.append(draw_look(self.params.photometric, rng))
                boxes.append(self._box(rng))
        seen = torch.stack(images)
        if self.plan.labeled_strong:
            seen = apply_looks(seen, looks)
        drawn = torch.stack(boxes) if boxes else None
        return Labeled(self._normalised(seen), torch.stack(labels), tuple(ids), drawn)

    def _unlabeled(self, step: int, salt: str) -> tuple[Unlabeled, tuple[str, ...]]:
        crop = self.params.geometry.crop
        images, valid, ids = [], [], []
        looks: list[list[Any]] = [[] for _ in range(self.plan.strong)]
        boxes: list[list[Tensor]] = [[] for _ in range(self.plan.strong)]
        skipped: list[str] = []
        for place in self._places(step, self.params.unlabeled_batch):
            sample = self._readable(place, skipped)
            rng = random_for(self.seed, salt, place)
            window = draw_window((sample.image.shape[0], sample.image.shape[1]), self.params.geometry, rng)
            images.append(lay_image(sample.image, window, crop))
            valid.append(shown_area(window, crop))
            ids.append(sample.id)
            for view in range(self.plan.strong):
                looks[view].append(draw_look(self.params.photometric, rng))
                boxes[view].append(self._box(rng))
        weak = torch.stack(images)
        strong = tuple(self._normalised(apply_looks(weak, view)) for view in looks)
        masks = tuple(torch.stack(view) for view in boxes)
        filtered = {name: self._normalised(self._filtered(name, weak, step, salt)) for name in self.plan.filters}
        seen = Unlabeled(self._normalised(weak), strong, masks, torch.stack(valid), tuple(ids), filtered)
        return seen, tuple(skipped)

    def _box(self, rng: np.random.Generator) -> Tensor:
        crop = self.params.geometry.crop
        return draw_box(*crop, self.params.cutmix, rng) if self.plan.cutmix else torch.zeros(crop, dtype=torch.bool)

    def _filtered(self, name: str, weak: Tensor, step: int, salt: str) -> Tensor:
        places = self._places(step, self.params.unlabeled_batch)
        rngs = (random_for(self.seed, f"{salt}, {name}", place) for place in places)
        return torch.stack([FILTERS[name](image, rng) for image, rng in zip(weak, rngs, strict=True)])

    def _readable(self, place: int, skipped: list[str]) -> Sample:
        """The image at a place of the order; one that cannot be read is passed over for the next, and named."""
        assert self.unlabeled is not None
        assert self.unlabeled_order is not None
        for further in range(MAX_SKIPS):
            index = self.unlabeled_order[place + further]
            try:
                return self.unlabeled[index]
            except DataError as error:
                skipped.append(self.unlabeled.dataset.records[index].image)
                last = error
        raise last

    def _normalised(self, images: Tensor) -> Tensor:
        channels = images.shape[1]
        mean = images.new_tensor(_stretched(self.params.mean, channels)).view(1, -1, 1, 1)
        std = images.new_tensor(_stretched(self.params.std, channels)).view(1, -1, 1, 1)
        return (images - mean) / std


def _stretched(values: Sequence[float], channels: int) -> list[float]:
    return list(values) if len(values) == channels else [float(np.mean(values))] * channels


@dataclass(frozen=True, slots=True)
class Stream:
    """Batches from any step on: `for batch in stream(step)`."""

    maker: BatchMaker
    workers: int = 0

    def __call__(self, start: int) -> Iterator[SemiBatch]:
        """Batches start, start + 1, ... without end."""
        if self.workers == 0:
            step = start
            while True:
                yield self.maker[step]
                step += 1
        loader: DataLoader[SemiBatch | DataError] = DataLoader(
            _Spoken(self.maker),
            batch_size=None,
            sampler=_From(start),
            num_workers=self.workers,
            prefetch_factor=2,
            worker_init_fn=_start_worker,
            # Its own: the loader draws a seed for its workers, and the global generator belongs to the run.
            generator=torch.Generator(),
        )
        for batch in loader:
            if isinstance(batch, Exception):
                raise batch
            yield batch


class _Spoken(TorchDataset["SemiBatch | DataError"]):
    """Hands a DataError over instead of raising it: a loader would wrap it in the traceback of its worker."""

    def __init__(self, maker: BatchMaker) -> None:
        self.maker = maker

    def __getitem__(self, step: int) -> SemiBatch | DataError:
        try:
            return self.maker[step]
        except DataError as error:
            return error


class _From:
    def __init__(self, start: int) -> None:
        self.start = start

    def __iter__(self) -> Iterator[int]:
        step = self.start
        while True:
            yield step
            step += 1


def _start_worker(_worker: int) -> None:
    torch.set_num_threads(1)
    # A signal to the whole group is for the parent: it decides when to stop, and still wants its batch until then.
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
