"""`ftcseg demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import progress_bar

METHODS = ("supervised", "unimatch-v2", "ftc")
LABELS = "10%"
SETTINGS = ("data.short_side=96", "evaluation.every=100", "evaluation.audit_images=40", "log_every=10")


def demo(
    out: Annotated[Path, typer.Option(help="Where the demo's files go.")] = Path("ftcseg-demo"),
    images: Annotated[int, typer.Option(help="Frames to simulate.")] = 240,
    seed: Annotated[int, typer.Option(help="Another seed, another set.")] = 0,
    steps: Annotated[int, typer.Option(help="Length of each of the three runs.")] = 200,
) -> None:
    """Simulate a noisy, long-tailed sonar set and train on a tenth of its labels, with and without the rest.

    Three runs: labelled only, the EMA baseline, FTC-Seg. About five minutes on two cores, no download; interrupted, the
    same command goes on. Ends with the path of a page to open.
    """
    from ftcseg import api
    from ftcseg.cli.doctor import print_examination
    from ftcseg.report.run_page import write_run_page

    folder = out / f"sonar-{images}-seed{seed}"
    with progress_bar("Simulating sonar frames") as progress:
        api.simulate(folder, images, seed=seed, progress=progress)
    with progress_bar("Looking at every file") as progress:
        print_examination(api.doctor(folder, progress=progress))
    runs = [out / f"{method}-{images}-{steps}-seed{seed}" for method in METHODS]
    for method, run in zip(METHODS, runs, strict=True):
        typer.echo(f"\n{method}: {steps} steps on {LABELS} of the labels")
        _train(folder, run, method, steps, seed)
    page = write_run_page(runs[::-1], out / f"report-{images}-{steps}-seed{seed}.html")
    typer.echo(f"\nOpen the report: {page.resolve()}")


def _train(folder: Path, run: Path, method: str, steps: int, seed: int) -> None:
    from ftcseg import api
    from ftcseg.train.listeners import Terminal

    if (run / "config.yaml").is_file():
        outcome = api.resume(run, listeners=[Terminal()])
    else:
        outcome = api.train(
            folder,
            method=method,
            labels=LABELS,
            seed=seed,
            steps=steps,
            out=run,
            settings=SETTINGS,
            listeners=[Terminal()],
        )
    if not outcome.finished:
        raise typer.Exit(outcome.exit_code)
