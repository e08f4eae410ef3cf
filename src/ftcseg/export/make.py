"""From a network to a folder that other programs run: written, opened again in its runtime, compared, then handed out.

    OUT/model.onnx                  or model.xml and model.bin
    OUT/preprocess.json             what goes in, what comes out, the classes, and what the comparison found

The folder appears whole or not at all: where the comparison fails, nothing is left behind.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ftcseg.data.images import read_image
from ftcseg.errors import DataError, UsageError, unknown_name
from ftcseg.evaluate.predictor import answering, prepare
from ftcseg.evaluate.windows import nearest_multiple
from ftcseg.export.graphs import OPSET, ExportError, fitting, least_side, library, to_onnx, to_openvino
from ftcseg.export.int8 import to_int8
from ftcseg.export.runtime import RuntimeNet, load_export, opened_onnx
from ftcseg.export.sheet import FILES, FORMATS, SHEET, Format, Sheet
from ftcseg.files import disk_trouble, write_json
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.heads.base import resize
from ftcseg.nets.segmenter import Segmenter
from ftcseg.parallel import Progress, silent

CALIBRATION_IMAGES = 64
"""Ranges hardly move after some dozens of images; more are taken evenly from what there is."""
MOST_DIFFERENCE = 1e-3
"""Of logits, as a share of the largest where that is above 1. Summing float32 in another order gave 2e-5."""
LEAST_AGREEMENT = 0.999  # of pixels; near a tie the last digit decides
LEAST_INT8_AGREEMENT = 0.9
CHECKED = ((97, 161), (150, 100))
"""Sides that a graph for any size is asked about, or what comes next that fits the encoder: others than TRACED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a user asks for."""

    format: Format = "onnx"
    int8: bool = False
    dynamic: bool = False
    size: tuple[int, int] | None = None
    """(H, W) of the input, brought to the encoder's multiple."""
    images: Sequence[Path] = field(default=())
    """For calibration, and for a comparison on what the model will see."""


@dataclass(frozen=True, slots=True)
class Check:
    """How one batch was answered, compared with the network itself."""

    what: str
    shape: tuple[int, int, int, int]
    max_difference: float
    """Of logits."""
    agreement: float
    """Share of pixels with the same best class."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    folder: Path
    sheet: Sheet
    size: int
    """Bytes of the model's files."""
    checks: tuple[Check, ...]


def export(net: Segmenter, spec: ModelSpec, out: Path, choices: Choices, progress: Progress = silent) -> Exported:
    """Write a model folder's network as `choices` ask; see the top of this file."""
    sheet = _sheet(net, spec, choices)
    # OpenVINO first: its extra brings the others along, theirs does not bring it.
    for name in (*(["openvino"] if choices.format == "openvino" else []), "onnx", "onnxscript", "onnxruntime"):
        library(name)
    _refuse_taken(out)
    images = _evenly(choices.images)
    if choices.int8 and not images:
        raise UsageError("int8 is calibrated on images like those it will see: give a folder of them with --images.")
    with _whole_or_not(out) as folder:
        graph, batch = to_onnx(net, spec, sheet.size)
        sheet = replace(sheet, batch=batch)
        exact = RuntimeNet(opened_onnx(graph), sheet, b"")
        checks = _compare(net, spec, exact, _batches(sheet), "noise, before int8" if choices.int8 else "noise")
        _judge(checks, LEAST_AGREEMENT, MOST_DIFFERENCE)
        shown = _inputs(images, sheet, progress)
        if choices.int8:
            graph = to_int8(graph, shown)
        if choices.format == "openvino":
            to_openvino(graph, folder, Path(FILES["openvino"][0]).stem)
        else:
            with disk_trouble(out / FILES["onnx"][0]):
                (folder / FILES["onnx"][0]).write_bytes(graph)
        write_json(folder / SHEET, sheet.as_json([]))
        checks += _checked_again(net, spec, folder, sheet, images)
        write_json(folder / SHEET, sheet.as_json([asdict(check) for check in checks]))
        size = sum((folder / name).stat().st_size for name in FILES[choices.format])
    return Exported(out, sheet, size, tuple(checks))


def _checked_again(net: Segmenter, spec: ModelSpec, folder: Path, sheet: Sheet, images: Sequence[Path]) -> list[Check]:
    """The finished folder, opened as a user opens it, on noise where that says something, and on the images."""
    written = load_export(folder)
    checks: list[Check] = []
    if sheet.format != "onnx" and not sheet.int8:
        checks += _compare(net, spec, written, _batches(sheet), f"noise, {sheet.format}")
    seen = [torch.from_numpy(image) for image in _inputs(images, sheet, silent)]
    checks += _compare(net, spec, written, seen, "images")
    if sheet.int8:  # noise is nothing that its ranges were measured for
        mean = float(np.mean([check.agreement for check in checks]))
        if mean < LEAST_INT8_AGREEMENT:
            raise ExportError(
                f"In int8 only {mean:.1%} of the pixels keep their class (at least {LEAST_INT8_AGREEMENT:.0%} must). "
                "Nothing was written. Calibrate on more images that look like what it will see, or leave --int8 out."
            )
    else:
        _judge(checks, LEAST_AGREEMENT, MOST_DIFFERENCE)
    return checks


