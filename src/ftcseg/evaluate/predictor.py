"""A network asked about images of any size, depth and number.

    predictor = Predictor(*load_model("run/model"))
    for said in predictor.labels_and_conf(images): said.labels, said.conf

Whole images are brought to the model's shorter side, then to the nearest multiple of its encoder; the logits are
brought back to the image's own size, and only then compared. With a window, overlapping squares are
asked about one by one and their probabilities averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ftcseg.errors import UsageError, is_out_of_memory
from ftcseg.evaluate.batches import by_size
from ftcseg.evaluate.windows import Window, nearest_multiple, windows
from ftcseg.nets.heads.base import resize
from ftcseg.teaching.pseudo import pseudo_labels
from ftcseg.types import Labels, Pixels, PseudoLabels
from ftcseg.views.geometry import fitting_planes, lay_image, whole

Result = TypeVar("Result")

MOST_PIXELS = 4 * 2**20
"""Pixels of one forward: logits of 19 classes for so many take 320 MB. Larger images go in smaller batches."""


class InputFacts(Protocol):
    """What a network wants to be handed; a ModelSpec knows it."""

    @property
    def in_channels(self) -> int:
        """Channels of its images."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Per channel, of values from 0 to 1."""

    @property
    def std(self) -> tuple[float, ...]:
        """Per channel, of values from 0 to 1."""

    @property
    def short_side(self) -> int | None:
        """The shorter side it was trained at; None is the images' own."""

    @property
    def multiple(self) -> int:
        """What the sides of its input must be multiples of."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """An image ready for a network, once per scale."""

    size: tuple[int, int]  # (H, W) of the image itself
    scaled: tuple[Tensor, ...]  # each (C, h, w) float from 0 to 1


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a network says of one image."""

    labels: Labels
    conf: NDArray[np.float32]  # (H, W) probability of that class


def prepare(image: Pixels, facts: InputFacts, scales: Sequence[float] = (1.0,)) -> Prepared:
    """The image at the network's shorter side times each scale; one it cannot read is an ImageError."""
    height, width = image.shape[:2]
    base = facts.short_side / min(height, width) if facts.short_side else 1.0
    planes = fitting_planes(image, facts.in_channels, "It")  # who asks knows its name
    sizes = [(max(1, round(height * base * s)), max(1, round(width * base * s))) for s in scales]
    laid = (lay_image(planes, whole(height, width, size), size) for size in sizes)
    return Prepared((height, width), tuple(x.expand(facts.in_channels, -1, -1) for x in laid))


