from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ftcseg.errors import UsageError
from ftcseg.nets.build import build_model
from ftcseg.nets.drop import ComplementaryDrop
from ftcseg.nets.encoders.base import Encoder, set_trainable
from ftcseg.nets.heads import HEADS, FusionHead
from ftcseg.nets.opr import OPR_READINGS, OPRParams, OPRStack
from ftcseg.nets.opr_start import start_prototypes
from ftcseg.nets.segmenter import Segmenter, nearest_multiple
from ftcseg.types import IGNORE


class Tokens(Encoder):
    """A stand-in for a ViT: patches of 4, four maps of one size, sides must be multiples of 4."""

    channels = (8, 8, 8, 8)
    multiple = 4

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(in_channels, 8, 4, stride=4)
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(4))

    def forward(self, images: Tensor) -> list[Tensor]:
        assert images.shape[-2] % 4 == images.shape[-1] % 4 == 0
        maps, x = [], self.patches(images)
        for layer in self.layers:
            x = x + layer(x).tanh()
            maps.append(x)
        return maps

    def blocks(self) -> list[nn.Module]:
        return [self.patches, *self.layers]


class Stages(Encoder):
    """A stand-in for a ResNet: strides 4 to 32, any size."""

    channels = (4, 6, 8, 10)

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        widths = (in_channels, *self.channels)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, stride=4 if i == 0 else 2, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            for i, (a, b) in enumerate(zip(widths, self.channels, strict=False))
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        maps, x = [], images
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps

    def blocks(self) -> list[nn.Module]:
        return list(self.stages)


def tiny(
    head: str = "dpt", *, num_classes: int = 3, in_channels: int = 3, wide: int | None = None, **opr: Any
) -> Segmenter:
    torch.manual_seed(0)
    encoder = Tokens(in_channels) if head == "dpt" else Stages(in_channels)
    stack = OPRStack(encoder.channels, num_classes, OPRParams(count=4, **opr)) if opr else None
    return Segmenter(encoder, HEADS[head](encoder.channels, num_classes, features=8, wide=wide), stack, num_classes)


def images(batch: int = 2, channels: int = 3, height: int = 32, width: int = 48) -> Tensor:
    return torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(1))


# Sizes, channels, classes


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("height", "width"), [(32, 48), (161, 239), (33, 31), (1, 5)])
def test_logits_have_the_images_size(head: str, height: int, width: int) -> None:
    model = tiny(head, layers=2).eval()
    assert model(images(1, 3, height, width)).shape == (1, 3, height, width)


@pytest.mark.parametrize("head", HEADS)
def test_decoding_is_embedding_and_then_classifying(head: str) -> None:
    model = tiny(head, layers=2).eval()
    maps = model.features(images(2, 3, 32, 48))
    embedding = model.embed(maps)
    assert embedding.shape[:2] == (2, model.head.classifier.in_channels)
    assert torch.equal(model.classify(embedding, (32, 48)), model.decode(maps, (32, 48)))
    silent = model.embed(maps, lambda features: [f * 0 for f in features])
    assert not torch.equal(silent, embedding)


@pytest.mark.parametrize("num_classes", [2, 40])
@pytest.mark.parametrize("channels", [1, 5])
def test_any_number_of_classes_and_channels(num_classes: int, channels: int) -> None:
    model = tiny(num_classes=num_classes, in_channels=channels, layers=1)
    assert model(images(1, channels)).shape == (1, num_classes, 32, 48)


@pytest.mark.parametrize(
    ("side", "multiple", "fits"),
    [(320, 14, 322), (480, 14, 476), (518, 14, 518), (161, 14, 168), (175, 14, 182), (3, 14, 14), (9, 1, 9)],
)
def test_sides_go_to_the_nearest_multiple(side: int, multiple: int, fits: int) -> None:
    assert nearest_multiple(side, multiple) == fits


def test_a_size_that_fits_is_not_resized() -> None:
    model = tiny()
    direct = F.interpolate(model.head(model.encoder(images())), size=(32, 48), mode="bilinear", align_corners=True)
    assert torch.equal(model(images()), direct)


# Two halves


def test_forward_is_features_then_decode() -> None:
    model, drop = tiny(layers=2), ComplementaryDrop(seed=3)
    halves = model.decode(model.features(images()), (32, 48), drop)
    assert torch.equal(model(images(), perturb=drop), halves)
    assert not torch.equal(model(images()), halves)


