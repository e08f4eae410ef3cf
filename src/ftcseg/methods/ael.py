"""AEL (Hu et al. 2021): what the student knows least is shown more often, pasted more often and weighs more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import pixel_loss, weight_map_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.rng import random_for, seed_for
from ftcseg.teaching.answers import ask_student
from ftcseg.teaching.confidence import Absent, ConfidenceBank
from ftcseg.teaching.memory import ImageMemory, Partners, classes_present
from ftcseg.teaching.pseudo import paste_pseudo, pseudo_labels
from ftcseg.teaching.teacher import scaled_momentum
from ftcseg.teaching.thresholds.base import check_choices
from ftcseg.types import IGNORE, Clock, Labeled, PseudoLabels, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import copy_classes, object_boxes, paste

BANK_MOMENTUM = 0.999  # the paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class AELParams:
    """AEL's own settings; the numbers are the released code's for Cityscapes."""

    momentum: float | None = None
    """Memory of the confidence bank, 0.999 in the paper; None remembers the same share of a shorter run (ours)."""
    absent: Absent = "keep"
    """A class absent from the batch keeps its confidence (ours); «zero» counts it as unknown, as the released code."""
    targets: tuple[int, ...] | None = None
    """Classes that may be copied; None is every foreground class (ours), in the code a list of Cityscapes ids."""
    paste_classes: int = 3
    """Classes drawn for each labelled image; 1 for VOC."""
    paste_chance: float = 0.5
    """How often a labelled image gets any."""
    memory: int = 16
    """Weak views that are kept to cut from (ours, ADR 12); 0 cuts from the same batch."""
    object_area: float = 0.005
    """Smallest object to cut out, as a share of the view; 0.03 for VOC."""
    present_area: float = 0.01
    """Share of the view from which on a class counts as present; 0.03 for VOC."""
    power: float = 2.0
    """A pixel weighs confidence ** power."""

    def __post_init__(self) -> None:
        check_choices(self)


class AEL(Method):
    """A mean teacher that hunts for the classes the confidence bank misses."""

    views = ViewPlan(strong=0, cutmix=False, labeled_partner=True)  # no colour jitter, and boxes of its own

    def __init__(self, kit: Kit, params: AELParams) -> None:
        super().__init__(kit.pair())
        self.params, self.seed, self.num_classes = params, kit.seed, len(kit.classes)
        self.targets = list(params.targets or kit.classes.foreground or range(self.num_classes))
        if not set(self.targets) <= set(range(self.num_classes)):
            raise UsageError(f"params.targets names an unknown class; ids run from 0 to {self.num_classes - 1}.")
        momentum = scaled_momentum(BANK_MOMENTUM, kit.steps) if params.momentum is None else params.momentum
        self.bank = ConfidenceBank(self.num_classes, momentum, params.absent)
        self.memory = ImageMemory(params.memory if kit.view else 0, kit.view or (0, 0, 0), self.num_classes)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        rng = random_for(self.seed, "ael", clock.step)
        # 1  Adaptive copy-paste: labelled images get pixels of classes that are badly known.
        labeled, unlabeled = self._pasted(batch.labeled, rng), batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(replace(batch, labeled=labeled))
        # 2  Adaptive CutMix: a class that is badly known is wanted, and an image that shows it.
        wanted = rng.choice(self.num_classes, len(unlabeled.weak), p=self.bank.chances()).tolist()
        partners = self.memory.find(wanted, Partners(unlabeled.weak.flip(0), unlabeled.valid.flip(0)), rng)
        # 3  The teacher reads them all; a box around the wanted class is pasted, with what the teacher says of it.
        weak, other, taught = self._teach(unlabeled.weak, partners.images, labeled.images)
        others = pseudo_labels(other, partners.valid)
        boxes = object_boxes(others.labels, others.valid, wanted, self.params.object_area, rng)
        mixed = paste_pseudo(pseudo_labels(weak, unlabeled.valid), others, boxes)
        # 4  The student answers; the bank takes note of how sure it is of each true class.
        shown = [paste(unlabeled.weak, partners.images, boxes)]
        said = ask_student(self.pair.student, labeled.images, shown, weak, self.pair.params.norms)
        pseudo = self.pair.judge(replace(said, taught=taught), labeled, unlabeled)
        self.bank.observe(said.labeled, labeled.labels)
        # 5  Pixels are drawn by what the student takes them for, and weigh by what the teacher is sure of.
        known = pseudo_labels(taught, labeled.labels != IGNORE)
        agree = self._compare(said.labeled, known, seed_for(self.seed, "labeled pixels", clock.step))
        unsup = self._compare(said.strong[0], mixed, seed_for(self.seed, "mixed pixels", clock.step))
        shows = classes_present(pseudo, self.num_classes, self.params.present_area)
        self.memory.remember(unlabeled.weak, unlabeled.valid, shows)
        # 6  L = L_sup + w (L_labelled + L_mixed), and what OPR adds.
        sup, extra = pixel_loss(said.labeled, labeled.labels), self.pair.opr_losses(said, labeled)
        loss = torch.stack([sup + self.pair.weight(clock) * (agree + unsup), *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, "agree": agree, **extra}, self.pair.counts(pseudo))

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds and OPR as everywhere, and the confidence bank."""
        return {**self.pair.facts(), "bank": self.bank.level.clone()}

    def _pasted(self, labeled: Labeled, rng: np.random.Generator) -> Labeled:
        chances = self.bank.chances(self.targets, power=0.5)
        numbers = [self.params.paste_classes * (rng.random() < self.params.paste_chance) for _ in labeled.labels]
        return copy_classes(labeled, [rng.choice(self.targets, number, p=chances).tolist() for number in numbers])

    @torch.no_grad()
    def _teach(self, *images: Tensor) -> list[Tensor]:
        logits: Tensor = self.pair.labeler(torch.cat(images))
        return list(torch.split(logits, [len(part) for part in images]))

    def _compare(self, logits: Tensor, pseudo: PseudoLabels, seed: int) -> Tensor:
        chosen = self.pair.thresholds.accept(pseudo) & self.bank.draw_pixels(logits, seed)
        return weight_map_loss(logits, pseudo, pseudo.conf.pow(self.params.power) * chosen, normaliser="weights")
