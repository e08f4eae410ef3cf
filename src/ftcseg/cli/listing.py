"""`ftcseg methods` and `ftcseg encoders`: what there is, one line each; and the settings of one method."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ftcseg.cli.show import console

if TYPE_CHECKING:
    from ftcseg.methods import Entry


def methods(
    name: Annotated[str | None, typer.Argument(help="One method: its own settings, defaults and meanings.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods: name, paper, year and what each does. With a name, that method's own settings."""
    if name is not None:
        _print_method(name, as_json)
        return
    from ftcseg.config.load import VARIANTS
    from ftcseg.methods import METHODS, offered

    rows = [{"name": known, **_about(entry)} for known, entry in METHODS.items()]
    rows += [{"name": known, **_about(METHODS[base]), "line": _VARIANT[known]} for known, base in VARIANTS.items()]
    rows += [
        {"name": other, "title": "", "paper": "", "year": "", "line": f"of the package {point.module.split('.')[0]}"}
        for other, point in offered().items()
        if other not in METHODS
    ]
    _print(rows, ("name", "paper", "year", "line"), as_json)


_VARIANT = {
    "ftc-paper": "ftc with the paper's equations to the letter",
    "ftc-released": "ftc as the public code does it",
}


def _about(entry: Entry) -> dict[str, object]:
    return {"title": entry.title, "paper": entry.paper, "year": entry.year, "line": entry.line}


def _print_method(name: str, as_json: bool) -> None:
    from ftcseg.config.load import PRESETS, VARIANTS, flat, preset
    from ftcseg.config.meanings import settings_of
    from ftcseg.methods import find_method

    entry = find_method(VARIANTS.get(name, name), also=tuple(VARIANTS))
    own, line = settings_of(entry.params), _VARIANT.get(name, entry.line)
    wanted = flat(preset(name) if name in PRESETS else entry.preset)
    wanted.pop("method", None)
    if as_json:
        settings = [{"name": s.name, "default": s.default, "meaning": s.meaning} for s in own]
        about = {"name": name, **_about(entry), "line": line, "settings": settings, "preset": wanted}
        typer.echo(json.dumps(about, indent=2))
        return
    by = f" ({entry.paper} {entry.year})" if entry.paper else ""
    typer.echo(f"{entry.title}{by}: {line}")
    if wanted:
        typer.echo(f"\nSet by its preset: {', '.join(f'{key}={_written(value)}' for key, value in wanted.items())}")
    if not own:
        typer.echo("\nIt has no settings of its own.")
        return
    typer.echo("\nIts own settings, --set params.NAME=VALUE:\n")
    rows = [{"name": s.name, "default": _written(s.default), "meaning": s.meaning} for s in own]
    _print(rows, ("name", "default", "meaning"), as_json=False)


def _written(value: object) -> str:
    return json.dumps(value) if not isinstance(value, str) else value


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
