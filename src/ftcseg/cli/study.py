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
    dataset: Annotated[
        list[str] | None, typer.Option(help="A folder, manifest or named set (default: simulated); may be given again.")
    ] = None,
    labels: Annotated[list[str] | None, typer.Option(help="Labelled images, 2% or 30; may be given again.")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Of split, start and batches; may be given again.")] = None,
    budget: Annotated[str | None, typer.Option(help="Length of every run: 400steps.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this row; may be given again.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, of every run.")
    ] = None,
    ftc: Annotated[
        str | None, typer.Option(help="Which reading of FTC-Seg its rows take: ftc, ftc-paper or ftc-released.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="One of the study's own choices; may be given again.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of all studies: answers in OUT/NAME, runs shared in OUT/runs.")
    ] = Path("studies"),
    plan: Annotated[bool, typer.Option("--plan", help="Only say which runs there are and which are missing.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Run the grid of runs that answers a question; finished runs are never repeated.

    Writes study.json, table.md and table.tex after every run. Ctrl-C saves the present run; the same command goes on.

    Example: ftcseg study methods --seeds 0
    """
    from ftcseg.studies import find_study
    from ftcseg.studies.answering import Inquiry
    from ftcseg.studies.running import planned, run_study
    from ftcseg.studies.sets import Place
    from ftcseg.train.listeners import Terminal

    found = find_study(name)
    ask = _ask(found, dataset, labels, seeds, budget, only, settings, ftc, option)
    inquiry = Inquiry(name, found, ask, Place(out, root))
    if plan:
        plans = planned(inquiry)
        for one in plans.runs:
            typer.echo(f"{'done   ' if one.done else 'missing'}  {one.cell.title}  {one.run.name}")
        typer.echo(f"{plans.missing} of {len(plans.runs)} runs are missing.")
        return
    answer = run_study(inquiry, listeners=lambda: [Terminal()], say=typer.echo)
    typer.echo("\n" + "\n".join(answer.finding) + f"\nWrote {inquiry.folder / 'table.md'}")


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
    dataset: list[str] | None,
    labels: list[str] | None,
    seeds: list[int] | None,
    budget: str | None,
    only: list[str] | None,
    settings: list[str] | None,
    ftc: str | None,
    option: list[str] | None,
) -> Ask:
    from dataclasses import replace

    from ftcseg.studies.plan import EMBEDDED

    ask = found.defaults
    if dataset:
        own = ask.settings if dataset == [EMBEDDED] else ()  # the defaults' settings are for the simulated set
        ask = replace(ask, datasets=tuple(dataset), settings=own)
    if labels:
        ask = replace(ask, labels=tuple(labels))
    if seeds:
        ask = replace(ask, seeds=tuple(seeds))
    if budget is not None:
        ask = replace(ask, steps=_steps(budget))
    ask = replace(ask, only=tuple(only or ()), settings=(*ask.settings, *(settings or ())), ftc=ftc or ask.ftc)
    return replace(ask, options={**found.options, **_options(found, option or [])})


def _options(found: Study, told: list[str]) -> dict[str, str]:
    from ftcseg.errors import UsageError, unknown_name

    chosen = {}
    for text in told:
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--option {text} has no value. Write --option KEY=VALUE.")
        if key not in found.options:
            raise unknown_name("option of this study", key, found.options)
        chosen[key] = value
    return chosen


def _steps(budget: str) -> int:
    from ftcseg.errors import UsageError

    told = _BUDGET.fullmatch(budget.strip())
    if told is None or int(told[1]) < 1:
        raise UsageError(f"{budget!r} is no budget. Say how many steps every run takes, such as 400steps.")
    return int(told[1])
