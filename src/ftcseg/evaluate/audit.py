"""What a teacher's pseudo-labels are worth, measured with masks that training never saw (reading D2).

This is the only place where the oracle masks of unlabelled images are read. What it returns is for the report; nothing
of it may find its way back into a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from ftcseg.data.dataset import Dataset
from ftcseg.distributed import sum_over_ranks
from ftcseg.evaluate.metrics import group_means, iou, mean
from ftcseg.evaluate.predictor import InputFacts, Predictor
from ftcseg.evaluate.pseudo_quality import GLOBAL, PseudoQuality
from ftcseg.evaluate.run import Shown, Tour, chosen, visit
from ftcseg.parallel import Progress, silent
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.types import ClassTable, Group


def audit(  # noqa: PLR0913  each choice has a name
    teacher: nn.Module,
    thresholds: Thresholds,
    dataset: Dataset,
    facts: InputFacts,
    groups: Mapping[int, Group],
    *,
    batch: int = 8,
    rank: int = 0,
    world: int = 1,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    max_images: int | None = None,
    window: int | None = None,
) -> dict[str, object] | None:
    """Pseudo-labels of whole images against their oracle masks, ready to be written; None when stopped.

    `dataset` holds unlabelled training images of which at least some do have a mask. Under several processes all of
    them must call this alike; all get the counts of the whole set.
    """
    predictor = Predictor(teacher, facts, None, window, batch=batch)
    quality = PseudoQuality(len(dataset.classes))

    def look(shown: Sequence[Shown]) -> None:
        for scores, one in zip(predictor.scores([s.prepared for s in shown]), shown, strict=True):
            everywhere = scores.new_ones(1, *scores.shape[1:], dtype=torch.bool)
            pseudo = thresholds.labels_of(scores[None], everywhere)
            quality.add(pseudo, thresholds.accept(pseudo), one.labels[None].to(scores.device))

    unread: list[str] = []  # training went on without them, and so does the audit
    tour = Tour(batch=batch, rank=rank, world=world, max_images=max_images, stop=stop, progress=progress, unread=unread)
    if not visit(dataset, facts, look, tour):
        return None
    return {
        "images": len(chosen(dataset, max_images)) - int(sum_over_ranks(torch.tensor(len(unread)))),
        "thresholds": {name: value.tolist() for name, value in thresholds.facts().items()},
        **_as_json(quality.summed(), dataset.classes, groups),
    }


def _as_json(quality: PseudoQuality, classes: ClassTable, groups: Mapping[int, Group]) -> dict[str, object]:
    """PseudoQuality's own, and the IoU of what was kept, per class and group."""
    kept = iou(quality.counts[1])
    return {
        **quality.as_json(classes, groups),
        "kept_iou": {"classes": kept, "groups": {GLOBAL: mean(kept), **group_means(kept, groups)}},
    }
