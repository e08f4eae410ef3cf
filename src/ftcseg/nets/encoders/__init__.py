"""Encoders: an image goes in, four maps come out.

    encoder, report = build_encoder("efficientnet-lite0")

Names are imported when first used: ENCODERS, the list of what there is, must not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ftcseg.nets.encoders.table import ENCODERS, EncoderInfo

if TYPE_CHECKING:
    from ftcseg.nets.encoders.base import Encoder, set_trainable
    from ftcseg.nets.encoders.build import build_encoder

__all__ = ["ENCODERS", "Encoder", "EncoderInfo", "build_encoder", "set_trainable"]

_HOMES = {"Encoder": "base", "set_trainable": "base", "build_encoder": "build"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
