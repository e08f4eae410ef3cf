"""Runs commands one after the other and writes down everything they do to the world, children included.

`python watched_commands.py LOG ARGUMENTS.json`: the log gets a line of JSON for each file opened for writing, each
folder made, moved or removed, each connection and each program started. The second file lists the command lines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
OUTSIDE = {"socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.system", "os.exec"}
OUTSIDE |= {"os.posix_spawn", "urllib.Request", "http.client.connect"}


def watch(log: int) -> None:
    """Install the hook. It writes to an open handle, which is no event of its own."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or not (set(mode or "") & set("wax+") or (flags or 0) & WRITES):
                return
        elif event not in CHANGES | OUTSIDE:
            return
        if event in ("os.remove", "os.rmdir") and arguments[1] != -1:  # relative to an open folder
            arguments = (Path(f"/proc/self/fd/{arguments[1]}").readlink() / os.fsdecode(arguments[0]),)
        told = [os.fsdecode(a) if isinstance(a, bytes | os.PathLike) else a for a in arguments]
        os.write(log, (json.dumps([event, str(Path.cwd()), told], default=repr) + "\n").encode())

    sys.addaudithook(hook)


def main() -> None:
    """Watch, then run."""
    log, lines = sys.argv[1:]
    watch(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    commands = json.loads(Path(lines).read_text())
    from ftcseg.cli import main as ftcseg

    for words in commands:
        sys.argv = ["ftcseg", *words]
        try:
            ftcseg()
        except SystemExit as leaving:
            if leaving.code:
                print(f"ftcseg {words} left with {leaving.code}", file=sys.stderr)
                raise
    draw_something(Path(commands[-1][commands[-1].index("--out") + 1]))


def draw_something(folder: Path) -> None:
    """What a study draws, without its runs."""
    from ftcseg.studies.drawing import draw
    from ftcseg.studies.figures import Bars, Value

    bars = Bars(name="a", title="a", label="", spread="", groups=("b",), series=(("c", (Value(1.0),)),))
    draw(bars, folder.with_name("figures"))


if __name__ == "__main__":
    main()
