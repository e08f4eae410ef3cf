"""The last feature vectors of every class, and what a pixel looks like by them (DASO).

    c_k    = mean of the vectors in the queue of class k
    q_k(z) = softmax_k cos(z, c_k) / temperature

Vectors enter a few at a time, drawn from the labelled pixels of a step, and the oldest leave. A class that was never
seen has no mean; q is then about the other classes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.distributed import join_ranks
from ftcseg.nets.heads.base import resize
from ftcseg.nets.opr import labels_at
from ftcseg.types import IGNORE


class ClassQueues(nn.Module):
    """One ring of `size` vectors per class; equal on all ranks."""

    vectors: Tensor  # (num_classes, size, width)
    filled: Tensor  # (num_classes,) int64, places that hold a vector
    place: Tensor  # (num_classes,) int64, where the next one goes

    def __init__(self, num_classes: int, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("vectors", torch.zeros(num_classes, size, width))
        self.register_buffer("filled", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("place", torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def push(self, vectors: Tensor, counts: Tensor) -> None:
        """Let new vectors in: the first `counts[c]` of `vectors[c]`, which is (num_classes, n, width).

        Under several processes everybody's come in, rank after rank. Infinite ones leave the queues as they are.
        """
        everybody = join_ranks(vectors.to(self.vectors)[None])
        if not everybody.isfinite().all():
            return
        for mine, known in zip(everybody, join_ranks(counts[None]), strict=True):
            self._push(mine[:, : self.size], known.clamp(max=self.size))

    def means(self) -> Tensor:
        """(num_classes, width); zeros for a class that holds nothing."""
        return self.vectors.sum(1) / self.filled.clamp(min=1)[:, None]  # empty places are zeros

    def known(self) -> Tensor:
        """(num_classes,) bool: the classes that hold something."""
        return self.filled > 0

    def likeness(self, embedding: Tensor, size: Sequence[int], temperature: float) -> Tensor:
        """Logits of q at `size`, of a (B, width, h, w) map: (B, num_classes, *size), -inf for classes never seen."""
        with torch.autocast(embedding.device.type, enabled=False):  # divided by 0.05, half precision is off by a tenth
            means = F.normalize(self.means(), dim=1)[:, :, None, None]
            cosines = F.conv2d(F.normalize(embedding.float(), dim=1), means)
        return (resize(cosines, size) / temperature).masked_fill(~self.known()[:, None, None], -torch.inf)

    def _push(self, vectors: Tensor, counts: Tensor) -> None:
        numbers = torch.arange(vectors.shape[1], device=counts.device)
        classes, columns = (numbers < counts[:, None]).nonzero(as_tuple=True)
        places = (self.place[classes] + columns) % self.size
        self.vectors[classes, places] = vectors[classes, columns]
        self.filled.add_(counts).clamp_(max=self.size)
        self.place.add_(counts).remainder_(self.size)


@torch.no_grad()
def draw_by_class(embedding: Tensor, labels: Tensor, num_classes: int, each: int, seed: int) -> tuple[Tensor, Tensor]:
    """At most `each` labelled pixels of every class, drawn at random: (num_classes, each, width), and how many.

    `embedding` is (B, width, h, w); `labels` (B, H, W) are looked up at its cells. Places without a pixel are zeros.
    """
    pixels = embedding.movedim(1, -1).flatten(0, 2)
    classes = labels_at(labels, embedding.shape[-2:]).flatten()
    shuffled = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed)).to(classes.device)
    order = shuffled[classes[shuffled].argsort(stable=True)]  # class after class, each in random order
    totals = torch.bincount(classes[classes != IGNORE], minlength=num_classes)
    starts = (classes == IGNORE).sum() + totals.cumsum(0) - totals  # IGNORE is below every class id
    counts = totals.clamp(max=each)
    numbers = torch.arange(each, device=classes.device)
    drawn = order[(starts[:, None] + numbers).clamp(max=len(order) - 1)]
    return pixels[drawn] * (numbers < counts[:, None])[..., None], counts
