"""`ftcseg doctor`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftcseg.cli.show import bar, console, json_text, marked, progress_bar

if TYPE_CHECKING:
    from ftcseg.data.doctor import Examination
    from ftcseg.types import Finding

_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}
_SHOWN = 30  # rows of findings in the terminal; --json has them all


def doctor(
    path: Annotated[str, typer.Argument(help="A folder, dataset.yaml, manifest (.jsonl) or named set.")],
    write: Annotated[
        Path | None, typer.Option("--write", help="Write what was found as a dataset.yaml for every other command.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page with pictures of the masks.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Largest image to decode, in pixels.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes (default: all cores).")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if there is an error finding.")] = False,
) -> None:
    """Find out what a folder holds: layout, mask encoding, classes, head and tail, broken files.

    Nothing is changed. What is seen is remembered, so a second look takes a moment.

    Example: ftcseg doctor frames/ --write frames/dataset.yaml
    """
    from ftcseg import api
    from ftcseg.data.doctor import as_json as to_json

    with progress_bar("Looking at every file") as progress:
        found = api.doctor(path, write=write, root=root, max_pixels=max_pixels, workers=workers, progress=progress)
    if report is not None:
        api.dataset_page(found, report)
    if as_json:
        typer.echo(json_text(to_json(found)))
    else:
        print_examination(found)
        for file in (write, report):
            if file is not None:
                typer.echo(f"Wrote {file}")
    if strict and found.errors:
        raise typer.Exit(1)


def print_examination(found: Examination) -> None:
    """The summary, the class table and the findings."""
    from ftcseg.data.doctor import as_json as to_json

    data = to_json(found)
    out = console()
    out.print(f"[bold]{marked(found.description.name)}[/]  {data['layout']}, masks: {data['encoding']}", soft_wrap=True)
    parts = ", ".join(f"{n} {part}" for part, n in data["parts"].items())
    sizes = ", ".join(f"{s['width']}x{s['height']} ({s['images']})" for s in data["sizes"][:3])
    more = f" and {len(data['sizes']) - 3} more sizes" if len(data["sizes"]) > 3 else ""
    out.print(f"{data['images']} images ({parts}): {data['labelled']} labelled, {data['unlabelled']} unlabelled")
    ignored = "no ignore value" if data["ignore"] is None else f"ignore value: {data['ignore']}"
    out.print(f"{sizes}{more}; {', '.join(data['depth'])}; {ignored}\n")
    _print_classes(found)
    _print_findings(found)


def _print_classes(found: Examination) -> None:
    from rich.table import Table

    if not found.classes:
        return
    table = Table(box=None, pad_edge=False)
    for name, side in (
        ("id", "right"),
        ("class", "left"),
        ("group", "left"),
        ("pixels %", "right"),
        ("", "left"),
        ("images", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    objects = max((c.pixel_share for c in found.classes if c.group != "background"), default=0) or 1
    for row in found.classes:
        share = "" if row.group == "background" else bar(row.pixel_share / objects)
        table.add_row(str(row.id), marked(row.name), row.group, f"{row.pixel_share:.3f}", share, str(row.images))
    console().print(table)
    console().print()


def _print_findings(found: Examination) -> None:
    from rich.table import Table

    if not found.findings:
        console().print("Nothing to report.")
        return
    counts: Counter[str] = Counter()
    for finding in found.findings:
        counts[_row_of(finding)] += finding.count
    table = Table(box=None, pad_edge=False)
    table.add_column("finding", no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("what, where, what to do", overflow="fold")
    seen: set[str] = set()
    for finding in found.findings:
        row = _row_of(finding)
        if row in seen or len(seen) >= _SHOWN:
            continue
        seen.add(row)
        color = _COLORS[finding.severity]
        where = f"\n[dim]in {marked(finding.file)}[/]" if finding.file else ""
        text = f"{marked(finding.detail)}{where}\n→ {marked(finding.remedy)}"
        table.add_row(f"[{color}]{finding.kind}[/]", str(counts[row]), text)
    console().print(table)


def _row_of(finding: Finding) -> str:
    """Findings about files share a row per kind; those about the whole set each have their own."""
    return finding.kind if finding.file else f"{finding.kind}: {finding.detail}"
