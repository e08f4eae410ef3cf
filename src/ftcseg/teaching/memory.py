"""The last weak views, kept so that a method may ask for one that shows a certain class (ADR 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ftcseg.distributed import join_ranks
from ftcseg.teaching.pseudo import class_counts
from ftcseg.types import PseudoLabels


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """Views to cut from, one for each image of a batch."""

    images: Tensor  # (B, C, H, W)
    valid: Tensor  # (B, H, W) bool


class ImageMemory(nn.Module):
    """A ring of weak views. All of it is buffers, equal on all ranks: a restart forgets nothing."""

    images: Tensor  # (slots, C, H, W) float, normalised
    valid: Tensor  # (slots, H, W) bool, False in padding
    present: Tensor  # (slots, num_classes) bool, classes that the teacher saw when it last looked
    stored: Tensor  # () int64, images stored so far; the next goes to slot stored % slots

    def __init__(self, slots: int, view: tuple[int, int, int], num_classes: int) -> None:
        """`view` is (channels, height, width) of the images to come."""
        super().__init__()
        self.register_buffer("images", torch.zeros(slots, *view))
        self.register_buffer("valid", torch.zeros(slots, *view[1:], dtype=torch.bool))
        self.register_buffer("present", torch.zeros(slots, num_classes, dtype=torch.bool))
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def remember(self, images: Tensor, valid: Tensor, present: Tensor) -> None:
        """Store these views, (B, ...) each, in the place of the oldest; of more than there is room for, the last."""
        slots = len(self.images)
        if slots == 0:
            return
        images, valid, present = (join_ranks(part)[-slots:] for part in (images, valid, present))
        place = (self.stored + torch.arange(len(images), device=self.stored.device)) % slots
        self.images[place], self.valid[place], self.present[place] = images.to(self.images), valid, present
        self.stored += len(images)

    def find(self, wanted: Sequence[int], otherwise: Partners, rng: np.random.Generator) -> Partners:
        """For each image a random view that shows the class wanted for it, or any view where none does.

        While nothing is remembered yet, `otherwise`.
        """
        filled = min(int(self.stored), len(self.images))
        if filled == 0:
            return otherwise
        present = self.present[:filled].cpu().numpy()
        slots = []
        for class_id in wanted:
            (shows,) = np.nonzero(present[:, class_id])
            slots.append(int(rng.choice(shows)) if len(shows) else int(rng.integers(filled)))
        return Partners(self.images[slots], self.valid[slots])


def classes_present(pseudo: PseudoLabels, num_classes: int, least: float) -> Tensor:
    """(B, num_classes) bool, classes that fill at least this share of each view."""
    views = zip(pseudo.labels, pseudo.valid, strict=True)
    pixels = torch.stack([class_counts(labels[valid], num_classes) for labels, valid in views])
    return pixels >= max(1, least * pseudo.labels[0].numel())
