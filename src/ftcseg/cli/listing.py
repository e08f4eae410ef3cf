"""`ftcseg methods` and `ftcseg encoders`: what there is, one line each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ftcseg.cli.show import console


def methods(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False) -> None:
    """List the methods: name, paper, year and what each does."""
    from ftcseg.config.load import VARIANTS
    from ftcseg.methods import METHODS

    rows = [
        {"name": name, "title": entry.title, "paper": entry.paper, "year": entry.year, "line": entry.line}
        for name, entry in METHODS.items()
    ]
    rows += [
        {"name": name, "title": METHODS[base].title, "paper": "", "year": METHODS[base].year, "line": _VARIANT[name]}
        for name, base in VARIANTS.items()
    ]
    _print(rows, ("name", "title", "year", "line"), as_json)


_VARIANT = {
    "ftc-paper": "ftc with the paper's equations to the letter",
    "ftc-released": "ftc as the public code does it",
}


def encoders(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False) -> None:
    """List the encoders: name, size, where their weights come from, licence."""
    from ftcseg.nets.encoders import ENCODERS

    rows = [
        {
            "name": name,
            "title": entry.title,
            "parameters": f"{entry.params / 1e6:.2f} M",
            "weights": entry.weights or "none",
            "licence": entry.licence,
        }
        for name, entry in ENCODERS.items()
    ]
    _print(rows, ("name", "title", "parameters", "weights", "licence"), as_json)


def _print(rows: Sequence[Mapping[str, object]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(row[name]) for name in columns))
    console().print(table)
