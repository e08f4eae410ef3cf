"""What is held does not grow with the steps of a run or the number of images; docs/reliability.md has the trials."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_runs import SMALL
from torch import Tensor

from ftcseg import api
from ftcseg.data import sequences
from ftcseg.data.scan import THUMB
from ftcseg.train.events import Event, Saved

FDS = Path("/proc/self/fd")
STEPS = 12
FRAME = (24, 36)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The run below is made before any single test's cache is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("flat-cache")))
        yield


class Held:
    """Tensors alive and files open, each time a checkpoint of the kind asked for has been written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[int] = []
        self.tensors: list[int] = []
        self.files: list[int] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Saved) and event.name == self.name:
            gc.collect()
            self.steps.append(event.clock.step)
            self.tensors.append(sum(issubclass(type(item), Tensor) for item in gc.get_objects()))
            self.files.append(len(list(FDS.iterdir())) if FDS.exists() else 0)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Held, Path]:
    """A run that is scored and saved six times."""
    place = tmp_path_factory.mktemp("flat")
    frames = api.simulate(place / "sonar", 12, size=(96, 96), classes=3, imbalance=1.0, workers=1)
    watcher = Held("last_good")
    settings = (*SMALL, "evaluation.every=2", "data.workers=1", "evaluation.audit=false")
    api.train(frames, method="ftc", labels=6, steps=STEPS, out=place / "run", settings=settings, listeners=[watcher])
    return watcher, place / "run"


def test_a_run_keeps_no_tensor_and_no_file_from_step_to_step(held: tuple[Held, Path]) -> None:
    watcher, _ = held
    assert watcher.steps == [2, 4, 6, 8, 10, 12]
    # The first two pseudo-labelled steps fill the statistics; from then on nothing is added.
    assert len(set(watcher.tensors[2:])) == 1, watcher.tensors
    assert max(watcher.files) == watcher.files[2], watcher.files


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that Python and NumPy held at most, beyond what they held before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_neighbours_among_many_frames_take_two_thumbnails_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_ALL_PAIRS", 100)
    rng = np.random.default_rng(0)
    names = [f"dive/frame-{i:05d}.png" for i in range(6000)]
    thumbs = [row.tobytes() for row in rng.integers(0, 256, (6000, THUMB * THUMB), dtype=np.uint8)]
    sequences.find_sequences(names[:500], thumbs[:500])  # what is imported on the way
    small, large = (peak_of(lambda n=n: sequences.find_sequences(names[:n], thumbs[:n])) for n in (2000, 6000))
    assert (large - small) / 4000 < 2 * THUMB * THUMB  # as vectors alone they would take four


def test_predicting_many_images_holds_their_names_only(held: tuple[Held, Path], tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / "frames"
    folder.mkdir()
    for number in range(144):
        Image.fromarray(rng.integers(0, 256, FRAME, dtype=np.uint8)).save(folder / f"{number:03d}.png")
    few, many = [sorted(folder.iterdir())[:count] for count in (48, 144)]
    _, run = held

    def ask(some: list[Path], out: str = "warm") -> None:
        api.predict(run, some, tmp_path / out, what=["masks", "overlays"])

    ask(few[:8])
    peaks = [peak_of(lambda some=some: ask(some, str(len(some)))) for some in (few, many)]
    # A name, its place in the journal, what its files are called: 630 bytes. Its 864 pixels would be too much already.
    assert (peaks[1] - peaks[0]) / 96 < 1200, peaks