def _sheet(net: Segmenter, spec: ModelSpec, choices: Choices) -> Sheet:
    if choices.format not in FORMATS:
        raise unknown_name("format", choices.format, FORMATS)
    if choices.dynamic and choices.size is not None:
        raise UsageError("A model for any size has no --size: give --dynamic or --size, not both.")
    size = None if choices.dynamic else _size(spec, choices)
    least = min(size) if size is not None else fitting(least_side(net), spec.multiple)
    return Sheet(format=choices.format, spec=spec, size=size, least=least, batch=None, int8=choices.int8, opset=OPSET)


def _size(spec: ModelSpec, choices: Choices) -> tuple[int, int]:
    """The one size asked for; or that of the first image; or a square of the shorter side."""
    size = choices.size
    if size is None and choices.images:
        size = prepare(read_image(choices.images[0]), spec).scaled[0].shape[1:]  # type: ignore[assignment]
    if size is None and spec.short_side is not None:
        size = (spec.short_side, spec.short_side)
    if size is None:
        raise UsageError("This model knows no size of its own: give --size HEIGHTxWIDTH, --images, or --dynamic.")
    if min(size) < 1:
        raise UsageError(f"A size of {size[0]}×{size[1]} is none.")
    return nearest_multiple(size[0], spec.multiple), nearest_multiple(size[1], spec.multiple)


def _evenly(images: Sequence[Path]) -> list[Path]:
    count = min(len(images), CALIBRATION_IMAGES)
    return [images[i * len(images) // count] for i in range(count)]


def _inputs(images: Sequence[Path], sheet: Sheet, progress: Progress) -> Iterator[NDArray[np.float32]]:
    """(1, C, H, W) of each image as the graph is handed it, one at a time."""
    facts = sheet.facts()
    for done, path in enumerate(images, 1):
        try:
            prepared = prepare(read_image(path), facts).scaled[0][None]
        except DataError as error:
            raise type(error)(f"{path}: {error.what}", remedy=error.remedy, kind=error.kind) from error
        size = [nearest_multiple(side, facts.multiple) for side in prepared.shape[-2:]]
        if sheet.size is not None and tuple(size) != sheet.size:
            raise UsageError(
                f"{path} would be asked about at {size[0]}×{size[1]}, the model is made for "
                f"{sheet.size[0]}×{sheet.size[1]}. Give images of one shape, or --dynamic."
            )
        yield resize(prepared, size).contiguous().numpy()
        progress(done, len(images))


def _batches(sheet: Sheet) -> list[Tensor]:
    """Noise in other numbers and sizes than the graph was traced with, as far as it takes them."""
    rng = torch.Generator().manual_seed(0)
    channels, multiple = sheet.spec.in_channels, sheet.spec.multiple
    if sheet.size is not None:
        return [torch.rand(3, channels, *sheet.size, generator=rng)]
    sizes = [[max(sheet.least, fitting(side, multiple)) for side in sides] for sides in CHECKED]
    return [torch.rand(images, channels, *sides, generator=rng) for images, sides in zip((3, 1), sizes, strict=True)]


def _compare(net: Segmenter, spec: ModelSpec, written: RuntimeNet, batches: Sequence[Tensor], what: str) -> list[Check]:
    """The runtime's answers beside those of the network itself."""
    net = net.cpu()
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (spec.mean, spec.std))
    checks = []
    for images in batches:
        with torch.inference_mode(), answering(net):
            truth = net((images - mean) / std)
        said = written(images)
        agreement = (said.argmax(1) == truth.argmax(1)).double().mean()
        # A difference of NaN is NaN, and no tolerance lets it through.
        difference = (said - truth).abs().max() / max(1.0, float(truth.abs().max()))
        checks.append(Check(what, tuple(images.shape), float(difference), float(agreement)))  # type: ignore[arg-type]
    return checks


def _judge(checks: Sequence[Check], agreement: float, difference: float) -> None:
    for check in checks:
        if not (check.max_difference <= difference and check.agreement >= agreement):
            raise ExportError(
                f"The exported model does not answer as the network does: on {check.what} of {check.shape} its scores "
                f"differ by up to {check.max_difference:.2g} and {check.agreement:.2%} of the pixels agree. Nothing "
                "was written. Try another --format, or a fixed --size instead of --dynamic; and tell us."
            )


def _refuse_taken(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty. Choose another --out, or remove it.")


@contextmanager
def _whole_or_not(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name at the end, and is gone where the end is not reached."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name[:40]}.", suffix=".part"))
    try:
        yield folder
        folder.chmod(0o755)
        folder.replace(out)  # an empty folder of that name may be there
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
