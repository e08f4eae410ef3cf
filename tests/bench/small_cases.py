"""Cases that a test can afford: a network of a few convolutions on a few small frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ftcseg.bench.case import Case

SMALL = ("model.features=8", "threads=1", "data.labels=4", "log_every=1")


def small_case(frames: Path, method: str = "ftc", *settings: str, **more: Any) -> Case:
    told = {"encoder": "tiny", "size": (32, 48), "batch": (2, 2), "dataset": str(frames), **more}
    return Case(method=method, settings=(*SMALL, *settings), **told)
