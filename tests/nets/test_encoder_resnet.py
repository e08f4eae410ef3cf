from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from ftcseg.nets.encoders import build_encoder
from ftcseg.nets.encoders.base import Encoder, Options, StrideIn
from ftcseg.nets.encoders.resnet import Basic, Bottleneck, ResNet, stride_named

SHARED = Path(__file__).parents[3] / "shared"
WEIGHTS = Path(os.environ.get("FTCSEG_WEIGHTS", SHARED / "weights")) / "resnet50-v1-imagenet.safetensors"
PHOTOS = sorted((SHARED / "data" / "suim_sample" / "test" / "images").glob("*.jpg"))
needs_weights = pytest.mark.skipif(not WEIGHTS.is_file(), reason=f"the real ResNet-50 is not here ({WEIGHTS})")


def shallow(block: type[Basic | Bottleneck], stride: StrideIn, *, dilate_last: bool = False) -> ResNet:
    torch.manual_seed(0)
    encoder = ResNet((1, 1, 1, 2), block, Options(resnet_stride=stride, dilate_last=dilate_last)).eval()
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: no two channels alike
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
    return encoder


@pytest.mark.parametrize("side", [96, 97, 129])
@pytest.mark.parametrize(("block", "stride"), [(Basic, "3x3"), (Bottleneck, "1x1"), (Bottleneck, "3x3")])
@torch.no_grad()
def test_a_dilated_stage_sees_what_the_strided_one_saw(block: type[Basic], stride: StrideIn, side: int) -> None:
    images = torch.randn(1, 3, side, 96)
    strided = shallow(block, stride)(images)
    dilated = shallow(block, stride, dilate_last=True)(images)
    assert dilated[3].shape[-2:] == dilated[2].shape[-2:]
    torch.testing.assert_close(dilated[3][..., ::2, ::2], strided[3], rtol=1e-4, atol=1e-5)


def test_the_stride_sits_where_it_is_asked_to() -> None:
    first, second = shallow(Bottleneck, "1x1").layer2[0], shallow(Bottleneck, "3x3").layer2[0]
    assert (first.conv1.stride, first.conv2.stride) == ((2, 2), (1, 1))
    assert (second.conv1.stride, second.conv2.stride) == ((1, 1), (2, 2))


@pytest.mark.parametrize(
    ("file", "stride"),
    [
        ("resnet50-v1-imagenet.safetensors", "1x1"),
        ("ResNet101_V1.pth", "1x1"),
        ("resnet50_v1.5.pth", "3x3"),
        ("resnet50-v1_5.pth", "3x3"),
        ("resnet50-0676ba61.pth", "3x3"),
        ("resnet50.IMAGENET1K_V1.pth", "3x3"),  # torchvision counts training recipes
        ("resnet50-v12.pth", "3x3"),
        ("resnet50.tv_in1k", "3x3"),
    ],
)
def test_the_stride_is_told_from_the_name(file: str, stride: str) -> None:
    assert stride_named(file) == stride


@needs_weights
def test_the_real_resnet_50_loads_to_the_last_key() -> None:
    encoder, report = build_encoder("resnet-50", weights=WEIGHTS)
    assert len(report.matched) == 265
    assert (report.missing, report.unexpected, report.reshaped) == ((), (), ())
    assert encoder.get_parameter("conv1.weight").dtype == torch.float32
    assert encoder.get_submodule("layer2.0.conv1").stride == (2, 2)  # from the v1 in its name


@needs_weights
def test_the_name_of_a_file_can_be_overruled() -> None:
    encoder, _ = build_encoder("resnet-50", weights=WEIGHTS, resnet_stride="3x3")
    assert encoder.get_submodule("layer2.0.conv1").stride == (1, 1)


@needs_weights
def test_one_channel_answers_as_grey_does() -> None:
    grey = torch.randn(1, 1, 32, 32)
    one, report = build_encoder("resnet-50", weights=WEIGHTS, in_channels=1)
    three, _ = build_encoder("resnet-50", weights=WEIGHTS)
    assert report.reshaped == ("conv1.weight",)
    with torch.no_grad():
        torch.testing.assert_close(
            one.get_submodule("conv1")(grey),
            three.get_submodule("conv1")(grey.repeat(1, 3, 1, 1)),
            rtol=1e-4,
            atol=1e-4,
        )


def photos() -> Tensor:
    pixels = [np.asarray(Image.open(file).convert("RGB").resize((192, 192))) for file in PHOTOS[::2]]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255


@torch.no_grad()
def spread(encoder: Encoder) -> float:
    """Variance of what enters the norms relative to what they remember of ImageNet: near 1 in the right network."""
    ratios: list[Tensor] = []

    def compare(norm: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        ratios.append((inputs[0].var((0, 2, 3)) / norm.running_var.clamp(min=1e-5)).median())  # type: ignore[operator]

    for module in encoder.eval().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(compare)
    mean, std = torch.tensor(encoder.mean), torch.tensor(encoder.std)
    encoder((photos() - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))
    return torch.stack(ratios).mean().item()


@needs_weights
@pytest.mark.real_data
@pytest.mark.skipif(not PHOTOS, reason="the SUIM photos are not here")
def test_real_features_are_those_of_a_network_that_steps_in_the_1x1() -> None:
    told = spread(build_encoder("resnet-50", weights=WEIGHTS)[0])
    wrong = spread(build_encoder("resnet-50", weights=WEIGHTS, resnet_stride="3x3")[0])
    assert wrong < 0.75 < told < 1.25
