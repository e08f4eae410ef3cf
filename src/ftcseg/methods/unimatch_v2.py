"""UniMatch V2 (Yang et al. 2025): two strong views against one teacher, with complementary dropout between them.

This is the EMA baseline, M2, of the FTC-Seg paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.methods.base import Method
from ftcseg.nets.drop import ComplementaryDrop
from ftcseg.rng import seed_for
from ftcseg.teaching.pair import Pair
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


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
        # 1  What one strong view loses of its features, the other keeps.
        drop = ComplementaryDrop(seed=seed_for(self.seed, "drop", clock.step)) if self.params.comp_drop else None
        # 2  The teacher reads the weak view; the student labels and both strong views, mixed with their partners.
        said = self.pair.ask_mixed(labeled, unlabeled, drop)
        # 3  Compare with the teacher's labels, mixed as the views were; unsure pixels weigh nothing.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        unsup = self.pair.compare_mixed(said.strong, pseudo, unlabeled.boxes)
        # 4  L = (L_sup + L_unsup) / 2, L_unsup the mean of both views.
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)
