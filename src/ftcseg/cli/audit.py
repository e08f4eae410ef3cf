"""`ftcseg audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ftcseg.cli.show import bar, console, json_text, marked, progress_bar

_RATES = ("accuracy", "filtered", "correct_kept")
_HEADINGS = ("accuracy\n%", "filtered\n%", "correctly\nkept %")
_GROUPS = ("background", "head", "middle", "tail", "global")


def audit(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    checkpoint: Annotated[str, typer.Option(help="last or best.")] = "last",
    by: Annotated[str, typer.Option(help="Count pixels by their truth or by their prediction.")] = "truth",
    dataset: Annotated[str | None, typer.Option(help="The set, if it is not where the run says.")] = None,
    max_images: Annotated[int | None, typer.Option(help="At most so many, evenly through the list.")] = None,
    batch: Annotated[int, typer.Option(help="Images asked about together.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with every count.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    hub: Annotated[bool, typer.Option("--hub", help="The encoder may be looked up on the model hub.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Measure a run's pseudo-labels against the masks of its unlabelled images, where these have any.

    Accuracy is the share that is right of the pixels kept; filtered the share dropped; correctly kept the share of all
    that is kept and right. Training never saw these masks.

    Example: ftcseg audit runs/harbour --by prediction
    """
    from ftcseg import api
    from ftcseg.errors import unknown_name

    if by not in ("truth", "prediction"):
        raise unknown_name("way to count pixels", by, ("truth", "prediction"))
    with progress_bar("Auditing pseudo-labels") as progress:
        found = api.audit(
            run,
            checkpoint=checkpoint,
            dataset=dataset,
            root=root,
            batch=batch,
            max_images=max_images,
            device=device,
            hub=hub,
            progress=progress,
        )
    if as_json:
        typer.echo(json_text(found))
        return
    print_audit(found, by)


def print_audit(found: dict[str, Any], by: str) -> None:
    """A row per class with its threshold and a bar for what was correctly kept, then the groups, micro and macro."""
    from rich.table import Table

    counted = found[f"by_{by}"]
    tau = found["thresholds"].get("tau", [])
    table = Table(box=None, pad_edge=False)
    for name in ("class", "threshold", *_HEADINGS, "", "IoU of\nkept %"):
        table.add_column(name, justify="left" if name in ("class", "") else "right", no_wrap=True)
    for row in counted["classes"]:
        level = f"{tau[row['id']]:.3f}" if row["id"] < len(tau) else ""
        iou = _percent(found["kept_iou"]["classes"][row["id"]])
        table.add_row(marked(row["name"]), level, *_cells(row), iou)
    table.add_row()
    for way in ("micro", "macro"):
        for group in _GROUPS:
            row = counted[way][group]
            if row["filtered"] is not None:
                iou = _percent(found["kept_iou"]["groups"][group])
                table.add_row(group, way, *_cells(row), iou)
    out = console()
    head = f"[bold]{marked(found['run'])}[/] {found['checkpoint']} teacher on {found['images']} unlabelled images"
    out.print(f"{head} of {marked(found['dataset'])}, by {by}", soft_wrap=True)
    out.print(table)
    out.print(
        f"mIoU of pseudo-labels: {_percent(found['raw_miou'])} %, of those kept: {_percent(found['kept_miou'])} %"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    return [*(_percent(row[rate]) for rate in _RATES), bar(row["correct_kept"] or 0)]


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.2f}"
