"""Orthogonal Prototype Reconstruction (OPR): the paper's equations in order.

K learnable prototypes mu live in the space of one encoder stage's features F, shared by all images.

S     = cos(F, mu)                   how much each pixel looks like each prototype      (`similarity`)
Z     = W mu + b                     which class each prototype looks like              (`gate_logits`)
gamma = [argmax Z is foreground]     background prototypes are shut out                 (`gates`)
F*    = F + sum_k gamma_k S_k mu_k   pixels are drawn towards what they look like       (`forward`)
L_O   = sum_{i<j} cos²(mu_i, mu_j)   prototypes keep apart                              (`overlap`)

Where the paper leaves a choice, `OPRParams` names it with its reading number (docs/adr). The teacher holds the same
module and follows by EMA (A9); prototypes train at the head's rate and decay (A8). Cost: 2·K·C multiply-adds a pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, cast, get_args, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import UsageError, unknown_name
from ftcseg.nets.heads.base import Head
from ftcseg.types import IGNORE

Classify: TypeAlias = Callable[[Tensor], Tensor]
"""(K, C) vectors -> (K, num_classes) logits: the segmentation head's opinion of the prototypes."""

EPS = 1e-6  # shortest length divided by; float16 still holds it, 1e-12 would be zero there


@dataclass(frozen=True, slots=True, kw_only=True)
class OPRParams:
    """One reading of OPR. The defaults are the reading «paper»."""

    layers: int = 2
    """How many of the deepest stages get OPR, 0 to 4. Paper 2, released code and cost table 1 (readings A1, A2)."""
    count: int = 16
    """Prototypes per stage, K. The paper's 16."""
    gate_head: Literal["probe", "head_wide", "project"] = "probe"
    """Whose W and b judge the prototypes (A3): a linear probe per stage, the classifier of a head widened to the
    encoder's channels, or the whole head, prototypes pushed through it. The paper's cost table fits only the probe."""
    gate: Literal["hard", "soft", "none"] = "hard"
    """A4: 0 or 1 without gradient; relu of the best foreground score with gradient; or always open."""
    aggregate: Literal["raw", "unit"] = "raw"
    """A5: sum the prototypes as they are, or at length one."""
    similarity: Literal["cosine", "softmax"] = "cosine"
    """A6: plain cosine, or softmax over the prototypes of cosine / temperature."""
    temperature: float = 0.1
    """Of that softmax (A6)."""
    ortho: Literal["pairs", "fro"] = "pairs"
    """A7: squared cosines summed over pairs, or the Frobenius norm of (cosines - identity)."""
    lambda_o: float = 0.01
    """Weight of L_O in the loss, L_O being the mean over stages; the paper is silent (A7)."""
    residual: bool = True
    """Keep F in F*; False is the paper's ablation «w/o residual»."""
    init: Literal["orthogonal", "features"] = "orthogonal"
    """A8: random orthonormal rows, or the main directions of labelled foreground features (`start_prototypes`)."""
    init_scale: float = 0.0
    """A8: length of the rows at the start in mean feature lengths (`start_prototypes`). 0 keeps them as they are: 1 for
    orthogonal rows, about a twentieth of a DINOv2 token, so that the correction starts tiny."""
    foreground: tuple[int, ...] | None = None
    """Foreground class ids; None is all but class 0. Where nothing is background, name every class (A10)."""
    prototypes: Literal["free", "class_mean"] = "free"
    """A11: free, or one per class, started at the class's mean feature and gated by its own class."""
    prior_correction: bool = False
    """Ours: subtract the log class share from Z (`set_prior`), lest the commonest class claim every short prototype."""
    probe_weight: float = 1.0
    """Ours: weight of the probe's own cross-entropy. A hard gate gives a probe no gradient. Legacy had none: 0."""
    probe_detach: bool = True
    """Ours: the probe reads features without gradient, so that judging prototypes cannot bend the encoder."""
    probe_unit: bool = False
    """Ours: the probe reads directions only, features and prototypes alike at the length sqrt(C). Convolutional stages
    have features of any length, on which a probe with the head's rate never settles."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            choices = [str(choice) for choice in get_args(hint)]
            if (value := getattr(self, name)) not in choices and isinstance(value, str):
                raise unknown_name(f"OPR {name}", value, choices)
        if self.count < 1 or self.layers < 0:
            raise UsageError(f"OPR needs at least one prototype on 0 to 4 stages, not {self.count} on {self.layers}.")
        if self.prototypes == "class_mean" and self.gate == "soft":
            raise UsageError("A class_mean prototype is gated by its own class: choose the gate «hard» or «none».")

    @property
    def asks_classes(self) -> bool:
        """Whether gates depend on what the prototypes look like; class_mean ones know their class."""
        return self.gate != "none" and self.prototypes == "free"


OPR_READINGS: Mapping[str, OPRParams] = {
    "paper": OPRParams(),
    "released": OPRParams(layers=1, gate_head="head_wide"),
    "legacy": OPRParams(layers=1, gate="soft", similarity="softmax", ortho="fro", probe_weight=0.0),
}
"""The equations as printed; the released training code; the older module the paper's cost table was measured with."""