def test_perturbation_comes_after_opr() -> None:
    model = tiny(layers=1, gate="none")
    seen: list[Tensor] = []

    def watch(features: list[Tensor]) -> list[Tensor]:
        seen.extend(features)
        return features

    model(images(), perturb=watch)
    raw = model.features(images())
    assert torch.equal(seen[2], raw[2])
    assert not torch.equal(seen[3], raw[3])


def test_student_and_teacher_can_share_a_frozen_encoders_features() -> None:
    student = tiny(layers=1)
    set_trainable(student.encoder, "frozen")
    teacher = copy.deepcopy(student).requires_grad_(False)
    features = student.features(images())
    assert torch.equal(teacher.decode(features, (32, 48)), teacher(images()))
    student.decode(features, (32, 48)).mean().backward()
    assert student.head.classifier.weight.grad is not None


# Gradients


def test_a_frozen_encoder_keeps_no_graph() -> None:
    model = tiny("fusion", layers=1)
    set_trainable(model.encoder, "frozen")
    maps = model.features(images().requires_grad_(True))
    assert all(not x.requires_grad and x.grad_fn is None for x in maps)
    model(images()).mean().backward()
    assert all(p.grad is None for p in model.encoder.parameters())
    assert model.head.classifier.weight.grad is not None


def test_a_frozen_encoder_keeps_its_statistics_in_training() -> None:
    model = tiny("fusion")
    set_trainable(model.encoder, "frozen")
    before = copy.deepcopy(model.encoder.state_dict())
    model.train()(images())
    assert all(torch.equal(before[k], v) for k, v in model.encoder.state_dict().items())


def test_a_trained_encoder_gets_gradients_and_no_grad_is_respected() -> None:
    model = tiny(layers=1)
    model(images()).mean().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    with torch.no_grad():
        assert not model(images()).requires_grad


def test_the_last_blocks_alone_can_learn() -> None:
    model = tiny()
    set_trainable(model.encoder, 1)
    model(images()).mean().backward()
    assert [p.grad is not None for p in model.encoder.parameters()] == [False] * 8 + [True] * 2


def test_the_probe_does_not_bend_the_encoder() -> None:
    model = tiny(layers=2)
    labels = torch.randint(0, 3, (2, 32, 48))
    model.probe_loss(model.features(images()), labels).backward()
    touched = {n.split(".")[0] for n, p in model.named_parameters() if p.grad is not None}
    assert touched == {"opr"}


@pytest.mark.parametrize("gate_head", ["probe", "head_wide", "project"])
@pytest.mark.parametrize("gate", ["hard", "soft", "none"])
def test_every_gate_trains(gate_head: Any, gate: Any) -> None:
    wide = 8 if gate_head == "head_wide" else None
    model = tiny(layers=2, gate_head=gate_head, gate=gate, foreground=(0, 1, 2), wide=wide)
    logits = model(images())
    (logits.square().mean() + 0.01 * model.overlap()).backward()
    assert model.opr is not None
    assert all(stage.prototypes.grad is not None for _, stage in model.opr)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


# What the model says about itself


def test_without_opr_there_is_nothing_to_overlap() -> None:
    model = tiny()
    features = model.features(images())
    assert model.overlap().item() == 0
    assert model.probe_loss(features, torch.zeros(2, 32, 48, dtype=torch.long)).item() == 0
    assert model.diagnostics(features) == []


def test_diagnostics_of_each_stage() -> None:
    model = tiny(layers=2, gate="none")
    shallow, deep = model.diagnostics(model.features(images()))
    assert shallow.open_gates == deep.open_gates == 4
    assert shallow.change > 0
    assert deep.overlap == pytest.approx(0, abs=1e-10)
    assert model.overlap().item() == pytest.approx(0, abs=1e-10)


def test_class_mean_prototypes_start_from_the_models_own_features() -> None:
    model = tiny(layers=1, prototypes="class_mean")
    labels = torch.full((2, 32, 48), IGNORE)
    labels[0], labels[1, :16] = 2, 0
    assert model.opr is not None
    start_prototypes(model.opr, [(model.features(images()), labels)])
    deepest = model.features(images())[3]
    (_, stage), *_ = model.opr
    assert torch.allclose(stage.prototypes[2], deepest[0].mean(dim=(1, 2)), atol=1e-5)
    assert torch.allclose(stage.prototypes[0], deepest[1, :, :4].mean(dim=(1, 2)), atol=1e-5)


