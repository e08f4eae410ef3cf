"""`ftcseg datasets`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import console

app = typer.Typer(help="Named sets: what there is, where it was found, and how to get it.", invoke_without_command=True)
_EVERY = 5.0  # seconds between lines of progress where there is no terminal


@app.callback()
def datasets(
    context: typer.Context,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the named sets."""
    if context.invoked_subcommand is not None:
        return
    from ftcseg.data.sets import SETS, data_root, find

    base = data_root(root)
    rows = [
        {
            "name": sheet.name,
            "title": sheet.title,
            "classes": len(sheet.classes),
            "frames": sheet.frames,
            "train": sheet.train,
            "val": sheet.val,
            "found": str(place) if base and (place := find(sheet, base)) else None,
            "obtain": sheet.obtain,
        }
        for sheet in SETS.values()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("name", "set", "classes", "frames", "train", "val", "here"):
        table.add_column(
            name, justify="right" if name in ("classes", "frames", "train", "val") else "left", overflow="fold"
        )
    for row in rows:
        here = row["found"] or "no"
        table.add_row(*(str(row[key]) for key in ("name", "title", "classes", "frames", "train", "val")), str(here))
    console().print(table)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="The name of a set, as «ftcseg datasets» lists it.")],
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Download a public set, check it and unpack it; interrupted, the same command resumes.

    Example: ftcseg datasets get flsmd --root data
    """
    from ftcseg import api

    with _ByteBars() as bars:
        folder = api.get(name, root=root, progress=bars)
    typer.echo(f"{name} is in {folder}")


class _ByteBars:
    """One bar per stage on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
        self._tasks: dict[str, int] = {}
        self._said = time.monotonic()

    def __enter__(self) -> _ByteBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        task = self._tasks.get(stage)
        if task is None:
            task = self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(task, completed=done, total=total)  # type: ignore[arg-type]
        if not sys.stderr.isatty() and time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            typer.echo(f"{stage}: {done:,} of {total or '?'} bytes", err=True)
