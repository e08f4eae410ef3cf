"""`ftcseg split`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ftcseg.cli.show import console, marked, progress_bar

_SPOKEN = {"labeled": "labelled", "unlabeled": "unlabelled", "left_out": "left out"}


def split(
    dataset: Annotated[str, typer.Argument(help="A folder, dataset.yaml, manifest or named set.")],
    labels: Annotated[str, typer.Option(help="Labelled images: a percentage (2%) or a number (30).")] = "2%",
    seed: Annotated[int, typer.Option(help="The same seed gives the same lists on every machine.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the lists (default: splits/NAME-LABELS-seedN).")] = None,
    by_sequence: Annotated[bool, typer.Option("--by-sequence", help="Never part frames of one sequence.")] = False,
    val_by_sequence: Annotated[
        bool,
        typer.Option("--val-by-sequence", help="With --val or --tune: whole sequences there, labels frame by frame."),
    ] = False,
    val: Annotated[str | None, typer.Option(help="Draw a new validation part of this amount, such as 20%.")] = None,
    tune: Annotated[
        str | None, typer.Option(help="Validate on part of the training images, to choose settings; other parts rest.")
    ] = None,
    long_tail: Annotated[
        float | None, typer.Option(help="Cut to exponential image quotas; head to tail as this ratio to one.")
    ] = None,
    balanced: Annotated[bool, typer.Option("--balanced", help="Cut head classes down to the tail's pixels.")] = False,
    level: Annotated[
        str | None, typer.Option(help="With --balanced: «image» drops images (default), «pixel» ignores single pixels.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print split.json's summary instead of a table.")] = False,
) -> None:
    """Draw labelled and unlabelled lists, at least one instance of every class among the labels.

    Writes labeled.txt, unlabeled.txt, val.txt, test.txt and split.json with seed, counts per class and a hash.

    Example: ftcseg split flsmd --labels 2% --seed 0
    """
    from ftcseg import api
    from ftcseg.errors import UsageError

    if level is not None and not balanced:
        raise UsageError("--level says how to balance; it goes with --balanced.")
    if by_sequence and val_by_sequence:
        raise UsageError("--by-sequence keeps sequences whole in every list, --val-by-sequence in one: choose one.")
    folder = out or Path("splits") / f"{_name(dataset)}-{labels.replace('%', 'pct')}-seed{seed}"
    with progress_bar("Looking at the masks") as progress:
        drawn = api.split(
            dataset,
            labels,
            seed=seed,
            out=folder,
            by_sequence="val" if val_by_sequence else by_sequence,
            long_tail=long_tail,
            balanced=(level or "image") if balanced else None,
            val=val,
            tune=tune,
            root=root,
            progress=progress,
        )
    data = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    if as_json:
        typer.echo(json.dumps({k: v for k, v in data.items() if not isinstance(v, list) or k == "classes"}, indent=2))
        return
    _print(data)
    if by_sequence and (asked := drawn.options["asked"]) != (got := len(drawn.labeled)):
        typer.echo(f"{asked} labelled images were asked for; whole sequences and every class gave {got}.")
    typer.echo(f"hash {drawn.digest()[:16]}  seed {seed}\nWrote {folder}")


def _name(dataset: str) -> str:
    """What the set is called in the default folder's name: `.` and `frames/dataset.yaml` are called as their folder."""
    path = Path(dataset).absolute()
    return path.parent.name if path.name == "dataset.yaml" else path.stem


def _print(data: dict[str, dict[str, int] | list[dict[str, object]]]) -> None:
    from rich.table import Table

    images = data["images"]
    if isinstance(images, dict):
        typer.echo(", ".join(f"{count} {_SPOKEN.get(part, part)}" for part, count in images.items()))
    table = Table(box=None, pad_edge=False)
    for name in ("class", "labelled images", "labelled pixels"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in data["classes"]:
        if isinstance(row, dict):
            table.add_row(marked(row["name"]), str(row["images"]), f"{row['pixels']:,}")
    console().print(table)
