"""A patch classifier beside a student: it reads the student's first map, learns patch labels, and doubts some."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ftcseg.losses.patch import area_loss, trusted_loss
from ftcseg.nets.drop import FeatureDrop
from ftcseg.nets.norms import as_evaluated, still_statistics
from ftcseg.nets.patches import PatchClassifier
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import seed_for
from ftcseg.teaching.patches import DoubtRates, PatchLabels, doubtful, patch_labels
from ftcseg.types import IGNORE, Clock, PseudoLabels


class PatchPupil(nn.Module):
    """Maps that go in are an encoder's first ones, (B, C, h, w), of images whose height is `height`."""

    def __init__(self, channels: int, rates: DoubtRates, drop: float, seed: int) -> None:
        """`drop` is the share of hidden channels that are silenced while it learns."""
        super().__init__()
        self.rates, self.drop, self.seed = rates, drop, seed
        with torch.random.fork_rng(devices=[]):  # a start of its own, whatever was drawn before
            torch.manual_seed(seed_for(seed, "patches"))
            self.classifier = PatchClassifier(channels, len(rates.delta))

    def learn_labels(self, first: Tensor, labels: Tensor, clock: Clock) -> Tensor:
        """The loss on labelled images, (B, H, W) labels; the rates take note of how sure it is of what is there."""
        logits = self._ask(first, labels.shape[-2], "labeled patches", clock)
        patches = patch_labels(labels, len(self.rates.delta), first.shape[-2:])
        self.rates.observe(logits, patches)
        return area_loss(logits, patches.present, patches.share, patches.known)

    def ask(self, streams: Sequence[Tensor], height: int, clock: Clock, *, still: bool) -> list[Tensor]:
        """Logits of the patches of each stream, all of them equally many; `still` moves no batch statistics."""
        with still_statistics(self.classifier) if still else nullcontext():
            logits = self._ask(torch.cat(list(streams)), height, "patches", clock)
        return list(logits.chunk(len(streams)))

    def label(self, pseudo: PseudoLabels, sure: Tensor, first: Tensor) -> PatchLabels:
        """Patch labels at the cells of this map, made of the pixels that are sure, (B, H, W) bool."""
        return patch_labels(pseudo.labels.masked_fill(~sure, IGNORE), len(self.rates.delta), first.shape[-2:])

    @torch.no_grad()
    def doubt(
        self, student: Segmenter, views: Sequence[Tensor], first: Tensor, patches: Sequence[PatchLabels]
    ) -> list[Tensor]:
        """Patches to doubt: of each view, (B, C, H, W) images, and last of a map that the student has made.

        Views are judged as both networks would be evaluated; the map as it was made, in train mode, and nothing of it
        is remembered. `patches` are the labels of all of them.
        """
        cell = views[0].shape[-2] / first.shape[-2]
        with as_evaluated(student), as_evaluated(self.classifier):
            logits = self.classifier(student.features(torch.cat(list(views)))[0], cell)
        with still_statistics(self.classifier):
            answers = [*logits.chunk(len(views)), self.classifier(first, cell)]
        each = zip(answers, patches, strict=True)
        return [doubtful(answer, patch, self.rates.delta) for answer, patch in each]

    def _ask(self, first: Tensor, height: int, name: str, clock: Clock) -> Tensor:
        drop = FeatureDrop(seed=seed_for(self.seed, name, clock.step), rate=self.drop)
        logits: Tensor = self.classifier(first, height / first.shape[-2], drop)
        return logits


def patch_loss(answers: Sequence[Tensor], patches: Sequence[PatchLabels], doubted: Sequence[Tensor]) -> Tensor:
    """The sum over streams of the loss on patch labels that are not doubted."""
    each = zip(answers, patches, doubted, strict=True)
    return torch.stack([trusted_loss(logits, p.present, ~doubt, p.known) for logits, p, doubt in each]).sum()
