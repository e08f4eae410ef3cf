"""CTFS (Guo et al. 2026): a general and a sonar teacher take turns, and both are asked how steady they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from torch import nn

from ftcseg.losses.pixel import weight_map_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.segmenter import Segmenter
from ftcseg.rng import random_for
from ftcseg.teaching.answers import ask_student
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.reliability import Trust, read, read_mirrored_and_resized, reliability
from ftcseg.teaching.teacher import follow, make_teacher, warm_decay
from ftcseg.teaching.turns import Turn, turn_at
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner

SONAR_VIEWS = ("speckle", "ellipses")
"""By which the sonar teacher's steadiness is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CTFSParams:
    """CTFS's own settings; the numbers are the released code's."""

    epoch_steps: int | None = None
    """Steps of a teacher's turn, an epoch in the paper; None is the run's epoch, but at least 20 steps and at most a
    tenth of the run (ours, so that both teach in a short run)."""
    start: float = 15 / 240
    """Share of the run on labels alone, where teaching.burn_in does not say how long."""
    own: float = 0.4
    """What each teacher's steadiness weighs in the reliability."""
    both: float = 0.2
    """What their agreement weighs in it."""
    least: float = 0.3
    """Cells less reliable than this teach nothing."""
    cell: int = 32
    """Side of a cell in pixels."""
    rescale: tuple[float, float] = (0.7, 1.3)
    """Range of the other size at which the general teacher is asked again."""


class CTFS(Method):
    """Even turns are the general teacher's, odd ones the sonar teacher's; no threshold, but weights."""

    views = ViewPlan(strong=1, filters=("sonar-weak", "sonar-strong", *SONAR_VIEWS))

    def __init__(self, kit: Kit, params: CTFSParams) -> None:
        burn_in = kit.teaching.burn_in or round(params.start * kit.steps)
        pair = replace(kit, teaching=replace(kit.teaching, burn_in=burn_in)).pair()
        super().__init__(pair)
        self.params, self.seed = params, kit.seed
        self.trust = Trust(own=params.own, both=params.both, least=params.least, cell=params.cell)
        self.sonar = make_teacher(pair.student)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        turn, (box,), seen = self._turn(clock), unlabeled.boxes, unlabeled.filtered
        # 1  Both teachers read the image and views of it that should change nothing; steady cells are reliable.
        factor = random_for(self.seed, "rescale", clock.step).uniform(*self.params.rescale)
        general = read_mirrored_and_resized(self._teacher(False), unlabeled.weak, factor)
        sonar = read(self._teacher(True), [unlabeled.weak, *(seen[name] for name in SONAR_VIEWS)])
        trusted = reliability(general, sonar, unlabeled.valid, self.trust)
        # 2  The teacher whose turn it is labels its own kind of weak view; the student sees its kind of strong view.
        if turn.is_second:
            (weak,), strong = read(self._teacher(True), [seen["sonar-weak"]]), seen["sonar-strong"]
        else:
            weak, (strong,) = general[0], unlabeled.strong
        shown = [paste_partner(strong, box)]
        said = ask_student(self.pair.student, labeled.images, shown, weak, self.pair.params.norms)
        if self.pair.thresholds.asks_teacher:
            said = replace(said, taught=read(self._teacher(turn.is_second), [labeled.images])[0])
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 3  Every pixel counts as far as its cell is reliable, in its own image; what is not reliable counts nothing.
        mixed = mix_pseudo(pseudo, box)
        weights = paste_partner(trusted, box) * self.pair.thresholds.accept(mixed)
        unsup = weight_map_loss(said.strong[0], mixed, weights, normaliser=self.pair.params.normaliser)
        # 4  L = (L_sup + w L_unsup) / 2.
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)

    def after_update(self, clock: Clock) -> None:
        """The teacher whose turn it is follows; until the burn-in ends both are the student."""
        turn, student = self._turn(clock), self.pair.student
        if self.pair.burns_in(clock):
            follow(self._teacher(False), student, 0.0)
            follow(self._teacher(True), student, 0.0)
        else:
            follow(self._teacher(turn.is_second), student, warm_decay(clock.step, self.pair.params.ema))

    def teachers(self) -> list[nn.Module]:
        """The general one and the sonar one."""
        return [self.pair.teacher, self.sonar]

    def predictors(self) -> dict[str, nn.Module]:
        """All three; the general teacher is the one a user gets."""
        return {"teacher": self._teacher(False), "sonar teacher": self._teacher(True), "student": self.pair.student}

    def _turn(self, clock: Clock) -> Turn:
        return turn_at(clock, self.pair.params.burn_in, self.params.epoch_steps)

    def _teacher(self, is_sonar: bool) -> Segmenter:
        return cast("Segmenter", (self.sonar if is_sonar else self.pair.teacher).net)
