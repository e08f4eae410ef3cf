"""TensorBoard, Weights & Biases and MLflow as listeners. Each is an extra; none can harm a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from ftcseg.errors import UsageError, unknown_name
from ftcseg.train.events import Evaluated, Event, IntervalDone, Listener, RunDone, RunStarted

Write: TypeAlias = Callable[[Mapping[str, float], int], None]
"""write(numbers by name, step)."""
_log = logging.getLogger("ftcseg")


def tracker(name: str, run: Path) -> Listener:
    """The listener called "tensorboard", "wandb" or "mlflow"; where it is missing, the error says how to install it."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    return Forgiving(TRACKERS[name](run), name)


class Forgiving:
    """A listener that falls silent when it fails: a tracker's network is no reason to lose a run."""

    def __init__(self, listener: Listener, name: str) -> None:
        self._listener: Listener | None = listener
        self._name = name

    def __call__(self, event: Event) -> None:
        """Hand the event on, as long as that works."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception as error:  # whatever it is, it is not the run's
            self._listener = None
            _log.warning("%s failed and is switched off for the rest of this run: %s", self._name, error)


class Tracker:
    """Writes the numbers of intervals and evaluations through `write`, opened when the run starts."""

    def __init__(self, open_: Callable[[int], Write], close: Callable[[], None]) -> None:
        """`open_` is given the step the run starts from."""
        self._open = open_
        self._close = close
        self._write: Write | None = None

    def __call__(self, event: Event) -> None:
        """Open at the start, write what is a number, close at the end."""
        if isinstance(event, RunStarted):
            self._write = self._open(event.clock.step)
        elif isinstance(event, IntervalDone | Evaluated) and self._write is not None:
            self._write(numbers_of(event), event.clock.step)
        elif isinstance(event, RunDone):
            self._close()


def numbers_of(event: IntervalDone | Evaluated) -> dict[str, float]:
    """An event's scalars by name: «train/sup», «lr/head», «speed/seconds», «student/miou»."""
    if isinstance(event, Evaluated):
        values = {f"{who}/{name}": value for who, scores in event.scores.items() for name, value in scores.items()}
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    numbers = {f"train/{name}": value for name, value in event.losses.items()}
    numbers |= {f"lr/{name}": value for name, value in event.rates.items()}
    numbers |= {f"speed/{name}": value for name, value in event.timing.items()}
    if event.kept is not None:
        numbers["pseudo/kept"] = event.kept
    return numbers


def _tensorboard(run: Path) -> Tracker:
    tensorboard = _import("torch.utils.tensorboard", "tensorboard")
    writers: list[Any] = []

    def open_(step: int) -> Write:
        writer = tensorboard.SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)
        writers.append(writer)

        def write(numbers: Mapping[str, float], at: int) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, at)

        return write

    def close() -> None:
        for writer in writers:
            writer.close()

    return Tracker(open_, close)


def _wandb(run: Path) -> Tracker:
    wandb = _import("wandb", "wandb")

    def open_(_step: int) -> Write:
        session = wandb.init(dir=str(run), name=run.name, id=run.name, resume="allow")
        return lambda numbers, at: session.log(dict(numbers), step=at)

    return Tracker(open_, lambda: wandb.finish())


def _mlflow(run: Path) -> Tracker:
    mlflow = _import("mlflow", "mlflow")

    def open_(_step: int) -> Write:
        mlflow.start_run(run_name=run.name)
        return lambda numbers, at: mlflow.log_metrics(dict(numbers), step=at)

    return Tracker(open_, lambda: mlflow.end_run())


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"{extra} is not installed. Install it with: pip install 'ftcseg[{extra}]'") from error


TRACKERS: dict[str, Callable[[Path], Tracker]] = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}
