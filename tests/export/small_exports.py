"""Very small networks of every family, which say several classes, so that masks that agree say something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from ftcseg.nets.build import build_model
from ftcseg.nets.encoders.base import Encoder, Options
from ftcseg.nets.encoders.dinov2 import DinoV2
from ftcseg.nets.encoders.dinov2 import Shape as ViTShape
from ftcseg.nets.encoders.efficientnet_lite import EfficientNetLite
from ftcseg.nets.encoders.mit import MiT
from ftcseg.nets.encoders.mit import Shape as MiTShape
from ftcseg.nets.encoders.resnet import Basic, ResNet
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.heads.base import MakeHead
from ftcseg.nets.heads.deeplab import DeepLabHead
from ftcseg.nets.heads.dpt import DPTHead
from ftcseg.nets.heads.fusion import FusionHead
from ftcseg.nets.heads.mlp import MLPHead
from ftcseg.nets.opr import OPRParams, OPRStack
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import ClassInfo, ClassTable

CLASSES = 4
TABLE = ClassTable(tuple(ClassInfo(i, f"class-{i}", background=i == 0) for i in range(CLASSES)))
OPR = OPRParams(layers=2, count=6)


def _parted(encoder: Encoder, head: MakeHead) -> Segmenter:
    stack = OPRStack(encoder.channels, CLASSES, OPR)
    return Segmenter(encoder, head(encoder.channels, CLASSES, features=8), stack, CLASSES)


def _named(encoder: str, head: str, channels: int = 3) -> Segmenter:
    return build_model(encoder, head, CLASSES, opr=OPR, head_features=8, in_channels=channels)[0]


NETS: Mapping[str, Callable[[], Segmenter]] = {
    "tiny-fusion": lambda: _named("tiny", "fusion"),
    "tiny-deeplab": lambda: _named("tiny", "deeplab"),
    "tiny-vlg": lambda: _named("tiny", "vlg"),
    "efficientnet-fusion": lambda: _parted(EfficientNetLite(0.25, 0.25), FusionHead),
    "resnet-deeplab": lambda: _parted(ResNet((1, 1, 1, 1), Basic, Options(dilate_last=True)), DeepLabHead),
    "mit-mlp": lambda: _parted(MiT(MiTShape((8, 16, 20, 32), (1, 1, 1, 1)), Options()), MLPHead),
    "dinov2-dpt": lambda: _parted(DinoV2(ViTShape(24, 4, 2, (0, 1, 2, 3)), Options()), DPTHead),
}


def net_of(kind: str, clip: str | None = None) -> Segmenter:
    """One of NETS, or a CLIP from its folder, always with the same weights."""
    torch.manual_seed(0)
    net = NETS[kind]() if clip is None else _named(clip, "vlg")
    return livened(net)


@torch.no_grad()
def livened(net: Segmenter) -> Segmenter:
    """Classes that differ from place to place, some gates open and some closed, prototypes as long as features."""
    net.eval()
    images = noise(net, (2, *_sides(net)))
    if net.opr is not None:
        for (level, stage), maps in zip(net.opr, [net.features(images)] * len(net.opr.levels), strict=True):
            stage.prototypes.mul_(maps[level].square().sum(1).sqrt().mean())
            assert stage.probe is not None
            torch.nn.init.normal_(stage.probe.weight)
            torch.nn.init.zeros_(stage.probe.bias)  # type: ignore[arg-type]
    logits = net(images)
    spread = logits.std(dim=(0, 2, 3)).clamp(min=1e-6)
    assert net.head.classifier.bias is not None
    net.head.classifier.weight.div_(spread[:, None, None, None])
    net.head.classifier.bias.sub_(logits.mean(dim=(0, 2, 3))).div_(spread)
    assert len(net(images).argmax(1).unique()) == net.num_classes
    return net


def noise(net: Segmenter, shape: tuple[int, int, int], seed: int = 0, grain: float = 0.5) -> Tensor:
    """(images, height, width) of blobs and noise for this network, from 0 to 1; `grain` is the share of the noise."""
    images, height, width = shape
    rng = torch.Generator().manual_seed(seed)
    channels = len(net.encoder.mean)
    coarse = torch.rand(images, channels, 5, 7, generator=rng)
    blobs = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return (1 - grain) * blobs + grain * torch.rand(images, channels, height, width, generator=rng)


def spec_of(net: Segmenter, encoder: str = "tiny", head: str = "fusion", short_side: int | None = None) -> ModelSpec:
    """What a model folder would say of it."""
    encoding = net.encoder
    return ModelSpec(
        encoder=encoder,
        head=head,
        classes=TABLE,
        mean=encoding.mean,
        std=encoding.std,
        head_features=8,
        in_channels=len(encoding.mean),
        opr=None if net.opr is None else asdict(net.opr.params),
        short_side=short_side,
        multiple=encoding.multiple,
    )


def normalised(images: Tensor, spec: ModelSpec) -> Tensor:
    mean, std = (images.new_tensor(values).view(1, -1, 1, 1) for values in (spec.mean, spec.std))
    return (images - mean) / std


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _sides(net: Segmenter) -> tuple[int, int]:
    step = net.encoder.multiple
    return (9 * step, 11 * step) if step > 1 else (130, 190)
