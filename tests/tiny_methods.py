"""Any method of the table on a very small network, and batches for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ftcseg.methods import METHODS
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.build import build_model
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.teaching.thresholds.flexmatch import FlexMatchParams, FlexThresholds
from ftcseg.teaching.thresholds.freematch import FreeMatchParams, FreeThresholds
from ftcseg.types import IGNORE, ClassInfo, ClassTable, Clock, Labeled, SemiBatch, Unlabeled, ViewPlan

HEIGHT, WIDTH = 32, 48
PIXELS = HEIGHT * WIDTH
TOTAL = 40
LATE = Clock(step=20, total=TOTAL)
"""Past every burn-in and ramp of these tests."""

# A threshold of 1 / C, which every winner reaches: one that lets nothing through would test nothing.
RULES: Mapping[str, Callable[[int], Thresholds]] = {
    "fixed": lambda classes: Fixed(classes, 1 / classes),
    "atc": lambda classes: ATC(classes, ATCParams(tau0=1 / classes, clip=None, momentum=0.5)),
    "flexmatch": lambda classes: FlexThresholds(classes, FlexMatchParams(tau0=1 / classes, momentum=0.5)),
    "freematch": lambda classes: FreeThresholds(classes, FreeMatchParams(momentum=0.5)),
    "closed": lambda classes: Fixed(classes, 1.1),  # no probability reaches it
}

_BUILT: dict[str, Method] = {}  # copying takes a fraction of the time that drawing weights takes


@dataclass(frozen=True)
class Variant:
    """One entry of the table with one choice of everything that changes its step."""

    name: str
    layers: int = 0
    rule: str = "fixed"
    classes: int = 3
    channels: int = 3
    mode: Any = "full"
    seed: int = 0
    weights: int = 0
    steps: int = TOTAL
    teaching: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}-opr{self.layers}-{self.rule}"

    def but(self, **changes: Any) -> Variant:
        return replace(self, **changes)

    @property
    def learns_unlabeled(self) -> bool:
        return self.build().views.unlabeled

    def build(self) -> Method:
        """A fresh method, always the same one."""
        if repr(self) not in _BUILT:
            _BUILT[repr(self)] = self._build()
        return copy.deepcopy(_BUILT[repr(self)])

    def kit(self) -> Kit:
        """What the method is built from."""
        return Kit(
            net=self._net(0),
            another=self._net,
            thresholds=RULES[self.rule](self.classes),
            teaching=TeachingParams(**{"ema": 0.9, **self.teaching}),
            classes=ClassTable(tuple(ClassInfo(i, f"class{i}", background=i == 0) for i in range(self.classes))),
            pixels=torch.arange(self.classes, 0, -1).float(),
            steps=self.steps,
            seed=self.seed,
        )

    def _build(self) -> Method:
        entry = METHODS[self.name]
        # The one setting that cannot be combined: the fairness term asks for the statistics of its own rule.
        own = {"fairness": 0.0} if self.name == "freematch" and self.rule != "freematch" else {}
        return entry.build(self.kit(), entry.params(**{**own, **self.params})).train()

    def _net(self, number: int) -> Segmenter:
        torch.manual_seed(self.seed + self.weights + 1000 * number)
        net, _ = build_model(
            "tiny",
            "fusion",
            self.classes,
            opr=OPRParams(layers=self.layers, count=4),
            in_channels=self.channels,
            encoder_mode=self.mode,
            head_features=8,
        )
        return net


FIRST = ("supervised", "fixmatch", "unimatch-v2", "ftc")
"""The methods that are tested in every combination of OPR and rule; the others with neither and with both.