class Predictor:
    """A network with everything needed to ask it. Images of one size are asked about together."""

    def __init__(  # noqa: PLR0913  each choice has a name
        self,
        net: nn.Module,
        facts: InputFacts,
        device: str | torch.device | None = None,
        window: int | None = None,
        flips: bool = False,
        scales: Sequence[float] = (1.0,),
        batch: int = 8,
    ) -> None:
        """`device` None leaves the network where it is.

        `flips` asks about the mirror image too, `scales` about the image at several sizes; probabilities are averaged.
        """
        if window is not None and window < facts.multiple:
            raise UsageError(f"A window of {window} is too small: this model sees {facts.multiple} pixels at a time.")
        if not scales or not all(0.1 <= scale <= 10 for scale in scales):
            raise UsageError(f"Scales must lie between 0.1 and 10; these are {list(scales)}.")
        if batch < 1:
            raise UsageError(f"A batch of {batch} images is none. Ask for at least 1.")
        self.net = net if device is None else net.to(device)
        self.facts, self.window, self.flips, self.scales, self.batch = facts, window, flips, tuple(scales), batch

    def probabilities(self, images: Sequence[Pixels]) -> list[Tensor]:
        """(C, H, W) class probabilities of each image at its own size."""
        found = dict(self._each(images, lambda scores: scores.softmax(0)))
        return [found[i] for i in range(len(images))]

    def labels_and_conf(self, images: Sequence[Pixels]) -> list[Prediction]:
        """The best class and its probability for every pixel of each image; only one image's scores exist at a time."""
        found = dict(self._each(images, _prediction))
        return [found[i] for i in range(len(images))]

    def scores(self, prepared: Sequence[Prepared]) -> Iterator[Tensor]:
        """(C, H, W) scores of each image, in order, whose softmax is the class probabilities. All are of one size.

        They are logits where the network was asked once, and logarithms of averaged probabilities otherwise.
        """
        rest, at_once = list(prepared), self._images_at_once(prepared[0].scaled)
        while rest:
            chunk = rest[:at_once]
            try:
                views = [view for scale in range(len(self.scales)) for view in self._views(chunk, scale)]
            except (MemoryError, RuntimeError) as error:
                if len(chunk) == 1 or not is_out_of_memory(error):
                    raise
                at_once = len(chunk) // 2
                continue
            for i in range(len(chunk)):
                yield self._joined([view[i : i + 1] for view in views], chunk[i].size)
            del rest[:at_once]

    def predictions(self, prepared: Sequence[Prepared]) -> Iterator[Prediction]:
        """`labels_and_conf` of prepared images of one size, one after the other."""
        return map(_prediction, self.scores(prepared))

    def _each(self, images: Sequence[Pixels], of: Callable[[Tensor], Result]) -> Iterator[tuple[int, Result]]:
        numbered = ((i, prepare(image, self.facts, self.scales)) for i, image in enumerate(images))
        for group in by_size(numbered, lambda item: item[1].size, self.batch):
            for (i, _), scores in zip(group, self.scores([p for _, p in group]), strict=True):
                yield i, of(scores)

    def _images_at_once(self, scaled: Sequence[Tensor]) -> int:
        largest = max(scaled, key=Tensor.numel)
        fits = MOST_PIXELS // (largest.shape[1] * largest.shape[2])
        if self.window is not None:
            fits = min(fits, self.batch // len(windows(largest.shape[1], largest.shape[2], self.window)))
        return max(1, min(self.batch, fits))

    def _views(self, chunk: Sequence[Prepared], scale: int) -> Iterator[Tensor]:
        """The network's answers to one scale, as it is and mirrored: logits, or probabilities with a window."""
        images = torch.stack([p.scaled[scale] for p in chunk])
        ask = self._ask if self.window is None else self._slide
        yield ask(images)
        if self.flips:
            yield ask(images.flip(-1)).flip(-1)

    @torch.inference_mode()
    def _joined(self, views: Sequence[Tensor], size: tuple[int, int]) -> Tensor:
        full = (resize(view, size)[0] for view in views)
        if self.window is None and len(views) == 1:
            return next(full)
        total: Tensor = sum(view if self.window is not None else view.softmax(0) for view in full)  # type: ignore[assignment]
        return (total / len(views)).log()

    @torch.inference_mode()
    def _ask(self, images: Tensor) -> Tensor:
        """Logits of (B, C, h, w) images from 0 to 1, at the nearest size that the encoder can see."""
        size = [nearest_multiple(side, self.facts.multiple) for side in images.shape[-2:]]
        images = images.to(_device(self.net), non_blocking=True)
        mean, std = (images.new_tensor(values).view(1, -1, 1, 1) for values in (self.facts.mean, self.facts.std))
        with answering(self.net):
            logits: Tensor = self.net(resize((images - mean) / std, size))
        return logits.float()

    @torch.inference_mode()
    def _slide(self, images: Tensor) -> Tensor:
        """Probabilities (B, C, h, w) at the images' size, averaged over the windows that see a pixel."""
        assert self.window is not None
        places = windows(images.shape[-2], images.shape[-1], self.window)
        together = max(1, min(self.batch, MOST_PIXELS // self.window**2) // len(images))
        total: Tensor | None = None
        count = torch.zeros(images.shape[-2:])
        for start in range(0, len(places), together):
            chunk = places[start : start + together]
            crops = torch.cat([_cut(images, place) for place in chunk])
            answers = resize(self._ask(crops), crops.shape[-2:]).softmax(1)
            if total is None:
                total = answers.new_zeros(len(images), answers.shape[1], *images.shape[-2:])
            for place, answer in zip(chunk, torch.split(answers, len(images)), strict=True):
                _cut(total, place).add_(answer)
                _cut(count, place).add_(1)
        assert total is not None
        return total.div_(count.to(total.device))


@contextmanager
def answering(net: nn.Module) -> Iterator[None]:
    """Inside, the whole network is in evaluation mode; afterwards every module is in the mode it was in."""
    before = [(module, module.training) for module in net.modules()]
    for module, _ in before:
        module.training = False
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def opinion(scores: Tensor) -> PseudoLabels:
    """The best class and its probability at every pixel of (C, H, W) scores, as a batch of one."""
    return pseudo_labels(scores[None], scores.new_ones(1, *scores.shape[1:], dtype=torch.bool))


def _prediction(scores: Tensor) -> Prediction:
    said = opinion(scores)
    return Prediction(said.labels[0].to(torch.int16).cpu().numpy(), said.conf[0].cpu().numpy())


def _cut(maps: Tensor, place: Window) -> Tensor:
    return maps[..., place.top : place.top + place.size, place.left : place.left + place.size]


def _device(net: nn.Module) -> torch.device:
    tensor = next(net.parameters(), None)
    return torch.device("cpu") if tensor is None else tensor.device
