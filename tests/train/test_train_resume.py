"""A run that was interrupted, in whatever way, ends where the uninterrupted one ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import Kit, Toy, after, assert_same_run, judge, tensors_in

from ftcseg.train.checkpoint import CheckpointError
from ftcseg.train.optim import OptimParams
from ftcseg.train.signals import Interrupted
from ftcseg.types import Clock

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    assert Kit(folder).go().step == 8
    return folder


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6])
def test_a_run_stopped_at_any_step_goes_on_as_if_it_was_not(steps: int, straight: Path, tmp_path: Path) -> None:
    assert Kit(tmp_path).go(after(steps)).step == steps
    torch.manual_seed(99)  # whatever the new process has drawn before
    assert Kit(tmp_path).go().step == 8
    assert_same_run(tmp_path, straight)


def test_a_run_stopped_at_every_step_does_too(straight: Path, tmp_path: Path) -> None:
    steps = [Kit(tmp_path).go(after(1)).step for _ in range(9)]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert_same_run(tmp_path, straight)


@pytest.mark.parametrize(
    "params",
    [
        OptimParams(lr=1e-2, accumulate=2, clip=0.5, warmup=3),
        OptimParams(kind="sgd", lr=1e-2, head_multiplier=3.0),
        OptimParams(lr=1e-2, implementation="foreach", decay_vectors=False),
    ],
    ids=["accumulate", "sgd", "foreach"],
)
def test_every_optimiser_goes_on_exactly(params: OptimParams, tmp_path: Path) -> None:
    for folder in ("straight", "stopped"):
        method = Toy().to(memory_format=torch.channels_last)  # fused kernels must find their memory in the same order
        Kit(tmp_path / folder, params=params, method=method).go(after(3 if folder == "stopped" else 99))
    Kit(tmp_path / "stopped", params=params, method=Toy().to(memory_format=torch.channels_last)).go()
    assert_same_run(tmp_path / "stopped", tmp_path / "straight")


def test_an_interrupted_evaluation_is_made_after_the_restart(straight: Path, tmp_path: Path) -> None:
    def interrupted(_method: Any, _clock: Clock) -> Any:
        raise Interrupted

    assert Kit(tmp_path, judge=interrupted).go().step == 3
    kit = Kit(tmp_path, judge=judge)
    kit.go()
    assert kit.kinds()[:2] == ["RunStarted", "Evaluated"]
    assert_same_run(tmp_path, straight)


def test_a_finished_run_that_is_resumed_does_nothing(straight: Path) -> None:
    before = tensors_in(straight)
    kit = Kit(straight)
    assert kit.go().step == 8
    assert kit.kinds() == ["RunStarted", "RunDone"]
    assert all(torch.equal(value, before[name]) for name, value in tensors_in(straight).items())


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    Kit(tmp_path, identity={"config": "aa", "split": "bb"}).go(after(1))
    with pytest.raises(CheckpointError, match=r"another split.*own config\.yaml"):
        Kit(tmp_path, identity={"config": "aa", "split": "cc"}).go()


def test_another_network_is_refused(tmp_path: Path) -> None:
    Kit(tmp_path).go(after(1))
    with pytest.raises(CheckpointError, match="another network"):
        Kit(tmp_path, method=Toy(plain=True)).go()


def test_a_fresh_run_never_overwrites_an_old_one(tmp_path: Path) -> None:
    Kit(tmp_path).go(after(5))
    lines = (tmp_path / "metrics.jsonl").read_text()
    kit = Kit(tmp_path)
    kit.keeper.restore = lambda: None  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="already holds checkpoints"):
        kit.go()
    assert (tmp_path / "metrics.jsonl").read_text() == lines


class Starter:
    """Starts training processes, one after the other; each is a process of its own and can be killed."""

    def __init__(self) -> None:
        source = str(HERE.parents[1] / "src")
        environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "toy_training.py")],
            env=environment,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, folder: Path, total: int, save_every: int, pause: float) -> int:
        """The number of the new process."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{folder} {total} {save_every} {pause}\n")
        return self._answer()

    def wait(self) -> int:
        """Its exit code; negative where a signal ended it."""
        return self._answer()

    def close(self) -> None:
        self._server.communicate()

    def _answer(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    starter.close()


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.002)


def test_a_killed_run_goes_on_as_if_it_was_not(starter: Starter, tmp_path: Path) -> None:
    total, killed = 100, tmp_path / "killed"
    state = killed / "checkpoints" / "last" / "state.json"
    chance = random.Random()
    ends = []
    for _ in range(4):
        began = time.time()
        process = starter.start(killed, total, save_every=1, pause=0.004)
        wait_for(lambda: changed(state) > began)  # noqa: B023
        time.sleep(chance.uniform(0, 0.08))  # a moment in the middle of a step, a save or an evaluation
        os.kill(process, signal.SIGKILL)
        ends.append(starter.wait())
    assert ends[0] == -signal.SIGKILL
    starter.start(killed, total, save_every=1, pause=0)
    assert starter.wait() == 0
    Kit(tmp_path / "straight", total=total, save_every=0, judge_every=10).go()
    assert_same_run(killed, tmp_path / "straight")


def changed(path: Path) -> float:
    """When the file was last written, long ago if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def test_sigterm_saves_and_exits_with_143(starter: Starter, tmp_path: Path) -> None:
    process = starter.start(tmp_path, 10_000, save_every=0, pause=0.004)
    wait_for(lambda: (tmp_path / "metrics.jsonl").exists())
    asked = time.monotonic()
    os.kill(process, signal.SIGTERM)
    assert starter.wait() == 143
    assert time.monotonic() - asked < 5
    kit = Kit(tmp_path, total=10_000)
    clock = kit.keeper.restore()
    assert clock is not None
    assert 0 < clock.step < 10_000
    assert not kit.keeper.note
