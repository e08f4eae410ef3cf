"""Runs of a few steps on a few small frames, and what can be compared of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS = 6
SMALL = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "evaluation.every=3",
    "teaching.burn_in=2",
    "save_every=2",
    "log_every=1",
    "threads=1",
)
FILES = {
    "config.yaml",
    "split.json",
    "run.json",
    "metrics.jsonl",
    "pseudo.jsonl",
    "log.txt",
    "scores.json",
    "counts.safetensors",
    "report.html",
    "model/config.json",
    "model/model.safetensors",
    "pictures/index.json",
} | {f"checkpoints/{name}/model.safetensors" for name in ("last", "best", "last_good")}


def settings(*more: str) -> list[str]:
    """The small run's --set options."""
    return [part for value in (*SMALL, *more) for part in ("--set", value)]


class Starter:
    """Starts command lines, one after the other, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "output.txt"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FTCSEG_CACHE": str(folder / "cache")}
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "run_starter.py")],
            env=environment,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, *argv: object, die: tuple[str, int] | None = None, limit: int | None = None) -> int:
        """The number of the new process."""
        assert self._server.stdin is not None
        order = {"argv": [str(word) for word in argv], "out": str(self._out), "die": die, "limit": limit}
        self._server.stdin.write(json.dumps(order) + "\n")
        return self._answer()

    def leave(self, *argv: object) -> int:
        """Start one that runs beside the others; its number."""
        assert self._server.stdin is not None
        order = {"argv": [str(word) for word in argv], "out": os.devnull, "leave": True}
        self._server.stdin.write(json.dumps(order) + "\n")
        return self._answer()

    def wait(self) -> int:
        """Its exit code; negative where a signal ended it."""
        return self._answer()

    def run(self, *argv: object, die: tuple[str, int] | None = None, limit: int | None = None) -> int:
        """Start and wait."""
        self.start(*argv, die=die, limit=limit)
        return self.wait()

    @property
    def said(self) -> str:
        """All that the last one printed."""
        return self._out.read_text()

    def close(self) -> None:
        self._server.communicate()

    def _answer(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())


def lines_of(run: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The lines of a file without what depends on the machine's mood."""
    if not (run / name).exists():
        return []
    lines = [json.loads(line) for line in (run / name).read_text().splitlines() if line.endswith("}")]
    for line in lines:
        line.pop("timing", None)
    return lines


def steps_in(run: Path) -> int:
    """The last step that was written down."""
    return max((line["step"] for line in lines_of(run)), default=0)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


CHECKPOINTS = [f"checkpoints/{name}.safetensors" for name in ("last/model", "best/model", "last/optim", "last/chance")]


def assert_same_run(ours: Path, theirs: Path) -> None:
    """Bit for bit the same weights, optimiser and generators; the same lines, scores and audit."""
    for name in (*CHECKPOINTS, "counts.safetensors", "model/model.safetensors"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    for name in ("metrics.jsonl", "pseudo.jsonl"):
        assert lines_of(ours, name) == lines_of(theirs, name)
    for name in ("scores.json", "audit.json"):
        assert json.loads((ours / name).read_text()) == json.loads((theirs / name).read_text())
