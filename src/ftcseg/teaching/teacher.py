"""The teacher: a copy of the student that follows it slowly and never learns by itself."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

REFERENCE_STEPS = 87_840
"""Updates of the paper's run on FLSMD with 2 % labels: 240 epochs of 366. Its momenta were chosen for this length."""

SHORTEST_STATISTIC = 20
"""Steps a statistic remembers at least, however short the run: a rare class is missing from most single batches."""

SHORTEST_TEACHER = 50
"""Steps a teacher remembers at least; one that remembers less repeats the student, and its mistakes."""


class Teacher(nn.Module):
    """A network without gradients in a mode that no `train()` or `eval()` of an owner changes."""

    def __init__(self, net: nn.Module, *, train_mode: bool) -> None:
        super().__init__()
        self.net = net.requires_grad_(False)
        self.train_mode = train_mode
        self.train()

    def train(self, mode: bool = True) -> Teacher:  # noqa: ARG002 - the mode was decided when the teacher was made
        """Stay in the decided mode, whatever is asked."""
        super().train(self.train_mode)
        return self

    def forward(self, *args: object, **kwargs: object) -> object:
        """What the network says."""
        return self.net(*args, **kwargs)


def make_teacher(student: nn.Module, *, train_mode: bool = False) -> Teacher:
    """A teacher that starts as a copy of the student; `teacher.net` is the bare network.

    It stays in eval mode for ever. Methods whose paper keeps the teacher's dropout and batch statistics alive say
    `train_mode=True`, and then it stays in train mode for ever.
    """
    return Teacher(copy.deepcopy(student), train_mode=train_mode)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Move the teacher to `decay * teacher + (1 - decay) * student`: parameters and buffers, whole numbers copied.

    A student with non-finite values raises FloatingPointError and leaves the teacher as it was.
    """
    if not all_finite(student):
        raise FloatingPointError("The student holds non-finite values; the teacher did not follow it.")
    pairs = list(zip(_tensors(teacher), _tensors(student), strict=True))
    floating = [(t, s) for t, s in pairs if t.is_floating_point()]
    if floating:
        slow, fast = (list(side) for side in zip(*floating, strict=True))
        torch._foreach_lerp_(slow, fast, 1 - decay)
    for old, new in pairs:
        if not old.is_floating_point():
            old.copy_(new)  # batch counters: the mean of two counts is no count


@torch.no_grad()
def all_finite(module: nn.Module) -> bool:
    """Whether every parameter and buffer is free of nan and infinity, asked of all of them at once."""
    tensors = [t for t in _tensors(module) if t.is_floating_point() and t.numel()]
    if not tensors:
        return True
    norms = [norm.to(tensors[0].device) for norm in torch._foreach_norm(tensors)]
    return bool(torch.stack([norm.float() for norm in norms]).isfinite().all())


def warm_decay(step: int, decay: float) -> float:
    """The teacher's decay at a step: 0, 1/2, 2/3, ... up to `decay` (reading C1).

    At step 0 the teacher becomes the student; until the cap is reached it is the plain mean of all students so far.
    """
    return min(1 - 1 / (step + 1), decay)


def scaled_momentum(
    momentum: float,
    total_steps: int,
    reference_steps: int = REFERENCE_STEPS,
    *,
    shortest: float = SHORTEST_STATISTIC,
) -> float:
    """The momentum that remembers the same share of a run of another length.

    A momentum m remembers about T = 1 / (1 - m) steps. The paper's 0.999 remembers 1000 of 87 840 steps, 1.1 % of the
    run; in a run of 1000 steps it would remember everything, and the statistics would never leave their start. So T
    shrinks in proportion: T' = T * total_steps / reference_steps. It never falls below `shortest` steps, and never
    exceeds T: a longer run keeps the stated momentum. `scaled_momentum(0.999, 8784)` is 0.99.
    """
    memory = 1 / (1 - momentum)
    scaled = max(memory * total_steps / reference_steps, shortest)
    return 1 - 1 / scaled if scaled < memory else momentum


def _tensors(module: nn.Module) -> list[Tensor]:
    """Parameters, then buffers, in the order of definition: the same for a network and its copy, wrapped or not."""
    return [*module.parameters(), *module.buffers()]
