"""`ftcseg study` and `ftcseg studies`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ftcseg.studies import Study
    from ftcseg.studies.plan import Ask

_BUDGET = re.compile(r"(\d+)\s*steps?")


def study(
    name: Annotated[str, typer.Argument(help="Which question; «ftcseg studies» lists them.")],
    dataset: Annotated[str | None, typer.Option(help="A folder, manifest or named set (default: simulated).")] = None,
    labels: Annotated[list[str] | None, typer.Option(help="Labelled images, 2% or 30; may be given again.")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Of split, start and batches; may be given again.")] = None,
    budget: Annotated[str | None, typer.Option(help="Length of every run: 400steps.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this row; may be given again.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, of every run.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The study's folder (default: studies/NAME).")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say which runs there are and which are missing.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Run the grid of runs that answers a question; finished runs are never repeated.

    Writes study.json, table.md and table.tex after every run. Ctrl-C saves the present run; the same command goes on.

    Example: ftcseg study methods --seeds 0
    """
    from ftcseg.studies import find_study
    from ftcseg.studies.running import Place, planned, run_study
    from ftcseg.train.listeners import Terminal

    found = find_study(name)
    ask = _ask(found, dataset, labels, seeds, budget, only, settings)
    place = Place(out or Path("studies") / name, root)
    if plan:
        plans = planned(found, ask, place)
        for one in plans:
            typer.echo(f"{'done   ' if one.done else 'missing'}  {one.cell.title}  {one.run.name}")
        typer.echo(f"{sum(not one.done for one in plans)} of {len(plans)} runs are missing.")
        return
    answer = run_study(name, found, ask, place, listeners=lambda: [Terminal()], say=typer.echo)
    typer.echo("\n" + "\n".join(answer.finding) + f"\nWrote {place.folder / 'table.md'}")


def studies() -> None:
    """List the studies: the question of each, and the paper's table it stands beside."""
    from rich.table import Table

    from ftcseg.cli.show import console
    from ftcseg.studies import STUDIES

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "question", "in the paper"):
        table.add_column(heading)
    for name, one in STUDIES.items():
        table.add_row(name, one.line, one.paper)
    console().print(table)


def _ask(
    found: Study,
    dataset: str | None,
    labels: list[str] | None,
    seeds: list[int] | None,
    budget: str | None,
    only: list[str] | None,
    settings: list[str] | None,
) -> Ask:
    from dataclasses import replace

    ask = found.defaults
    if dataset is not None:
        ask = replace(ask, dataset=dataset, settings=())  # the defaults' settings are for the simulated set
    if labels:
        ask = replace(ask, labels=tuple(labels))
    if seeds:
        ask = replace(ask, seeds=tuple(seeds))
    if budget is not None:
        ask = replace(ask, steps=_steps(budget))
    return replace(ask, only=tuple(only or ()), settings=(*ask.settings, *(settings or ())))


def _steps(budget: str) -> int:
    from ftcseg.errors import UsageError

    told = _BUDGET.fullmatch(budget.strip())
    if told is None or int(told[1]) < 1:
        raise UsageError(f"{budget!r} is no budget. Say how many steps every run takes, such as 400steps.")
    return int(told[1])