What a rule that learns does to a step is tested for every method and rule in test_pseudo_labels.py.
"""


def _choices(name: str) -> Iterable[tuple[int, str]]:
    if name == "supervised":
        return ((0, "fixed"), (1, "fixed"))  # it has no threshold to choose
    if name in FIRST:
        return ((0, "fixed"), (1, "fixed"), (0, "atc"), (1, "atc"))
    own = METHODS[name].preset.get("thresholds")
    return ((0, "fixed"), (1, "atc"), *([(1, own)] if own in ("flexmatch", "freematch") else []))


VARIANTS = [Variant(name, layers, rule) for name in METHODS for layers, rule in _choices(name)]
SEMI = [variant for variant in VARIANTS if variant.name != "supervised"]

KINDS = [variant for variant in VARIANTS if variant.name in FIRST or variant.layers]
"""The first methods in every combination, the others with OPR and a rule: for what their plain form does alike."""

WHOLE = [Variant(name, layers=1, rule="fixed" if name == "supervised" else "atc") for name in METHODS]
"""Each method once, with everything it can have."""


def students(method: Method) -> dict[str, Segmenter]:
    """The networks among the predictors that learn."""
    nets = {who: net for who, net in method.predictors().items() if any(p.requires_grad for p in net.parameters())}
    assert all(isinstance(net, Segmenter) for net in nets.values())
    return nets  # type: ignore[return-value]


def batch_for(
    plan: ViewPlan, *, classes: int = 3, channels: int = 3, labeled: int = 2, unlabeled: int = 2, seed: int = 1
) -> SemiBatch:
    """Noise in the views a method asks for; boxes cover the left half of every second image.

    What is pasted is the last class, in the upper half of the first image.
    """
    rng = torch.Generator().manual_seed(seed)

    def images(count: int) -> Tensor:
        return torch.randn(count, channels, HEIGHT, WIDTH, generator=rng)

    def boxes(count: int) -> Tensor:
        box = torch.zeros(count, HEIGHT, WIDTH, dtype=torch.bool)
        box[::2, :, : WIDTH // 2] = plan.cutmix
        return box

    def known() -> Labeled:
        labels = torch.randint(classes, (labeled, HEIGHT, WIDTH), generator=rng)
        ids = tuple(f"labeled{i}" for i in range(labeled))
        return Labeled(images(labeled), labels, ids, boxes(labeled) if plan.labeled_strong else None)

    def pasted(count: int) -> Tensor:
        objects = torch.full((count, HEIGHT, WIDTH), IGNORE)
        objects[0, : HEIGHT // 2] = classes - 1
        return objects

    def unknown() -> Unlabeled:
        return Unlabeled(
            weak=images(unlabeled),
            strong=tuple(images(unlabeled) for _ in range(plan.strong)),
            boxes=(boxes(unlabeled),) * plan.strong,
            valid=torch.ones(unlabeled, HEIGHT, WIDTH, dtype=torch.bool),
            ids=tuple(f"unlabeled{i}" for i in range(unlabeled)),
            filtered={name: images(unlabeled) for name in plan.filters},
            pasted=pasted(unlabeled) if plan.paste else None,
        )

    shown = known()
    if plan.labeled_partner:
        shown = replace(shown, partner=known())
    if not plan.unlabeled:
        return SemiBatch(shown)
    rest = unknown()
    return SemiBatch(shown, replace(rest, partner=unknown()) if plan.partner else rest)


def with_labels(batch: SemiBatch, label: int) -> SemiBatch:
    """The batch with this one label everywhere, on partners as well."""

    def told(labeled: Labeled) -> Labeled:
        partner = told(labeled.partner) if labeled.partner is not None else None
        return replace(labeled, labels=torch.full_like(labeled.labels, label), partner=partner)

    return replace(batch, labeled=told(batch.labeled))


def with_valid(batch: SemiBatch, valid: Tensor) -> SemiBatch:
    """The batch with these pixels of the unlabelled images for real, on partners as well."""

    def shown(unlabeled: Unlabeled) -> Unlabeled:
        partner = shown(unlabeled.partner) if unlabeled.partner is not None else None
        return replace(unlabeled, valid=valid, partner=partner)

    assert batch.unlabeled is not None
    return replace(batch, unlabeled=shown(batch.unlabeled))


def weights_of(modules: nn.Module | list[nn.Module]) -> dict[str, Tensor]:
    """A copy of every parameter and buffer."""
    listed = modules if isinstance(modules, list) else [modules]
    return {f"{i}.{k}": v.clone() for i, module in enumerate(listed) for k, v in module.state_dict().items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not bit for bit what they were."""
    assert before.keys() == after.keys()
    return [name for name in before if not torch.equal(before[name], after[name])]


def say(net: nn.Module, logits: Sequence[float]) -> None:
    """Let a network give these logits to every pixel of every image."""
    assert isinstance(net, Segmenter)
    bias = net.head.classifier.bias
    assert bias is not None
    with torch.no_grad():
        net.head.classifier.weight.zero_()
        bias.copy_(torch.tensor(logits))


def nudge(method: nn.Module, by: float = 0.1) -> None:
    """Move everything that learns, so that whoever follows has somewhere to go."""
    with torch.no_grad():
        for parameter in method.parameters():
            if parameter.requires_grad:
                parameter.add_(by)


def train(method: Method, steps: range, *, lr: float = 0.01, total: int = TOTAL, **shape: int) -> list[float]:
    """A few updates by hand, as the loop makes them; the losses."""
    trained = [p for p in method.parameters() if p.requires_grad]
    losses = []
    for step in steps:
        clock = Clock(step=step, total=total, epoch_steps=5)
        result = method.step(batch_for(method.views, seed=step, **shape), clock)
        for parameter, grad in zip(trained, torch.autograd.grad(result.loss, trained, allow_unused=True), strict=True):
            if grad is not None:
                parameter.data.sub_(lr * grad)
        method.after_update(clock)
        losses.append(float(result.loss.detach()))
    return losses
