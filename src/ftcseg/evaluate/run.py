"""Networks against the masks of a set: every image once, decoded once for all networks, counted and divided once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ftcseg.data.dataset import Dataset
from ftcseg.distributed import ProcessLost, sum_over_ranks
from ftcseg.errors import DataError, ImageError, UsageError
from ftcseg.evaluate.batches import ahead, by_size
from ftcseg.evaluate.boundary import Boundaries
from ftcseg.evaluate.calibration import Calibration
from ftcseg.evaluate.confusion import Confusion
from ftcseg.evaluate.metrics import Scores, scores
from ftcseg.evaluate.per_image import PerImage
from ftcseg.evaluate.predictor import InputFacts, Predictor, Prepared, opinion, prepare
from ftcseg.parallel import Progress, silent
from ftcseg.types import ClassTable, Group, PseudoLabels


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """One labelled image: ready for a network, and what it truly shows."""

    prepared: Prepared
    labels: Tensor  # (H, W) int64 at the image's own size
    place: int
    """Among the images that are looked at, in the order of the set: batches of one size mix it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tour:
    """How a set is gone through."""

    batch: int = 8
    rank: int = 0
    world: int = 1
    """Each of `world` processes looks at its own images; every image is looked at exactly once."""
    max_images: int | None = None
    """At most so many images, evenly through the set."""
    scales: tuple[float, ...] = (1.0,)
    stop: Callable[[], bool] = lambda: False
    progress: Progress = silent
    unread: list[str] | None = None
    """Where there is a list, images that cannot be read are passed over and named in it; else the first ends it all."""


def evaluate(  # noqa: PLR0913  each choice has a name
    nets: Mapping[str, nn.Module],
    dataset: Dataset,
    facts: InputFacts,
    groups: Mapping[int, Group],
    *,
    batch: int = 8,
    rank: int = 0,
    world: int = 1,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    boundary: bool = False,
    max_images: int | None = None,
    window: int | None = None,
    flips: bool = False,
    scales: Sequence[float] = (1.0,),
    per_image: bool = False,
) -> dict[str, Scores] | None:
    """The scores of each network over the labelled images of the set; None when `stop` said so before the end.

    `boundary` adds boundary F1 and calibration error, which cost more than all else; `per_image` keeps what an IoU
    needs of every image. Under several processes all of them must call this alike; all get the scores of the whole set,
    or all get None.
    """
    tour = Tour(
        batch=batch,
        rank=rank,
        world=world,
        max_images=max_images,
        scales=tuple(scales),
        stop=stop,
        progress=progress,
    )
    asked = {name: Predictor(net, facts, None, window, flips, scales, batch) for name, net in nets.items()}
    kept = tuple(record.image for record in chosen(dataset, max_images).records) if per_image else ()
    counts = {name: _Counts(len(dataset.classes), boundary, kept) for name in nets}

    def look(shown: Sequence[Shown]) -> None:
        for name, predictor in asked.items():
            for said, one in zip(predictor.scores([s.prepared for s in shown]), shown, strict=True):
                counts[name].add(said, one)

    if not visit(dataset, facts, look, tour):
        return None
    return {name: count.scores(dataset.classes, groups) for name, count in counts.items()}


def chosen(dataset: Dataset, max_images: int | None = None) -> Dataset:
    """The labelled images that are looked at: all, or so many evenly through the set."""
    labeled = dataset.labeled()
    if not len(labeled):
        name = dataset.description.name
        raise UsageError(f"No image of {name} in this part has a mask, so there is nothing to compare with.")
    if max_images is None or max_images >= len(labeled):
        return labeled
    if max_images < 1:
        raise UsageError(f"{max_images} images are none. Ask for at least 1.")
    names = [labeled.records[i * len(labeled) // max_images].image for i in range(max_images)]
    return labeled.only(names)


def visit(dataset: Dataset, facts: InputFacts, look: Callable[[Sequence[Shown]], None], tour: Tour) -> bool:
    """Hand this process's labelled images to `look` in batches of one size; False when any process was stopped.

    A process that fails says so to the others before it raises, lest they wait for it for ever.
    """
    images = chosen(dataset, tour.max_images)
    mine = range(tour.rank, len(images), tour.world)
    error: Exception | None = None
    stopped = False
    try:
        stopped = not _walk(partial(_shown, images, facts, tour), mine, look, tour)
    except Exception as reason:
        error = reason
    any_stopped, any_failed = sum_over_ranks(torch.tensor([stopped, error is not None], dtype=torch.int64)).tolist()
    if error is not None:
        raise error
    if any_failed:
        raise ProcessLost("The evaluation ended because another process of this run met an error; see its message.")
    return not any_stopped


def _walk(
    read: Callable[[int], Shown | None], mine: Sequence[int], look: Callable[[Sequence[Shown]], None], tour: Tour
) -> bool:
    """Whether the walk came to its end."""
    done = 0
    readable = (one for one in ahead(read, mine, 2 * tour.batch) if one is not None)
    for shown in by_size(readable, lambda s: s.prepared.size, tour.batch):
        if tour.stop():
            return False
        look(shown)
        done += len(shown)
        tour.progress(done, len(mine))
    return True


def _shown(images: Dataset, facts: InputFacts, tour: Tour, index: int) -> Shown | None:
    """One image, ready; what is wrong with it is said with its name. None of one that may be passed over."""
    name = images.records[index].image
    try:
        sample = images[index]
        assert sample.labels is not None, "only labelled images are walked"
        return Shown(prepare(sample.image, facts, tour.scales), torch.from_numpy(sample.labels).long(), index)
    except DataError as error:
        if tour.unread is not None:
            tour.unread.append(name)
            return None
        if name in error.what:
            raise
        raise ImageError(f"{name}: {error.what}", remedy=error.remedy, kind=error.kind) from error


class _Counts:
    """What is counted of one network; image by image for those that are named."""

    def __init__(self, num_classes: int, boundary: bool, names: tuple[str, ...] = ()) -> None:
        self.confusion = Confusion(num_classes)
        self.boundaries = Boundaries(num_classes) if boundary else None
        self.calibration = Calibration() if boundary else None
        self.names = names
        # Every process fills in its own images and leaves the others 0, so that the sum over ranks is the whole set.
        self.each = torch.zeros(len(names), num_classes, 3, dtype=torch.int64)

    def add(self, said: Tensor, one: Shown) -> None:
        truth = one.labels.to(said.device)
        if self.boundaries is None or self.calibration is None:
            # max, not argmax: the same classes, four times as fast on a CPU
            found = self.confusion.add(said.max(0).indices, truth)
        else:
            best: PseudoLabels = opinion(said)
            found = self.confusion.add(best.labels[0], truth)
            self.boundaries.add(best.labels[0], truth)
            self.calibration.add(best.conf[0], best.labels[0], truth)
        if self.names:
            self.each[one.place] = torch.stack([found.diagonal(), found.sum(0), found.sum(1)], dim=1)

    def scores(self, classes: ClassTable, groups: Mapping[int, Group]) -> Scores:
        boundaries = None if self.boundaries is None else self.boundaries.summed()
        calibration = None if self.calibration is None else self.calibration.summed()
        found = scores(self.confusion.summed(), classes, groups, boundaries, calibration)
        if not self.names:
            return found
        return replace(found, per_image=PerImage(sum_over_ranks(self.each).numpy(), self.names))
