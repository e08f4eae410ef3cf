"""`ftcseg demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import progress_bar


def demo(
    out: Annotated[Path, typer.Option(help="Where the demo's files go.")] = Path("ftcseg-demo"),
    images: Annotated[int, typer.Option(help="Frames to simulate.")] = 200,
    seed: Annotated[int, typer.Option(help="Another seed, another set.")] = 0,
) -> None:
    """Simulate a noisy, long-tailed sonar set, examine and split it; ends with the path of a page to open."""
    from ftcseg import api
    from ftcseg.cli.doctor import print_examination

    folder = out / f"sonar-{images}-seed{seed}"
    with progress_bar("Simulating sonar frames") as progress:
        api.simulate(folder, images, seed=seed, progress=progress)
    with progress_bar("Looking at every file") as progress:
        found = api.doctor(folder, progress=progress)
    print_examination(found)
    split = api.split(folder, "10%", seed=seed, out=out / f"split-{images}-seed{seed}")
    typer.echo(f"\nLabelled {len(split.labeled)} of {len(split.labeled) + len(split.unlabeled)} training images.")
    page = out / f"report-{images}-seed{seed}.html"
    api.dataset_page(found, page)
    typer.echo(f"Open the report: {page.resolve()}")
