"""Names from data on a terminal: no escape sequence, no markup, no turned writing gets through."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hostile_names import CONTROLS, HALF, MARKUP, NAMES, SCRIPT, TURNED

from ftcseg import cli
from ftcseg.cli.show import json_text, marked, plain
from ftcseg.train.events import Noted, RunPlanned, Skipped
from ftcseg.train.listeners import Terminal
from ftcseg.types import Clock
from picture_sets import picture, save

STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A set whose files and classes are named to steer a terminal."""
    root = tmp_path / "set"
    evil = "\x1b[31m\u202eevil[red]"
    for i, name in enumerate((evil, "b", "c")):
        save(root / f"images/{name}.png", picture(i))
        save(root / f"masks/{name}.png", np.eye(4, 5) * (1 + i % 2))
    (root / f"images/broken{evil}.png").write_bytes(b"")
    classes = {"0": "sea", "1": CONTROLS.replace("\0", ""), "2": TURNED + MARKUP}
    (root / "dataset.yaml").write_text(json.dumps({"ftcseg": 1, "name": MARKUP + TURNED, "classes": classes}))
    return root


def said(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, on both streams, at its full width."""
    monkeypatch.setattr("sys.argv", ["ftcseg", *words])
    monkeypatch.setenv("COLUMNS", "400")
    with contextlib.suppress(SystemExit):
        cli.main()
    out, err = capsys.readouterr()
    return out + err


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--json"], ["split", "--labels", "2", "--out", "OUT"]])
def test_commands_print_names_as_text(
    words: list[str], hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(hostile.parent / "out") if word == "OUT" else word for word in words]
    text = said([arguments[0], str(hostile), *arguments[1:]], monkeypatch, capsys)
    assert not STEERING.search(text)
    if "--json" in words:
        assert json.loads(text)["classes"][2]["name"] == TURNED + MARKUP  # nothing is lost
    else:
        assert r"\x1b[31mred" in text
        assert "[link=http://x.example]here[/link] [bold" in text


def test_errors_are_printed_as_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["doctor", "/nowhere/\x1b]0;title\x07\u202e[red].png"], monkeypatch, capsys)
    assert not STEERING.search(text)
    assert r"\x1b]0;title\x07\u202e[red].png" in text


def test_the_log_and_the_screen_of_a_run_hold_text() -> None:
    file = io.StringIO()
    terminal = Terminal(file)
    clock = Clock(1, 2, 1)
    plan = RunPlanned(method=CONTROLS, classes=NAMES, labeled=1, unlabeled=1, judged=1, part=HALF, steps=2)
    for event in (plan, Skipped(clock, "the loss", [CONTROLS, TURNED]), Noted(f"a\n{HALF}")):
        terminal(event)
    assert not STEERING.search(file.getvalue())
    assert file.getvalue().count("\n") == 4  # a note may have lines


def test_the_three_ways_of_showing() -> None:
    assert plain(f"a\n{CONTROLS[:5]}b") == "a\n" + r"\x1b[31mb"
    assert marked("[red]x[/]\x1b") == r"\[red]x\[/]\x1b"
    assert json_text([TURNED, "\x9b", SCRIPT]) == json.dumps([TURNED, "\x9b", SCRIPT], indent=2)
    assert json_text("Größe") == '"Größe"'
