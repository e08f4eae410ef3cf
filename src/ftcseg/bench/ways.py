"""The ways a trained network can be asked: by torch, compiled, by ONNX Runtime, by OpenVINO, in 8 bits.

Each takes images (B, C, H, W) from 0 to 1 and gives logits; normalisation is always part of what is timed. What another
runtime runs lies in a folder that `ftcseg export` would write, so that a fresh process can open it as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from ftcseg.evaluate.predictor import answering
from ftcseg.export.make import Choices, export
from ftcseg.export.runtime import is_export, load_export
from ftcseg.export.sheet import Format
from ftcseg.nets.folder import ModelSpec, load_model, save_model
from ftcseg.nets.segmenter import Segmenter

Answer: TypeAlias = Callable[[Tensor], Tensor]
"""(B, C, H, W) images from 0 to 1 -> (B, num_classes, H, W) logits."""

EAGER, COMPILED, WITHOUT_OPR = "eager", "compiled", "onnx-without-opr"


@dataclass(frozen=True, slots=True)
class Way:
    """One way, and how a user gets it."""

    line: str
    format: Format | None = None
    """None is torch itself."""
    int8: bool = False
    opr: bool = True
    compiled: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it computes the same network in the same precision."""
        return not self.int8 and self.opr


WAYS: Mapping[str, Way] = {
    EAGER: Way("torch as it is: what «ftcseg predict RUN» does"),
    COMPILED: Way("the whole network through torch.compile", compiled=True),
    "onnx": Way("«ftcseg export --format onnx», by ONNX Runtime", "onnx"),
    "openvino": Way("«ftcseg export --format openvino», by OpenVINO", "openvino"),
    "onnx-int8": Way("the same in 8 bits, by ONNX Runtime", "onnx", int8=True),
    "openvino-int8": Way("the same in 8 bits, by OpenVINO", "openvino", int8=True),
    WITHOUT_OPR: Way("the ONNX model of the same network without OPR: what OPR costs", "onnx", opr=False),
}


def written(
    way: Way, net: Segmenter, spec: ModelSpec, size: tuple[int, int], images: Sequence[Path], folder: Path
) -> Path:
    """The folder that this way is opened from, made."""
    if not way.opr:
        net = copy.deepcopy(net)
        net.opr = None
        spec = replace(spec, opr=None)
    if way.format is None:
        if not (folder / "config.json").is_file():
            save_model(folder, net, spec)
        return folder
    chosen = Choices(format=way.format, int8=way.int8, size=size, images=tuple(images) if way.int8 else ())
    return export(net, spec, folder, chosen).folder


def opened(way: Way, folder: Path) -> Answer:
    """The way, ready to be asked; a compiled one compiles when it is asked first."""
    if is_export(folder):
        return cast("Answer", load_export(folder))
    net, spec = load_model(folder)
    placed: nn.Module = _Normalised(net, spec).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    placed.eval()
    if way.compiled:
        placed.compile()

    @torch.inference_mode()
    def answer(images: Tensor) -> Tensor:
        with answering(placed):
            said: Tensor = placed(images)
        return said

    return answer


class _Normalised(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, net: Segmenter, spec: ModelSpec) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(spec.mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(spec.std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net((images - self.mean) / self.std)
        return logits
