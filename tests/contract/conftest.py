"""Contract tests compute on one thread: two cores are shared with everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def _plain_convolutions() -> Iterator[None]:
    """On maps as small as these oneDNN takes longer to prepare than to compute; without it a step takes two thirds."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = before
