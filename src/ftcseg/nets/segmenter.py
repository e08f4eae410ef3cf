"""The network: encoder, OPR, head. `features` and `decode` are its two halves; `forward` is both.

With a frozen encoder the first half is the same for student and teacher, so a method may compute it once and hand it to
both: `teacher.decode(features, size)`, `student.decode(features, size)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ftcseg.nets.drop import Perturb
from ftcseg.nets.heads.base import Head, resize
from ftcseg.nets.opr import OPRStack, OPRStatistics

if TYPE_CHECKING:
    from ftcseg.nets.encoders.base import Encoder


class Segmenter(nn.Module):
    """Normalised images (B, C, H, W) of any size in, logits (B, num_classes, H, W) out."""

    def __init__(self, encoder: Encoder, head: Head, opr: OPRStack | None, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.opr = opr
        self.num_classes = num_classes

    def forward(self, images: Tensor, perturb: Perturb | None = None) -> Tensor:
        """Logits at the images' size. `perturb` disturbs the features between OPR and head."""
        return self.decode(self.features(images), images.shape[-2:], perturb)

    def features(self, images: Tensor) -> list[Tensor]:
        """The encoder's maps, shallow to deep, before OPR. A frozen encoder keeps no graph, not even to the images."""
        height, width = images.shape[-2:]
        images = resize(images, [nearest_multiple(side, self.encoder.multiple) for side in (height, width)])
        learns = any(p.requires_grad for p in self.encoder.parameters())
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            maps: list[Tensor] = self.encoder(images)
            return maps

    def decode(self, features: list[Tensor], size: Sequence[int], perturb: Perturb | None = None) -> Tensor:
        """Logits at `size` from the encoder's maps."""
        return resize(self.head(self._refined(features, perturb)), size)

    def embed(self, features: list[Tensor], perturb: Perturb | None = None) -> Tensor:
        """What the classifier reads, (B, width, h, w) at the head's own size: the first part of `decode`."""
        return self.head.embedding(self._refined(features, perturb))

    def classify(self, embedding: Tensor, size: Sequence[int]) -> Tensor:
        """Logits at `size` from what `embed` gave: the second part of `decode`."""
        return resize(self.head.classifier(embedding), size)

    def overlap(self) -> Tensor:
        """L_O of the prototypes, the mean over OPR stages; 0 without OPR."""
        return self.head.classifier.weight.new_zeros(()) if self.opr is None else self.opr.overlap()

    def probe_loss(self, features: list[Tensor], labels: Tensor) -> Tensor:
        """Cross-entropy of OPR's probes on the encoder's maps; 0 without OPR or without probes."""
        return features[-1].new_zeros(()) if self.opr is None else self.opr.probe_loss(features, labels)

    def _refined(self, features: list[Tensor], perturb: Perturb | None) -> list[Tensor]:
        if self.opr is not None:
            features = self.opr(features, self.head)
        return features if perturb is None else perturb(features)

    @torch.no_grad()
    def diagnostics(self, features: list[Tensor]) -> list[OPRStatistics]:
        """How each OPR stage treats these maps, shallow to deep; empty without OPR."""
        if self.opr is None:
            return []
        return [stage.statistics(features[level], self.opr.judge(self.head, level)) for level, stage in self.opr]


def nearest_multiple(side: int, multiple: int) -> int:
    """The multiple nearest to a side, halves upwards, and never 0: 320 -> 322, 480 -> 476 for DINOv2's 14."""
    return max(1, int(side / multiple + 0.5)) * multiple
