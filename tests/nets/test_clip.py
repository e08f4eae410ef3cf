"""CLIP as an encoder, CLIP's words, and the decoder that compares the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ftcseg.errors import FetchError, UsageError
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders import build_encoder, set_trainable
from ftcseg.nets.encoders.clip import CLIP_MEAN, ClipEncoder, embed_texts
from ftcseg.nets.folder import ModelSpec, load_model, save_model
from ftcseg.nets.heads.vlg import ClassAttention, VLGHead
from ftcseg.nets.weights import WeightsError
from ftcseg.types import ClassTable
from tiny_clip import PATCH, WIDTH, save_clip, transformers


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def encoder(folder: str) -> ClipEncoder:
    built, report = build_encoder(folder)
    assert isinstance(built, ClipEncoder)
    assert len(report.matched) > 60
    assert not report.missing
    return built


# The encoder


def test_maps_of_blocks_and_a_dense_one_as_wide_as_text(encoder: ClipEncoder) -> None:
    maps = encoder(torch.randn(2, 3, 2 * PATCH, 3 * PATCH))
    assert [tuple(m.shape) for m in maps] == [(2, WIDTH, 2, 3)] * 3 + [(2, 12, 2, 3)]
    assert encoder.channels == (WIDTH, WIDTH, WIDTH, 12)
    assert (encoder.multiple, encoder.text_width) == (PATCH, 12)
    assert encoder.mean == CLIP_MEAN
    with pytest.raises(UsageError, match="multiples of 8"):
        encoder(torch.randn(1, 3, 20, 20))


def test_blocks_are_read_after_a_third_and_two_thirds(tmp_path: Path) -> None:
    taps = {}
    for layers in (3, 4, 12):
        built, _ = build_encoder(save_clip(tmp_path / str(layers), layers=layers), weights=None)
        assert isinstance(built, ClipEncoder)
        taps[layers] = built.taps
    assert taps == {3: (0, 1, 1), 4: (0, 1, 2), 12: (0, 4, 8)}  # SemiVL reads blocks 0 and 4 of 12
    with pytest.raises(UsageError, match="2 layers"):
        build_encoder(save_clip(tmp_path / "2", layers=2))


@torch.no_grad()
def test_blocks_answer_as_transformers_does(encoder: ClipEncoder, folder: str) -> None:
    theirs = transformers.CLIPVisionModelWithProjection.from_pretrained(folder).eval()
    images = torch.randn(1, 3, 32, 32)
    hidden = theirs(images, output_hidden_states=True).hidden_states  # before the first block, and after each
    for own, state in zip(encoder.eval()(images), (hidden[1], hidden[2], hidden[3]), strict=False):
        torch.testing.assert_close(own.flatten(2), state[:, 1:].transpose(1, 2), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_in_the_last_block_every_place_listens_to_itself_alone(encoder: ClipEncoder, folder: str) -> None:
    # An attention whose softmax is the identity: value, output projection, MLP, norm, projection, at every place.
    theirs = transformers.CLIPVisionModelWithProjection.from_pretrained(folder).eval()
    images = torch.randn(1, 3, 32, 32)
    x = theirs(images, output_hidden_states=True).hidden_states[3]
    layer = theirs.vision_model.encoder.layers[3]
    x = x + layer.self_attn.out_proj(layer.self_attn.v_proj(layer.layer_norm1(x)))
    x = x + layer.mlp(layer.layer_norm2(x))
    expected = theirs.visual_projection(theirs.vision_model.post_layernorm(x))[:, 1:]
    torch.testing.assert_close(encoder.eval()(images)[-1].flatten(2).transpose(1, 2), expected, rtol=1e-3, atol=1e-4)


def test_every_parameter_belongs_to_a_block_and_the_unused_rest(encoder: ClipEncoder) -> None:
    in_blocks = [id(p) for block in encoder.blocks() for p in block.parameters()]
    assert sorted(in_blocks) == sorted(id(p) for p in encoder.parameters())
    sum(m.square().sum() for m in encoder(torch.randn(1, 3, 16, 16))).backward()
    assert {name for name, p in encoder.named_parameters() if p.grad is None} == set(encoder.unused)
    set_trainable(encoder, 2)
    assert [any(p.requires_grad for p in block.parameters()) for block in encoder.blocks()] == [False] * 3 + [True] * 2


def test_spatial_fine_tuning_trains_attention_and_positions(encoder: ClipEncoder) -> None:
    encoder.train_attention_only()
    trained = {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert "embeddings.position_embedding.weight" in trained
    assert all("attention" in name or "position_embedding" in name for name in trained)
    assert "layers.0.attention.q_proj.weight" in trained
    assert not trained & set(encoder.unused)


def test_other_channels_and_checkpointing(folder: str) -> None:
    rgb, _ = build_encoder(folder)
    grey, report = build_encoder(folder, in_channels=1, checkpointing=True)
    assert len(report.reshaped) == len(grey.mean) == 1
    picture = torch.randn(1, 1, 16, 16)
    for own, other in zip(grey.train()(picture), rgb(picture.repeat(1, 3, 1, 1)), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)
    with pytest.raises(UsageError, match="no drop_path"):
        build_encoder(folder, drop_path=0.1)


# Words


def test_a_text_is_what_transformers_makes_of_it(folder: str) -> None:
    texts = ["a photo of a tire", "rope"]
    ours = embed_texts(folder, texts)
    assert ours.shape == (2, 12)
    assert ours.norm(dim=1).tolist() == pytest.approx([1, 1])
    tokens = transformers.CLIPTokenizer.from_pretrained(folder)(texts[1], return_tensors="pt")
    with torch.no_grad():
        alone = transformers.CLIPTextModelWithProjection.from_pretrained(folder).eval()(**tokens).text_embeds
    torch.testing.assert_close(ours[1:], nn.functional.normalize(alone), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(ours[0], ours[1])


def test_a_text_that_is_too_long_is_named(folder: str) -> None:
    with pytest.raises(UsageError, match=r"'a photo.*' is longer than the 32 tokens"):
        embed_texts(folder, ["a photo of a very very very very long rope"])


def test_a_clip_without_words_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(save_clip(tmp_path))
    transformers.CLIPVisionModelWithProjection.from_pretrained(place).save_pretrained(place)
    with pytest.raises((WeightsError, UsageError), match=r"words of|no text model"):
        embed_texts(str(place), ["tire"])
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FetchError, match=r"huggingface\.co/nobody/nothing"):
        embed_texts("hub:nobody/nothing", ["tire"])


# The decoder


def words_head(text: int | None = 2) -> VLGHead:
    torch.manual_seed(0)
    return VLGHead((4, 4, 4, 2), 3, features=8, text=text)


def maps() -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(2, width, 3, 5, generator=rng) for width in (4, 4, 4, 2)]


def test_similarity_is_the_cosine_of_pixel_and_words() -> None:
    # Words (1, 0), (0, 1), (3, 4); a pixel (4, 3) of length 5: cosines 0.8, 0.6 and (12 + 12) / 25 = 0.96.
    head = words_head()
    head.set_words(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
    found = head.similarity(torch.tensor([4.0, 3.0]).view(1, 2, 1, 1))
    assert found.flatten().tolist() == pytest.approx([0.8, 0.6, 0.96])


def test_the_decoder_by_its_parts() -> None:
    # The paper's widths: 128 a class, up to 64 with 32 skip channels and to 32 with 16.
    head = VLGHead((768, 768, 768, 512), 5, text=512)
    assert (head.look.out_channels, head.look.kernel_size) == (128, (7, 7))
    widths = [(up.up.out_channels, up.skip.out_channels) for up in head.ups]  # type: ignore[union-attr]
    assert widths == [(64, 32), (32, 16)]
    assert [(layer.heads) for layer in head.attention] == [4, 4]
    assert isinstance(head.project, nn.Identity)
    other = VLGHead((256, 512, 1024, 2048), 5)
    assert isinstance(other.project, nn.Conv2d)
    assert other.project.out_channels == 512
    assert list(VLGHead((4, 4, 4, 2), 3, features=8, text=2)(maps()).shape) == [2, 3, 12, 20]


def test_classes_are_told_apart_by_their_words_alone() -> None:
    # All weights are shared by the classes: exchanging the words of two classes exchanges their scores.
    head = words_head()
    before = head(maps())
    head.set_words(head.words[[1, 0, 2]].clone())
    torch.testing.assert_close(head(maps()), before[:, [1, 0, 2]], rtol=1e-4, atol=1e-5)


def test_classes_look_at_each_other_at_their_own_place_only() -> None:
    torch.manual_seed(0)
    layer, words = ClassAttention(8), torch.randn(3, 8)
    before = torch.randn(1, 3, 8, 8, 8)
    after = before.clone()
    after[:, 1, :4, :4, :4] += 1  # one class, in the first of four coarse cells; a norm forgets what all channels share
    moved = (layer(after, words) - layer(before, words)).abs().amax(2)[0] > 1e-6  # (class, h, w)
    assert bool(moved[0, :4, :4].any())  # another class noticed
    assert not moved[0, 7, 7]  # but not in the far cell, beyond what resizing spreads


def test_words_of_another_width_are_refused() -> None:
    with pytest.raises(UsageError, match=r"compares 2 numbers a pixel for 3 classes.*5 numbers"):
        words_head().set_words(torch.ones(3, 5))


def test_gradients_reach_the_encoder_but_not_the_words(folder: str) -> None:
    model, _ = build_model(folder, "vlg", 3, head_features=8)
    assert isinstance(model.head, VLGHead)
    assert "head.words" in dict(model.named_buffers())
    model(torch.randn(1, 3, 30, 41)).square().mean().backward()
    assert model.encoder.get_parameter("last.attention.v_proj.weight").grad is not None


def test_a_saved_model_knows_its_words_without_clips_text_model(folder: str, tmp_path: Path) -> None:
    model, _ = build_model(folder, "vlg", 2, head_features=8)
    assert isinstance(model.head, VLGHead)
    model.head.set_words(embed_texts(folder, ["tire", "rope"]))
    spec: dict[str, Any] = {"encoder": folder, "head": "vlg", "head_features": 8, "multiple": PATCH}
    classes = ClassTable.named("background", "rope")
    save_model(tmp_path, model, ModelSpec(classes=classes, mean=(0.5,) * 3, std=(0.5,) * 3, **spec))
    loaded, _ = load_model(tmp_path, hub=True)
    images = torch.randn(1, 3, 16, 24)
    torch.testing.assert_close(loaded(images), model.eval()(images))
