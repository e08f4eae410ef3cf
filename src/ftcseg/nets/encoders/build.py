"""From the name of an encoder to the encoder, with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ftcseg.errors import UsageError, unknown_name
from ftcseg.nets.encoders import clip, dinov2, efficientnet_lite, hub, mit, resnet, tiny
from ftcseg.nets.encoders.base import RGB, Encoder, Options, StrideIn, fit_input
from ftcseg.nets.encoders.table import ENCODERS
from ftcseg.nets.encoders.table import Family as FamilyName
from ftcseg.nets.recompute import recompute_blocks
from ftcseg.nets.weights import KeyMap, WeightsReport, load_weights


@dataclass(frozen=True, slots=True)
class Family:
    """How encoders of one architecture are made and which options they can follow."""

    build: Callable[[str, Options], Encoder]
    keys: KeyMap
    options: frozenset[str] = frozenset()


FAMILIES: Mapping[FamilyName, Family] = {
    "dinov2": Family(dinov2.build, dinov2.KEYS, frozenset({"drop_path"})),
    "resnet": Family(resnet.build, resnet.KEYS, frozenset({"dilate_last", "resnet_stride"})),
    "mit": Family(mit.build, mit.KEYS, frozenset({"drop_path"})),
    "efficientnet-lite": Family(efficientnet_lite.build, efficientnet_lite.KEYS, frozenset({"drop_path"})),
    "tiny": Family(tiny.build, KeyMap()),
}

CHOICES = ("dilate_last", "drop_path", "resnet_stride")


def build_encoder(  # noqa: PLR0913 - each is a choice of the user's
    name: str,
    *,
    in_channels: int = RGB,
    weights: str | Path | None = "default",
    dilate_last: bool = False,
    drop_path: float = 0.0,
    resnet_stride: StrideIn | None = None,
    checkpointing: bool = False,
) -> tuple[Encoder, WeightsReport]:
    """An encoder by name with a report on its weights.

    `name` is one of ENCODERS, "hub:owner/name", or a folder with a transformers model. `weights` is "default" for the
    published ones, a source as in `weights.py`, or None to start at random. `dilate_last` gives a ResNet output stride
    16; `resnet_stride` says where its weights step, otherwise told from their file name (`resnet.stride_named`).
    `checkpointing` trades time for memory (`recompute.py`).
    """
    if in_channels < 1 or not 0 <= drop_path < 1:
        raise UsageError(f"in_channels must be at least 1 and drop_path in [0, 1); got {in_channels} and {drop_path}.")
    options = Options(
        in_channels=in_channels,
        dilate_last=dilate_last,
        drop_path=drop_path,
        resnet_stride=resnet_stride,
    )
    if hub.is_foreign(name):
        if clip.is_clip(name):
            _refuse(name, options, frozenset())
            spoken, report = clip.build(name, weights, options)
            if checkpointing:
                recompute_blocks(spoken)
            return spoken, report
        _refuse(name, options, frozenset({"drop_path"}))
        foreign, report = hub.build(name, weights, options)
        if checkpointing:
            hub.recompute_layers(foreign, name)
        return foreign, report
    if name not in ENCODERS:
        raise unknown_name("encoder", name, ENCODERS)
    family = FAMILIES[ENCODERS[name].family]
    _refuse(name, options, family.options)
    source = ENCODERS[name].weights if weights == "default" else weights
    if resnet_stride is None and source is not None:
        options = replace(options, resnet_stride=resnet.stride_named(Path(source).name))
    encoder = family.build(name, options)
    if checkpointing:
        recompute_blocks(encoder)
    if source is None:
        return encoder, WeightsReport("no weights")
    keys = replace(family.keys, reshapes={**family.keys.reshapes, encoder.input_weight: fit_input})
    return encoder, load_weights(encoder, source, keys)


def _refuse(name: str, options: Options, able: frozenset[str]) -> None:
    """Stop at an option the encoder could only ignore."""
    for choice in CHOICES:
        if getattr(options, choice) and choice not in able:
            others = [other for other, info in ENCODERS.items() if choice in FAMILIES[info.family].options]
            raise UsageError(f"{name} has no {choice}. Leave it out, or choose one that has: {', '.join(others)}.")
