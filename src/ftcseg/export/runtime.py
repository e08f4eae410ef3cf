"""An exported model that answers like a network, so that whatever asks networks can ask it.

A folder from a stranger is looked at before a runtime sees it: a graph that wants numbers from other files, and a file
that is of another kind than its name says, are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import ParseError

import numpy as np
import torch
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse
from numpy.typing import NDArray
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.export.graphs import library
from ftcseg.export.sheet import FILES, INPUT, SHEET, Sheet, read_sheet
from ftcseg.nets.folder import ModelError

Floats: TypeAlias = NDArray[np.float32]
Run: TypeAlias = Callable[[Floats], Floats]
_CHUNK = 2**20
MAX_GRAPH_BYTES = 2**31 - 1
"""What fits into one ONNX file, which is a protocol buffer; ours keep their weights in it."""
MAX_XML_BYTES = 2**28
_NO_EXTENSION = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Whose operators ONNX Runtime itself computes on a CPU; any other name asks for a library of somebody else."""


class RuntimeNet(nn.Module):
    """Images (B, C, H, W) from 0 to 1 in, logits (B, num_classes, H, W) out, computed by another program's runtime.

    Its one buffer is a hash of the files, so that `fingerprint` tells two models apart.
    """

    def __init__(self, run: Run, sheet: Sheet, digest: bytes) -> None:
        super().__init__()
        self.run, self.sheet = run, sheet
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))

    def forward(self, images: Tensor) -> Tensor:
        """Logits at the images' size; a size that the graph was not made for is a UsageError."""
        height, width = images.shape[-2:]
        size, least = self.sheet.size, self.sheet.least
        if size is not None and (height, width) != size:
            raise UsageError(
                f"This exported model reads images of {size[0]}×{size[1]} (height × width) alone; one would be asked "
                f"about at {height}×{width}. Export it with --dynamic, or with --size {height}x{width}."
            )
        if size is None and min(height, width) < least:
            raise UsageError(
                f"An image would be asked about at {height}×{width}; this exported model wants sides of {least} or "
                "more. Take the run itself, or a larger window or scale."
            )
        array = np.ascontiguousarray(images.detach().cpu().numpy(), dtype=np.float32)
        step = self.sheet.batch or len(array)
        # A graph for so many images takes no fewer; those we write take any number, or one.
        answers = [self.run(array[start : start + step]) for start in range(0, len(array), step)]
        return torch.from_numpy(answers[0] if len(answers) == 1 else np.concatenate(answers)).to(images.device)


def is_export(folder: Path) -> bool:
    """Whether a folder holds an exported model."""
    return (folder / SHEET).is_file()


def load_export(folder: Path) -> RuntimeNet:
    """The model of a folder that `export` wrote, ready to be asked."""
    sheet = read_sheet(folder)
    digest = hashlib.sha256()
    for name in FILES[sheet.format]:
        path = folder / name
        if not path.is_file():
            raise ModelError(f"{folder} holds no {name}.", remedy="Copy the whole folder again.")
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    path = folder / FILES[sheet.format][0]
    opened = opened_onnx if sheet.format == "onnx" else opened_openvino
    return RuntimeNet(opened(path), sheet, digest.digest())


def opened_onnx(model: Path | bytes) -> Run:
    """An ONNX model in ONNX Runtime, on as many threads as torch has."""
    runtime = library("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; it warns of every constant that it leaves unfolded
    source = model if isinstance(model, bytes) else _own_graph(model)  # what was looked at is what is opened
    session = _opened(
        model, lambda: runtime.InferenceSession(source, sess_options=options, providers=["CPUExecutionProvider"])
    )

    def run(images: Floats) -> Floats:
        answer: Floats = session.run(None, {INPUT: images})[0]
        return answer

    return run


def opened_openvino(path: Path) -> Run:
    """An OpenVINO model on the CPU, on as many threads as torch has, in full precision."""
    _require_own_xml(path)
    openvino = library("openvino")
    hints = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    weights = path.with_suffix(".bin")

    def make() -> Any:
        core = openvino.Core()
        return core.compile_model(core.read_model(str(path), str(weights)), "CPU", hints)

    compiled = _opened(path, make)
    request = compiled.create_infer_request()

    def run(images: Floats) -> Floats:
        answer: Floats = request.infer([images])[0].copy()  # the request writes its next answer to the same place
        return answer

    return run


def _own_graph(path: Path) -> bytes:
    """The bytes of an ONNX file that holds all it needs; a ModelError for any other."""
    if path.stat().st_size > MAX_GRAPH_BYTES:
        raise ModelError(f"{path} is larger than any ONNX file.", remedy="Is it the right file?")
    onnx, content = library("onnx"), path.read_bytes()
    try:
        graph = onnx.ModelProto.FromString(content)
    except Exception as error:  # of the library's own kind
        raise ModelError(
            f"{path} cannot be opened: it is no ONNX file, or damaged.", remedy="Copy or export it again."
        ) from error
    for part in _parts_of(graph):
        if isinstance(part, onnx.TensorProto) and (part.external_data or part.data_location == part.EXTERNAL):
            raise ModelError(
                f"{path} takes numbers from another file ({part.name!r:.40}); it was not opened.",
                remedy="Save it with its weights inside, or export it with ftcseg.",
            )
        if isinstance(part, onnx.NodeProto) and not _is_known(part.domain, graph):
            raise ModelError(
                f"{path} wants an operator of {part.domain!r:.40}, which would need a library of its own.",
                remedy="Export the model with ftcseg.",
            )
    return content


def _is_known(domain: str, graph: Any) -> bool:
    """Whether a runtime computes it itself, or the file says how."""
    return domain in _NO_EXTENSION or any(function.domain == domain for function in graph.functions)


def _parts_of(message: Any) -> Iterator[Any]:
    """Every message in a protocol buffer, itself first; one list instead of calls, as graphs may lie in graphs."""
    waiting = [message]
    while waiting:
        found = waiting.pop()
        yield found
        for field, value in found.ListFields():
            if field.message_type is not None:
                waiting.extend(value if isinstance(value, list) or hasattr(value, "__len__") else [value])


def _require_own_xml(path: Path) -> None:
    """Refuse what is no OpenVINO model in XML, since the runtime guesses kinds by content and reads many."""
    if path.stat().st_size > MAX_XML_BYTES:
        raise ModelError(f"{path} is too large to describe a model.", remedy="Is it the right file?")
    try:
        root = ""
        with path.open("rb") as file:
            for _, element in iterparse(file, events=("start",), forbid_dtd=True):
                root = root or element.tag
                element.clear()
    except (ParseError, DefusedXmlException, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no plain XML ({error}).", remedy="Copy or export it again.") from error
    if root != "net":
        raise ModelError(f"{path} describes no OpenVINO model: it begins with «{root[:40]}».", remedy="Export again.")


def _opened(model: Path | bytes, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # runtimes raise kinds of their own for a damaged file
        name = "The graph" if isinstance(model, bytes) else str(model)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name} cannot be opened ({reason}).", remedy="Copy or export it again.") from error
