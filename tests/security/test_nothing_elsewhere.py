"""Commands write where they are told and to the cache, open no connection, start no program and leave no litter.

One process runs doctor, split, train, predict, eval, report and export with an audit hook in place; what the hook
cannot see, files written by compiled libraries, shows in the folders afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

HERE = Path(__file__).parent
SMALL = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "data.workers=1",
    "teaching.burn_in=1",
    "threads=1",
)
NOWHERE = ("/dev/null", "/dev/tty", "/dev/shm/")
"""What is written there is kept nowhere; the last is memory that processes share."""


class Watched(NamedTuple):
    base: Path
    events: list[tuple[str, list[Any]]]
    """(event, arguments), paths made absolute."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    base = tmp_path_factory.mktemp("watched").resolve()
    for name in ("home", "temporary", "cache", "work", "elsewhere"):
        (base / name).mkdir()
    data = base / "data"
    rng = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (data / folder).mkdir(parents=True)
    for i in range(8):
        mask = np.zeros((32, 40), np.uint8)
        mask[8:24, 4 + i : 24 + i] = 1 + i % 2
        Image.fromarray((mask * 90 + rng.integers(0, 60, mask.shape)).astype(np.uint8)).save(data / f"images/f{i}.png")
        Image.fromarray(mask).save(data / f"masks/f{i}.png")
    out = base / "work"
    settings = [word for value in SMALL for word in ("--set", value)]
    commands = [
        ["doctor", str(data), "--report", str(out / "data.html")],
        ["split", str(data), "--labels", "4", "--val", "2", "--out", str(out / "split")],
        ["train", str(data), "--split", str(out / "split"), "--steps", "2", "--out", str(out / "run"), *settings],
        ["predict", str(out / "run"), str(data / "images"), "--out", str(out / "predicted")],
        ["report", str(out / "run"), "--out", str(out / "again.html")],
        ["export", str(out / "run"), "--out", str(out / "exported"), "--size", "32x32"],
    ]
    (base / "commands.json").write_text(json.dumps(commands))
    chosen = ("XDG_", "HF_", "MPL", "TORCHINDUCTOR", "ORT_", "DISABLE_SAFETENSORS")  # by users, or by tests before this
    environment = {name: value for name, value in os.environ.items() if not name.startswith(chosen)}
    environment |= {"HOME": str(base / "home"), "TMPDIR": str(base / "temporary"), "FTCSEG_CACHE": str(base / "cache")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "watched_commands.py"), str(base / "log"), str(base / "commands.json")],
        cwd=base / "elsewhere",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (base / "log").read_text().splitlines()]
    return Watched(base, [(event, _placed(event, folder, arguments)) for event, folder, arguments in lines])


def _placed(event: str, folder: str, arguments: list[Any]) -> list[Any]:
    paths = 2 if event in ("os.rename", "os.link", "os.symlink") else 1
    return [
        os.path.normpath(Path(folder) / a) if i < paths and isinstance(a, str) else a for i, a in enumerate(arguments)
    ]


def _touched(watched: Watched) -> list[str]:
    """Every path that was written, made, moved or removed."""
    found = []
    for event, arguments in watched.events:
        if event == "open" or event.startswith("os."):
            paths = arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]
            found += [path for path in paths if isinstance(path, str) and not path.startswith(NOWHERE)]
    return found


def test_nothing_is_written_but_the_output_the_cache_and_the_temporary_folder(watched: Watched) -> None:
    allowed = tuple(str(watched.base / name) for name in ("work", "cache", "temporary"))
    touched = _touched(watched)
    assert any("/work/run/" in path for path in touched)  # the hook sees
    assert not [path for path in touched if not path.startswith(allowed)]


def test_libraries_leave_nothing_behind_either(watched: Watched) -> None:
    for name in ("home", "temporary", "elsewhere"):
        assert not [str(path) for path in (watched.base / name).rglob("*")], name
    assert sorted(p.name for p in (watched.base / "data").iterdir()) == ["images", "masks"]
    assert len(list((watched.base / "data").rglob("*"))) == 2 + 16


def test_no_connection_is_opened_and_no_program_started(watched: Watched) -> None:
    outside = [one for one in watched.events if not one[0].startswith("os.") and one[0] != "open"]
    outside = [one for one in outside if not _is_local(*one)]
    assert not outside
    started = [one for one in watched.events if one[0] in ("os.system", "os.exec", "os.posix_spawn")]
    assert not started


def _is_local(event: str, arguments: list[Any]) -> bool:
    """A socket between processes of this machine, by the name of a file; or matplotlib asking for the fonts it has."""
    if event == "subprocess.Popen":
        return Path(arguments[0]).name == "fc-list"
    return event == "socket.connect" and isinstance(arguments[1], str)
