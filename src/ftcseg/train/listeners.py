"""Those who watch: lines in files, and a table in the terminal. They never change training."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ftcseg.files import disk_trouble, not_written, parse_json, shown
from ftcseg.train.checkpoint import RunGone
from ftcseg.train.events import (
    Evaluated,
    Event,
    FilesUnread,
    IntervalDone,
    Noted,
    PseudoRow,
    RolledBack,
    RunDone,
    RunPlanned,
    RunStarted,
    Scores,
    Skipped,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

METRICS_FILE = "metrics.jsonl"
PSEUDO_FILE = "pseudo.jsonl"


class JsonLines:
    """metrics.jsonl and pseudo.jsonl in the run folder: one JSON object per line, each with its `step`.

    When a run goes on from an earlier step, lines beyond it are cut off and written again. Except for what stands under
    `timing`, and for lines of kind `note` that tell what was found damaged, the files of a run that was killed and
    resumed are those of a run that was not.
    """

    def __init__(self, run: Path) -> None:
        self._metrics = run / METRICS_FILE
        self._pseudo = run / PSEUDO_FILE
        self._judged_anew = False

    def __call__(self, event: Event) -> None:
        """Write down what is worth a line."""
        match event:
            case RunStarted(clock, note):
                self._cut(clock.step)
                self._judged_anew = True
                if note:
                    _append(self._metrics, {"step": clock.step, "kind": "note", "note": note})
            case IntervalDone():
                _append(self._metrics, _training_line(event))
                if event.pseudo is not None or event.facts:
                    _append(self._pseudo, _pseudo_line(event))
            case Evaluated(clock, scores, best, seconds):
                if self._judged_anew:  # the first of this process: the one before was perhaps killed after its line
                    cut_beyond(self._metrics, clock.step, again="scores")
                self._judged_anew = False
                line = {"step": clock.step, "kind": "scores", "scores": scores, "best": best}
                _append(self._metrics, line | {"timing": {"seconds": round(seconds, 3)}})
            case FilesUnread(clock, files, count):
                _append(self._metrics, {"step": clock.step, "kind": "unreadable", "files": files, "count": count})
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


def cut_beyond(path: Path, step: int, again: str = "") -> None:
    """Shorten a file of lines to those not beyond `step`; a torn last line goes too.

    A line of kind `again` is about to be written again for this very step.
    """
    if not path.exists():
        return
    keep = 0
    with path.open("rb") as file:
        for line in file:
            at, kind = _place_of(line)
            if not line.endswith(b"\n") or at > step or (at == step and kind == again):
                break
            keep += len(line)
    with disk_trouble(path):
        os.truncate(path, keep)


def _place_of(line: bytes) -> tuple[float, str | None]:
    """The step and the kind of a line."""
    try:
        entry = parse_json(line)
        return int(entry["step"]), entry.get("kind")
    except (ValueError, KeyError, TypeError, AttributeError):
        return math.inf, None  # a line that says nothing is torn


class LogFile(io.TextIOBase):
    """Text added to a file at once and unbuffered: what could not be written is told, and does not come up again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("a+b", buffering=0)
            self._end_line()
        except OSError as error:
            raise not_written(path, error) from error

    def write(self, text: str, /) -> int:
        """Add the text, all of it."""
        left = text.encode()
        try:
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]
        except OSError as error:
            raise not_written(self._path, error) from error
        return len(text)

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if "_file" in vars(self):
            self._file.close()
        super().close()

    def _end_line(self) -> None:
        """End a line that an earlier process could not."""
        size = self._file.seek(0, os.SEEK_END)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")


