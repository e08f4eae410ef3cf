from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.nets.heads import HEADS, DeepLabHead, DPTHead, FusionHead, Head, MLPHead, head_named
from ftcseg.nets.heads.base import BatchNorm, resize
from ftcseg.nets.heads.dpt import DPT_SIZES, dpt_size

VIT = (8, 8, 8, 8)
STAGES = (4, 6, 8, 10)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def make(name: str, num_classes: int = 3) -> Head:
    torch.manual_seed(0)
    return HEADS[name](VIT if name == "dpt" else STAGES, num_classes, features=8)


def maps_for(name: str, images: int = 2, rows: int = 4, cols: int = 6) -> list[Tensor]:
    """ViT maps of one size, or stages of strides 4, 8, 16, 32 where (rows, cols) is the deepest."""
    rng = torch.Generator().manual_seed(0)
    if name == "dpt":
        return [torch.randn(images, width, rows, cols, generator=rng) for width in VIT]
    scales = (8, 4, 2, 1)
    return [torch.randn(images, c, s * rows, s * cols, generator=rng) for c, s in zip(STAGES, scales, strict=True)]


# Golden counts: encoder 22,056,576 + head = 24,794,987 at 11 classes


def test_dpt_has_the_papers_parameters() -> None:
    assert count(DPTHead((384,) * 4, 11)) == 2_738_411
    assert count(DPTHead((384,) * 4, 12)) == 2_738_411 + 65
    assert 22_056_576 + count(DPTHead((384,) * 4, 11, wide=384)) == 24_983_147


def test_dpt_parts_by_hand() -> None:
    head = DPTHead((384,) * 4, 11)
    assert count(head.project) == 385 * (48 + 96 + 192 + 384)
    assert count(head.pyramid) == (48 * 48 * 16 + 48) + (96 * 96 * 4 + 96) + (384 * 384 * 9 + 384)
    unit = 2 * (64 * 64 * 9 + 64)
    assert count(head.fusion) == 9 * 64 * (48 + 96 + 192 + 384) + 4 * (2 * unit + 64 * 64 + 64)
    assert count(head.hidden) == 64 * 64 * 9 + 64
    assert count(head.classifier) == 64 * 11 + 11


def test_dpt_sizes_by_encoder_width() -> None:
    assert dpt_size(384) == DPT_SIZES[384] == (64, (48, 96, 192, 384))
    assert dpt_size(768) == (128, (96, 192, 384, 768))
    assert dpt_size(1024) == (256, (256, 512, 1024, 1024))
    assert dpt_size(192) == (32, (24, 48, 96, 192))


def test_fusion_for_resnet_101_by_hand() -> None:
    widths = (256, 512, 1024, 2048)
    project = sum(c * c + c for c in widths)
    blocks = 4 * (4 * (256 * 256 * 9 + 256) + 256 * 256 + 256)
    output = 256 * 256 * 9 + 256 + 256 * 11 + 11
    with torch.device("meta"):
        head = FusionHead(widths, 11, features=256)
    assert count(head) == project + 9 * 256 * sum(widths) + blocks + output


