"""From names to a network: `build_model("dinov2-small", "dpt", 11)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftcseg.nets.heads import Head, head_named
from ftcseg.nets.heads.fusion import LIGHT_FEATURES, RESNET_FEATURES
from ftcseg.nets.heads.vlg import VLGHead
from ftcseg.nets.opr import OPRParams, OPRStack
from ftcseg.nets.segmenter import Segmenter

if TYPE_CHECKING:
    from ftcseg.nets.encoders.base import Trainable
    from ftcseg.nets.weights import WeightsReport

BOTTLENECK_WIDTH = 2048  # the deepest stage of ResNet-50 and larger


def build_model(  # noqa: PLR0913  the way in: each choice has a name
    encoder: str = "dinov2-small",
    head: str = "dpt",
    num_classes: int = 11,
    *,
    opr_layers: int | None = None,
    opr: OPRParams | None = None,
    weights: str | Path | None = None,
    in_channels: int = 3,
    encoder_mode: Trainable = "full",
    head_features: int | None = None,
    checkpointing: bool = False,
) -> tuple[Segmenter, WeightsReport]:
    """A network, and what became of its weights file.

    `weights` are the encoder's, as in `build_encoder`: «default» for the published ones, None to start at random. The
    deeplab head asks for output stride 16 where the encoder can give it (ResNets), which its rates are made for.

    `opr` is a reading of OPR (the paper's where only `opr_layers` is given); `opr_layers` overrides its number of
    stages, 0 is a network without OPR. The head of a head_wide reading is wide even then, as in the released code, so
    that the two can be compared.

    `checkpointing` lets the encoder's blocks run twice instead of keeping what they computed: the same network and the
    same weights from less memory and in more time.

    Heads and prototypes start at random from torch's global generator: seed it for a network that can be made again.
    """
    from ftcseg.nets.encoders.base import set_trainable  # read only when a network is wanted
    from ftcseg.nets.encoders.build import FAMILIES, build_encoder
    from ftcseg.nets.encoders.table import ENCODERS

    head_named(head)  # a misspelt head must not cost a download first
    reading = opr or OPRParams(layers=0)
    if opr_layers is not None:
        reading = replace(reading, layers=opr_layers)
    can_dilate = encoder in ENCODERS and "dilate_last" in FAMILIES[ENCODERS[encoder].family].options
    dilate = head == "deeplab" and can_dilate
    backbone, report = build_encoder(
        encoder, in_channels=in_channels, weights=weights, dilate_last=dilate, checkpointing=checkpointing
    )
    set_trainable(backbone, encoder_mode)
    wide = backbone.channels[-1] if reading.asks_classes and reading.gate_head == "head_wide" else None
    text = backbone.text_width
    top = build_head(head, backbone.channels, num_classes, features=head_features, wide=wide, text=text)
    stack = OPRStack(backbone.channels, num_classes, reading) if reading.layers else None
    return Segmenter(backbone, top, stack, num_classes), report


def build_head(
    name: str,
    channels: Sequence[int],
    num_classes: int,
    *,
    features: int | None = None,
    wide: int | None = None,
    text: int | None = None,
) -> Head:
    """The head of that name for an encoder of these widths; «dpt» on convolutional stages is its fusion head.

    `text` is the encoder's `text_width`, for the head that reads language.
    """
    make = head_named(name)
    if name == "dpt" and len(set(channels)) > 1:
        make = head_named("fusion")
    if make is head_named("fusion") and features is None:
        features = RESNET_FEATURES if channels[-1] >= BOTTLENECK_WIDTH else LIGHT_FEATURES
    if make is VLGHead:
        return VLGHead(channels, num_classes, features=features, wide=wide, text=text)
    return make(channels, num_classes, features=features, wide=wide)
