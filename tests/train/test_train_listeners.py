"""Those who watch: what they write, and that they change nothing."""

from __future__ import annotations

import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from toy_training import CLASSES, Kit, assert_same_run, batch_at, cpu

from ftcseg.errors import FtcsegError, UsageError
from ftcseg.train.events import (
    Evaluated,
    Event,
    IntervalDone,
    PseudoRow,
    RolledBack,
    RunDone,
    RunPlanned,
    RunStarted,
    Skipped,
    StepDone,
)
from ftcseg.train.journal import Journal
from ftcseg.train.listeners import JsonLines, Terminal, cut_beyond
from ftcseg.train.memory import device_peak_bytes, resident_bytes
from ftcseg.train.trackers import Forgiving, tracker
from ftcseg.types import Clock, PseudoCounts, SemiBatch, StepResult


def step_done(
    step: int, loss: float, *, seen: tuple[int, ...] = (6, 2, 0), kept: tuple[int, ...] = (3, 0, 0)
) -> StepDone:
    pseudo = PseudoCounts(torch.tensor(seen), torch.tensor(kept), torch.tensor([3.0, 1.5, 0.0]))
    result = StepResult(torch.tensor(loss), {"sup": torch.tensor(loss / 2)}, pseudo)
    return StepDone(Clock(step, total=10), result, torch.tensor(2.0), {"head": 0.1}, images=3)


def test_an_interval_holds_averages_and_counts() -> None:
    events: list[Event] = []
    journal = Journal([events.append], every=2, machine=cpu(), facts=lambda: {"tau": torch.tensor([0.5, 0.25])})
    journal(step_done(1, 1.0))
    assert events == []
    journal(step_done(2, 3.0))
    (row,) = events
    assert isinstance(row, IntervalDone)
    assert row.losses == {"loss": 2.0, "sup": 1.0}
    assert row.norm == 2.0
    assert row.kept == 6 / 16
    assert row.pseudo == PseudoRow(seen=[12, 4, 0], kept=[6, 0, 0], conf=[0.5, 0.75, None])
    assert row.facts == {"tau": [0.5, 0.25]}
    assert set(row.timing) >= {"seconds", "images_per_second"}


def test_the_last_interval_may_be_short_and_skips_are_counted() -> None:
    events: list[Event] = []
    journal = Journal([events.append], every=4, machine=cpu())
    journal(Skipped(Clock(9, total=10), "loss", ("a.png",)))
    journal(step_done(10, 1.0))
    assert isinstance(events[-1], IntervalDone)
    assert events[-1].skipped == 1


def test_half_an_interval_survives_a_restart() -> None:
    rows = []
    for restart in (False, True):
        events: list[Event] = []
        journal = Journal([events.append], every=3, machine=cpu())
        journal(step_done(1, 0.1))
        journal(step_done(2, 0.7))
        if restart:
            kept = json.loads(json.dumps(journal.state()))
            journal = Journal([events.append], every=3, machine=cpu())
            journal.load(kept)
        journal(step_done(3, 0.2))
        assert isinstance(events[0], IntervalDone)
        rows.append((events[0].losses, events[0].pseudo, events[0].norm))
    assert rows[0] == rows[1]


def test_the_files_of_a_run(tmp_path: Path) -> None:
    def with_a_broken_file(start: int) -> Any:
        while True:
            batch = batch_at(start)
            yield SemiBatch(batch.labeled, batch.unlabeled, skipped=("torn.png",) if start == 5 else ())
            start += 1

    Kit(tmp_path, stream=with_a_broken_file).go()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["kind"]) for line in lines] == [
        (3, "scores"),
        (4, "train"),
        (6, "scores"),
        (8, "train"),
        (8, "scores"),
    ]
    assert set(lines[1]["losses"]) == {"loss", "sup", "unsup"}
    assert set(lines[1]["lr"]) == {"encoder", "head"}
    assert "unreadable" not in lines[1]
    assert lines[3]["unreadable"] == ["torn.png"]
    assert lines[0]["scores"]["teacher"]["rare"] is None
    pseudo = [json.loads(line) for line in (tmp_path / "pseudo.jsonl").read_text().splitlines()]
    assert [line["step"] for line in pseudo] == [4, 8]
    assert len(pseudo[0]["seen"]) == len(pseudo[0]["kept"]) == len(pseudo[0]["facts"]["share"]) == CLASSES


