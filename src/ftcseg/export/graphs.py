"""A network as an ONNX graph, and that as an OpenVINO model. The libraries are extras, imported when needed."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ftcseg.errors import FtcsegError, UsageError
from ftcseg.export.plain import PlainNet
from ftcseg.export.sheet import INPUT, OUTPUT
from ftcseg.files import compiler_caches_here
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.heads.vlg import POOL, VLGHead
from ftcseg.nets.segmenter import Segmenter

OPSET = 18
"""Old enough for runtimes that are not of this year."""
SILENCED = "ORT_DISABLE_TELEMETRY"
"""From its import on, ONNX Runtime would keep a name for this machine in the home folder and call a server."""
REPORTER = "openvino_telemetry"
"""The package by which OpenVINO tells a server of every import; where it is missing, OpenVINO does without."""
EXTRAS = {"onnx": "onnx", "onnxscript": "onnx", "onnxruntime": "onnx", "openvino": "openvino"}
"""Library -> the extra of ours that brings it."""
DEEPEST_STRIDE = 32
TRACED = (130, 190)  # pixels a side, or what comes next that fits the encoder: no two maps of them are of one size
MAX_SIDE = 16_384


class ExportError(FtcsegError):
    """A network could not be written, or what was written does not answer as the network does."""


def library(name: str) -> Any:
    """One of the extras' libraries, kept from reporting its use."""
    os.environ[SILENCED] = "1"
    compiler_caches_here()
    try:
        with _hidden(REPORTER):
            return import_module(name)
    except ImportError as error:
        extra = EXTRAS[name.split(".")[0]]
        raise UsageError(f"This needs {name}. Install it with: pip install 'ftcseg[{extra}]'") from error


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """As if a package were not installed."""
    before = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own way to say that there is none
    try:
        yield
    finally:
        del sys.modules[package]
        if isinstance(before, ModuleType):
            sys.modules[package] = before


def least_side(net: Segmenter) -> int:
    """The shortest side that a graph for any size is made for: two cells of the coarsest map, one stage's stride."""
    if isinstance(net.head, VLGHead):  # it pools POOL cells at a time, and fewer where there are fewer
        return POOL * net.encoder.multiple if net.encoder.multiple > 1 else (POOL - 1) * DEEPEST_STRIDE + 1
    return max(DEEPEST_STRIDE, 2 * net.encoder.multiple if net.encoder.multiple < DEEPEST_STRIDE else 0)


def fitting(side: int, multiple: int) -> int:
    """The next multiple."""
    return -(-side // multiple) * multiple


def to_onnx(net: Segmenter, spec: ModelSpec, size: tuple[int, int] | None) -> tuple[bytes, int | None]:
    """The network as ONNX for one (H, W), or for any; and how many images it takes at once, None being any number.

    Written by torch's exporter (torch.export, then ONNX).
    """
    from torch.export import Dim  # slow to import

    for name in ("onnx", "onnxscript"):
        library(name)
    plain = PlainNet(net, spec, size)
    if size is not None:
        return _written(plain, torch.rand(1, spec.in_channels, *size), None, spec), 1
    sides = [fitting(side, spec.multiple) for side in TRACED]
    try:
        images = torch.rand(2, spec.in_channels, *sides)
        return _written(plain, images, {0: Dim.DYNAMIC, **_sides(spec.multiple)}, spec), None
    except ExportError:  # a part that counts its images by Python's own integers
        return _written(plain, images[:1], _sides(spec.multiple), spec), 1


def _sides(multiple: int) -> dict[int, Any]:
    from torch.export import Dim

    if multiple == 1:
        return {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    most = MAX_SIDE // multiple
    return {i + 2: multiple * Dim(name, min=2, max=most) for i, name in enumerate(("rows", "columns"))}


def _written(plain: PlainNet, images: torch.Tensor, free: dict[int, Any] | None, spec: ModelSpec) -> bytes:
    shapes = None if free is None else {"image": free}
    try:
        with _quiet():
            program: Any = torch.onnx.export(
                plain,
                (images,),
                None,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            graph: bytes = _without_traces(program.model_proto).SerializeToString()
    except Exception as error:  # whatever the exporter raises means the same to us
        advice = " Try a fixed size: leave --dynamic out and give --size." if free is not None else ""
        raise ExportError(f"{spec.encoder} with the {spec.head} head cannot be written as ONNX.{advice}") from error
    return graph


def _without_traces(model: Any) -> Any:
    """The model without what the exporter notes of each node: lines and paths of the machine it was written on."""
    for part in (model.graph, *model.functions):
        for noted in (part, *part.node, *part.value_info):
            noted.ClearField("metadata_props")
            noted.ClearField("doc_string")
    for noted in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        noted.ClearField("metadata_props")
    return model


def to_openvino(graph: bytes, folder: Path, name: str) -> None:
    """NAME.xml and NAME.bin in a folder, weights as they are, read by the runtime itself."""
    openvino = library("openvino")
    model = openvino.Core().read_model(graph)
    openvino.save_model(model, str(folder / f"{name}.xml"), compress_to_fp16=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells of operators of libraries that are not there, and of its own future."""
    loud = logging.getLogger("torch.onnx")
    before = loud.level
    loud.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loud.setLevel(before)
