"""`ftcseg bench`: its commands measure, print, save and compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftcseg.cli.bench_infer import infer
from ftcseg.cli.export import parse_size
from ftcseg.cli.show import console, progress_bar
from ftcseg.cli.train import Ended

if TYPE_CHECKING:
    from ftcseg.bench.compare import Comparison

LOST = 1
"""Exit code of a comparison that found a loss above the limit."""
INTERRUPTED = 130
_COLORS = ("blue", "dark_orange3", "green4", "magenta", "gold3", "steel_blue", "grey50", "indian_red")
_BAR_WIDTH = 96

app = typer.Typer(
    help="Measure how fast this machine trains and answers, and whether that became slower.",
    epilog="Start with «ftcseg bench step --encoder tiny --steps 5»; keep records with --save and compare them later.",
    invoke_without_command=True,
)


@app.callback()
def bench(
    context: typer.Context,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="OLD NEW", help="Compare two records; the same as «bench compare OLD NEW»."),
    ] = None,
) -> None:
    """Measure how fast this machine trains and answers, and whether that became slower."""
    if compare is not None:
        compare_records(*compare)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("step")
def step(
    method: Annotated[str, typer.Option(help="Whose step; «ftcseg methods» lists them.")] = "ftc",
    encoder: Annotated[str | None, typer.Option(help="«ftcseg encoders» lists them (default: the preset's).")] = None,
    head: Annotated[
        str | None, typer.Option(help="dpt, fusion, ... (default: dpt for DINOv2, else the preset's).")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Height and width of views (default: 154x238).")] = None,
    batch: Annotated[str, typer.Option(help="Labelled and unlabelled images of a step.")] = "4+4",
    steps: Annotated[int, typer.Option(help="Rounds: each has a step alone and a watched one.")] = 20,
    warm_up: Annotated[int, typer.Option(help="Steps before anything is timed.")] = 3,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of training.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="Another configuration, in turns: a method, plain, or KEY=VALUE; may be given again."),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Options, in turns: compile, contiguous, bf16, checkpointing, frozen, ..."),
    ] = None,
    memory: Annotated[bool, typer.Option(help="Also peak memory, each in a process of its own.")] = True,
    dataset: Annotated[str | None, typer.Option(help="A set instead of simulated frames.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    seed: Annotated[int, typer.Option(help="Of frames, start and batches.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the record, to compare later.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with the bar.")] = None,
) -> None:
    """Time a real training step: where the time goes, images a second, memory, and the share of the machine's rate.

    Steps are taken by training's own loop, late in a run, when everything is at work. No set and no weights are needed:
    simulated frames and random weights take as long. Configurations that are compared take turns, step by step, so that
    a busy machine slows both alike; only ratios are worth anything then. Ctrl-C ends early and keeps what was measured.

    Example: ftcseg bench step --encoder efficientnet-lite0 --against opr.layers=0 --against thresholds=fixed
    """
    from ftcseg.bench.step import bench_step

    with heard(), progress_bar("Measuring", quiet=as_json) as progress:
        record = bench_step(
            method,
            encoder=encoder,
            head=head,
            size=None if size is None else parse_size(size),
            batch=batch,
            steps=steps,
            warm_up=warm_up,
            settings=settings or (),
            against=against or (),
            tries=tries or (),
            memory=memory,
            dataset=dataset,
            root=root,
            seed=seed,
            save=save,
            report=report,
            progress=progress,
        )
    with_record(record, print_step, as_json=as_json, written=(save, report))


app.command("infer")(infer)


@app.command("scaling")
def scaling(
    over: Annotated[str, typer.Option(help="classes, prototypes, side, images or processes.")],
    at: Annotated[list[int] | None, typer.Option(help="A point of the curve; may be given again.")] = None,
    method: Annotated[str, typer.Option(help="Whose step.")] = "ftc",
    encoder: Annotated[str | None, typer.Option(help="«ftcseg encoders» lists them (default: the preset's).")] = None,
    head: Annotated[
        str | None, typer.Option(help="dpt, fusion, ... (default: dpt for DINOv2, else the preset's).")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Height and width of views (default: 154x238).")] = None,
    batch: Annotated[str, typer.Option(help="Labelled and unlabelled images of a step.")] = "4+4",
    steps: Annotated[int, typer.Option(help="Steps timed at each point: the budget of the curve.")] = 8,
    warm_up: Annotated[int, typer.Option(help="Steps before them.")] = 2,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of training.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of frames, start and batches.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the record, to compare later.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Draw the curve there, as SVG and PNG.")] = None,
) -> None:
    """Measure how time grows: with classes, prototypes, the side of views, images on disk, or processes.

    Without --at the points are those of the documentation. --over images lists sets of 1000, 10000 and 100000 small
    files, which it writes to the temporary folder first (0.4 GB) and removes. Ctrl-C keeps the points so far.

    Example: ftcseg bench scaling --over prototypes --encoder efficientnet-lite0 --steps 8 --plot curves
    """
    from ftcseg.bench.scaling import bench_scaling

    with heard(), progress_bar("Points", quiet=as_json) as progress:
        record = bench_scaling(
            over,
            at=at or (),
            method=method,
            encoder=encoder,
            head=head,
            size=None if size is None else parse_size(size),
            batch=batch,
            steps=steps,
            warm_up=warm_up,
            settings=settings or (),
            seed=seed,
            save=save,
            plot=plot,
            progress=progress,
        )
    drawn = None if plot is None else plot / f"scaling-{over}.svg"
    with_record(record, print_scaling, as_json=as_json, written=(save, drawn))


@app.command("compare")
def compare_records(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="The record of before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="The record of now.")],
    limit: Annotated[float, typer.Option(help="A loss above this share is flagged.")] = 0.10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two records of the same measurement; exit code 1 where anything was lost by more than a tenth.

    Where the machines multiply matrices at different rates, times are brought to the old one's speed first.

    Example: ftcseg bench compare speed-0.1.json speed-now.json
    """
    from ftcseg.bench.compare import bench_compare

    found = bench_compare(old, new, limit=limit)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        print_comparison(found)
    if found.losses:
        raise typer.Exit(LOST)


