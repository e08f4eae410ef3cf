"""A method on a very small network, and batches for it, for the methods that go by rounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.build import build_model
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.types import ClassTable, Clock, Labeled, SemiBatch, Unlabeled, ViewPlan

SIZE = (16, 24)


def small_net(number: int = 0) -> Segmenter:
    torch.manual_seed(number)
    return build_model("tiny", "fusion", 3, head_features=8)[0]


def small_kit(*, steps: int, tau: float = 0.34, pixels: tuple[int, ...] = (8, 4, 1), **teaching: Any) -> Kit:
    return Kit(
        net=small_net(),
        another=small_net,
        thresholds=Fixed(3, tau),
        teaching=TeachingParams(**{"ema": 0.5, **teaching}),
        classes=ClassTable.named("background", "wall", "tire"),
        pixels=torch.tensor(pixels).float(),
        steps=steps,
        seed=0,
    )


def batch_at(step: int, plan: ViewPlan, count: int = 2) -> SemiBatch:
    rng = torch.Generator().manual_seed(step)

    def images() -> Tensor:
        return torch.randn(count, 3, *SIZE, generator=rng)

    labels = torch.randint(3, (count, *SIZE), generator=rng)
    boxes = torch.zeros(count, *SIZE, dtype=torch.bool)
    boxes[:, :, : SIZE[1] // 2] = plan.cutmix
    rest = Unlabeled(
        weak=images(),
        strong=tuple(images() for _ in range(plan.strong)),
        boxes=(boxes,) * plan.strong,
        valid=torch.ones(count, *SIZE, dtype=torch.bool),
        ids=("u",) * count,
    )
    return SemiBatch(Labeled(images(), labels, ("l",) * count), rest)


def go(method: Method, steps: range, total: int) -> list[float]:
    """A few updates as the loop makes them; the losses."""
    trained = [p for p in method.parameters() if p.requires_grad]
    losses = []
    for step in steps:
        clock = Clock(step=step, total=total)
        result = method.step(batch_at(step, method.views), clock)
        grads = torch.autograd.grad(result.loss, trained, allow_unused=True)
        for parameter, grad in zip(trained, grads, strict=True):
            if grad is not None:
                parameter.data.sub_(0.01 * grad)
        method.after_update(clock)
        losses.append(float(result.loss.detach()))
    return losses


def state(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def say(net: Segmenter, probs: tuple[float, float, float]) -> None:
    """From now on the network says this of every pixel."""
    with torch.no_grad():
        net.head.classifier.weight.zero_()
        assert net.head.classifier.bias is not None
        net.head.classifier.bias.copy_(torch.tensor(probs).log())
