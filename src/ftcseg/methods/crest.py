"""CReST and CReST+ (Wei et al. 2021): FixMatch in generations, each on the labels and the last one's best guesses.

Three networks: the student, its EMA teacher (FixMatch's), and the labeler, which is the last generation's teacher and
does not move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import pixel_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.teaching.align import Alignment
from ftcseg.teaching.pseudo import mix_pseudo, pseudo_labels
from ftcseg.teaching.rounds import Rounds, equal_starts, long_enough
from ftcseg.teaching.selection import Selection, selection_rates
from ftcseg.teaching.teacher import follow, make_teacher
from ftcseg.types import IGNORE, Clock, SemiBatch, StepResult, Unlabeled, ViewPlan
from ftcseg.views.mix import paste_partner

WATCHED = 4
"""The last quarter of a generation is looked at to find where to cut: its teacher is then nearly the labeler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CReSTParams:
    """CReST's own settings."""

    generations: int = 3
    """Students, one after the other, in one run; the paper trains 6, each for a run of its own."""
    anew: bool | None = None
    """Whether every student begins with the run's first weights, as the paper's do; None: where a generation has 300
    steps or more (ours), else the student goes on and only its labelled set grows."""
    alpha: float = 3.0
    """How gently common classes are cut; the paper's 3."""
    t_min: float = 0.5
    """CReST+: exponent of the target in the last generation; it begins at 1. The paper's 0.5."""
    momentum: float = 1 - 1 / 128
    """CReST+: memory of the running mean; as long as the paper's 128 batches."""

    def __post_init__(self) -> None:
        if self.generations < 1 or self.alpha <= 0 or not 0 <= self.momentum < 1:
            raise UsageError("CReST needs generations >= 1, alpha > 0 and a momentum from 0 to below 1.")


class CReST(Method):
    """FixMatch whose labelled set grows from generation to generation by what its labeler is surest of, rare first."""

    views = ViewPlan(strong=1)

    def __init__(self, kit: Kit, params: CReSTParams, *, align: bool) -> None:
        super().__init__(kit.pair())
        self.params, self.burn_in = params, kit.teaching.burn_in
        self.labeler_net = make_teacher(self.pair.student)
        self.selection = Selection(selection_rates(kit.pixels, params.alpha))
        starts = equal_starts(kit.steps, params.generations, self.burn_in)
        anew = long_enough(starts, kit.steps) if params.anew is None else params.anew
        self.rounds = Rounds(self.pair.student, starts, kit.steps, anew=anew)
        self.alignment = Alignment(kit.pixels, params.momentum) if align else None

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """One step of one generation."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        own = self.rounds.teaching(clock, self.burn_in)
        if unlabeled is None or self.pair.burns_in(own):
            return self.pair.learn_labels(batch)
        # 1  The labelled set holds, beside the labels, what the labeler was surest of: X and S of the paper.
        added = self._added(unlabeled, clock)
        # 2  FixMatch on it: the teacher reads the weak view, the student the labelled set and the mixed strong view.
        (view,), (box,) = unlabeled.strong, unlabeled.boxes
        said = self.pair.ask(labeled, unlabeled, [paste_partner(view, box), *(unlabeled.weak for _ in added)])
        strong, again = said.strong[:1], said.strong[1:]
        # 3  Near the end of a generation, note how sure the teacher is of each class: it will be the labeler.
        if self._watches(clock):
            self.selection.observe(pseudo_labels(said.weak, unlabeled.valid))
        # 4  CReST+: the teacher's classes are held to the shares of the labels, from generation to generation less so.
        if self.alignment is not None:
            self.alignment.observe(said.weak, unlabeled.valid)
            said = replace(said, weak=self.alignment.align(said.weak, self._t(clock)))
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 5  L = (L_sup + L_unsup) / 2, L_sup the mean over all labelled pixels, old and new.
        sup = pixel_loss(torch.cat([said.labeled, *again]), torch.cat([labeled.labels, *added]))
        unsup = self.pair.compare(strong, [mix_pseudo(pseudo, box)])
        extra = self.pair.opr_losses(said, labeled)
        loss = torch.stack([(sup + self.pair.weight(own) * unsup) / 2, *extra.values()]).sum()
        return StepResult(loss, {"sup": sup, "unsup": unsup, **extra}, self.pair.counts(pseudo))

    def after_update(self, clock: Clock) -> None:
        """The teacher follows; at the end of a generation it becomes the labeler, and a new student begins."""
        self.pair.follow(self.rounds.teaching(clock, self.burn_in))
        if not self.rounds.turns(clock):
            return
        self.selection.settle()
        follow(self.labeler_net, self.pair.teacher.net, decay=0)
        self.rounds.begin(self.pair.student, clock)
        if self.rounds.anew:
            follow(self.pair.teacher, self.pair.student, decay=0)
        if self.alignment is not None:
            self.alignment.forget()

    def pace(self, clock: Clock) -> Clock:
        """Every generation has the whole schedule of the learning rate to itself."""
        return self.rounds.pace(clock)

    def teachers(self) -> list[nn.Module]:
        """The EMA teacher, and the labeler."""
        return [self.pair.teacher, self.labeler_net]

    def facts(self) -> Mapping[str, Tensor]:
        """Beside the pair's: the generation, the cuts and the running mean."""
        aligned = {} if self.alignment is None else self.alignment.facts()
        return {**self.pair.facts(), "generation": self.rounds.number.clone(), **self.selection.facts(), **aligned}

    def _added(self, unlabeled: Unlabeled, clock: Clock) -> list[Tensor]:
        """Labels for the weak view, IGNORE where the labeler was not sure enough; nothing in the first generation."""
        if self.rounds.at(clock) == 0:
            return []
        with torch.no_grad():
            logits: Tensor = self.labeler_net.net(unlabeled.weak)
        guess = pseudo_labels(logits, unlabeled.valid)
        return [guess.labels.masked_fill(~self.selection.select(guess), IGNORE)]

    def _watches(self, clock: Clock) -> bool:
        number = self.rounds.at(clock)
        end = self.rounds.end(number)
        length = end - max(self.rounds.starts[number], self.burn_in if number == 0 else 0)
        return number + 1 < self.params.generations and clock.step >= end - max(1, length // WATCHED)

    def _t(self, clock: Clock) -> float:
        share = self.rounds.at(clock) / max(1, self.params.generations - 1)
        return 1 + (self.params.t_min - 1) * share
