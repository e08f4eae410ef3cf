"""FTC-Seg: a mean teacher with rebuilt features (OPR) and calibrated thresholds (ATC).

OPR sits inside the student and its teacher (nets/opr.py), ATC is the pair's threshold rule
(teaching/thresholds/atc.py). All else is the paper's EMA baseline; with both switched off this step is M2.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.errors import UsageError
from ftcseg.methods.base import Method
from ftcseg.nets.drop import ComplementaryDrop
from ftcseg.rng import seed_for
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.pseudo import with_pasted
from ftcseg.types import Clock, SemiBatch, StepResult, ViewPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FTCParams:
    """What the paper leaves open about the step itself."""

    strong_views: int = 2
    """Two in the released code and by the paper's memory figures; one in its text (reading C2)."""
    comp_drop: bool = True
    """Complementary dropout between two strong views (reading C2)."""
    paste: float = 0.0
    """Ours: chance that an unlabelled image gets a labelled object before the student sees it, every class as often as
    any other. What thresholds let through of rare classes is partly wrong; of what was pasted the name is known."""

    def __post_init__(self) -> None:
        if not 0 <= self.paste <= 1:
            raise UsageError(f"params.paste cannot be {self.paste}: it must be from 0 to 1.")


class FTCSeg(Method):
    """The student sees labels and strong views, the teacher weak views; both rebuild their features before decoding."""

    def __init__(self, pair: Pair, params: FTCParams, seed: int = 0) -> None:
        super().__init__(pair)
        self.params, self.seed = params, seed
        self.views = ViewPlan(strong=params.strong_views, paste=params.paste)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The paper's Figure 1 (a), left to right."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pair.burns_in(clock):
            return self.pair.learn_labels(batch)
        # 1  The teacher reads the weak view, the student labels and mixed strong views; OPR refines what both decode.
        said = self.pair.ask_mixed(labeled, unlabeled, self._drop(clock))
        # 2  ATC sets each class's threshold from ground truth, student and teacher, before anything is filtered.
        pseudo = self.pair.judge(said, labeled, unlabeled)
        # 3  Filter and compare: L_unsup over the pixels whose confidence reaches their class's threshold.
        told = with_pasted(pseudo, unlabeled.pasted)
        unsup = self.pair.compare_mixed(said.strong, told, unlabeled.boxes)
        # 4  L = (L_sup + L_unsup) / 2 + lambda_o L_O.
        return self.pair.conclude(said, labeled, pseudo, unsup, clock)

    def _drop(self, clock: Clock) -> ComplementaryDrop | None:
        paired = self.params.comp_drop and self.params.strong_views == 2
        return ComplementaryDrop(seed=seed_for(self.seed, "drop", clock.step)) if paired else None
