"""`ftcseg eval`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ftcseg.cli.show import bar, console, json_text, marked, progress_bar

_COLUMNS = ("checkpoint", "net", "class", "group", "pixels", "iou", "precision", "recall", "f1", "boundary_f1")
_GROUPS = ("background", "head", "middle", "tail")
_BAR = 8  # four more columns must fit beside it


def evaluate(
    source: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run, model or exported folder.")],
    dataset: Annotated[str, typer.Argument(help="A folder, dataset.yaml, manifest or named set.")],
    part: Annotated[str | None, typer.Option(help="val, test or train (default: val, or test without val).")] = None,
    checkpoint: Annotated[str, typer.Option(help="Of a run: last, best or all.")] = "all",
    window: Annotated[int | None, typer.Option(help="Slide a square of this side instead of whole images.")] = None,
    flips: Annotated[bool, typer.Option("--flips", help="Ask about the mirror image too.")] = False,
    scales: Annotated[str, typer.Option(help="Ask at several sizes, such as 0.75,1,1.25.")] = "1",
    boundary: Annotated[bool, typer.Option("--boundary", help="Also boundary F1 and calibration; slow.")] = False,
    batch: Annotated[int, typer.Option(help="Images asked about together.")] = 8,
    max_images: Annotated[int | None, typer.Option(help="At most so many, evenly through the part.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a row per class and network.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    hub: Annotated[bool, typer.Option("--hub", help="The encoder may be looked up on the model hub.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Score a model against masks: per class, per group, student and teacher, last and best checkpoint.

    Example: ftcseg eval runs/harbour frames/ --part test --csv scores.csv
    """
    from ftcseg import api

    with progress_bar("Evaluating") as progress:
        found = api.evaluate(
            source,
            dataset,
            part=part,
            checkpoint=checkpoint,
            window=window,
            flips=flips,
            scales=parse_scales(scales),
            boundary=boundary,
            batch=batch,
            max_images=max_images,
            device=device,
            root=root,
            hub=hub,
            progress=progress,
        )
    if csv_file is not None:
        from ftcseg.files import write_text

        write_text(csv_file, as_csv(found))
    if as_json:
        typer.echo(json_text(found))
        return
    print_scores(found)
    if csv_file is not None:
        typer.echo(f"Wrote {csv_file}")


def parse_scales(text: str) -> tuple[float, ...]:
    """`0.75,1,1.25` as numbers."""
    from ftcseg.errors import UsageError

    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} are no scales. Write numbers with commas between, such as 0.75,1,1.25.") from None


def as_csv(found: dict[str, Any]) -> str:
    """One row per class and network, with a header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for checkpoint, net, row in _rows(found):
        for score in row["classes"]:
            writer.writerow({**score, "checkpoint": checkpoint, "net": net, "class": score["name"]})
    return buffer.getvalue()


def print_scores(found: dict[str, Any]) -> None:
    """The class table with a bar for the model and a column for every network of a checkpoint, then the groups."""
    from rich.table import Table

    others = [(f"{marked(name)}\n{marked(net)}", row) for name, net, row in _rows(found) if name != "model"]
    table = Table(box=None, pad_edge=False)
    for name in ("class", "group", "pixels", "IoU %", "", *(name for name, _ in others)):
        table.add_column(name, justify="left" if name in ("class", "group", "") else "right", no_wrap=True)
    for i, score in enumerate(found["classes"]):
        cells = [marked(score["name"]), _group(score["group"]), _short(score["pixels"]), _percent(score["iou"])]
        table.add_row(*cells, _bar(score["iou"]), *(_percent(row["classes"][i]["iou"]) for _, row in others))
    table.add_row()
    for group in _GROUPS:
        mean = found["groups"].get(group)
        if mean is not None and group != "background":
            table.add_row("mean", group, "", _percent(mean), _bar(mean), *_each(others, "groups", group))
    for key, name in (("miou", "[bold]mIoU[/]"), ("pixel_accuracy", "accuracy"), ("ece", "ECE")):
        if found[key] is not None:
            table.add_row(name, "", "", _percent(found[key]), _bar(found[key]), *_each(others, key))
    out = console()
    out.print(f"[bold]{marked(found['dataset'])}[/] {found['part']}, {found['images']} images", soft_wrap=True)
    out.print(table)
    for line in interval_lines(found):
        out.print(line, soft_wrap=True)


def interval_lines(found: dict[str, Any]) -> Iterator[str]:
    """The interval of the model's mIoU, where the images were drawn again, and what to think of it."""
    intervals: dict[str, dict[str, Any]] = found.get("intervals") or {}
    told = [
        f"{_percent(one['miou'][0])} to {_percent(one['miou'][1])} over {one['units']} {over}"
        for over, one in intervals.items()
        if one["miou"] is not None
    ]
    if told:
        share = next(iter(intervals.values()))["share"]
        yield f"mIoU of other images of this kind: {', '.join(told)} ({100 * share:.0f} % interval)."
    yield from dict.fromkeys(one["warning"] for one in intervals.values() if one["warning"])


def _group(name: str | None) -> str:
    return "" if name in (None, "background") else str(name)


def _bar(value: float | None) -> str:
    return bar(value or 0, _BAR)


def _short(count: int) -> str:
    """76131 as 76k: how much there is to judge by, not an exact number."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.0f}{unit}" if count >= 10 * size else f"{count / size:.1f}{unit}"
    return str(count)


def _each(others: list[tuple[str, dict[str, Any]]], *path: str) -> Iterator[str]:
    for _, row in others:
        value: Any = row
        for key in path:
            value = value[key]
        yield _percent(value)


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(checkpoint, network, scores), the model itself first."""
    yield "model", "model", found
    for checkpoint, nets in found["checkpoints"].items():
        for net, row in nets.items():
            yield checkpoint, net, row


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.2f}"