# ---------------------------------------------------------------- printing


@contextmanager
def heard() -> Iterator[None]:
    """Around a measurement: Ctrl-C before anything was measured keeps nothing, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("\nInterrupted before anything was measured.", err=True)
        raise Ended(INTERRUPTED) from None


def with_record(record: dict[str, Any], show: Any, *, as_json: bool, written: tuple[Path | None, ...]) -> None:
    """Print a record as JSON or by `show`, say what was written, and end with 130 where Ctrl-C cut it short."""
    if as_json:
        typer.echo(json.dumps(record, indent=2))
    else:
        show(record)
        for path in written:
            if path is not None:
                typer.echo(f"Written: {path}")
    if record["interrupted"]:
        raise Ended(INTERRUPTED)


def print_step(record: dict[str, Any]) -> None:
    """The bar, the parts, what was compared, the findings, the machine."""
    from ftcseg.bench.words import about, findings, machine_line, other_rows, part_rows

    typer.echo(f"{about(record)}\n")
    _print_bar(record["step"])
    typer.echo("")
    print_table(("part", "ms", "middle half", "share"), part_rows(record["step"]), right=(1, 2, 3))
    others = other_rows(record)
    if others:
        typer.echo("")
        print_table(("in turns", "time", "memory", "what"), others, right=(1, 2))
    typer.echo("")
    for text in findings(record):
        typer.echo(text)
    typer.echo(machine_line(record))


def print_scaling(record: dict[str, Any]) -> None:
    """A line for each point."""
    from ftcseg.bench.words import MILLI, machine_line, spread

    names = list(record["points"][0]["seconds"])
    rows = []
    for point in record["points"]:
        cells = [spread(point["seconds"][name], MILLI) for name in names]
        rows.append([str(point["at"]), *cells, f"{point['flops_per_second'] / 1e9:.1f}"])
    heads = (record["over"], *(f"{name}, ms" for name in names), "GFLOP/s of matrices")
    print_table(heads, rows, right=range(len(heads)))
    typer.echo(machine_line(record))
    if record["interrupted"]:
        typer.echo("Interrupted: the points after these were not measured.")


def print_comparison(found: Comparison) -> None:
    """Losses first, then gains, then the rest."""
    order = {"loss": 0, "gain": 1, "same": 2, "not judged": 3}
    rows = []
    for change in sorted(found.changes, key=lambda change: order[change.verdict]):
        doubt = " (middle halves overlap)" if change.overlap and change.verdict in ("loss", "gain") else ""
        numbers = [f"{value:.4g}" for value in (change.old, change.new, change.fair)]
        rows.append([change.name, change.unit, *numbers, f"{change.loss:+.1%}", change.verdict + doubt])
    print_table(("row", "unit", "old", "new", "new, fairly", "worse by", ""), rows, right=(2, 3, 4, 5))
    for text in found.notes:
        typer.echo(text)
    worst = (
        f"{len(found.losses)} rows are worse by more than {found.limit:.0%}." if found.losses else "Nothing was lost."
    )
    typer.echo(worst)


def _print_bar(step: dict[str, Any]) -> None:
    from rich.text import Text

    from ftcseg.bench.bar import line, storeys

    out = console()
    for segments in storeys(step):
        text = Text()
        for segment, letters in line(segments, min(_BAR_WIDTH, out.width)):
            text.append(letters, style=f"white on {_COLORS[segment.number % len(_COLORS)]}")
        out.print(text, no_wrap=True, overflow="crop")


def print_table(heads: Any, rows: Any, *, right: Any) -> None:
    """Columns of text, those of numbers to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(heads):
        table.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False)
