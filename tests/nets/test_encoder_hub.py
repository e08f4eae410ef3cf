"""Backbones of transformers: made small, saved to a folder, read back. No connection is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ftcseg.errors import FetchError, UsageError
from ftcseg.nets.encoders import build_encoder, set_trainable
from ftcseg.nets.encoders.base import Options
from ftcseg.nets.encoders.dinov2 import KEYS as DINO_KEYS
from ftcseg.nets.encoders.dinov2 import DinoV2
from ftcseg.nets.encoders.dinov2 import Shape as DinoShape
from ftcseg.nets.encoders.mit import KEYS as MIT_KEYS
from ftcseg.nets.encoders.mit import MiT
from ftcseg.nets.encoders.mit import Shape as MitShape
from ftcseg.nets.weights import WeightsError, load_weights

transformers = pytest.importorskip("transformers")

Config = Callable[[], Any]
CONFIGS: dict[str, Config] = {
    "swin": lambda: transformers.SwinConfig(
        embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=4, image_size=64
    ),
    "convnext": lambda: transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "resnet": lambda: transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "dinov2": lambda: transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=8, num_attention_heads=2, image_size=56, patch_size=14
    ),
}


@pytest.fixture(autouse=True)
def _no_bars() -> None:
    transformers.logging.disable_progress_bar()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], str]:
    """A folder with a small random model, published as a classifier is: without the norms of a backbone."""

    def make(kind: str) -> str:
        torch.manual_seed(0)
        transformers.AutoModel.from_config(CONFIGS[kind]()).save_pretrained(tmp_path / kind)
        return str(tmp_path / kind)

    return make


@pytest.mark.parametrize("kind", ["swin", "convnext", "resnet"])
def test_a_staged_backbone_gives_its_four_stages(kind: str, folder: Callable[[str], str]) -> None:
    encoder, report = build_encoder(folder(kind))
    assert encoder.multiple == 32
    with torch.no_grad():
        maps = encoder.eval()(torch.randn(1, 3, 64, 96))
    assert [m.shape[1] for m in maps] == list(encoder.channels)
    assert [tuple(m.shape[-2:]) for m in maps] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert report.matched
    assert all("hidden_states_norms" in key for key in report.missing)


def test_a_vit_gives_four_evenly_spaced_layers(folder: Callable[[str], str]) -> None:
    encoder, report = build_encoder(folder("dinov2"))
    assert encoder.multiple == 14
    assert encoder.get_submodule("backbone").out_indices == [2, 4, 6, 8]
    assert [tuple(m.shape) for m in encoder(torch.randn(1, 3, 28, 42))] == [(1, 16, 2, 3)] * 4
    assert encoder.unused == {"backbone.embeddings.mask_token"}
    assert not report.missing
    with pytest.raises(UsageError, match="28×42"):
        encoder(torch.randn(1, 3, 30, 41))


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_parameter_of_a_backbone_belongs_to_one_block(kind: str, folder: Callable[[str], str]) -> None:
    encoder, _ = build_encoder(folder(kind), weights=None)
    in_blocks = [id(p) for block in encoder.blocks() for p in block.parameters()]
    assert sorted(in_blocks) == sorted(id(p) for p in encoder.parameters())
    assert len(encoder.blocks()) >= 5
    sum(m.square().sum() for m in encoder(torch.randn(2, 3, 448, 448)[..., :224, :224])).backward()
    assert {key for key, p in encoder.named_parameters() if p.grad is None} == set(encoder.unused)


def test_a_frozen_backbone_keeps_its_statistics(folder: Callable[[str], str]) -> None:
    encoder, _ = build_encoder(folder("resnet"))
    set_trainable(encoder, "frozen")
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder.train()(torch.randn(2, 3, 64, 64))
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize("channels", [1, 5])
def test_channels_of_a_backbone(channels: int, folder: Callable[[str], str]) -> None:
    place = folder("convnext")
    rgb, _ = build_encoder(place)
    encoder, report = build_encoder(place, in_channels=channels)
    assert len(report.reshaped) == 1
    picture = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        for a, b in zip(
            encoder.eval()(picture.repeat(1, channels, 1, 1)), rgb.eval()(picture.repeat(1, 3, 1, 1)), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_normalisation_is_the_models_own(folder: Callable[[str], str]) -> None:
    place = folder("resnet")
    assert build_encoder(place, weights=None)[0].mean == (0.485, 0.456, 0.406)
    facts = {
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.2, 0.2],
        "image_processor_type": "ConvNextImageProcessor",
    }
    (Path(place) / "preprocessor_config.json").write_text(json.dumps(facts))
    encoder, _ = build_encoder(place, weights=None)
    assert (encoder.mean, encoder.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))


def test_incomplete_weights_stop(folder: Callable[[str], str], tmp_path: Path) -> None:
    place = Path(folder("resnet"))
    deeper = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1])
    deeper.save_pretrained(place)
    with pytest.raises(WeightsError, match="missing"):
        build_encoder(str(place))


def test_weights_of_a_file_go_into_a_backbone(folder: Callable[[str], str]) -> None:
    place = folder("resnet")
    torch.manual_seed(5)
    encoder, report = build_encoder(place, weights=Path(place) / "model.safetensors")
    own, _ = build_encoder(place)
    assert report.matched
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), own.parameters(), strict=True))


def test_drop_path_and_checkpointing_reach_the_backbone(folder: Callable[[str], str]) -> None:
    encoder, _ = build_encoder(folder("dinov2"), weights=None, drop_path=0.1, checkpointing=True)
    backbone: Any = encoder.get_submodule("backbone")
    assert backbone.config.drop_path_rate == 0.1
    assert backbone.is_gradient_checkpointing
    with pytest.raises(UsageError, match="no drop_path"):
        build_encoder(folder("resnet"), drop_path=0.1)
    with pytest.raises(UsageError, match="cannot trade time for memory: leave checkpointing out"):
        build_encoder(folder("resnet"), checkpointing=True)


def test_a_backbone_that_checkpoints_learns_the_same(folder: Callable[[str], str]) -> None:
    place, images = folder("dinov2"), torch.randn(1, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    plain, saving = (build_encoder(place, checkpointing=checkpointing)[0].train() for checkpointing in (False, True))
    kept: list[list[torch.Tensor]] = []
    for encoder in (plain, saving):
        kept.append([])
        with torch.autograd.graph.saved_tensors_hooks(_into(kept[-1]), lambda tensor: tensor):
            maps = encoder(images)
        sum(m.pow(3).sum() for m in maps).backward()
    assert len(kept[1]) < len(kept[0]) / 2
    for ours, theirs in zip(saving.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def _into(kept: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    return keep


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        build_encoder(str(tmp_path))


def test_a_model_that_is_no_backbone_is_named(tmp_path: Path) -> None:
    transformers.BertConfig(hidden_size=8).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="bert"):
        build_encoder(str(tmp_path))


def test_a_model_that_brings_its_own_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "mine.MineConfig"}})
    )
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    with pytest.raises(UsageError, match="cannot be used"):
        build_encoder(str(tmp_path))
    assert not (tmp_path / "owned").exists()


def test_an_unreachable_hub_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FetchError, match=r"huggingface\.co/nobody/nothing-here.*pass its path"):
        build_encoder("hub:nobody/nothing-here")


@torch.no_grad()
def test_our_dinov2_answers_as_transformers_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.Dinov2Config(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, image_size=518)
    theirs = transformers.Dinov2Model(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    ours = DinoV2(DinoShape(32, 4, 2, (0, 1, 2, 3)), Options()).eval()
    load_weights(ours, tmp_path, DINO_KEYS)
    images = torch.randn(1, 3, 518, 518)  # the grid on which nobody interpolates
    hidden = theirs(images, output_hidden_states=True).hidden_states
    for own, state in zip(ours(images), hidden[1:], strict=True):
        expected = theirs.layernorm(state)[:, 1:].transpose(1, 2).reshape(own.shape)
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_our_mit_answers_as_transformers_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    widths, depths = (8, 16, 40, 64), (1, 2, 1, 1)
    theirs = transformers.SegformerModel(transformers.SegformerConfig(hidden_sizes=widths, depths=depths)).eval()
    theirs.save_pretrained(tmp_path)
    ours = MiT(MitShape(widths, depths), Options()).eval()
    load_weights(ours, tmp_path, MIT_KEYS)
    images = torch.randn(1, 3, 65, 97)
    hidden = theirs(images, output_hidden_states=True).hidden_states
    for own, expected in zip(ours(images), hidden, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("stride", ["1x1", "3x3"])
def test_our_resnet_answers_as_transformers_does(stride: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ResNetConfig(depths=[3, 4, 6, 3], downsample_in_bottleneck=stride == "1x1")
    theirs = transformers.ResNetModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ours, _ = build_encoder("resnet-50", weights=tmp_path, resnet_stride=stride)  # type: ignore[arg-type]
    images = torch.randn(1, 3, 65, 33)
    hidden = theirs(images, output_hidden_states=True).hidden_states
    for own, expected in zip(ours.eval()(images), hidden[1:], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)