def test_lines_beyond_the_step_and_torn_ones_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 4}\n{"step": 6}\n{"st')
    cut_beyond(path, 99)
    assert path.read_text() == '{"step": 2}\n{"step": 4}\n{"step": 6}\n'
    cut_beyond(path, 4)
    assert path.read_text() == '{"step": 2}\n{"step": 4}\n'
    cut_beyond(tmp_path / "none.jsonl", 4)


def test_a_roll_back_cuts_the_lines_that_did_not_happen(tmp_path: Path) -> None:
    listener = JsonLines(tmp_path)
    listener(Evaluated(Clock(3, 9), {"student": {"miou": 0.5}}, best=True))
    listener(Skipped(Clock(5, 9), "loss", ("a.png",)))
    listener(RolledBack(Clock(3, 9), 5, "loss", ("a.png",), 0.5))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["kind"]) for line in lines] == [(3, "scores"), (3, "rolled back")]


def test_a_line_says_null_where_a_number_is_none(tmp_path: Path) -> None:
    scores = {
        "student": {"miou": np.float32(0.5), "per_class": torch.tensor([0.5, float("nan")]), "rare": float("inf")}
    }
    JsonLines(tmp_path)(Evaluated(Clock(3, 9), scores, best=True))
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line["scores"] == {"student": {"miou": 0.5, "per_class": [0.5, None], "rare": None}}


def test_lines_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(FtcsegError, match=r"metrics\.jsonl could not be written.*resume"):
        JsonLines(tmp_path)(Skipped(Clock(5, 9), "loss", ()))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


PLAN = RunPlanned("ftc", ("sand", "[bottle]", "hook"), labeled=30, unlabeled=1464, judged=374, part="val", steps=10)
SCORES = {
    "teacher": {
        "miou": 0.4321,
        "groups": {"background": 0.9, "head": 0.5, "middle": None, "tail": None},
        "classes": [
            {"id": 0, "name": "sand", "iou": 0.9},
            {"id": 1, "name": "[bottle]", "iou": 0.5},
            {"id": 2, "name": "hook", "iou": None},
        ],
    },
    "student": {"miou": 0.25},
}


def interval(step: int, pseudo: PseudoRow | None = None, **timing: float) -> IntervalDone:
    return IntervalDone(
        clock=Clock(step, 10),
        losses={"loss": 1.5, "sup": 0.75},
        rates={"encoder": 1e-5, "head": 4e-4},
        norm=1.0,
        kept=None if pseudo is None else 0.25,
        pseudo=pseudo,
        facts={},
        skipped=0,
        unreadable=(),
        timing={"images_per_second": 12.34, **timing},
    )


PSEUDO = PseudoRow([6, 2, 0], [1, 1, 0], [0.9, 0.5, None])
EVENTS: list[Event] = [
    PLAN,
    RunStarted(Clock(0, 10), "The checkpoint was damaged."),
    interval(2),
    Evaluated(Clock(5, 10), SCORES, best=True),
    interval(5, PSEUDO, resident_mb=885.4, device_peak_mb=2300.0, seconds_left=3725.4),
    Skipped(Clock(6, 10), "loss", ("a.png",)),
    RolledBack(Clock(5, 10), 7, "loss", (), 0.5),
    RunDone(Clock(10, 10), finished=True),
]


def test_without_a_terminal_there_are_plain_lines() -> None:
    log = io.StringIO()
    terminal = Terminal(log)
    for event in EVENTS:
        terminal(event)
    assert log.getvalue().splitlines() == [
        "ftc: 30 labelled, 1464 unlabelled and 374 val images, 10 steps",
        "step 0 of 10. The checkpoint was damaged.",
        "step 2/10  loss 1.5000  sup 0.7500  lr 1.00e-05/4.00e-04  12.3 images/s",
        "step 5: teacher mIoU 43.21 head 50.00 tail n/a; student mIoU 25.00 head n/a tail n/a (best)",
        "step 5/10  loss 1.5000  sup 0.7500  lr 1.00e-05/4.00e-04  teacher mIoU 43.21 head 50.00 tail n/a  "
        # 1 of 6, 1 of 2, none of none; 3725 s are an hour, two minutes and five seconds
        "kept 25% (sand 17%, [bottle] 50%, hook n/a)  "
        "12.3 images/s  memory 885 MB  device memory 2300 MB  1:02:05 left",
        "step 6 skipped: loss is not finite (a.png)",
        "step 7: loss is not finite; back to step 5, learning rate times 0.5",
        "done at step 10 of 10",
    ]


def test_a_fresh_start_is_told_once_and_a_later_one_with_its_step() -> None:
    told = {}
    for step in (0, 4):
        log = io.StringIO()
        terminal = Terminal(log)
        terminal(PLAN)
        terminal(RunStarted(Clock(step, 10)))
        told[step] = log.getvalue().splitlines()[1:]
    assert told == {0: [], 4: ["step 4 of 10"]}


