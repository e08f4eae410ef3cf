"""`ftcseg train`."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftcseg.cli.show import progress_bar

if TYPE_CHECKING:
    from ftcseg.train.events import Event, Listener
    from ftcseg.training import Outcome


class Ended(SystemExit):
    """The end of a command that has itself said how to go on; nothing is added to it."""


def train(
    dataset: Annotated[
        str | None, typer.Argument(help="A folder, dataset.yaml, manifest or named set (not with --resume).")
    ] = None,
    method: Annotated[str, typer.Option(help="What to train; «ftcseg methods» lists them.")] = "ftc",
    labels: Annotated[str | None, typer.Option(help="Draw this many labels: 2% or 30 (default: every mask).")] = None,
    split: Annotated[Path | None, typer.Option(help="A split made by «ftcseg split», instead of --labels.")] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the start and every batch.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Length of the run (default: the preset's).")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/SET-METHOD-LABELS-seedN).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as opr.layers=2.")
    ] = None,
    track: Annotated[
        list[str] | None, typer.Option(help="Also tell tensorboard, wandb or mlflow; may be given again.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run exactly where it stopped.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Train a model from labelled and unlabelled images; leaves a run folder with a report.

    Ctrl-C or SIGTERM saves and ends (exit code 130 or 143); --resume goes on as if nothing had happened.

    Example: ftcseg train flsmd --labels 2% --method ftc
    """
    from ftcseg import api
    from ftcseg.errors import UsageError
    from ftcseg.train.events import RunPlanned
    from ftcseg.train.listeners import Terminal

    if (dataset is None) == (resume is None):
        raise UsageError("Give a dataset to train on, or --resume RUN to continue one.")
    with ExitStack() as bar, closing(Terminal()) as terminal:
        progress = bar.enter_context(progress_bar("Looking at every file", quiet=not _may_speak()))

        def end_bar(event: Event) -> None:
            if isinstance(event, RunPlanned):
                bar.close()  # two live displays would draw over each other

        watchers: list[Listener] = [end_bar, terminal]
        if resume is not None:
            outcome = api.resume(resume, track=track or (), listeners=watchers, progress=progress)
        else:
            assert dataset is not None
            outcome = api.train(
                dataset,
                method=method,
                labels=labels,
                split=split,
                seed=seed,
                steps=steps,
                out=out,
                settings=settings or (),
                track=track or (),
                root=root,
                listeners=watchers,
                progress=progress,
            )
    if outcome.is_first:
        typer.echo(_last_words(outcome))
    raise Ended(outcome.exit_code)


def _last_words(outcome: Outcome) -> str:
    if outcome.finished:
        return f"Run: {outcome.folder}\nOpen the report: {(outcome.folder / 'report.html').resolve()}"
    return f"Stopped. Continue with: ftcseg train --resume {shlex.quote(str(outcome.folder))}"


def _may_speak() -> bool:
    """Whether no launcher (Fabric, torchrun) says that this is one of the other processes of a run."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK"))
