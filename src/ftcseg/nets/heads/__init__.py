"""Feature maps to logits. `HEADS` names them; `head_named` finds one or says which names are near."""

from __future__ import annotations

from collections.abc import Mapping

from ftcseg.errors import unknown_name
from ftcseg.nets.heads.base import Head, MakeHead
from ftcseg.nets.heads.deeplab import DeepLabHead
from ftcseg.nets.heads.dpt import DPTHead
from ftcseg.nets.heads.fusion import FusionHead
from ftcseg.nets.heads.mlp import MLPHead
from ftcseg.nets.heads.vlg import VLGHead

HEADS: Mapping[str, MakeHead] = {
    "dpt": DPTHead,
    "fusion": FusionHead,
    "deeplab": DeepLabHead,
    "mlp": MLPHead,
    "vlg": VLGHead,
}


def head_named(name: str) -> MakeHead:
    """`head_named("dpt")`."""
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    return HEADS[name]


__all__ = ["HEADS", "DPTHead", "DeepLabHead", "FusionHead", "Head", "MLPHead", "MakeHead", "VLGHead", "head_named"]