@dataclass(frozen=True, slots=True)
class OPRStatistics:
    """How one stage is doing, for the log."""

    open_gates: int
    change: float  # ||F* - F|| / ||F||
    overlap: float


class OPR(nn.Module):
    """OPR on one encoder stage of `channels` channels."""

    prototypes: nn.Parameter  # (K, C)
    is_foreground: Tensor  # (num_classes,) bool
    log_prior: Tensor  # (num_classes,) log class shares, 0 until `set_prior`

    def __init__(self, channels: int, num_classes: int, params: OPRParams) -> None:
        super().__init__()
        self.params = params
        count = num_classes if params.prototypes == "class_mean" else params.count
        # Orthonormal rows. More rows than channels: orthogonal columns instead, and L_O starts above 0 (`overlap`).
        self.prototypes = nn.Parameter(unit(nn.init.orthogonal_(torch.empty(count, channels))))
        self.probe = nn.Linear(channels, num_classes) if params.asks_classes and params.gate_head == "probe" else None
        self.register_buffer("is_foreground", _foreground(params.foreground, num_classes), persistent=False)
        self.register_buffer("log_prior", torch.zeros(num_classes))

    def forward(self, features: Tensor, classify: Classify | None = None) -> Tensor:
        """F* from F, both (B, C, H, W). `classify` is the head's judgement; a stage with a probe needs none."""
        mu = self.prototypes.to(features.dtype)
        if self.params.aggregate == "unit":
            mu = unit(mu)
        weights = self.gates(classify)[:, None] * self.similarity(features)
        correction = (mu.T @ weights.to(mu.dtype)).view_as(features)
        return features + correction if self.params.residual else correction

    def similarity(self, features: Tensor) -> Tensor:
        """S, (B, K, H·W): the cosine of every pixel with every prototype."""
        pixels = features.flatten(2)
        cosine = unit(self.prototypes).to(pixels.dtype) @ pixels / length(pixels, dim=1)
        if self.params.similarity == "softmax":
            cosine = (cosine / self.params.temperature).softmax(dim=1)
        return cosine

    def gate_logits(self, classify: Classify | None = None) -> Tensor:
        """Z, (K, num_classes): how much each prototype looks like each class."""
        judge = classify if self.probe is None else self._probed
        if judge is None:
            raise UsageError(f"OPR with gate_head «{self.params.gate_head}» needs the head's judgement of prototypes.")
        z: Tensor = judge(self.prototypes)
        return z - self.log_prior if self.params.prior_correction else z

    def gates(self, classify: Classify | None = None) -> Tensor:
        """gamma, (K,): how far each prototype may speak."""
        if self.params.gate == "none":
            return self.prototypes.new_ones(len(self.prototypes))
        if self.params.prototypes == "class_mean":
            return self.is_foreground.to(self.prototypes.dtype)
        if self.params.gate == "soft":
            return self.gate_logits(classify).masked_fill(~self.is_foreground, -torch.inf).amax(dim=1).relu()
        with torch.no_grad():
            return self.is_foreground[self.gate_logits(classify).argmax(dim=1)].to(self.prototypes.dtype)

    def overlap(self) -> Tensor:
        """L_O, 0 where all prototypes are orthogonal. With K > C they cannot be: at least K(K - C) / 2C (pairs)."""
        mu = unit(self.prototypes)
        cosines = (mu[:, None] * mu).sum(dim=2)  # not a matmul: autocast would round the zeros away
        if self.params.ortho == "fro":
            apart: Tensor = (cosines - torch.eye(len(mu), dtype=mu.dtype, device=mu.device)).norm()
            return apart
        return cosines.triu(diagonal=1).square().sum()

    def probe_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of the probe on labelled pixels; 0 where there is no probe or no labelled pixel."""
        if self.probe is None:
            return features.new_zeros(())
        pixels = (features.detach() if self.params.probe_detach else features).permute(0, 2, 3, 1)
        target = labels_at(labels, features.shape[-2:]).flatten()
        total = F.cross_entropy(self._probed(pixels).flatten(0, 2), target, ignore_index=IGNORE, reduction="sum")
        return total / (target != IGNORE).sum().clamp(min=1)

    def _probed(self, vectors: Tensor) -> Tensor:
        assert self.probe is not None
        if self.params.probe_unit:
            vectors = unit(vectors) * vectors.shape[-1] ** 0.5
        logits: Tensor = self.probe(vectors)
        return logits

    def set_prior(self, shares: Tensor) -> None:
        """Tell the class shares (any positive scale) that `prior_correction` divides out."""
        shares = shares.to(self.log_prior)
        self.log_prior.copy_((shares / shares.sum()).clamp(min=EPS).log())

    @torch.no_grad()
    def statistics(self, features: Tensor, classify: Classify | None = None) -> OPRStatistics:
        """Open gates, size of the correction, overlap. Costs one more OPR pass and a wait for the device."""
        change = (self(features, classify) - features).norm() / features.norm().clamp(min=EPS)
        return OPRStatistics(int((self.gates(classify) > 0).sum()), float(change), float(self.overlap()))


class OPRStack(nn.Module):
    """OPR on the deepest stages of an encoder, each with prototypes of its own."""

    def __init__(self, channels: Sequence[int], num_classes: int, params: OPRParams) -> None:
        super().__init__()
        if not 1 <= params.layers <= len(channels):
            raise UsageError(f"OPR can sit on 1 to {len(channels)} of the encoder's stages, not on {params.layers}.")
        self.params = params
        self.levels = tuple(range(len(channels) - params.layers, len(channels)))
        self.stages = nn.ModuleList(OPR(channels[level], num_classes, params) for level in self.levels)

    def __iter__(self) -> Iterator[tuple[int, OPR]]:
        """(level, stage) pairs, shallow to deep."""
        return zip(self.levels, cast("Iterator[OPR]", iter(self.stages)), strict=True)

    def forward(self, features: list[Tensor], head: Head) -> list[Tensor]:
        """The same maps, the deepest ones rebuilt."""
        rebuilt = list(features)
        for level, stage in self:
            rebuilt[level] = stage(features[level], self.judge(head, level))
        return rebuilt

    def judge(self, head: Head, level: int) -> Classify | None:
        """Who says what class a prototype of this level looks like; None where nobody is asked or a probe knows."""
        if not self.params.asks_classes or self.params.gate_head == "probe":
            return None
        return partial(head.answer, level=level) if self.params.gate_head == "project" else head.classify

    def overlap(self) -> Tensor:
        """L_O, the mean over stages."""
        return torch.stack([stage.overlap() for _, stage in self]).mean()

    def probe_loss(self, features: list[Tensor], labels: Tensor) -> Tensor:
        """The probes' cross-entropy, the mean over stages. `features` are the encoder's own, before OPR."""
        return torch.stack([stage.probe_loss(features[level], labels) for level, stage in self]).mean()


def length(vectors: Tensor, dim: int = -1) -> Tensor:
    """Euclidean length along `dim`, at least EPS. Squares are summed in float32 or better, lest float16 overflow."""
    exact = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return exact.square().sum(dim=dim, keepdim=True).clamp(min=EPS**2).sqrt().to(vectors.dtype)


def unit(vectors: Tensor) -> Tensor:
    """Rows at length one; a zero row stays zero."""
    return vectors / length(vectors)


def labels_at(labels: Tensor, size: Sequence[int]) -> Tensor:
    """(B, H, W) labels seen at (B, h, w): the pixel under the centre of each cell, so that no class is invented."""
    return F.interpolate(labels[:, None].float(), size=tuple(size), mode="nearest-exact")[:, 0].long()


def _foreground(ids: tuple[int, ...] | None, num_classes: int) -> Tensor:
    ids = tuple(range(1, num_classes)) if ids is None else ids
    if not ids or not set(ids) <= set(range(num_classes)):
        raise UsageError(f"Foreground ids must be some of 0 to {num_classes - 1}; these are {list(ids)}.")
    return torch.tensor([c in ids for c in range(num_classes)])
