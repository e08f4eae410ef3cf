"""int8 by post-training calibration: ranges of activations are measured on the user's images, weights are rounded.

Only products with weights become int8 (convolutions, linear layers), per channel; attention, norms, resizing and the
positions of tokens stay as they are. So does the first sixth of the products: rounding errors made there grow on their
way through all that follows. Activations are unsigned, the form that processors of today multiply fastest. Weights keep
to seven bits: processors without instructions of their own for it (VNNI) add two products in sixteen bits, where those
of eight bits overflow, and the same file would answer worse there than where it was made.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftcseg.export.graphs import library
from ftcseg.export.sheet import INPUT
from ftcseg.files import disk_trouble

OPERATORS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
EXACT = Fraction(1, 6)
"""Share of the products that stays exact, the first ones; chosen by `scripts/trials/int8_layers.py`."""


class _Images:
    """What the calibrator pulls its images from."""

    def __init__(self, images: Iterable[NDArray[np.float32]]) -> None:
        self._images: Iterator[NDArray[np.float32]] = iter(images)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """One image, or None behind the last one."""
        image = next(self._images, None)
        return None if image is None else {INPUT: image}


def to_int8(graph: bytes, images: Iterable[NDArray[np.float32]]) -> bytes:
    """The graph in int8 (QDQ), its ranges those that these (1, C, H, W) images reach."""
    quantization: Any = library("onnxruntime.quantization")
    shape_inference: Any = library("onnxruntime.quantization.shape_inference")
    with tempfile.TemporaryDirectory() as place, disk_trouble(Path(place) / "graph"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact, clean, rounded = (Path(place) / f"{name}.onnx" for name in ("exact", "clean", "rounded"))
        exact.write_bytes(graph)
        shape_inference.quant_pre_process(str(exact), str(clean), skip_symbolic_shape=True)
        kind = quantization.QuantType
        products = _products(clean)
        quantization.quantize_static(
            str(clean),
            str(rounded),
            _Images(images),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=products[: math.ceil(EXACT * len(products))],
            per_channel=True,
            activation_type=kind.QUInt8,
            weight_type=kind.QInt8,
            reduce_range=True,
            extra_options={"MatMulConstBOnly": True},
        )
        return rounded.read_bytes()


def _products(file: Path) -> list[str]:
    """Names of the nodes that multiply with weights, in the order in which they compute."""
    graph = library("onnx").load(str(file)).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [node.name for node in graph.node if node.op_type in OPERATORS and weights & set(node.input)]
