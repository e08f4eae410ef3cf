"""Beyond Pixels (Howlader et al. 2024): UniMatch's streams, checked by a classifier of patches.

A second, shallow network says of every patch which classes it shows. It is taught as the first one is, and where it
believes least in what the first one sees, pixels are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import pixel_loss
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.drop import FeatureDrop
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import Answers, ask_alone, ask_labeled
from ftcseg.teaching.patch_pupil import PatchPupil, patch_loss
from ftcseg.teaching.patches import DoubtRates, without_doubt
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.ramp import is_burn_in
from ftcseg.teaching.turns import turn_steps
from ftcseg.types import Clock, Labeled, SemiBatch, StepResult, ViewPlan
from ftcseg.views.mix import paste_partner

WHOLE = 3.3
"""Sum of the weights of all losses, which the paper divides by: 1 + 1 + 0.25 + 0.25 + 0.5 + 3 * 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondPixelsParams:
    """The paper's own settings."""

    drop: float = 0.5
    """Share of the channels that the perturbed features lose; UniMatch V1's."""
    patch_weight: float = 0.1
    """Weight of each stream's patch loss; the code's 0.1."""
    patch_drop: float = 0.2
    """Share of the patch classifier's hidden channels that are silenced in training; the code's 0.2."""
    delta: float = 1e-5
    """Share of a class's patches that is doubted at the start; the code's 1e-5. One is always doubted."""
    delta_base: float = 1.0
    """What the growth of delta is multiplied with to the power of (time since the best / run). Not published with its
    value; 1 leaves it out."""
    delta_most: float = 0.5
    """Ours: delta never exceeds this. It never falls, so a class would be lost for good."""
    period: int | None = None
    """Steps after which delta is looked at; None is an epoch, but at least 20 steps and at most a tenth of the run."""

    def __post_init__(self) -> None:
        if not 0 <= self.delta <= self.delta_most <= 1 or self.delta_base <= 0:
            raise UsageError("Beyond Pixels needs 0 <= delta <= delta_most <= 1 and delta_base above 0.")


class BeyondPixels(Method):
    """Three streams of pixels and three of patches, all taught by what the network says of the weak view."""

    views = ViewPlan(strong=2)

    def __init__(self, kit: Kit, params: BeyondPixelsParams) -> None:
        super().__init__(kit.pupil())
        self.params, self.seed = params, kit.seed
        rates = DoubtRates(len(kit.classes), params.delta, params.delta_base, params.delta_most)
        self.patches = PatchPupil(kit.net.encoder.channels[0], rates, params.patch_drop, kit.seed)

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled, pupil, height = batch.labeled, batch.unlabeled, self.pupil, batch.labeled.images.shape[-2]
        if unlabeled is None or self._is_first_epoch(clock):
            # 0  In the first epoch labels alone teach both networks: L = (L_sup + L_multi) / 2.
            said = ask_labeled(pupil.student, labeled.images)
            multi = self.patches.learn_labels(said.maps[0], labeled.labels, clock)
            return self._sum(said, labeled, {"multi": multi}, whole=2)
        # 1  UniMatch's streams: two mixed strong views, and the weak view with half of its channels silenced.
        strong = [paste_partner(view, box) for view, box in zip(unlabeled.strong, unlabeled.boxes, strict=True)]
        drop = FeatureDrop(seed=seed_for(self.seed, "drop", clock.step), rate=self.params.drop)
        said, disturbed = ask_alone(pupil.student, (labeled.images, unlabeled.weak, strong), drop, pupil.params.norms)
        assert said.others is not None
        weak_maps, strong_maps = said.others
        # 2  The patch classifier reads the first maps of labelled images and of all three streams.
        multi = self.patches.learn_labels(said.maps[0], labeled.labels, clock)
        streams = [*strong_maps[0].chunk(2), drop(weak_maps)[0]]
        answers = self.patches.ask(streams, height, clock, still=pupil.params.norms == "labeled")
        # 3  What the network is sure of in the weak view labels the pixels of each stream, and with them its patches.
        pseudo = pupil.judge(said, labeled, unlabeled)
        mixed = [*(mix_pseudo(pseudo, box) for box in unlabeled.boxes), pseudo]
        patches = [self.patches.label(labels, pupil.thresholds.accept(labels), weak_maps[0]) for labels in mixed]
        # 4  Of each class, doubt the patches in which the classifier believes least when it is shown clean images.
        clean = [paste_partner(unlabeled.weak, box) for box in unlabeled.boxes]
        doubted = self.patches.doubt(pupil.student, clean, weak_maps[0], patches)
        # 5  There, pixels of the doubted class are left out. Patches learn from the labels that are not doubted.
        trusted = [without_doubt(*each) for each in zip(mixed, doubted, patches, strict=True)]
        views, features = pupil.compare(said.strong, trusted[:2]), pupil.compare([disturbed], trusted[2:])
        patch = self.params.patch_weight * patch_loss(answers, patches, doubted)
        # 6  L = (L_sup + L_multi + (L_strong1 + L_strong2) / 4 + L_features / 2 + 0.1 (M_1 + M_2 + M_features)) / 3.3.
        parts = {"multi": multi, "unsup": (views + features) / 2, "patch": patch}
        result = self._sum(said, labeled, parts, whole=WHOLE, weight=pupil.weight(clock))
        return replace(result, pseudo=pupil.counts(pseudo))

    def after_update(self, clock: Clock) -> None:
        """Nobody follows; at the end of an epoch the doubted shares grow."""
        period = turn_steps(clock, self.params.period)
        if (clock.step + 1) % period == 0:
            self.patches.rates.turn(clock.total // period)

    def facts(self) -> Mapping[str, Tensor]:
        """Beside thresholds and OPR: the doubted share of each class, and its best probability of true positives."""
        return {**self.pupil.facts(), **self.patches.rates.facts()}

    def labels_first(self, clock: Clock) -> int:
        """A run without a burn-in has the paper's: one epoch, or what a run of this length calls one."""
        return self.pupil.params.burn_in or turn_steps(clock, self.params.period)

    def _is_first_epoch(self, clock: Clock) -> bool:
        return is_burn_in(clock, self.labels_first(clock))

    def _sum(
        self, said: Answers, labeled: Labeled, parts: Mapping[str, Tensor], *, whole: float, weight: float = 1.0
    ) -> StepResult:
        sup, opr = pixel_loss(said.labeled, labeled.labels), self.pupil.opr_losses(said, labeled)
        learnt = [part if name == "multi" else weight * part for name, part in parts.items()]
        loss = torch.stack([torch.stack([sup, *learnt]).sum() / whole, *opr.values()]).sum()
        return StepResult(loss, {"sup": sup, **parts, **opr})
