"""`ftcseg study` and `ftcseg studies`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ftcseg.cli.show import plain

if TYPE_CHECKING:
    from ftcseg.studies.answering import Inquiry
    from ftcseg.studies.estimate import Outlook
    from ftcseg.studies.running import Planned, Runner

_NUMBER = re.compile(r"-\d+")
_SEED_BOUND = 2**32
_TITLE = 44  # letters of a run's name in the plan


class Spread(TyperCommand):
    """A command whose repeatable options also take several values in a row: `--seeds 0 1 2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, then go on as usual."""
        several = [name for param in self.params if getattr(param, "multiple", False) for name in param.opts]
        _require_name(args, several)
        return super().parse_args(ctx, spread(args, several))


def spread(args: Sequence[str], several: Collection[str]) -> list[str]:
    """`--seeds 0 1` as `--seeds 0 --seeds 1`. A value that begins with a dash ends the row, unless it is a number."""
    found: list[str] = []
    option, alone = "", False  # whose values are being read, and whether it still waits for its first
    for place, word in enumerate(args):
        if word == "--":
            return [*found, *args[place:]]
        is_option = word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)
        if is_option:
            name, sign, _ = word.partition("=")
            option, alone = (name, not sign) if name in several else ("", False)
            found.append(word)
        elif option and not alone:
            found += [option, word]
        else:
            found.append(word)
            alone = False
    return found


def _require_name(args: Sequence[str], several: Collection[str]) -> None:
    """Refuse a row of values before the study's name: nobody could tell where it ends."""
    from ftcseg.errors import UsageError

    for word in args:
        if not word.startswith("-"):
            return
        if word.partition("=")[0] in several:
            raise UsageError(f"The study's name comes first: ftcseg study NAME {word} ... «ftcseg studies» lists them.")


def study(
    name: Annotated[str, typer.Argument(help="Which question; «ftcseg studies» lists them. It comes first.")],
    dataset: Annotated[
        list[str] | None, typer.Option(help="Folders, manifests or named sets (default: simulated).")
    ] = None,
    labels: Annotated[list[str] | None, typer.Option(help="Labelled images: 2% 5% 10%, or 30.")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Of split, start and batches: 0 1 2.")] = None,
    budget: Annotated[str | None, typer.Option(help="Length of every run: 400steps, 20minutes or paper.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these rows of the table.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, of every run.")
    ] = None,
    ftc: Annotated[
        str | None, typer.Option(help="Which reading of FTC-Seg its rows take: ftc, ftc-paper or ftc-released.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="The study's own choices.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of all studies: answers in OUT/NAME, runs shared in OUT/runs.")
    ] = Path("studies"),
    plan: Annotated[
        bool, typer.Option("--plan", help="Only tell the runs, their time and disk; train nothing.")
    ] = False,
    on: Annotated[str, typer.Option(help="Where: here, one run at a time, or ray, on a cluster.")] = "here",
    workers: Annotated[int | None, typer.Option(help="With ray: runs at the same time.")] = None,
    address: Annotated[str | None, typer.Option(help="With ray: of the cluster (default: this machine alone).")] = None,
    cpus_per_run: Annotated[int | None, typer.Option(help="With ray: cores of each run.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Run the grid of runs that answers a question; finished runs are never repeated.

    Options that may be given again also take several values in a row. After every run the page OUT/NAME/index.html is
    written anew, with table.md, table.tex, study.json and figures beside it. Ctrl-C saves the present run; the same
    command goes on.

    Example: ftcseg study methods --only supervised ftc --seeds 0 1 2 --plan
    """
    from ftcseg.studies.asking import Choices, asked
    from ftcseg.studies.running import run_study
    from ftcseg.studies.sets import Place
    from ftcseg.train.listeners import Terminal

    choices = Choices(
        dataset=dataset or (),
        labels=labels or (),
        seeds=seeds or (),
        budget=budget,
        only=only or (),
        settings=settings or (),
        ftc=ftc,
        options=option or (),
    )
    runner = _runner(on, workers, address, cpus_per_run)
    inquiry = asked(name, choices, Place(out, root), _say)
    if plan:
        _print_plan(inquiry)
        return
    answer = run_study(inquiry, listeners=lambda: [Terminal()], say=_say, runner=runner)
    _say("\n" + "\n".join(answer.finding) + f"\nOpen {(inquiry.folder / 'index.html').resolve()}")


def _say(text: str) -> None:
    typer.echo(plain(text))


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


# ---------------------------------------------------------------- where it runs


def _runner(on: str, workers: int | None, address: str | None, cpus_per_run: int | None) -> Runner:
    from ftcseg.errors import UsageError, unknown_name
    from ftcseg.studies.running import one_by_one

    if on == "ray":
        from ftcseg.studies.on_ray import Cluster, on_ray

        return on_ray(Cluster(address=address, workers=workers, cpus_per_run=cpus_per_run))
    if on != "here":
        raise unknown_name("place to run on", on, ("here", "ray"))
    for name, value in (("--workers", workers), ("--address", address), ("--cpus-per-run", cpus_per_run)):
        if value is not None:
            raise UsageError(f"{name} goes with --on ray; here one run is made at a time, with all cores.")
    return one_by_one


# ---------------------------------------------------------------- the plan


def _print_plan(inquiry: Inquiry) -> None:
    from ftcseg.studies.estimate import outlook
    from ftcseg.studies.running import planned
    from ftcseg.studies.sets import Sets

    plans = planned(inquiry)
    for line in plan_lines(plans, outlook(plans.runs, Sets(inquiry.place))):
        _say(line)


def plan_lines(plans: Planned, found: Outlook) -> list[str]:
    """The runs, what each of them still takes, all of them together, and the measurements."""
    from collections import Counter

    lines = []
    for line in found.lines:
        cost = line.cost
        told = f"{_duration(cost.seconds):>9} {_size(cost.bytes):>8}" if cost else line.problem
        lines.append(f"{line.state:<7}  {line.run.cell.title:<{_TITLE}}  {told:<18}  {line.run.run.name}".rstrip())
    lines.append(f"{plans.missing} of {len(plans.runs)} runs are missing.")
    if found.costs:
        bases = Counter(cost.basis for cost in found.costs)
        basis = "; ".join(f"{count} from {text}" for text, count in bases.items())
        lines.append(f"Estimated time: {_duration(found.seconds)}, one run after the other ({basis}).")
        lines.append(f"Estimated disk: {_size(found.bytes)} in all; {_size(found.free)} are free there.")
        if not found.fits:
            lines.append("Warning: this will not fit on the disk. Choose another --out, or ask for fewer runs.")
    for measure in plans.measures:
        lines.append(f"{'done' if measure.done else 'missing':<7}  measurement: {measure.measure.name}")
    return lines


def _duration(seconds: float) -> str:
    """«40 s», «12 min», «3.5 h», «2.1 days»."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if unit == "h" else f"{max(1, round(amount))} {unit}"
    return f"{seconds / 86400:.1f} days"


def _size(count: int) -> str:
    """«62 MB», «1.4 GB»."""
    return f"{max(1, round(count / 1e6))} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
