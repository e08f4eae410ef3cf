"""Contract tests compute on one thread: two cores are shared with everybody. Their networks are very small."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def _small(plain_convolutions: None) -> None:
    pass
