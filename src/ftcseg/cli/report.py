"""`ftcseg report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, as «ftcseg train» writes them.")],
    out: Annotated[Path | None, typer.Option(help="The page (default: report.html in the first run).")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write one HTML page about a run, or about several side by side: the verdict and pictures first.

    The page holds everything it shows and needs no network. A labelled-only run on the same split tells what the
    unlabelled images were worth.

    Example: ftcseg report runs/ftc runs/supervised --out compare.html
    """
    from ftcseg import api

    page = api.report(runs, out=out)
    typer.echo(f"Wrote {page}")
    if open_browser:
        typer.launch(page.resolve().as_uri())
