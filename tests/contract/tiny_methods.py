"""Any method of the table on a very small network, and batches for it."""

from __future__ import annotations

import copy
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
from ftcseg.types import ClassInfo, ClassTable, Clock, Labeled, SemiBatch, Unlabeled, ViewPlan

HEIGHT, WIDTH = 32, 48
PIXELS = HEIGHT * WIDTH
LATE = Clock(step=20, total=40)
"""Past every burn-in and ramp of these tests."""


_BUILT: dict[str, Method] = {}  # copying takes a fraction of the time that drawing weights takes


@dataclass(frozen=True)
class Variant:
    """One entry of the table with one choice of everything that changes its step."""

    name: str
    layers: int = 0
    atc: bool = False
    classes: int = 3
    channels: int = 3
    mode: Any = "full"
    seed: int = 0
    weights: int = 0
    teaching: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}-opr{self.layers}-{'atc' if self.atc else 'fixed'}"

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

    def _build(self) -> Method:
        tau = 1 / self.classes  # which every winner reaches: a threshold that lets nothing through would test nothing
        rule: Thresholds = Fixed(self.classes, tau)
        if self.atc:
            rule = ATC(self.classes, ATCParams(tau0=tau, clip=None, momentum=0.5))
        kit = Kit(
            net=self._net(0),
            another=self._net,
            thresholds=rule,
            teaching=TeachingParams(**{"ema": 0.9, **self.teaching}),
            classes=ClassTable(tuple(ClassInfo(i, f"class{i}", background=i == 0) for i in range(self.classes))),
            pixels=torch.arange(self.classes, 0, -1).float(),
            steps=LATE.total,
            seed=self.seed,
        )
        entry = METHODS[self.name]
        return entry.build(kit, entry.params(**self.params)).train()

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


VARIANTS = [
    Variant(name, layers, atc)
    for name in METHODS
    for layers in (0, 1)
    for atc in ((False, True) if name != "supervised" else (False,))  # it has no threshold to choose
]

WHOLE = [Variant(name, layers=1, atc=name != "supervised") for name in METHODS]
"""Each method once, with everything it can have."""


def batch_for(
    plan: ViewPlan, *, classes: int = 3, channels: int = 3, labeled: int = 2, unlabeled: int = 2, seed: int = 1
) -> SemiBatch:
    """Noise in the views a method asks for; boxes cover the left half of every second image."""
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

    def unknown() -> Unlabeled:
        return Unlabeled(
            weak=images(unlabeled),
            strong=tuple(images(unlabeled) for _ in range(plan.strong)),
            boxes=(boxes(unlabeled),) * plan.strong,
            valid=torch.ones(unlabeled, HEIGHT, WIDTH, dtype=torch.bool),
            ids=tuple(f"unlabeled{i}" for i in range(unlabeled)),
            filtered={name: images(unlabeled) for name in plan.filters},
        )

    shown = known()
    if plan.labeled_partner:
        shown = replace(shown, partner=known())
    if not plan.unlabeled:
        return SemiBatch(shown)
    rest = unknown()
    return SemiBatch(shown, replace(rest, partner=unknown()) if plan.partner else rest)


def with_labels(batch: SemiBatch, labels: Tensor) -> SemiBatch:
    return replace(batch, labeled=replace(batch.labeled, labels=labels))


def with_valid(batch: SemiBatch, valid: Tensor) -> SemiBatch:
    assert batch.unlabeled is not None
    return replace(batch, unlabeled=replace(batch.unlabeled, valid=valid))


def weights_of(modules: nn.Module | list[nn.Module]) -> dict[str, Tensor]:
    """A copy of every parameter and buffer."""
    listed = modules if isinstance(modules, list) else [modules]
    return {f"{i}.{k}": v.clone() for i, module in enumerate(listed) for k, v in module.state_dict().items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not bit for bit what they were."""
    assert before.keys() == after.keys()
    return [name for name in before if not torch.equal(before[name], after[name])]


def train(method: Method, steps: range, *, lr: float = 0.01, **shape: int) -> list[float]:
    """A few updates by hand, as the loop makes them; the losses."""
    trained = [p for p in method.parameters() if p.requires_grad]
    losses = []
    for step in steps:
        clock = Clock(step=step, total=40)
        result = method.step(batch_for(method.views, seed=step, **shape), clock)
        for parameter, grad in zip(trained, torch.autograd.grad(result.loss, trained), strict=True):
            parameter.data.sub_(lr * grad)
        method.after_update(clock)
        losses.append(float(result.loss.detach()))
    return losses
