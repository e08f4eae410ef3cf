"""Two lists of images and a plan to a resumable stream of batches.

Batch number k depends on the seed and on k alone: which images, which crops, which noise. So a run continues at any
step without replaying what came before, and the number of loader workers changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ftcseg.data.dataset import Dataset
from ftcseg.data.decoded import is_mapped
from ftcseg.data.images import planar
from ftcseg.errors import DataError, ImageError
from ftcseg.rng import random_for
from ftcseg.types import IGNORE, Labeled, Sample, SemiBatch, Unlabeled, ViewPlan
from ftcseg.views.filters import FILTERS
from ftcseg.views.geometry import (
    GeometryParams,
    Window,
    draw_window,
    fitting_planes,
    lay_into,
    lay_labels,
    shown_area,
)
from ftcseg.views.mix import CutMixParams, draw_box
from ftcseg.views.objects import Objects
from ftcseg.views.photometric import Look, PhotometricParams, apply_looks, draw_look
from ftcseg.views.workers import Tell, made_ahead, silence

CACHE_BYTES = 1 << 30
"""Decoded images kept in memory per process: a small set is read from disk once."""
OBJECT_BYTES = 2048
"""What Python holds of a kept sample beside its pixels: of a hundred thousand thumbnails that is most of it."""
MAPS = 1 << 14
"""Files kept mapped per process; Linux allows 65530 of them for everything."""
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
    """Samples of a dataset as they are cut from: planes one behind the other, grey once.

    What lies in mapped files is shared with all processes and kept; of the rest the first so many bytes.
    """

    def __init__(self, dataset: Dataset, channels: int | None, limit: int = CACHE_BYTES) -> None:
        self.dataset, self.channels, self.room, self.maps = dataset, channels, limit, MAPS
        self._kept: dict[int, Sample] = {}

    def __getitem__(self, index: int) -> Sample:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        sample = self.dataset[index]
        image = sample.image
        if self.channels is not None:
            image = fitting_planes(image, self.channels, sample.id)
        mapped = is_mapped(image)
        size = (0 if mapped else image.nbytes) + (sample.labels.nbytes if sample.labels is not None else 0)
        size += OBJECT_BYTES
        if size > self.room or mapped > self.maps:
            return replace(sample, image=image)
        self.room -= size
        self.maps -= mapped
        self._kept[index] = replace(sample, image=planar(image))
        return self._kept[index]


class BatchMaker:
    """`maker[step]` is the batch of that step, for this rank."""

    labels_first: int = 0
    """Batches that the run begins with and that hold labelled images alone: nobody would look at the others."""

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
        self.objects = Objects(labeled) if plan.paste else None
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

    def __getitem__(self, step: int) -> SemiBatch:
        labeled = self._labeled(step, self.labeled_order, "labeled view")
        if self.plan.labeled_partner:
            labeled = replace(labeled, partner=self._labeled(step, self.partner_order, "labeled partner view"))
        if self.unlabeled is None or step < self.labels_first:
            return SemiBatch(labeled)
        unlabeled, skipped = self._unlabeled(step, "unlabeled view")
        if self.plan.partner:
            unlabeled = replace(unlabeled, partner=self._unlabeled(step, "unlabeled partner view")[0])
        return SemiBatch(labeled, unlabeled, skipped)

    def _places(self, step: int, batch: int) -> range:
        first = (step * self.world + self.rank) * batch
        return range(first, first + batch)

    def _labeled(self, step: int, order: Order, salt: str) -> Labeled:
        places = self._places(step, self.params.labeled_batch)
        samples = [self._needed(order[place]) for place in places]
        windows: list[Window] = []
        looks: list[Look] = []
        boxes: list[Tensor] = []
        for place, sample in zip(places, samples, strict=True):
            rng = random_for(self.seed, salt, place)
            windows.append(self._window(sample, rng))
            if self.plan.labeled_strong:
                looks.append(draw_look(self.params.photometric, rng))
                boxes.append(self._box(rng))
        seen = self._laid(samples, windows)
        if self.plan.labeled_strong:
            seen = apply_looks(seen, looks)
        labels = []
        for sample, window in zip(samples, windows, strict=True):
            assert sample.labels is not None
            labels.append(lay_labels(sample.labels, window, self.params.geometry.crop))
        ids = tuple(sample.id for sample in samples)
        return Labeled(self._normalised(seen), torch.stack(labels), ids, torch.stack(boxes) if boxes else None)

    def _unlabeled(self, step: int, salt: str) -> tuple[Unlabeled, tuple[str, ...]]:
        places = self._places(step, self.params.unlabeled_batch)
        skipped: list[str] = []
        samples = [self._readable(place, skipped) for place in places]
        windows: list[Window] = []
        looks: list[list[Look]] = [[] for _ in range(self.plan.strong)]
        boxes: list[list[Tensor]] = [[] for _ in range(self.plan.strong)]
        for place, sample in zip(places, samples, strict=True):
            rng = random_for(self.seed, salt, place)
            windows.append(self._window(sample, rng))
            for view in range(self.plan.strong):
                looks[view].append(draw_look(self.params.photometric, rng))
                boxes[view].append(self._box(rng))
        weak = self._laid(samples, windows)
        valid = torch.stack([shown_area(window, self.params.geometry.crop) for window in windows])
        # Before the looks: an object that looked otherwise than its frame would be told by that.
        furnished, pasted = self._pasted(weak, valid, places, salt)
        strong = tuple(self._normalised(apply_looks(furnished, view)) for view in looks)
        masks = tuple(torch.stack(view) for view in boxes)
        filtered = {name: self._normalised(self._filtered(name, weak, step, salt)) for name in self.plan.filters}
        ids = tuple(sample.id for sample in samples)
        seen = Unlabeled(self._normalised(weak), strong, masks, valid, ids, filtered, pasted=pasted)
        return seen, tuple(skipped)

    def _pasted(self, weak: Tensor, valid: Tensor, places: range, salt: str) -> tuple[Tensor, Tensor | None]:
        """The images with the objects that chance puts into some of them, and the classes of what was put there."""
        if self.objects is None:
            return weak, None
        images, classes = weak.clone(), torch.full(valid.shape, IGNORE)
        for place, image, known, inside in zip(places, images, classes, valid, strict=True):
            rng = random_for(self.seed, f"{salt}, pasted", place)
            drawn = self.objects.draw(rng) if rng.random() < self.plan.paste else None
            if drawn is None:
                continue
            sample = self._needed(drawn.index)
            window = self._window(sample, rng)
            assert sample.labels is not None
            labels = lay_labels(sample.labels, window, self.params.geometry.crop)
            where = (labels == drawn.class_id) & inside
            known[where] = drawn.class_id
            image[:, where] = self._laid([sample], [window])[0][:, where]
        return images, classes

    def _window(self, sample: Sample, rng: np.random.Generator) -> Window:
        height, width, _ = sample.image.shape
        return draw_window((height, width), self.params.geometry, rng)

    def _laid(self, samples: Sequence[Sample], windows: Sequence[Window]) -> Tensor:
        """(B, C, H, W) float in [0, 1]: every sample's window, laid where it stays."""
        channels = self.params.in_channels or samples[0].image.shape[2]
        out = np.zeros((len(samples), channels, *self.params.geometry.crop), dtype=np.float32)
        for canvas, sample, window in zip(out, samples, windows, strict=True):
            lay_into(canvas, sample.image, window)
        return torch.from_numpy(out)

    def _box(self, rng: np.random.Generator) -> Tensor:
        crop = self.params.geometry.crop
        return draw_box(*crop, self.params.cutmix, rng) if self.plan.cutmix else torch.zeros(crop, dtype=torch.bool)

    def _filtered(self, name: str, weak: Tensor, step: int, salt: str) -> Tensor:
        places = self._places(step, self.params.unlabeled_batch)
        rngs = (random_for(self.seed, f"{salt}, {name}", place) for place in places)
        return torch.stack([FILTERS[name](image, rng) for image, rng in zip(weak, rngs, strict=True)])

    def _needed(self, index: int) -> Sample:
        """A labelled image: there are few of them, and none is left out in silence."""
        try:
            return self.labeled[index]
        except DataError as error:
            what = f"The labelled image {self.labeled.dataset.records[index].image} cannot be used: {error.what}"
            raise type(error)(what, remedy=error.remedy, kind=error.kind) from error

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
        raise ImageError(
            f"{MAX_SKIPS} unlabelled images in a row cannot be read; the last: {last.what}",
            remedy="Is their disk there? Then go on with --resume.",
            kind=last.kind,
        )

    def _normalised(self, images: Tensor) -> Tensor:
        channels = images.shape[1]
        mean = images.new_tensor(_stretched(self.params.mean, channels)).view(1, -1, 1, 1)
        std = images.new_tensor(_stretched(self.params.std, channels)).view(1, -1, 1, 1)
        return images.sub(mean).div_(std)


def _stretched(values: Sequence[float], channels: int) -> list[float]:
    return list(values) if len(values) == channels else [float(np.mean(values))] * channels


@dataclass(frozen=True, slots=True)
class Stream:
    """Batches from any step on: `for batch in stream(step)`."""

    maker: BatchMaker
    workers: int = 0
    tell: Tell = silence
    """Hears of every worker that died and was replaced."""

    def __call__(self, start: int) -> Generator[SemiBatch]:
        """Batches start, start + 1, ... without end."""
        if self.workers > 0:
            yield from made_ahead(self.maker.__getitem__, start, self.workers, self.tell)
        step = start
        while True:
            yield self.maker[step]
            step += 1


def loader_rate(stream: Stream, batches: int, start: int = 0) -> float:
    """Images a second that a stream delivers to somebody who does nothing else but wait for them.

    The first batch is not counted: with it workers start and files are opened.
    """
    made = stream(start)
    next(made)
    began = time.perf_counter()
    images = sum(len(next(made).ids) for _ in range(batches))
    seconds = time.perf_counter() - began
    made.close()
    return images / seconds
