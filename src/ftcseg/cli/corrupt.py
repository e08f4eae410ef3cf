"""`ftcseg corrupt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import plain, progress_bar


def corrupt(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder, dataset.yaml, manifest or named set.")],
    out: Annotated[Path, typer.Argument(help="A new folder outside of SRC.")],
    kind: Annotated[str, typer.Option(help="speckle, gaussian, fog or scattering.")] = "speckle",
    severity: Annotated[int, typer.Option(help="1 (mild) to 5 (severe), as ImageNet-C counts.")] = 5,
    seed: Annotated[int, typer.Option(help="Each image draws its own noise from this seed and its name.")] = 0,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes (default: all cores).")] = None,
) -> None:
    """Copy a set with its images corrupted; masks, lists and annotations are copied untouched.

    Interrupted, the same command goes on where it stopped.

    Example: ftcseg corrupt flsmd flsmd-speckle5 --kind speckle --severity 5
    """
    from ftcseg import api

    with progress_bar(f"{kind}, severity {severity}") as progress:
        problems = api.corrupt(
            source, out, kind=kind, severity=severity, seed=seed, root=root, workers=workers, progress=progress
        )
    for problem in problems[:10]:
        typer.echo(plain(f"left out: {problem}"), err=True)
    typer.echo(f"Wrote {out}" + (f"; {len(problems)} unreadable images were left out" if problems else ""))
