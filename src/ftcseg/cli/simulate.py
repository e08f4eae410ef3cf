"""`ftcseg simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import progress_bar


def simulate(
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    images: Annotated[int, typer.Option(help="How many frames; a fifth is held out for test.")] = 400,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    classes: Annotated[int, typer.Option(help="Classes, background included (2-12).")] = 8,
    noise: Annotated[float, typer.Option(help="0 (clear) to 1 (hard to see).")] = 0.5,
    imbalance: Annotated[float, typer.Option(help="How many times commoner the first object is than the last.")] = 20.0,
    workers: Annotated[int | None, typer.Option(help="Processes (default: all cores).")] = None,
) -> None:
    """Write a simulated forward-looking sonar set with exact masks: noisy, long-tailed, ready for every command.

    Example: ftcseg simulate sonar --images 400 --seed 0
    """
    from ftcseg import api

    with progress_bar("Simulating") as progress:
        folder = api.simulate(
            out,
            images,
            seed=seed,
            classes=classes,
            noise=noise,
            imbalance=imbalance,
            workers=workers,
            progress=progress,
        )
    typer.echo(f"Wrote {images} frames to {folder}")
