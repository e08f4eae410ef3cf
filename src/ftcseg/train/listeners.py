"""Those who watch: lines in files, and a table in the terminal. They never change training."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ftcseg.errors import FtcsegError
from ftcseg.train.events import Evaluated, Event, IntervalDone, RolledBack, RunDone, RunStarted, Skipped

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

METRICS_FILE = "metrics.jsonl"
PSEUDO_FILE = "pseudo.jsonl"


class JsonLines:
    """metrics.jsonl and pseudo.jsonl in the run folder: one JSON object per line, each with its `step`.

    When a run goes on from an earlier step, lines beyond it are cut off and written again. Except for what stands under
    `timing`, the files of a run that was killed and resumed are those of a run that was not.
    """

    def __init__(self, run: Path) -> None:
        self._metrics = run / METRICS_FILE
        self._pseudo = run / PSEUDO_FILE

    def __call__(self, event: Event) -> None:
        """Write down what is worth a line."""
        match event:
            case RunStarted(clock):
                self._cut(clock.step)
            case IntervalDone():
                _append(self._metrics, _training_line(event))
                if event.pseudo is not None or event.facts:
                    _append(self._pseudo, _pseudo_line(event))
            case Evaluated(clock, scores, best, seconds):
                line = {"step": clock.step, "kind": "scores", "scores": scores, "best": best}
                _append(self._metrics, line | {"timing": {"seconds": round(seconds, 3)}})
            case Skipped(clock, what, ids):
                _append(self._metrics, {"step": clock.step, "kind": "skipped", "what": what, "files": ids})
            case RolledBack(clock, since, what, ids, lr_scale):
                self._cut(clock.step)
                line = {"step": clock.step, "kind": "rolled back", "since": since, "what": what, "files": ids}
                _append(self._metrics, line | {"lr_scale": lr_scale})
            case _:
                pass

    def _cut(self, step: int) -> None:
        for path in (self._metrics, self._pseudo):
            cut_beyond(path, step)


def cut_beyond(path: Path, step: int) -> None:
    """Shorten a file of lines to those not beyond `step`; a torn last line goes too."""
    if not path.exists():
        return
    keep = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or _step_of(line) > step:
                break
            keep += len(line)
    os.truncate(path, keep)


def _step_of(line: bytes) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line that says nothing is torn


def _append(path: Path, line: Mapping[str, Any]) -> None:
    try:
        with path.open("ab") as file:
            file.write(json.dumps(_sayable(line), ensure_ascii=False, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())  # on disk before the checkpoint that counts on it
    except OSError as error:
        raise FtcsegError(
            f"{path} could not be written: {error.strerror}. Check that the folder may be written and that its "
            f"disk has room, then resume the run."
        ) from error


def _sayable(value: Any) -> Any:
    """The value in JSON's words, which has none for nan and infinity."""
    if isinstance(value, Mapping):
        return {str(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(item) for item in value]
    if hasattr(value, "tolist"):  # of NumPy or torch
        return _sayable(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _training_line(event: IntervalDone) -> dict[str, Any]:
    line: dict[str, Any] = {
        "step": event.clock.step,
        "kind": "train",
        "losses": dict(event.losses),
        "lr": dict(event.rates),
        "gradient_norm": event.norm,
        "kept": event.kept,
        "skipped": event.skipped,
    }
    if event.unreadable:
        line["unreadable"] = event.unreadable
    return line | {"timing": dict(event.timing)}


def _pseudo_line(event: IntervalDone) -> dict[str, Any]:
    line: dict[str, Any] = {"step": event.clock.step}
    if event.pseudo is not None:
        line |= {"seen": event.pseudo.seen, "kept": event.pseudo.kept, "conf": event.pseudo.conf}
    return line | {"facts": dict(event.facts)}


class Terminal:
    """A live table where somebody looks, a plain line per interval where nobody does (a log file, a cluster)."""

    def __init__(self, file: IO[str] | None = None, class_names: Sequence[str] = ()) -> None:
        self._file = file or sys.stderr
        self._class_names = class_names
        self._live: Live | None = None
        self._scores = ""

    def __call__(self, event: Event) -> None:
        """Show what a person wants to see."""
        match event:
            case RunStarted(clock, note):
                self._print(f"step {clock.step} of {clock.total}" + (f". {note}" if note else ""))
                self._open()
            case IntervalDone():
                self._show(event)
            case Evaluated(clock, scores, best):
                self._scores = _scores_text(scores) + (" (best)" if best else "")
                self._print(f"step {clock.step}: {self._scores}")
            case Skipped(clock, what, ids):
                self._print(f"step {clock.step} skipped: {what} is not finite ({', '.join(ids[:4])})")
            case RolledBack(clock, since, what, _, lr_scale):
                self._print(
                    f"step {since}: {what} is not finite; back to step {clock.step}, learning rate times {lr_scale:g}"
                )
            case RunDone(clock, finished):
                self.close()
                self._print(f"{'done' if finished else 'stopped'} at step {clock.step} of {clock.total}")
            case _:
                pass

    def close(self) -> None:
        """Give the terminal back as it was; also after an error."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _open(self) -> None:
        if self._file.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._file), auto_refresh=False)
            self._live.start()

    def _show(self, event: IntervalDone) -> None:
        if self._live is None:
            self._print(interval_text(event))
        else:
            self._live.update(self._table(event), refresh=True)

    def _print(self, text: str) -> None:
        if self._live is None:
            print(text, file=self._file, flush=True)
        else:
            self._live.console.print(text, highlight=False, markup=False)

    def _table(self, event: IntervalDone) -> Table:
        from rich.table import Table

        table = Table("class", "predicted", "kept", "confidence", title=interval_text(event), caption=self._scores)
        if event.pseudo is not None:
            total = max(1, sum(event.pseudo.seen))
            for index, seen in enumerate(event.pseudo.seen):
                name = self._class_names[index] if index < len(self._class_names) else str(index)
                kept, conf = event.pseudo.kept[index] / max(1, seen), event.pseudo.conf[index]
                table.add_row(name, f"{seen / total:.1%}", f"{kept:.0%}", "" if conf is None else f"{conf:.2f}")
        return table


def interval_text(event: IntervalDone) -> str:
    """One line for one interval."""
    losses = "  ".join(f"{name} {value:.4f}" for name, value in event.losses.items())
    lr = "/".join(f"{rate:.2e}" for rate in event.rates.values())
    kept = f"  kept {event.kept:.0%}" if event.kept is not None else ""
    speed = event.timing.get("images_per_second", 0.0)
    return f"step {event.clock.step}/{event.clock.total}  {losses}  lr {lr}{kept}  {speed:.1f} images/s"


def _scores_text(scores: Mapping[str, Mapping[str, Any]]) -> str:
    texts = []
    for predictor, values in scores.items():
        numbers = [f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)]
        texts.append(f"{predictor} {', '.join(numbers)}")
    return "; ".join(texts)
