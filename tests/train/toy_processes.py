"""One of two processes of the same run, for test_train_processes.py: python toy_processes.py FOLDER."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_training import Kit, Toy, after, batch_at

from ftcseg.train.events import RolledBack, Skipped, StepDone
from ftcseg.train.guard import TrainingError
from ftcseg.train.machine import Machine, open_machine
from ftcseg.train.optim import OptimParams
from ftcseg.train.signals import Stop
from ftcseg.types import Clock, SemiBatch

PARAMS = OptimParams(lr=1e-3)


def share_of(machine: Machine) -> object:
    """Every second batch."""

    def stream(start: int) -> Iterator[SemiBatch]:
        while True:
            yield batch_at(start * machine.world + machine.rank)
            start += 1

    return stream


def hurt(folder: Path, machine: Machine, place: str) -> list[type]:
    """What the guard does in this process when the second one has a nan in this tensor, once."""
    seen: list[object] = []

    def accident(method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        again = any(isinstance(event, RolledBack) for event in seen)
        if machine.rank == 1 and clock.step == 4 and not again:
            method.state_dict()[place].data.fill_(float("nan"))  # behind the back of autograd
        return loss

    kit = Kit(folder / place, machine=machine, method=Toy(accident=accident), stream=share_of(machine))
    journal, kit.journal = kit.journal, lambda event: (seen.append(event), journal(event))  # type: ignore[assignment]
    kit.go()
    total = sum(p.detach().double().sum().item() for p in kit.method.parameters())
    assert machine.gather(total) == [total, total]
    return [type(event) for event in seen if isinstance(event, Skipped | RolledBack)]


def main(folder: Path) -> None:
    machine = open_machine("cpu", processes=2)

    # 1  Both together, to be compared with one process that has the double batch.
    method = Toy(plain=True)
    if machine.rank == 1:
        method.student.head.weight.data.zero_()  # the first process's weights are the ones that count
        method.teacher.head.weight.data.zero_()
    kit = Kit(folder / "both", params=PARAMS, machine=machine, method=method, stream=share_of(machine))
    kit.go(after(5))
    kit = Kit(folder / "both", params=PARAMS, machine=machine, method=Toy(plain=True), stream=share_of(machine))
    kit.go()

    # 2  A number that is none in one process: both skip.
    def accident(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        return loss * float("nan") if machine.rank == 1 and clock.step == 2 else loss

    kit = Kit(folder / "bad", machine=machine, method=Toy(accident=accident), stream=share_of(machine))
    seen: list[object] = []
    journal, kit.journal = kit.journal, lambda event: (seen.append(event), journal(event))  # type: ignore[assignment]
    kit.go()
    (skipped,) = [event for event in seen if isinstance(event, Skipped)]
    assert skipped.clock.step == 3
    assert {"sonar_4.png", "sonar_5.png"} <= set(skipped.ids)
    assert sum(isinstance(event, StepDone) for event in seen) == 7
    numbers = torch.cat([p.detach().flatten() for p in [*kit.method.parameters(), *kit.method.student.buffers()]])
    total = numbers.double().sum().item()
    assert machine.gather(total) == [total, total]

    # A weight, a teacher's weight or a statistic that is none in one process's memory: both skip, or both go back.
    assert hurt(folder, machine, "student.encoder.weight") == [RolledBack]
    assert hurt(folder, machine, "teacher.encoder.weight") == [RolledBack]
    assert hurt(folder, machine, "share") == [Skipped]

    # 3  One process is asked to stop: both stop at the same step.
    stop = Stop(machine.highest)

    def ask(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        if machine.rank == 1 and clock.step == 4:
            stop.ask(signal.SIGTERM)
        return loss

    clock = Kit(folder / "stopped", machine=machine, method=Toy(accident=ask), stream=share_of(machine)).go(stop)
    assert machine.gather((clock.step, stop.exit_code)) == [(5, 143), (5, 143)]

    # 4  What keeps happening in one process ends both.
    def always(_method: Toy, _clock: Clock, loss: Tensor) -> Tensor:
        return loss * float("nan") if machine.rank == 0 else loss

    with pytest.raises(TrainingError) as caught:
        Kit(folder / "hopeless", machine=machine, method=Toy(accident=always), stream=share_of(machine)).go()
    assert "sonar_1.png" in caught.value.ids
    print("done")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
