"""A method small enough to train in milliseconds, and everything around it. As a script: runs that can be killed."""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric, seed_everything
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from ftcseg.methods.base import Method
from ftcseg.train.events import Event, Listener
from ftcseg.train.guard import Guard
from ftcseg.train.journal import Journal
from ftcseg.train.keeper import Keeper, KeeperParams
from ftcseg.train.listeners import JsonLines
from ftcseg.train.loop import run
from ftcseg.train.machine import Machine
from ftcseg.train.optim import Optim, OptimParams
from ftcseg.train.signals import Stop
from ftcseg.types import Clock, Labeled, PseudoCounts, SemiBatch, StepResult, Unlabeled, ViewPlan

CLASSES, SIZE = 3, 6
Accident = Callable[["Toy", Clock, Tensor], Tensor]
"""Something that happens to the method in the middle of a step; returns the loss."""


class Net(nn.Module):
    """An encoder with batch norm and dropout, a head, and a part that nobody calls."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        self.encoder = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.Identity() if plain else nn.BatchNorm2d(4)
        self.drop = nn.Identity() if plain else nn.Dropout(0.2)  # draws from torch's global generator
        self.head = nn.Conv2d(4, CLASSES, 1)
        self.spare = nn.Linear(2, 2)  # never used, like one unit of DPT's: it gets no gradient and must not decay

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.drop(self.norm(self.encoder(images)).relu()))
        return logits


class Toy(Method):
    """Mean teacher with one statistic: how often each class was predicted."""

    views = ViewPlan(strong=1)
    share: Tensor  # (CLASSES,) float
    count: Tensor  # () int64

    def __init__(self, *, plain: bool = False, accident: Accident | None = None) -> None:
        super().__init__()
        seed_everything(0, verbose=False)
        self.student = Net(plain=plain)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.register_buffer("share", torch.full((CLASSES,), 1 / CLASSES))
        self.register_buffer("count", torch.tensor(0))
        self.accident = accident

    def step(self, batch: SemiBatch, clock: Clock) -> StepResult:
        assert batch.unlabeled is not None
        with torch.no_grad():
            conf, labels = self.teacher(batch.unlabeled.weak).softmax(1).max(1)
        seen = torch.bincount(labels.flatten(), minlength=CLASSES)
        self.share.lerp_(seen / seen.sum(), 0.1)
        self.count += 1
        keep = conf > 0.4
        sup = functional.cross_entropy(self.student(batch.labeled.images), batch.labeled.labels)
        each = functional.cross_entropy(self.student(batch.unlabeled.strong[0]), labels, reduction="none")
        unsup = (each * keep).mean()
        loss = (sup + unsup) / 2
        if self.accident is not None:
            loss = self.accident(self, clock, loss)
        kept = torch.bincount(labels[keep], minlength=CLASSES)
        total = torch.zeros(CLASSES).index_add_(0, labels.flatten(), conf.flatten().float())
        return StepResult(loss, {"sup": sup, "unsup": unsup}, PseudoCounts(seen, kept, total))

    def after_update(self, clock: Clock) -> None:
        decay = min(1 - 1 / (clock.step + 1), 0.9)
        with torch.no_grad():
            for ours, theirs in zip(
                self.teacher.state_dict().values(), self.student.state_dict().values(), strict=True
            ):
                if ours.is_floating_point():
                    ours.lerp_(theirs, 1 - decay)

    def teachers(self) -> list[nn.Module]:
        return [self.teacher]

    def predictors(self) -> dict[str, nn.Module]:
        return {"student": self.student, "teacher": self.teacher}

    def facts(self) -> Mapping[str, Tensor]:
        return {"share": self.share}


def batch_at(number: int, size: int = 2) -> SemiBatch:
    """Batch `number`, always the same one."""
    chance = torch.Generator().manual_seed(number)
    images = torch.randn(3, size, 3, SIZE, SIZE, generator=chance)
    labels = torch.randint(CLASSES, (size, SIZE, SIZE), generator=chance)
    valid = torch.ones(size, SIZE, SIZE, dtype=torch.bool)
    labeled = Labeled(images[0], labels, tuple(f"labeled_{number}_{i}.png" for i in range(size)))
    return SemiBatch(labeled, Unlabeled(images[1], (images[2],), (), valid, (f"sonar_{number}.png",)))


def stream(start: int) -> Iterator[SemiBatch]:
    while True:
        yield batch_at(start)
        start += 1


def judge(method: Method, clock: Clock) -> dict[str, dict[str, Any]]:
    """Scores that depend on the weights, and on chance: a resumed run must draw on."""
    with torch.no_grad():
        return {
            name: {
                "miou": float(torch.tanh(net.head.weight.abs().sum() / 9)) + float(torch.rand(())) * 1e-3,
                "rare": None,
            }
            for name, net in method.predictors().items()
        }


def cpu(**options: Any) -> Machine:
    return Machine(Fabric(accelerator="cpu", devices=1, **options))


@dataclass
class Kit:
    """Everything a run needs, built as the api will build it."""

    folder: Path
    total: int = 8
    save_every: int = 2
    judge_every: int = 3
    log_every: int = 4
    method: Toy = field(default_factory=Toy)
    params: OptimParams = field(default_factory=lambda: OptimParams(lr=1e-2, head_multiplier=2.0))
    machine: Machine = field(default_factory=cpu)
    identity: dict[str, str] = field(default_factory=dict)
    judge: Any = judge
    stream: Any = stream

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events: list[Event] = []
        listeners: list[Listener] = [self.events.append, JsonLines(self.folder)]
        self.machine.adopt(self.method)
        self.optim = Optim(self.method, self.params, self.machine)
        self.guard = Guard(self.method, self.machine)
        self.journal = Journal(listeners, every=self.log_every, machine=self.machine, facts=self.method.facts)
        params = KeeperParams(save_every=self.save_every, judge_every=self.judge_every, identity=self.identity)
        self.keeper = Keeper(self.folder, self.method, self.optim, self.guard, self.journal, params)

    def go(self, stop: Callable[[], bool] = lambda: False) -> Clock:
        """Start, or go on."""
        clock = self.keeper.restore() or Clock(total=self.total, epoch_steps=4)
        return run(self.method, self.stream, self.optim, self.keeper, self.guard, self.journal, clock, self.judge, stop)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def after(steps: int) -> Callable[[], bool]:
    """A stop that is asked for once so many steps are done."""
    asked = iter([False] * steps)
    return lambda: next(asked, True)


def tensors_in(folder: Path, name: str = "last") -> dict[str, Tensor]:
    """All tensors of a checkpoint."""
    place = folder / "checkpoints" / name
    return {
        f"{file.stem}/{key}": value
        for file in sorted(place.glob("*.safetensors"))
        for key, value in load_file(file).items()
    }


def lines_in(folder: Path) -> list[dict[str, Any]]:
    """All lines of both files, without what depends on the machine's mood."""
    text = (folder / "metrics.jsonl").read_text() + (folder / "pseudo.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("timing", None)
    return lines


def assert_same_run(ours: Path, theirs: Path) -> None:
    """Bit for bit: every tensor, every plain number, every line."""
    for name in ("last", "best", "last_good"):
        a, b = tensors_in(ours, name), tensors_in(theirs, name)
        assert a.keys() == b.keys()
        different = [key for key in a if not torch.equal(a[key], b[key])]
        assert not different, (name, different)
        states = [json.loads((run / "checkpoints" / name / "state.json").read_text()) for run in (ours, theirs)]
        assert states[0] == states[1]
    assert lines_in(ours) == lines_in(theirs)


def all_finite(kit: Kit) -> bool:
    """Whether the method, and every file, holds only numbers that are some."""
    held = [t for t in kit.method.state_dict().values()]
    for name in ("last", "best", "last_good"):
        if (kit.folder / "checkpoints" / name).exists():
            held += tensors_in(kit.folder, name).values()
    return all(bool(tensor.isfinite().all()) for tensor in held if tensor.is_floating_point())


def _train(folder: str, total: str, save_every: str, pause: str) -> int:
    def slow(_method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
        time.sleep(float(pause))
        return loss

    kit = Kit(Path(folder), int(total), int(save_every), judge_every=10, method=Toy(accident=slow))
    with Stop(kit.machine.highest) as stop:
        kit.go(stop)
    return stop.exit_code


if __name__ == "__main__":  # imports once, then starts a process per line, since importing takes longer than training
    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_train(*line.split()))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
