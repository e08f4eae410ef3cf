"""SemiVL (Hoyer et al. 2024): UniMatch whose decoder reads words, and which CLIP guides less and less.

Without CLIP and with an ordinary head this is UniMatch's step, which is what its public code offers for ResNets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.drop import FeatureDrop
from ftcseg.nets.encoders.build import build_encoder
from ftcseg.nets.encoders.clip import ClipEncoder, embed_texts
from ftcseg.nets.heads.vlg import VLGHead
from ftcseg.nets.norms import as_evaluated
from ftcseg.rng import seed_for
from ftcseg.teaching.answers import ask_alone
from ftcseg.teaching.guide import Guide, Words, guided_loss, prompts_of
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.pseudo import paste_pseudo, pseudo_labels, reordered
from ftcseg.teaching.thresholds.base import Thresholds, check_choices
from ftcseg.types import Clock, PseudoLabels, SemiBatch, StepResult, Unlabeled, ViewPlan
from ftcseg.views.mix import paste


@dataclass(frozen=True, slots=True, kw_only=True)
class SemiVLParams:
    """SemiVL's own settings."""

    clip: str | None = None
    """A CLIP, as a folder or hub:owner/name. None is the run's encoder, where that is a CLIP."""
    guidance: float = 0.1
    """Weight of CLIP's guidance at the start; it falls to 0 in a line. The paper's 0.1."""
    guide_threshold: float = 0.9
    """How sure CLIP must be of a pixel. The paper's 0.9."""
    finetune: Literal["attention", "all"] = "attention"
    """What of a CLIP encoder learns: attention and positions, as in the paper, or everything."""
    drop: float = 0.5
    """Share of the channels that the perturbed features lose. The paper's 0.5."""
    partner: Literal["flip", "shuffle", "same_image"] = "flip"
    """Whose pixels CutMix pastes: another image of the batch, at its mirror place or shuffled; or another crop of the
    same image, which is what the public code does without meaning to."""

    def __post_init__(self) -> None:
        check_choices(self)


