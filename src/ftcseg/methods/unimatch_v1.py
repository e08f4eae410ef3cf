"""UniMatch, the first (Yang et al. 2023): two strong views and perturbed features, all taught by the network itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ftcseg.methods.base import Method
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.streams import Partner, Streams
from ftcseg.teaching.thresholds.base import check_choices
from ftcseg.types import Clock, SemiBatch, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UniMatchV1Params:
    """UniMatch V1's own settings."""

    drop: float = 0.5
    """Share of the channels that the perturbed features lose."""
    partner: Partner = "flip"
    """Whose pixels CutMix pastes: another image of the batch, at its mirror place or shuffled; or another crop of the
    same image, which is what the public code does without meaning to."""

    def __post_init__(self) -> None:
        check_choices(self)


class UniMatchV1(Method):
    """Three streams learn from what the network says of the weak view: two strong views, and the weak one perturbed."""

    def __init__(self, pupil: Pupil, params: UniMatchV1Params, seed: int = 0) -> None:
        super().__init__(pupil)
        self.params, self.streams = params, Streams(params.drop, params.partner, seed)
        self.views = self.streams.views

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        if unlabeled is None or self.pupil.burns_in(clock):
            return self.pupil.learn_labels(batch)
        # 1  Both strong views are mixed with their partners.
        # 2  One network answers labels, weak view, strong views, and the weak view with half of its channels silenced.
        # 3  What it is sure of in the weak view teaches the other three streams.
        lesson = self.streams.teach(self.pupil, labeled, unlabeled, clock)
        # 4  L = (L_sup + (L_strong1 + L_strong2) / 4 + L_features / 2) / 2.
        result = self.pupil.conclude(lesson.said, labeled, lesson.pseudo, lesson.unsup, clock)
        return replace(result, parts={**result.parts, **lesson.parts})
