"""`ftcseg export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftcseg.cli.show import progress_bar

if TYPE_CHECKING:
    from ftcseg.inference import WrittenOut

_MEGABYTE = 1e6


def export(
    source: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="A model folder, or a run folder.")],
    kind: Annotated[str, typer.Option("--format", help="onnx or openvino.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="Round to 8 bits, calibrated on --images.")] = False,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="For any number of images of any size.")] = False,
    size: Annotated[str | None, typer.Option(help="For one size, such as 322x476 (height, width).")] = None,
    images: Annotated[str | None, typer.Option(help="Images like those it will see: a folder or a pattern.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A set with masks: says how much mIoU is lost.")] = None,
    part: Annotated[str | None, typer.Option(help="Of the set: val, test or train (default: as in eval).")] = None,
    max_images: Annotated[int | None, typer.Option(help="Judge by at most so many images of the set.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder (default: export/FORMAT in the source).")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="The encoder may be looked up on the model hub.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where named sets are kept (default: FTCSEG_DATA).")] = None,
) -> None:
    """Write a model for ONNX Runtime or OpenVINO, with a preprocess.json that says how images go in.

    It is opened in its runtime and compared with the network before it is handed out. Without --dynamic it is made for
    one size: --size, that of the first of --images, or a square of the model's shorter side.

    Example: ftcseg export runs/harbour --format onnx --dynamic --out harbour-onnx
    """
    from ftcseg import api

    with progress_bar("Exporting") as progress:
        done = api.export(
            source,
            out,
            format=kind,
            int8=int8,
            dynamic=dynamic,
            size=None if size is None else parse_size(size),
            images=images,
            dataset=dataset,
            part=part,
            max_images=max_images,
            hub=hub,
            root=root,
            progress=progress,
        )
    print_written(done)


def parse_size(text: str) -> tuple[int, int]:
    """`322x476` as (height, width)."""
    from ftcseg.errors import UsageError

    sides = text.lower().replace("×", "x").split("x")
    if len(sides) != 2 or not all(side.strip().isdecimal() for side in sides):
        raise UsageError(f"{text!r} is no size. Write height and width, such as 322x476.")
    return int(sides[0]), int(sides[1])


def print_written(done: WrittenOut) -> None:
    """One line for every comparison, then what was written."""
    written = done.exported
    for what in dict.fromkeys(check.what for check in written.checks):
        checks = [check for check in written.checks if check.what == what]
        pixels = [check.shape[0] * check.shape[2] * check.shape[3] for check in checks]
        agreement = sum(c.agreement * n for c, n in zip(checks, pixels, strict=True)) / sum(pixels)
        sizes = sorted({f"{check.shape[2]}×{check.shape[3]}" for check in checks})
        shown = ", ".join(sizes) if len(sizes) <= 3 else f"{len(sizes)} sizes"
        typer.echo(
            f"{what}: {sum(check.shape[0] for check in checks)} images of {shown}; "
            f"largest difference {max(check.max_difference for check in checks):.1e}, "
            f"{100 * agreement:.3f} % of pixels keep their class"
        )
    if done.before is not None and done.after is not None:
        lost = 100 * (done.before - done.after)
        typer.echo(f"mIoU {100 * done.before:.2f} -> {100 * done.after:.2f} ({lost:.2f} lost)")
    sheet = written.sheet
    made = "any size" if sheet.size is None else f"{sheet.size[0]}×{sheet.size[1]}"
    number = "any number of images" if sheet.batch is None else "one image at a time"
    typer.echo(f"Wrote {written.folder} ({written.size / _MEGABYTE:.1f} MB, {made}, {number})")
