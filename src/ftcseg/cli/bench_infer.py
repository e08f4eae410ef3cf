"""`ftcseg bench infer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ftcseg.cli.export import parse_size
from ftcseg.cli.show import progress_bar

if TYPE_CHECKING:
    from ftcseg.types import Part

_MILLI, _MEBI, _HUNDRED = 1e3, 2**20, 100.0


def infer(
    model: Annotated[
        str | None, typer.Argument(metavar="[RUN|MODEL]", help="What is asked (default: random weights).")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Without a model: «ftcseg encoders» lists them.")] = None,
    head: Annotated[
        str | None, typer.Option(help="dpt, fusion, ... (default: dpt for DINOv2, else the preset's).")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Without a model: height and width, such as 322x476.")] = None,
    ways: Annotated[
        list[str] | None,
        typer.Option("--way", help="eager, compiled, onnx, openvino, onnx-int8, ...; may be given again (all)."),
    ] = None,
    images: Annotated[int, typer.Option(help="How many are asked about, each round.")] = 8,
    batch: Annotated[int, typer.Option(help="Images a call.")] = 1,
    rounds: Annotated[int, typer.Option(help="Each asks every way about every image.")] = 10,
    dataset: Annotated[str | None, typer.Option(help="Images of this set; with a model, also mIoU.")] = None,
    part: Annotated[str | None, typer.Option(help="Of the set: val, test or train (default: as in eval).")] = None,
    max_images: Annotated[int | None, typer.Option(help="Score by at most so many images of the set.")] = None,
    memory: Annotated[bool, typer.Option(help="Also peak memory, each in a process of its own.")] = True,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    seed: Annotated[int, typer.Option(help="Of frames and random weights.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the record, to compare later.")] = None,
) -> None:
    """Ask one network in several ways, in turns, about the same images: speed, memory, and what it costs in mIoU.

    Every way is exported, opened and asked as a user would have it; int8 is calibrated on training images of the set.
    A way that does not work on this machine is told with the reason. Ctrl-C ends early and keeps whole rounds.

    Example: ftcseg bench infer runs/harbour --dataset harbour/ --way onnx --way openvino-int8
    """
    from ftcseg.bench.infer import bench_infer
    from ftcseg.cli.bench import with_record

    with progress_bar("Measuring", quiet=as_json) as progress:
        record = bench_infer(
            model,
            encoder=encoder,
            head=head,
            size=None if size is None else parse_size(size),
            ways=ways or (),
            images=images,
            batch=batch,
            rounds=rounds,
            dataset=dataset,
            part=cast("Part | None", part),
            max_images=max_images,
            memory=memory,
            root=root,
            seed=seed,
            save=save,
            progress=progress,
        )
    with_record(record, print_infer, as_json=as_json, written=(save,))


def print_infer(record: dict[str, Any]) -> None:
    """A line for every way, then what does not work, then the machine."""
    from ftcseg.bench.words import machine_line
    from ftcseg.cli.bench import print_table

    asked = record["asked"]
    what = asked["model"] or asked["encoder"]
    height, width = record["size"]
    typer.echo(
        f"{what}, {height}×{width}, {asked['images']} images, {asked['batch']} a call, {record['rounds']} rounds\n"
    )
    working = [way for way in record["ways"] if way["works"]]
    heads = ("way", "images/s", "ms p50", "p90", "p99", "x eager", "MiB", "mIoU", "alike")
    print_table(heads, [_cells(way) for way in working if way["than"] == "eager"], right=range(1, len(heads)))
    ready = ", ".join(f"{way['name']} {way['ready']:.1f}" for way in working if way["than"] == "eager")
    typer.echo(f"Seconds from the file to the first answer: {ready}.")
    for way in working:
        if way["than"] != "eager":
            faster = way["faster"]
            typer.echo(
                f"{way['name']} takes {1 / faster['median']:.3f} times as long as {way['than']} "
                f"({1 / faster['high']:.3f} to {1 / faster['low']:.3f})"
            )
    for way in record["ways"]:
        if not way["works"]:
            typer.echo(f"{way['name']} does not work here: {way['reason']}")
    typer.echo(machine_line(record))
    if record["interrupted"]:
        typer.echo("Interrupted: fewer rounds were measured than asked for.")


def _cells(way: dict[str, Any]) -> list[str]:
    latency = [
        f"{way['latency'][p] * _MILLI:.1f}" if way["latency"][p] is not None else "" for p in ("p50", "p90", "p99")
    ]
    held = way["memory"] or {}
    return [
        way["name"],
        f"{way['images_per_second']['median']:.2f}",
        *latency,
        f"{way['faster']['median']:.2f}",
        f"{held['above'] / _MEBI:.0f}" if "above" in held else "",
        f"{_HUNDRED * way['miou']:.2f}" if way["miou"] is not None else "",
        f"{_HUNDRED * way['agreement']:.2f}%",
    ]
