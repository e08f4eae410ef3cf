"""What OPR's prototypes answer to, over a set (reading D7).

The mass of a prototype is the sum of its similarity where that is above 0, cell by cell at the encoder's resolution:

    dominant      the foreground class with most of its foreground mass
    purity        that class's share of the foreground mass
    selectivity   share of all mass that lies on foreground
    entropy       of the mass over foreground cells, as a share of log N: 1 where it is spread evenly over all N

A prototype that answers alike everywhere has the selectivity and purity of the cells themselves: the chance levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from ftcseg.data.dataset import Dataset
from ftcseg.errors import UsageError
from ftcseg.evaluate.metrics import share
from ftcseg.evaluate.predictor import InputFacts, answering, prepare
from ftcseg.nets.opr import OPR, Classify, labels_at, length, unit
from ftcseg.nets.segmenter import Segmenter
from ftcseg.parallel import Progress, silent
from ftcseg.types import IGNORE, Labels, Pixels


@dataclass(frozen=True, slots=True)
class PrototypeStats:
    """One prototype over a set; None where it answers to nothing."""

    mass: float
    dominant: int | None
    purity: float | None
    selectivity: float | None
    entropy: float | None


@dataclass(frozen=True, slots=True)
class Chance:
    """What a prototype would show that answers alike to every cell."""

    cells: int
    foreground: int
    purity: float | None
    selectivity: float | None


@dataclass(frozen=True, slots=True, eq=False)
class StageStats:
    """All prototypes of one stage."""

    prototypes: tuple[PrototypeStats, ...]
    chance: Chance
    gates: tuple[float, ...]
    corrections: tuple[float, ...]
    """Of each prototype alone: the mean length of what it adds over the mean length of a feature."""
    change: float
    """The same of all of them together."""


class Responses:
    """Sums over everything added, from which all of it is formed at the end."""

    def __init__(self, count: int, num_classes: int, foreground: Collection[int]) -> None:
        if not foreground:
            raise UsageError("Without a foreground class prototypes have nothing to be selective about.")
        self.mass = torch.zeros(count, num_classes, dtype=torch.float64)
        self.cells = torch.zeros(num_classes, dtype=torch.int64)
        self._logs = torch.zeros(count, dtype=torch.float64)  # sum of s log s over foreground cells
        self._foreground = sorted(foreground)

    def add(self, similarity: Tensor, labels: Tensor) -> None:
        """Count (K, N) similarities of N cells; cells that nobody knows are skipped."""
        known = labels != IGNORE
        positive = similarity[:, known].double().clamp(min=0).cpu()
        ids = labels[known].cpu()
        self.mass.index_add_(1, ids, positive)
        self.cells += torch.bincount(ids, minlength=len(self.cells))
        inside = positive[:, torch.isin(ids, torch.tensor(self._foreground))]
        self._logs += torch.special.xlogy(inside, inside).sum(1)

    def prototypes(self) -> tuple[PrototypeStats, ...]:
        """What each prototype answers to."""
        return tuple(self._of(k) for k in range(len(self.mass)))

    def chance(self) -> Chance:
        """What there is to answer to."""
        inside = self.cells[self._foreground]
        total, foreground = int(self.cells.sum()), int(inside.sum())
        return Chance(total, foreground, share(int(inside.max()), foreground), share(foreground, total))

    def _of(self, k: int) -> PrototypeStats:
        inside = self.mass[k, self._foreground]
        everywhere, foreground = float(self.mass[k].sum()), float(inside.sum())
        if not foreground:
            return PrototypeStats(everywhere, None, None, 0.0 if everywhere else None, None)
        first = int(inside.argmax())
        cells = int(self.cells[self._foreground].sum())
        # With p = s / M: -sum p log p = log M - (sum s log s) / M
        spread = math.log(foreground) - float(self._logs[k]) / foreground
        return PrototypeStats(
            mass=everywhere,
            dominant=self._foreground[first],
            purity=float(inside[first]) / foreground,
            selectivity=foreground / everywhere,
            entropy=spread / math.log(cells) if cells > 1 else None,
        )


def deepest(net: Segmenter) -> tuple[int, OPR, Classify | None]:
    """The deepest OPR stage: its level, the stage, and who judges its prototypes."""
    if net.opr is None:
        raise UsageError("This network has no OPR, so there are no prototypes to look at. Train with opr.layers=1.")
    level, stage = list(net.opr)[-1]
    return level, stage, net.opr.judge(net.head, level)


@torch.inference_mode()
def answers(net: Segmenter, image: Pixels, facts: InputFacts) -> tuple[Tensor, Tensor]:
    """Features (1, C, h, w) of the deepest OPR stage, and their similarity (K, h, w) to its prototypes."""
    level, stage, _ = deepest(net)
    picture = prepare(image, facts).scaled[0][None].to(stage.prototypes.device)
    mean, std = (picture.new_tensor(values).view(1, -1, 1, 1) for values in (facts.mean, facts.std))
    with answering(net):
        features = net.features((picture - mean) / std)[level]
    return features, stage.similarity(features)[0].view(-1, *features.shape[-2:])


@torch.inference_mode()
def prototype_stats(
    net: Segmenter,
    images: Dataset,
    facts: InputFacts,
    foreground: Collection[int],
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
) -> StageStats | None:
    """The prototypes of the deepest stage over all labelled images; None when stopped."""
    _, stage, judge = deepest(net)
    gates = stage.gates(judge).double().cpu()
    found = Responses(len(stage.prototypes), len(images.classes), foreground)
    lengths, size, moved = torch.zeros(len(gates), dtype=torch.float64), 0.0, 0.0
    reach = gates.abs() * _lengths(stage)
    labeled = images.labeled()
    for number, sample in enumerate(labeled, 1):
        if stop():
            return None
        features, similarity = answers(net, sample.image, facts)
        assert sample.labels is not None
        found.add(similarity.flatten(1), at_cells(sample.labels, similarity.shape[-2:]).flatten())
        lengths += reach * similarity.flatten(1).abs().double().sum(1).cpu()
        size += float(length(features, dim=1).double().sum())
        rebuilt = stage(features, judge)
        added = rebuilt - features if stage.params.residual else rebuilt
        moved += float(length(added, dim=1).double().sum())
        progress(number, len(labeled))
    whole = max(size, torch.finfo(torch.float64).tiny)
    return StageStats(
        found.prototypes(),
        found.chance(),
        tuple(gates.tolist()),
        tuple((lengths / whole).tolist()),
        moved / whole,
    )


def at_cells(labels: Labels, size: torch.Size) -> Tensor:
    """(h, w) labels of the cells: the pixel under the centre of each."""
    return labels_at(torch.from_numpy(labels).long()[None], size)[0]


def _lengths(stage: OPR) -> Tensor:
    """How long what a prototype adds is, at a similarity of 1."""
    mu = unit(stage.prototypes) if stage.params.aggregate == "unit" else stage.prototypes
    return length(mu)[:, 0].double().cpu()