def _append(path: Path, line: Mapping[str, Any]) -> None:
    try:
        with path.open("ab") as file:
            file.write(json.dumps(_sayable(line), ensure_ascii=False, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())  # on disk before the checkpoint that counts on it
    except OSError as error:
        raise not_written(path, error) if path.parent.is_dir() else RunGone(path.parent) from error


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
    """A live table where somebody looks, a plain line per interval where nobody does (a log file, a cluster).

    Both hold the same: losses, the last scores of the first predictor, what was kept of each class, speed, memory and
    the time that is left. The names of the classes come with the run's plan.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file or sys.stderr
        self._names: Sequence[str] = ()
        self._judged: _Judged | None = None
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Show what a person wants to see."""
        match event:
            case RunPlanned():
                self._names = tuple(map(shown, event.classes))
                self._print(plan_text(event))
            case RunStarted(clock, note):
                if clock.step or note:  # of a fresh start the plan has said everything
                    self._print(f"step {clock.step} of {clock.total}" + (f". {note}" if note else ""))
                self._open()
            case IntervalDone():
                self._show(event)
            case Evaluated(clock, scores, best):
                self._judged = _judged(clock.step, scores)
                told = "; ".join(f"{predictor} {_scores_text(values)}" for predictor, values in scores.items())
                self._print(f"step {clock.step}: {told}" + (" (best)" if best else ""))
            case FilesUnread():
                self._print(_unread_text(event))
            case Noted(text):
                self._print(text)
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
            parts = [_progress_text(event), self._scores(), _kept_text(event, self._names), _speed_text(event.timing)]
            self._print("  ".join(filter(None, parts)))
        else:
            self._live.update(self._screen(event), refresh=True)

    def _scores(self) -> str:
        return "" if self._judged is None else f"{self._judged.predictor} {self._judged.text}"

    def _print(self, text: str) -> None:
        text = "\n".join(map(shown, text.split("\n")))  # names of files and classes must not steer a terminal
        if self._live is None:
            print(text, file=self._file, flush=True)
        else:
            self._live.console.print(text, highlight=False, markup=False)

    def _screen(self, event: IntervalDone) -> Group:
        from rich.console import Group
        from rich.text import Text

        lines = [_progress_text(event), _speed_text(event.timing)]
        if self._judged is not None:
            lines.append(f"{self._scores()}, at step {self._judged.step}")
        table = self._table(event)
        return Group(*map(Text, lines), *([table] if table.row_count else []))  # Text: names are no markup

    def _table(self, event: IntervalDone) -> Table:
        """A row for each class, and one for all of them; empty where there is nothing to say of a class."""
        from rich.table import Table
        from rich.text import Text

        pseudo, judged = event.pseudo, self._judged
        table = Table(box=None, pad_edge=False)
        for name in ("class", "IoU %", "predicted", "kept", "confidence"):
            table.add_column(name, justify="left" if name == "class" else "right")
        if pseudo is None and judged is None:
            return table
        count = len(self._names) if pseudo is None else len(pseudo.seen)
        for index in range(count):
            iou = _hundredths(judged.ious.get(index)) if judged is not None else ""
            table.add_row(Text(_name(self._names, index)), iou, *_pseudo_cells(pseudo, index))
        if pseudo is not None:
            table.add_row("all", "", "", _percent(event.kept), "")
        return table


@dataclass(frozen=True, slots=True)
class _Judged:
    """The last evaluation, of the predictor that a user gets."""

    step: int
    predictor: str
    text: str
    ious: Mapping[int, float | None]  # by class id


def plan_text(plan: RunPlanned) -> str:
    """One line about what a run is about to do."""
    counts = f"{plan.labeled} labelled, {plan.unlabeled} unlabelled and {plan.judged} {plan.part} images"
    return f"{plan.method}: {counts}, {plan.steps} steps"


def _judged(step: int, scores: Scores) -> _Judged | None:
    for predictor, values in scores.items():  # the first is the one a user gets
        ious = {score["id"]: score["iou"] for score in values.get("classes", ())}
        return _Judged(step, predictor, _scores_text(values), ious)
    return None


def _unread_text(event: FilesUnread) -> str:
    named = ", ".join(map(shown, event.files[:4])) + (" …" if len(event.files) > 4 else "")
    return (
        f"step {event.clock.step}: replaced unlabelled images that cannot be read: {named} ({event.count} of "
        f"{event.images} so far; more than {event.allowed} end the run)"
    )


def _scores_text(values: Mapping[str, Any]) -> str:
    groups = values.get("groups", {})
    numbers = {"mIoU": values.get("miou"), "head": groups.get("head"), "tail": groups.get("tail")}
    return " ".join(f"{name} {_hundredths(value)}" for name, value in numbers.items())


def _progress_text(event: IntervalDone) -> str:
    losses = [f"{name} {value:.4f}" for name, value in event.losses.items()]
    lr = "/".join(f"{rate:.2e}" for rate in event.rates.values())
    return "  ".join([f"step {event.clock.step}/{event.clock.total}", *losses, *([f"lr {lr}"] if lr else [])])


def _kept_text(event: IntervalDone, names: Sequence[str]) -> str:
    """The share of pseudo-labels kept, of all and of each class; nothing where there are none."""
    if event.pseudo is None:
        return ""
    shares = [_pseudo_cells(event.pseudo, index)[1] for index in range(len(event.pseudo.seen))]
    each = ", ".join(f"{_name(names, index)} {share}" for index, share in enumerate(shares))
    return f"kept {_percent(event.kept)} ({each})"


def _speed_text(timing: Mapping[str, float]) -> str:
    parts = [f"{timing.get('images_per_second', 0.0):.1f} images/s"]
    for key, word in (("resident_mb", "memory"), ("device_peak_mb", "device memory")):
        parts += [f"{word} {timing[key]:.0f} MB"] if key in timing else []
    if "seconds_left" in timing:
        parts.append(f"{timedelta(seconds=round(timing['seconds_left']))} left")
    return "  ".join(parts)


def _pseudo_cells(pseudo: PseudoRow | None, index: int) -> tuple[str, str, str]:
    """(share of the predicted pixels, share of these kept, mean confidence) of a class."""
    if pseudo is None:
        return "", "", ""
    seen, total = pseudo.seen[index], sum(pseudo.seen)
    conf = pseudo.conf[index]
    predicted = seen / total if total else None
    kept = pseudo.kept[index] / seen if seen else None
    return _percent(predicted, 1), _percent(kept), "n/a" if conf is None else f"{conf:.2f}"


def _name(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else str(index)


def _percent(share: float | None, digits: int = 0) -> str:
    return "n/a" if share is None else f"{share:.{digits}%}"


def _hundredths(score: float | None) -> str:
    return "n/a" if score is None else f"{100 * score:.2f}"
