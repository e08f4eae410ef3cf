"""What every head is: four feature maps in, logits at its own resolution out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import UsageError


class Head(nn.Module):
    """Turns encoder maps, shallow to deep, into class scores. All are built alike, see `MakeHead`."""

    channels: tuple[int, ...]
    """Width of each map it reads."""
    classifier: nn.Conv2d
    """Its last layer, a 1x1 convolution to the classes."""
    mixes_batch = False
    """True where BatchNorm lets the images of a batch see each other: no place for made-up questions (`answer`)."""

    def __init__(self, channels: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.channels = tuple(channels)
        if num_classes < 2:
            raise UsageError(f"A head needs at least 2 classes, not {num_classes}; background counts as one.")

    def forward(self, features: list[Tensor]) -> Tensor:
        """Logits (B, num_classes, h, w) at the head's own resolution."""
        logits: Tensor = self.classifier(self.embedding(features))
        return logits

    def embedding(self, features: list[Tensor]) -> Tensor:
        """What the classifier reads, (B, width, h, w) at the head's own resolution."""
        raise NotImplementedError

    def classify(self, vectors: Tensor) -> Tensor:
        """What the classifier alone says to each of (K, C) vectors: (K, num_classes) logits."""
        if vectors.shape[1] != self.classifier.in_channels:
            raise UsageError(
                f"The head's classifier reads {self.classifier.in_channels} channels, these vectors have "
                f"{vectors.shape[1]}. Build the head with wide={vectors.shape[1]}, or choose the gate_head «probe»."
            )
        return F.linear(vectors, self.classifier.weight.flatten(1), self.classifier.bias)

    def answer(self, vectors: Tensor, level: int) -> Tensor:
        """What the head says to each of (K, C) vectors alone: (K, num_classes) logits.

        Each vector becomes a 1x1 map at its level; the other levels are silent (zeros). Some heads enlarge the map on
        the way; their scores are averaged over it.
        """
        if self.mixes_batch:
            raise UsageError(
                f"{type(self).__name__} has BatchNorm, so vectors cannot be pushed through it one by one. "
                "Choose the gate_head «probe», or the dpt or fusion head."
            )
        maps = [vectors.new_zeros(len(vectors), width, 1, 1) for width in self.channels]
        maps[level] = vectors[:, :, None, None]
        scores: Tensor = self(maps)
        return scores.mean(dim=(2, 3))


class MakeHead(Protocol):
    """How a head is made.

    `features` is its working width (None: the width of its paper). `wide` is how many channels enter the classifier
    (None: the working width); OPR's head_wide gate sets it to the encoder's width (reading A3).
    """

    def __call__(
        self, channels: Sequence[int], num_classes: int, *, features: int | None = None, wide: int | None = None
    ) -> Head:
        """A fresh head."""
        ...


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm2d that also takes a batch with one value per channel: a pooled single image, a 1x1 map.

    One value has no spread to normalise by, and torch refuses it in training. Here it is normalised by the running
    statistics, as in evaluation, and leaves them as they are.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        """The normalised map."""
        if self.training and input.numel() == self.num_features:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


def resize(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear with corners aligned, as everywhere in UniMatch and FTC-Seg; the map itself where the size is right."""
    if tuple(maps.shape[-2:]) == tuple(size):
        return maps
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=True)


def conv_norm_relu(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    """A convolution that keeps the size, BatchNorm, ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(conv, BatchNorm(outputs), nn.ReLU())
