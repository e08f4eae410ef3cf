"""An exported model that answers like a network, so that whatever asks networks can ask it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.export.graphs import library
from ftcseg.export.sheet import FILES, INPUT, SHEET, Sheet, read_sheet
from ftcseg.nets.folder import ModelError

Floats: TypeAlias = NDArray[np.float32]
Run: TypeAlias = Callable[[Floats], Floats]
_CHUNK = 2**20


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
    source = model if isinstance(model, bytes) else str(model)
    session = _opened(
        model, lambda: runtime.InferenceSession(source, sess_options=options, providers=["CPUExecutionProvider"])
    )

    def run(images: Floats) -> Floats:
        answer: Floats = session.run(None, {INPUT: images})[0]
        return answer

    return run


def opened_openvino(path: Path) -> Run:
    """An OpenVINO model on the CPU, on as many threads as torch has, in full precision."""
    openvino = library("openvino")
    hints = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    compiled = _opened(path, lambda: openvino.Core().compile_model(str(path), "CPU", hints))
    request = compiled.create_infer_request()

    def run(images: Floats) -> Floats:
        answer: Floats = request.infer([images])[0].copy()  # the request writes its next answer to the same place
        return answer

    return run


def _opened(model: Path | bytes, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # runtimes raise kinds of their own for a damaged file
        name = "The graph" if isinstance(model, bytes) else str(model)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name} cannot be opened ({reason}).", remedy="Copy or export it again.") from error
