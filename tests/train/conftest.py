"""What every test of training shares: one thread, and a disk that nobody waits for."""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # the tests pull no plug; processes they start do wait
