"""The smallest model there is."""

from __future__ import annotations

import torch

from ftcseg.nets.build import build_model
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import ClassTable


def tiny_model() -> tuple[Segmenter, ModelSpec]:
    """A network of three classes and its spec, always with the same weights."""
    torch.manual_seed(0)
    net, _ = build_model("tiny", "fusion", 3, opr=None, in_channels=1, head_features=8)
    spec = ModelSpec(
        encoder="tiny",
        head="fusion",
        head_features=8,
        in_channels=1,
        classes=ClassTable.named("sea", "tire", "net"),
        mean=net.encoder.mean,
        std=net.encoder.std,
        short_side=32,
        multiple=net.encoder.multiple,
    )
    return net, spec
