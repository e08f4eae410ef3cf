"""What many tests need: a cache of their own, a small simulated set, the real sets where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

_NUMBERS = count()


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all cache folders: for a numbered one of its own, pytest would look at thousands each time."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that no other test has seen."""
    folder = caches / str(next(_NUMBERS))
    folder.mkdir()
    monkeypatch.setenv("FTCSEG_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def sonar12(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve simulated sonar frames with masks, 10 for training and 2 for test. Only to be read."""
    from ftcseg import api

    return api.simulate(tmp_path_factory.mktemp("sets") / "sonar12", 12, seed=0, workers=1)


@pytest.fixture(scope="module")
def plain_convolutions() -> Iterator[None]:
    """For networks so small that oneDNN takes longer to prepare than to compute: a step takes two thirds as long."""
    import torch

    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = before


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real sets."""
    chosen = os.environ.get("FTCSEG_DATA")
    folder = Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real sets are not in {folder}; set FTCSEG_DATA to where they are")
    return folder
