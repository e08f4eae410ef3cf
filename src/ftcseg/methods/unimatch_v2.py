"""UniMatch V2 (Yang et al. 2025): two strong views against one teacher, with complementary dropout between them.

This is the EMA baseline, M2, of the FTC-Seg paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

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
    """Complementary channel dropout between the two strong views (reading C2)."""
    seed: int = 0


class UniMatchV2(Method):
    """Two strong views of each unlabelled image learn from what the teacher says of the weak one."""

    views: ClassVar[ViewPlan] = ViewPlan(strong=2)

    def __init__(self, pair: Pair, params: UniMatchV2Params) -> None:
        super().__init__()
        self.pair = pair
        self.params = params

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        # 1  Strong views are mixed with their partners.
        strong = [paste_partner(v, box) for v, box in zip(unlabeled.strong, unlabeled.boxes, strict=True)]
        # 2  The teacher reads the weak view; the student answers labels and strong views, half its channels dropped.
        drop = ComplementaryDrop(seed=seed_for(self.params.seed, "drop", clock.step)) if self.params.comp_drop else None
        said = self.pair.ask(labeled, unlabeled, strong, drop)
        # 3  Pseudo-labels are mixed as their views were.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        mixed = [mix_pseudo(pseudo, box) for box in unlabeled.boxes]
        # 4  Compare; pixels below the threshold weigh nothing.
        unsup = self.pair.compare(said.strong, mixed)
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)

    def after_update(self, clock: Clock) -> None:
        """The teacher follows the student."""
        self.pair.follow(clock)

    def teachers(self) -> list[nn.Module]:
        """The one EMA teacher."""
        return [self.pair.teacher]

    def predictors(self) -> dict[str, nn.Module]:
        """Teacher and student."""
        return self.pair.predictors()

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds per class, OPR per stage."""
        return self.pair.facts()