def on_screen(*events: Event) -> list[str]:
    """The lines that stand on the screen after these events, in single spaces."""
    screen = Screen()
    terminal = Terminal(screen)
    for event in events:
        terminal(event)
    assert terminal._live is not None
    shown = terminal._live.renderable
    terminal.close()
    console = Console(file=io.StringIO(), width=120)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_in_a_terminal_there_is_a_table_of_classes() -> None:
    shown = on_screen(*EVENTS[:5])
    assert shown == [
        "step 5/10 loss 1.5000 sup 0.7500 lr 1.00e-05/4.00e-04",
        "12.3 images/s memory 885 MB device memory 2300 MB 1:02:05 left",
        "teacher mIoU 43.21 head 50.00 tail n/a, at step 5",
        "class IoU % predicted kept confidence",
        "sand 90.00 75.0% 17% 0.90",
        "[bottle] 50.00 25.0% 50% 0.50",
        "hook n/a 0.0% n/a n/a",
        "all 25%",
    ]


def test_labelled_only_training_has_a_table_once_it_was_evaluated() -> None:
    assert on_screen(*EVENTS[:3]) == [
        "step 2/10 loss 1.5000 sup 0.7500 lr 1.00e-05/4.00e-04",
        "12.3 images/s",
    ]
    shown = on_screen(*EVENTS[:2], EVENTS[3], interval(6))
    assert shown[3:] == ["class IoU % predicted kept confidence", "sand 90.00", "[bottle] 50.00", "hook n/a"]


def test_the_terminal_is_given_back_at_the_end() -> None:
    screen = Screen()
    terminal = Terminal(screen)
    for event in EVENTS:
        terminal(event)
    assert "ftc: 30 labelled, 1464 unlabelled and 374 val images, 10 steps" in screen.getvalue()
    assert screen.getvalue().rstrip().endswith("done at step 10 of 10")
    assert terminal._live is None
    terminal.close()


def test_time_left_is_what_the_steps_took_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    events: list[Event] = []
    journal = Journal([events.append], every=2, machine=cpu())
    now = 130.0  # building the run took half a minute, which says nothing about its steps
    journal(RunStarted(Clock(4, 10)))
    now = 132.0
    journal(step_done(5, 1.0))
    now = 136.0
    journal(Skipped(Clock(6, 10), "loss", ()))
    assert isinstance(events[-1], IntervalDone)
    # two steps of this process took 6 seconds, four are left; 3 images came through
    assert events[-1].timing["seconds_left"] == 12.0
    assert events[-1].timing["images_per_second"] == 0.5


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_that_is_missing_says_how_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    with pytest.raises(UsageError, match=rf"pip install 'ftcseg\[{name}\]'"):
        tracker(name, tmp_path)


def test_an_unknown_tracker_names_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean tensorboard"):
        tracker("tensorbord", tmp_path)


def fake_tracker(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    module = types.ModuleType("mlflow")
    module.start_run = lambda run_name: log.append(run_name)  # type: ignore[attr-defined]
    module.log_metrics = lambda numbers, step: log.append((step, numbers))  # type: ignore[attr-defined]
    module.end_run = lambda: log.append("end")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)


def test_a_tracker_gets_numbers_and_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    fake_tracker(monkeypatch, log)
    listener = tracker("mlflow", tmp_path / "myrun")
    for event in EVENTS:
        listener(event)
    assert log[0] == "myrun"
    assert log[1][0] == 2
    assert log[1][1]["train/loss"] == 1.5
    assert log[1][1]["lr/head"] == 4e-4
    assert log[2] == (5, {"teacher/miou": 0.4321, "student/miou": 0.25})
    assert log[-1] == "end"


def test_a_tracker_that_fails_is_switched_off_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def fail(event: Event) -> None:
        calls.append(event)
        raise ConnectionError("no network")

    listener = Forgiving(fail, "wandb")
    listener(EVENTS[0])
    listener(EVENTS[1])
    assert len(calls) == 1
    assert "wandb failed and is switched off" in caplog.text


def test_watching_changes_nothing(tmp_path: Path) -> None:
    watched = Kit(tmp_path / "watched")
    watched.journal._listeners = (*watched.journal._listeners, Terminal(Screen()), Terminal(io.StringIO()))
    watched.go()
    Kit(tmp_path / "alone").go()
    assert_same_run(tmp_path / "watched", tmp_path / "alone")


def test_memory_is_known_without_another_package() -> None:
    resident = resident_bytes()
    assert resident is not None
    assert 10**7 < resident < 10**11
    assert device_peak_bytes(torch.device("cpu")) is None