def test_deeplab_by_hand() -> None:
    def conv_norm(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel**2 + 2 * outputs

    aspp = 2 * conv_norm(2048, 256, 1) + 3 * conv_norm(2048, 256, 3) + conv_norm(5 * 256, 256, 1)
    rest = conv_norm(256, 48, 1) + conv_norm(304, 256, 3) + conv_norm(256, 256, 3) + 256 * 21 + 21
    with torch.device("meta"):
        assert count(DeepLabHead((256, 512, 1024, 2048), 21)) == aspp + rest


def test_deeplab_looks_six_twelve_and_eighteen_cells_away() -> None:
    head = DeepLabHead(STAGES, 3, features=8)
    dilations = [m.dilation for m in head.aspp.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert dilations == [(6, 6), (12, 12), (18, 18)]


def test_mlp_by_hand() -> None:
    widths = (64, 128, 320, 512)  # MiT-B2
    expected = sum(c * 256 + 256 for c in widths) + 4 * 256 * 256 + 2 * 256 + 256 * 150 + 150
    assert count(MLPHead(widths, 150)) == expected


# Shapes


@pytest.mark.parametrize(
    ("name", "size"),
    [("dpt", (32, 48)), ("fusion", (64, 96)), ("deeplab", (32, 48)), ("mlp", (32, 48)), ("vlg", (16, 24))],
)
def test_logits_come_at_the_heads_own_size(name: str, size: tuple[int, int]) -> None:
    assert make(name)(maps_for(name)).shape == (2, 3, *size)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("num_classes", [2, 40])
def test_one_image_trains_with_any_number_of_classes(name: str, num_classes: int) -> None:
    head = make(name, num_classes).train()
    logits = head(maps_for(name, images=1, rows=3, cols=5))
    logits.square().mean().backward()
    assert logits.shape[1] == num_classes == head.classifier.out_channels
    assert head.classifier.weight.grad is not None


@pytest.mark.parametrize("name", HEADS)
def test_the_smallest_maps_train(name: str) -> None:
    assert make(name).train()(maps_for(name, images=1, rows=1, cols=1)).isfinite().all()


@pytest.mark.parametrize("name", ["fusion", "deeplab", "mlp"])
def test_stages_of_odd_sizes_fit(name: str) -> None:
    # 161x239 at strides 4, 8, 16, 32, rounded up
    maps = [torch.randn(1, c, -(-161 // s), -(-239 // s)) for c, s in zip(STAGES, (4, 8, 16, 32), strict=True)]
    assert make(name)(maps).isfinite().all()


@pytest.mark.parametrize("name", HEADS)
def test_a_wide_head_gives_its_classifier_more_channels(name: str) -> None:
    head = HEADS[name](VIT if name == "dpt" else STAGES, 3, features=8, wide=10)
    assert head.classifier.in_channels == 10
    assert head(maps_for(name)).shape[1] == 3
    vectors = torch.randn(5, 10)
    expected = head.classifier(vectors[:, :, None, None])[:, :, 0, 0]
    assert torch.allclose(head.classify(vectors), expected, atol=1e-6)


# What trains


@pytest.mark.parametrize("name", HEADS)
def test_everything_that_asks_for_gradients_gets_them(name: str) -> None:
    head = make(name).train()
    head(maps_for(name)).square().mean().backward()
    assert [n for n, p in head.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize("name", ["dpt", "fusion"])
def test_only_the_deepest_skip_unit_is_unused(name: str) -> None:
    resting = {n for n, p in make(name).named_parameters() if not p.requires_grad}
    assert resting == {f"fusion.blocks.3.skip.convs.{i}.{kind}" for i in (1, 3) for kind in ("weight", "bias")}


@pytest.mark.parametrize("name", ["dpt", "fusion"])
def test_train_and_eval_are_the_same_function(name: str) -> None:
    head = make(name)
    assert torch.equal(head.train()(maps_for(name)), head.eval()(maps_for(name)))


@pytest.mark.parametrize("name", HEADS)
def test_every_level_a_head_reads_matters(name: str) -> None:
    head = make(name).eval()
    maps = [x.requires_grad_(True) for x in maps_for(name)]
    head(maps).square().mean().backward()
    read = [x.grad is not None and bool(x.grad.abs().sum() > 0) for x in maps]
    some = {"deeplab": [True, False, False, True], "vlg": [True, True, False, True]}
    assert read == some.get(name, [True] * 4)


# One value per channel


def test_batch_norm_of_one_value_uses_running_statistics() -> None:
    norm = BatchNorm(2).train()
    norm.running_mean = torch.tensor([1.0, 2.0])
    norm.running_var = torch.tensor([4.0, 1.0])
    out = norm(torch.tensor([5.0, 2.0]).reshape(1, 2, 1, 1))
    assert out.flatten().tolist() == pytest.approx([2, 0], abs=1e-4)  # (5 - 1) / 2, (2 - 2) / 1
    assert norm.running_mean.tolist() == [1, 2]


def test_batch_norm_of_more_values_is_torchs() -> None:
    ours, torchs = BatchNorm(3).train(), nn.BatchNorm2d(3).train()
    x = torch.randn(2, 3, 1, 1)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.state_dict()["running_mean"], torchs.state_dict()["running_mean"])


# Asking a head about vectors


def test_a_head_with_batch_norm_refuses_made_up_questions() -> None:
    for name in ("deeplab", "mlp"):
        with pytest.raises(UsageError, match="probe"):
            make(name).answer(torch.randn(2, 10), level=3)


@pytest.mark.parametrize("name", ["dpt", "fusion"])
@pytest.mark.parametrize("level", range(4))
def test_an_answer_depends_on_its_own_vector_only(name: str, level: int) -> None:
    head = make(name)
    vectors = torch.randn(5, head.channels[level])
    together = head.answer(vectors, level)
    assert together.shape == (5, 3)
    assert torch.allclose(together[2:3], head.answer(vectors[2:3], level), atol=1e-6)


# Names and sizes


def test_unknown_heads_are_named_with_their_neighbours() -> None:
    with pytest.raises(UsageError, match="deeplab"):
        head_named("deplab")
    assert head_named("mlp") is MLPHead


def test_dpt_refuses_stages_of_different_widths() -> None:
    with pytest.raises(UsageError, match="fusion"):
        DPTHead(STAGES, 3)


def test_one_class_is_no_segmentation() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        MLPHead(STAGES, 1)


def test_resize_aligns_corners() -> None:
    row = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2)
    assert resize(row, (1, 3)).flatten().tolist() == [0, 0.5, 1]
    assert resize(row, (1, 2)) is row
