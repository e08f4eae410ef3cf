"""SemiVL (Hoyer et al. 2024): UniMatch whose decoder reads words, and which CLIP guides less and less.

Without CLIP and with an ordinary head this is UniMatch's step, which is what its public code offers for ResNets.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.encoders.build import build_encoder
from ftcseg.nets.encoders.clip import ClipEncoder, embed_texts
from ftcseg.nets.heads.vlg import VLGHead
from ftcseg.teaching.guide import Guide, Words, guided_loss, prompts_of
from ftcseg.teaching.pair import Pupil
from ftcseg.teaching.pseudo import pseudo_labels
from ftcseg.teaching.streams import Lesson, Partner, Streams
from ftcseg.teaching.thresholds.base import check_choices
from ftcseg.types import Clock, PseudoLabels, SemiBatch, StepResult, Unlabeled


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
    partner: Partner = "flip"
    """Whose pixels CutMix pastes: another image of the batch, at its mirror place or shuffled; or another crop of the
    same image, which is what the public code does without meaning to."""

    def __post_init__(self) -> None:
        check_choices(self)


class SemiVL(Method):
    """Three streams learn from what the network, and CLIP, say of the weak view."""

    def __init__(self, pupil: Pupil, params: SemiVLParams, guide: Guide | None, seed: int = 0) -> None:
        super().__init__(pupil)
        self.params, self.guide, self.streams = params, guide, Streams(params.drop, params.partner, seed)
        self.views = self.streams.views

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        """The algorithm box, numbered."""
        unlabeled, pupil = batch.unlabeled, self.pupil
        if unlabeled is None or pupil.burns_in(clock):
            return pupil.learn_labels(batch)
        # 1  UniMatch's three streams learn what the network is sure of in the weak view.
        lesson = self.streams.teach(pupil, batch.labeled, unlabeled, clock)
        # 2  They learn what CLIP is sure of, too, with a weight that falls to nothing.
        guided = self._guided(lesson, unlabeled)
        unsup = lesson.unsup + self.params.guidance * (1 - clock.progress) * guided
        # 3  L = (L_sup + (L_strong1 + L_strong2) / 4 + L_features / 2 + lambda(t) L_CLIP) / 2.
        result = pupil.conclude(lesson.said, batch.labeled, lesson.pseudo, unsup, clock)
        return replace(result, parts={**result.parts, **lesson.parts, "guided": guided})

    def teachers(self) -> list[nn.Module]:
        """CLIP, where there is one."""
        return [] if self.guide is None else [self.guide]

    def _guided(self, lesson: Lesson, unlabeled: Unlabeled) -> Tensor:
        if self.guide is None:
            return lesson.disturbed.new_zeros(())
        whole = self._told(unlabeled)
        mixed = lesson.partners.paste_labels(whole, unlabeled.boxes, self._told)
        streams = [*lesson.said.strong, lesson.disturbed]
        *views, features = guided_loss(streams, [*mixed, whole], self.params.guide_threshold)
        return (torch.stack(views).mean() + features) / 2

    def _told(self, unlabeled: Unlabeled) -> PseudoLabels:
        assert self.guide is not None
        return pseudo_labels(self.guide(unlabeled.weak), unlabeled.valid)


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
