"""What many tests need: a cache of their own, a small simulated set, the real sets where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that no other test has seen."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FTCSEG_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def sonar12(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve simulated sonar frames with masks, 10 for training and 2 for test. Only to be read."""
    from ftcseg import api

    return api.simulate(tmp_path_factory.mktemp("sets") / "sonar12", 12, seed=0, workers=1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real sets."""
    chosen = os.environ.get("FTCSEG_DATA")
    folder = Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real sets are not in {folder}; set FTCSEG_DATA to where they are")
    return folder
