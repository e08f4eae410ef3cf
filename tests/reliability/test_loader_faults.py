"""What goes wrong while images are loaded: workers that are killed, files that cannot be read any more."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from ftcseg import api
from ftcseg.errors import DataError, ImageError
from ftcseg.files import read_json, read_text
from ftcseg.train.events import Event, IntervalDone, RunPlanned
from ftcseg.train.machine import Machine
from ftcseg.train.unreadable import Unreadable
from ftcseg.views import workers
from ftcseg.views.workers import WorkerLost, made_ahead

SMALL = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=3",
    "evaluation.every=0",
    "teaching.burn_in=0",
    "save_every=2",
    "log_every=1",
    "threads=1",
)
STEPS = 4


# Workers


def squares(step: int) -> dict[str, Any]:
    return {"step": step, "square": torch.full((2, 3), step**2)}


def deadly(step: int) -> int:
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return step


def no_picture(step: int) -> int:
    if step == 2:
        raise ImageError("ship.png is empty.", remedy="Copy it again.", kind="empty-file")
    return step


def test_a_killed_worker_is_replaced_and_no_batch_is_lost() -> None:
    told: list[str] = []
    batches = made_ahead(squares, 5, 2, told.append)
    assert next(batches)["step"] == 5
    for worker in multiprocessing.active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    for step, batch in enumerate(islice(batches, 9), 6):
        assert batch["step"] == step
        assert batch["square"].tolist() == [[step**2] * 3] * 2
    batches.close()
    assert len(told) == 2  # both were killed
    assert "ended by SIGKILL" in told[0]
    assert "memory of the machine ran out" in told[0]
    assert not multiprocessing.active_children()


def test_workers_that_keep_dying_end_the_run_with_what_to_do() -> None:
    told: list[str] = []
    batches = made_ahead(deadly, 0, 2, told.append)
    assert list(islice(batches, 3)) == [0, 1, 2]
    with pytest.raises(WorkerLost, match=r"died 4 times around batch 3.*SIGKILL.*data\.workers=0.*--resume") as caught:
        next(batches)
    assert caught.value.exit_code == 5
    assert len(told) == workers.RESTARTS == 3
    assert not multiprocessing.active_children()


def test_an_error_of_a_worker_is_the_users_own() -> None:
    batches = made_ahead(no_picture, 0, 2)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ImageError, match=r"^ship\.png is empty\. Copy it again\.$") as caught:
        next(batches)
    assert caught.value.kind == "empty-file"


def test_somebody_who_waits_for_a_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.02)
    told: list[str] = []
    gate = multiprocessing.Event()

    def slow(step: int) -> int:
        gate.wait(10)
        return step

    def tell(text: str) -> None:
        told.append(text)
        gate.set()

    batches = made_ahead(slow, 0, 1, tell)
    assert next(batches) == 0
    batches.close()
    assert told[0].startswith("A loader worker has not brought batch 0")


# Counting


class TwoProcesses(Machine):
    """This process and another, which says what it was told to."""

    def __init__(self, others: list[str]) -> None:
        self.others = others

    def highest(self, number: int | torch.Tensor) -> int:
        return max(int(number), len(self.others))

    def gather(self, item: Any) -> list[Any]:
        return [item, self.others]


@pytest.mark.parametrize(("images", "share", "allowed"), [(1868, 0.01, 18), (99, 0.01, 1), (100, 0.05, 5), (8, 0.0, 1)])
def test_one_percent_and_always_one_may_be_unreadable(images: int, share: float, allowed: int) -> None:
    seen = Unreadable(TwoProcesses([]), images, share)
    seen.see([f"{number}.png" for number in range(allowed)])
    seen.check()
    seen.see(["0.png", "0.png"])  # again: it is one
    seen.check()
    seen.see(["last.png"])
    with pytest.raises(DataError, match=rf"^{allowed + 1} of {images} unlabelled images cannot be read.*0\.png"):
        seen.check()


def test_what_another_process_could_not_read_counts_here_too() -> None:
    seen = Unreadable(TwoProcesses(["b.png", "a.png"]), 1000, 0.01)
    assert seen.see(["a.png"]) == ("a.png", "b.png")
    assert list(seen.names) == ["a.png", "b.png"]


# Whole runs


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("loader-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("faults") / "sonar", 12, size=(96, 96), classes=4, workers=1)


@pytest.fixture(scope="module")
def calm(frames: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(frames, tmp_path_factory.mktemp("calm") / "run")


@pytest.fixture
def whole(frames: Path) -> Iterator[None]:
    """Whatever a test breaks is whole again after it."""
    content = {path: path.read_bytes() for path in frames.rglob("*.png")}
    yield
    for path, known in content.items():
        path.write_bytes(known)


def train(frames: Path, out: Path, *listeners: Callable[[Event], None], told: tuple[str, ...] = ()) -> Path:
    settings = [*SMALL, *told]
    return api.train(
        frames, method="ftc", labels=3, steps=STEPS, out=out, settings=settings, listeners=listeners
    ).folder


def lines_of(run: Path) -> list[dict[str, Any]]:
    """What is in metrics.jsonl, without what depends on the machine."""
    lines = [json.loads(line) for line in read_text(run / "metrics.jsonl").splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in lines]


def breaking(frames: Path, *names: str) -> Callable[[Event], None]:
    """Writes rubbish into files once a run has looked at them all and is about to begin."""

    def listen(event: Event) -> None:
        if isinstance(event, RunPlanned):
            for name in names:
                (frames / name).write_bytes(b"no picture")

    return listen


def test_a_run_whose_workers_are_killed_comes_out_the_same(frames: Path, calm: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(event: Event) -> None:
        if isinstance(event, IntervalDone) and not killed:
            killed.extend(child.pid for child in multiprocessing.active_children() if child.pid is not None)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    run = train(frames, tmp_path / "run", kill, told=("data.workers=2",))
    assert len(killed) == 2
    assert read_json(run / "run.json")["status"] == "done"
    assert lines_of(run) == lines_of(calm)
    assert "A loader worker was lost at batch 1: ended by SIGKILL" in read_text(run / "log.txt")


@pytest.mark.usefixtures("whole")
def test_an_unreadable_unlabeled_image_is_replaced_counted_and_named(frames: Path, calm: Path, tmp_path: Path) -> None:
    torn = read_json(calm / "split.json")["unlabeled"][0]
    content = (frames / torn).read_bytes()
    run = train(frames, tmp_path / "run", breaking(frames, torn))
    assert read_json(run / "run.json")["status"] == "done"
    (told,) = (line for line in lines_of(run) if line["kind"] == "unreadable")
    assert (told["files"], told["count"]) == ([torn], 1)
    assert f"cannot be read: {torn} (1 of 7 so far; more than 1 end the run)" in read_text(run / "log.txt")
    assert torn in read_text(run / "report.html")

    class Killed(BaseException):
        pass

    def die(event: Event) -> None:
        if isinstance(event, IntervalDone) and event.clock.step == 3:
            raise Killed

    # The same with workers, killed after the third step and continued from the second without: nothing is counted anew.
    (frames / torn).write_bytes(content)
    with pytest.raises(Killed):
        train(frames, tmp_path / "again", die, breaking(frames, torn), told=("data.workers=2",))
    config = tmp_path / "again" / "config.yaml"
    config.write_text(read_text(config).replace("workers: 2", "workers: 0"))
    api.resume(tmp_path / "again")
    assert lines_of(tmp_path / "again") == lines_of(run)


@pytest.mark.usefixtures("whole")
def test_too_many_unreadable_images_stop_the_run_until_they_are_mended(
    frames: Path, calm: Path, tmp_path: Path
) -> None:
    names = read_json(calm / "split.json")["unlabeled"][:2]
    content = [(frames / name).read_bytes() for name in names]
    with pytest.raises(DataError, match="2 of 7 unlabelled images cannot be read") as caught:
        train(frames, tmp_path / "run", breaking(frames, *names))
    assert all(name in str(caught.value) for name in names)
    assert caught.value.exit_code == 2
    for name, known in zip(names, content, strict=True):
        (frames / name).write_bytes(known)
    assert api.resume(tmp_path / "run").finished


@pytest.mark.usefixtures("whole")
def test_an_unreadable_labeled_image_stops_with_its_name(frames: Path, calm: Path, tmp_path: Path) -> None:
    torn = read_json(calm / "split.json")["labeled"][0]
    with pytest.raises(ImageError, match=f"^The labelled image {torn} cannot be used"):
        train(frames, tmp_path / "run", breaking(frames, torn), told=("data.workers=1",))
    assert not multiprocessing.active_children()
