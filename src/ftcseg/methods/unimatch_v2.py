"""UniMatch V2 (Yang et al. 2025): two strong views against one teacher, with complementary dropout between them.

This is the EMA baseline, M2, of the FTC-Seg paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.nets.drop import ComplementaryDrop
from ftcseg.rng import seed_for
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner


@dataclass(frozen=True, slots=True, kw_only=True)
class UniMatchV2Params:
    """UniMatch V2's own settings."""

    comp_drop: bool = True
    """Complementary channel dropout between the two strong views."""


class UniMatchV2(Method):
    """Two strong views of each unlabelled image learn from what the teacher says of the weak one."""

    views = ViewPlan(strong=2)

    def __init__(self, pair: Pair, params: UniMatchV2Params, seed: int = 0) -> None:
        super().__init__(pair)
        self.params, self.seed = params, seed

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        # 1  Both strong views are mixed with their partners.
        strong = [paste_partner(view, box) for view, box in zip(unlabeled.strong, unlabeled.boxes, strict=True)]
        # 2  What one strong view loses of its features, the other keeps.
        seed = seed_for(self.seed, "drop", clock.step)
        said = self.pair.ask(
            labeled, unlabeled, strong, ComplementaryDrop(seed=seed) if self.params.comp_drop else None
        )
        # 3  Compare with the teacher's labels, mixed as the views were; unsure pixels weigh nothing.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        unsup = self.pair.compare(said.strong, [mix_pseudo(pseudo, box) for box in unlabeled.boxes])
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
