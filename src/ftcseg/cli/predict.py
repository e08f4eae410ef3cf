"""`ftcseg predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.eval import parse_scales
from ftcseg.cli.show import plain, progress_bar

_SHOWN = 10  # problems told one by one; predictions.json has them all


def predict(
    source: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="A run, model or exported folder.")],
    images: Annotated[list[str], typer.Argument(help="A folder, image or video files, or a «pattern*.png».")],
    out: Annotated[Path, typer.Option(help="A new folder, or one that this command began.")],
    what: Annotated[
        str, typer.Option(help="Which files: masks, colors, overlays, confidence, with commas between.")
    ] = "masks,colors,overlays,confidence",
    every: Annotated[int, typer.Option(help="Of a video, every so many frames.")] = 1,
    window: Annotated[int | None, typer.Option(help="Slide a square of this side instead of whole images.")] = None,
    flips: Annotated[bool, typer.Option("--flips", help="Ask about the mirror image too.")] = False,
    scales: Annotated[str, typer.Option(help="Ask at several sizes, such as 0.75,1,1.25.")] = "1",
    batch: Annotated[int, typer.Option(help="Images of one size asked about together.")] = 8,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    hub: Annotated[bool, typer.Option("--hub", help="The encoder may be looked up on the model hub.")] = False,
    workers: Annotated[int, typer.Option(help="Threads that write files.")] = 2,
) -> None:
    """Write masks, colours, overlays and confidences of images, at their own sizes and below their own sub-folders.

    The frames of a video are images called NAME-000000 and so on. Memory does not grow with the number of images.
    Interrupted, the same command goes on where it stopped.

    Example: ftcseg predict runs/harbour mission7/ --out mission7-masks
    """
    from ftcseg import api

    with progress_bar("Predicting") as progress:
        done = api.predict(
            source,
            images[0] if len(images) == 1 else images,
            out,
            what=[name.strip() for name in what.split(",") if name.strip()],
            every=every,
            window=window,
            flips=flips,
            scales=parse_scales(scales),
            batch=batch,
            device=device,
            hub=hub,
            workers=workers,
            progress=progress,
        )
    for problem in done.problems[:_SHOWN]:
        typer.echo(plain(f"left out: {problem}"), err=True)
    parts = [f"{done.made} images predicted"]
    parts += [f"{done.there} were there already"] if done.there else []
    parts += [f"{len(done.problems)} left out"] if done.problems else []
    typer.echo(f"{', '.join(parts)}\nWrote {out}")
    if done.problems and done.there + done.made == 0:
        raise typer.Exit(1)
