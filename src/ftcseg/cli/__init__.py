"""The command line: one file per verb, each parse -> api call -> print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from ftcseg import __version__
from ftcseg.cli import (
    audit,
    bench,
    corrupt,
    datasets,
    demo,
    doctor,
    export,
    listing,
    predict,
    report,
    simulate,
    split,
    study,
    train,
)
from ftcseg.cli import eval as evaluation
from ftcseg.cli.show import plain
from ftcseg.errors import FtcsegError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    name="ftcseg",
    help="Segmentation from a handful of masks and a pile of noisy frames.",
    epilog="Start with «ftcseg doctor YOUR_FOLDER»; «ftcseg COMMAND --help» teaches each command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "doctor": doctor.doctor,
    "split": split.split,
    "train": train.train,
    "eval": evaluation.evaluate,
    "predict": predict.predict,
    "export": export.export,
    "audit": audit.audit,
    "report": report.report,
    "study": study.study,
    "corrupt": corrupt.corrupt,
    "simulate": simulate.simulate,
    "methods": listing.methods,
    "encoders": listing.encoders,
    "studies": study.studies,
}
for _name, _function in COMMANDS.items():
    app.command(_name, cls=study.Spread if _name == "study" else None)(_function)
app.add_typer(bench.app, name="bench")
app.add_typer(datasets.app, name="datasets")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ftcseg {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors a user can meet are one sentence and an exit code, never a traceback."""
    try:
        app()
    except train.Ended:
        raise
    except SystemExit as leaving:  # typer's way out, after Ctrl-C as well
        if leaving.code == INTERRUPTED:
            typer.echo("\nInterrupted; what was finished is kept, the same command goes on from there.", err=True)
        raise
    except FtcsegError as error:
        typer.echo(plain(f"ftcseg: {error}"), err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # «| head» has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a folder that may not be written to
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(plain(f"ftcseg: {where}{error.strerror or error}."), err=True)
        sys.exit(FtcsegError.exit_code)