class SemiVL(Method):
    """Three streams learn from what the network, and CLIP, say of the weak view."""

    def __init__(self, pupil: Pupil, params: SemiVLParams, guide: Guide | None, seed: int = 0) -> None:
        super().__init__()
        self.pupil, self.params, self.guide, self.seed = pupil, params, guide, seed
        self.views = ViewPlan(strong=2, partner=params.partner == "same_image")

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        labeled, unlabeled, pupil = batch.labeled, batch.unlabeled, self.pupil
        if unlabeled is None or pupil.burns_in(clock):
            return pupil.learn_labels(batch)
        # 1  Both strong views are mixed with their partners.
        partner, order = unlabeled.partner, self._order(len(unlabeled.weak), clock).to(unlabeled.weak.device)
        others: Sequence[Tensor] = partner.strong if partner is not None else [view[order] for view in unlabeled.strong]
        mixing = zip(unlabeled.strong, others, unlabeled.boxes, strict=True)
        strong = [paste(view, other, box) for view, other, box in mixing]
        # 2  One network answers labels, weak view, strong views, and the weak view with half of its channels silenced.
        drop = FeatureDrop(seed=seed_for(self.seed, "drop", clock.step), rate=self.params.drop)
        shown = (labeled.images, unlabeled.weak, strong)
        said, disturbed = ask_alone(pupil.student, shown, drop, pupil.params.norms)
        # 3  What it is sure of in the weak view teaches the other three streams.
        pseudo = pupil.judge(said, labeled, unlabeled)
        theirs = reordered(pseudo, order) if partner is None else self._label(partner)
        views = pupil.compare(said.strong, [paste_pseudo(pseudo, theirs, box) for box in unlabeled.boxes])
        features = pupil.compare([disturbed], [pseudo])
        # 4  So does what CLIP is sure of, with a weight that falls to nothing.
        guided = self._guided([*said.strong, disturbed], unlabeled, order)
        unsup = (views + features) / 2 + self.params.guidance * (1 - clock.progress) * guided
        # 5  L = (L_sup + (L_strong1 + L_strong2) / 4 + L_features / 2 + lambda(t) L_CLIP) / 2.
        result = pupil.conclude(said, labeled, pseudo, unsup, clock)
        return replace(result, parts={**result.parts, "strong": views, "features": features, "guided": guided})

    def after_update(self, clock: Clock) -> None:
        """Nobody follows."""

    def teachers(self) -> list[nn.Module]:
        """CLIP, where there is one."""
        return [] if self.guide is None else [self.guide]

    def predictors(self) -> dict[str, nn.Module]:
        """The one network."""
        return {"student": self.pupil.student}

    def labeler(self) -> tuple[nn.Module, Thresholds]:
        """The student labels its own weak views."""
        return self.pupil.student, self.pupil.thresholds

    def facts(self) -> Mapping[str, Tensor]:
        """Thresholds per class, OPR per stage."""
        return self.pupil.facts()

    def _guided(self, streams: Sequence[Tensor], unlabeled: Unlabeled, order: Tensor) -> Tensor:
        if self.guide is None:
            return streams[0].new_zeros(())
        whole, partner = pseudo_labels(self.guide(unlabeled.weak), unlabeled.valid), unlabeled.partner
        theirs = reordered(whole, order)
        if partner is not None:
            theirs = pseudo_labels(self.guide(partner.weak), partner.valid)
        targets = [*(paste_pseudo(whole, theirs, box) for box in unlabeled.boxes), whole]
        *views, features = guided_loss(streams, targets, self.params.guide_threshold)
        return (torch.stack(views).mean() + features) / 2

    def _order(self, count: int, clock: Clock) -> Tensor:
        if self.params.partner == "flip":
            return torch.arange(count - 1, -1, -1)
        rng = torch.Generator().manual_seed(seed_for(self.seed, "partner", clock.step))
        return torch.randperm(count, generator=rng)

    @torch.no_grad()
    def _label(self, partner: Unlabeled) -> PseudoLabels:
        with as_evaluated(self.pupil.student):
            return pseudo_labels(self.pupil.student(partner.weak), partner.valid)


def build_semivl(kit: Kit, params: SemiVLParams) -> SemiVL:
    """The method with its words: read by CLIP's text model here, and kept as numbers from then on."""
    own = kit.net.encoder
    clip = params.clip or (own.source if isinstance(own, ClipEncoder) else None)
    if clip is None and isinstance(kit.net.head, VLGHead):
        raise UsageError(
            "The vlg head compares pixels with words, and nobody said which CLIP knows them. Add "
            "--set params.clip=hub:openai/clip-vit-base-patch16, or the path of a folder with a CLIP; or choose "
            "another head, such as --set model.head=fusion, for UniMatch's step without language."
        )
    guide = None if clip is None else _listen(kit, clip, build=params.clip is not None)
    if isinstance(own, ClipEncoder) and params.finetune == "attention":
        own.train_attention_only()
    return SemiVL(kit.pupil(), params, guide, kit.seed)


def _listen(kit: Kit, clip: str, *, build: bool) -> Guide:
    """CLIP as it was published, and the class's words, told to the head as well. A resumed run has them already."""
    own, head, encoder = kit.net.encoder, kit.net.head, deepcopy(kit.net.encoder)
    if build:
        encoder, _ = build_encoder(clip, in_channels=len(own.mean), weights=None if kit.resumed else "default")
    if encoder.text_width is None:
        raise UsageError(f"params.clip wants a CLIP, with image and text encoder; {clip} is none.")
    prompts = prompts_of(kit.classes)
    owner = torch.tensor([c for c, each in enumerate(prompts) for _ in each])
    texts = torch.zeros(len(owner), encoder.text_width)
    if not kit.resumed:
        texts = embed_texts(clip, [text for each in prompts for text in each])
    words = Words(texts, owner)
    if isinstance(head, VLGHead):
        head.set_words(words.by_class)
    return Guide(encoder, words, own)