def test_state_survives_a_round_trip() -> None:
    model, other = tiny(layers=2), tiny(layers=2)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1.0)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images()), model(images()))


# Built by name


def parameters(**choices: Any) -> int:
    with torch.device("meta"):
        model, _ = build_model("dinov2-small", "dpt", **choices)
    return sum(p.numel() for p in model.parameters())


def test_the_papers_network_has_the_papers_parameters() -> None:
    assert parameters(num_classes=11) == 24_794_987
    assert parameters(num_classes=12) == 24_795_052


@pytest.mark.parametrize("layers", range(5))
def test_each_probe_stage_adds_10379_parameters(layers: int) -> None:
    assert parameters(num_classes=11, opr_layers=layers) == 24_794_987 + layers * 10_379


@pytest.mark.parametrize("layers", range(5))
def test_the_released_network_is_wide_with_and_without_opr(layers: int) -> None:
    # methods.md 1.4: 24.9831, 24.9893, 24.9954, 25.0016, 25.0077 M
    released = OPR_READINGS["released"]
    assert parameters(num_classes=11, opr=released, opr_layers=layers) == 24_983_147 + layers * 6_144


@pytest.mark.parametrize("layers", [0, 1])
def test_the_papers_network_costs_the_papers_multiply_adds(layers: int) -> None:
    with torch.device("meta"):
        model, _ = build_model("dinov2-small", "dpt", num_classes=11, opr_layers=layers)
        image = torch.empty(1, 3, 518, 518)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(image)
    # 39.531 G convolutions and linear layers + 17.298 G attention; a stage of OPR adds 2·16·384·1369 = .01682 G
    # (and 16·384·11 for judging the prototypes)
    assert counter.get_total_flops() / 2e9 == pytest.approx(56.829 + 0.01682 * layers + 0.00007 * layers, abs=6e-4)


def test_dpt_on_convolutional_stages_is_the_fusion_head() -> None:
    with torch.device("meta"):
        light, _ = build_model("efficientnet-lite0", "dpt", 5)
        heavy, _ = build_model("resnet-101", "dpt", 5)
    assert isinstance(light.head, FusionHead)
    assert isinstance(heavy.head, FusionHead)
    assert (light.head.classifier.in_channels, heavy.head.classifier.in_channels) == (64, 256)


def test_deeplab_asks_a_resnet_for_stride_16() -> None:
    model, _ = build_model("resnet-18", "deeplab", 3, head_features=8)
    assert [x.shape[-1] for x in model.features(images(1, 3, 64, 64))] == [16, 8, 4, 4]
    assert model.train()(images(1, 3, 64, 64)).shape == (1, 3, 64, 64)


@pytest.mark.parametrize("head", ["dpt", "fusion", "deeplab", "mlp"])
def test_the_tiny_encoder_takes_every_head(head: str) -> None:
    model, report = build_model("tiny", head, 4, in_channels=5, opr_layers=2, encoder_mode="frozen", head_features=8)
    logits = model.train()(images(1, 5, 161, 239))
    logits.mean().backward()
    assert logits.shape == (1, 4, 161, 239)
    assert not report.matched
    assert all(p.grad is None for p in model.encoder.parameters())


def test_opr_layers_override_the_reading() -> None:
    with torch.device("meta"):
        assert build_model("tiny", "mlp")[0].opr is None
        assert build_model("tiny", "mlp", opr=OPR_READINGS["legacy"], opr_layers=0)[0].opr is None
        model, _ = build_model("tiny", "mlp", opr=OPR_READINGS["legacy"], opr_layers=3)
    assert model.opr is not None
    assert model.opr.levels == (1, 2, 3)
    assert model.opr.params.similarity == "softmax"


def test_head_wide_on_stages_of_different_widths_says_what_to_do() -> None:
    model, _ = build_model("tiny", "dpt", 3, opr=OPR_READINGS["released"], opr_layers=2)
    with pytest.raises(UsageError, match="probe"):
        model(images())
    model, _ = build_model("tiny", "dpt", 3, opr=OPR_READINGS["released"])
    assert model(images()).shape == (2, 3, 32, 48)


def test_unknown_names_are_told_with_their_neighbours() -> None:
    with pytest.raises(UsageError, match="fusion"):
        build_model("tiny", "fuson")
    with pytest.raises(UsageError, match="resnet-18"):
        build_model("resnet18", "dpt")
