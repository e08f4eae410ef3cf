"""SemiVL: words, CLIP's guidance and its decay, what learns, and what a run that goes on need not have any more."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from round_kits import batch_at, same, small_kit, state
from torch import Tensor, nn

import ftcseg.methods.semivl as file
from ftcseg.errors import UsageError
from ftcseg.methods import METHODS
from ftcseg.methods.kit import Kit
from ftcseg.methods.semivl import SemiVL, SemiVLParams, build_semivl
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.encoders.clip import ClipEncoder, embed_texts
from ftcseg.nets.heads.vlg import VLGHead
from ftcseg.teaching.guide import Guide, Words, guided_loss, prompts_of
from ftcseg.types import ClassInfo, ClassTable, Clock, PseudoLabels
from tiny_clip import save_clip

HALF_WAY = Clock(step=5, total=10)
CLASSES = ClassTable(
    (
        ClassInfo(0, "background", background=True, prompts=("sea floor", "sand", "mud")),
        ClassInfo(1, "wall"),
        ClassInfo(2, "tire", prompts=("a tire",)),
    )
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clip(tmp_path_factory.mktemp("clip"))


def kit_with(encoder: str, head: str = "vlg", *, weights: str | None = "default", resumed: bool = False) -> Kit:
    torch.manual_seed(0)
    net, _ = build_model(encoder, head, 3, head_features=8, weights=weights)
    return replace(small_kit(steps=10), net=net, classes=CLASSES, resumed=resumed)


# Words


def test_prompts_are_as_written_or_a_photo_of_the_name() -> None:
    assert prompts_of(CLASSES) == [("sea floor", "sand", "mud"), ("a photo of a wall",), ("a tire",)]


def test_a_class_nobody_named_is_refused() -> None:
    table = ClassTable((ClassInfo(0, "sand"), ClassInfo(1, "class-1")))
    with pytest.raises(UsageError, match=r"Class 1 has no name and no prompts.*dataset\.yaml"):
        prompts_of(table)


def test_a_class_is_the_mean_of_its_texts() -> None:
    words = Words(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
    assert words.by_class.tolist() == [[0.5, 0.5], [0.0, 1.0]]


# Guidance


class Echo(Encoder):
    """An encoder whose deepest map is the image."""

    channels, multiple, text_width = (2, 2, 2, 2), 1, 2

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = (mean, mean), (std, std)

    def forward(self, images: Tensor) -> list[Tensor]:
        return [images] * 4

    def blocks(self) -> list[nn.Module]:
        return []


def test_a_class_is_as_likely_as_its_likeliest_text() -> None:
    # Texts (1, 0) and (0.6, 0.8) of class 0, (0, 1) of class 1. A pixel (0, 2): cosines 0, 0.8 and 1; one (2, 0): 1,
    # 0.6 and 0. Times 100.
    words = Words(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
    guide = Guide(Echo(0.0, 1.0), words, Echo(0.0, 1.0))
    pixels = torch.tensor([[0.0, 2.0], [2.0, 0.0]]).T.reshape(1, 2, 1, 2)
    assert guide(pixels)[0, :, 0].T.flatten().tolist() == pytest.approx([80, 100, 100, 0])


def test_images_are_normalised_anew_for_clip() -> None:
    # The student gets (x - 0.5) / 0.25; CLIP wants (x - 0.4) / 0.2. What the student sees as 1 is 0.75, to CLIP 1.75.
    guide = Guide(Echo(0.4, 0.2), Words(torch.eye(2), torch.tensor([0, 1])), Echo(0.5, 0.25))
    seen = torch.tensor(1.0) * guide.scale + guide.shift
    assert seen.flatten().tolist() == pytest.approx([1.75, 1.75])


def test_what_clip_is_unsure_of_weighs_nothing() -> None:
    # Four pixels at ln 2 each; CLIP is sure enough of two, one of which is padding: one of four counts.
    said = PseudoLabels(
        torch.zeros(1, 1, 4, dtype=torch.long),
        torch.tensor([[[0.95, 0.9, 0.89, 0.2]]]),
        torch.tensor([[[True, False, True, True]]]),
    )
    (loss,) = guided_loss([torch.zeros(1, 2, 1, 4)], [said], threshold=0.9)
    assert float(loss) == pytest.approx(math.log(2) / 4)


@pytest.mark.parametrize(("step", "weight"), [(0, 0.1), (5, 0.05), (9, 0.01)])
def test_guidance_fades_in_a_line(step: int, weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    method = build_semivl(kit_with("tiny", "fusion", weights=None), SemiVLParams()).train()
    monkeypatch.setattr(method, "_guided", lambda *_: torch.tensor(2.0))
    result = method.step(batch_at(0, method.views), Clock(step, 10))
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert parts["unsup"] == pytest.approx((parts["strong"] + parts["features"]) / 2 + weight * 2.0, rel=1e-5)
    assert float(result.loss.detach()) == pytest.approx((parts["sup"] + parts["unsup"]) / 2, rel=1e-5)


def test_clips_labels_are_mixed_as_the_views_are(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = build_semivl(kit_with(clip), SemiVLParams()).train()
    assert method.guide is not None
    seen: list[PseudoLabels] = []
    monkeypatch.setattr(
        file, "guided_loss", lambda streams, targets, _: (seen.extend(targets), [s.mean() for s in streams])[1]
    )
    batch = batch_at(0, method.views)
    assert batch.unlabeled is not None
    method.step(batch, HALF_WAY)
    whole = method.guide(batch.unlabeled.weak).max(1).indices
    half = whole.shape[-1] // 2  # the boxes: the left half of each image is the other's
    assert torch.equal(seen[2].labels, whole)
    for mixed in seen[:2]:
        assert torch.equal(mixed.labels[:, :, :half], whole.flip(0)[:, :, :half])
        assert torch.equal(mixed.labels[:, :, half:], whole[:, :, half:])


# The whole


def test_without_language_it_is_unimatch() -> None:
    losses = []
    for name in ("semivl", "unimatch-v1"):
        entry = METHODS[name]
        method = entry.build(small_kit(steps=10), entry.params()).train()
        losses.append(float(method.step(batch_at(0, method.views), HALF_WAY).loss.detach()))
    assert losses[0] == losses[1]


def test_a_head_without_words_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"params\.clip=hub:openai/clip-vit-base-patch16.*model\.head=fusion"):
        build_semivl(kit_with("tiny", weights=None), SemiVLParams())
    with pytest.raises(UsageError, match=r"config\.json"):
        build_semivl(kit_with("tiny", weights=None), SemiVLParams(clip="nowhere/clip"))


def test_over_clip_attention_learns_and_clip_itself_stands_still(clip: str) -> None:
    method = build_semivl(kit_with(clip), SemiVLParams()).train()
    student, guide = method.pupil.student, method.guide
    assert isinstance(student.head, VLGHead)
    assert guide is not None
    texts = embed_texts(clip, ["sea floor", "sand", "mud", "a photo of a wall", "a tire"])
    torch.testing.assert_close(guide.texts, texts)
    assert guide.owner.tolist() == [0, 0, 0, 1, 2]
    torch.testing.assert_close(student.head.words[0], nn.functional.normalize(texts[:3].mean(0), dim=0))
    before = state(guide)
    result = method.step(batch_at(0, method.views), HALF_WAY)
    result.loss.backward()
    learning = {name for name, p in student.encoder.named_parameters() if p.grad is not None}
    assert learning
    assert all("attention" in name or "position_embedding" in name for name in learning)
    assert all(p.grad is None for p in guide.parameters())
    assert same(before, state(guide))
    assert method.teachers() == [guide]
    assert not any(module.training for module in guide.encoder.modules())
    everything = build_semivl(kit_with(clip), SemiVLParams(finetune="all")).pupil.student.encoder
    assert everything.get_parameter("layers.0.mlp.fc1.weight").requires_grad


def test_over_another_encoder_its_maps_are_projected_to_the_width_of_text(tmp_path: Path) -> None:
    place = save_clip(tmp_path, text_width=512)
    method = build_semivl(kit_with("tiny", weights=None), SemiVLParams(clip=place)).train()
    assert isinstance(method.guide, Guide)
    assert isinstance(method.guide.encoder.net, ClipEncoder)
    result = method.step(batch_at(0, method.views), HALF_WAY)
    result.loss.backward()
    assert bool(result.loss.isfinite())
    assert method.pupil.student.head.get_parameter("project.weight").grad is not None
    # 12 numbers a text do not fit the 512 that this head compares.
    with pytest.raises(UsageError, match="compares 512 numbers"):
        build_semivl(kit_with("tiny", weights=None), SemiVLParams(clip=save_clip(tmp_path / "small")))


def test_a_run_that_goes_on_needs_no_text_model(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_semivl(kit_with(clip), SemiVLParams()).train()

    def gone(*_: object) -> Tensor:
        raise AssertionError("the words are in the checkpoint")

    monkeypatch.setattr(file, "embed_texts", gone)
    second = build_semivl(kit_with(clip, weights=None, resumed=True), SemiVLParams(clip=clip)).train()
    second.load_state_dict(state(first))
    losses = [float(m.step(batch_at(0, m.views), HALF_WAY).loss.detach()) for m in (first, second)]
    assert losses[0] == losses[1]


def test_another_crop_of_the_same_image_is_labelled_by_clip_too(clip: str) -> None:
    method = build_semivl(kit_with(clip), SemiVLParams(partner="same_image")).train()
    assert method.views.partner
    batch = batch_at(0, method.views)
    assert batch.unlabeled is not None
    other = batch_at(1, method.views).unlabeled
    batch = replace(batch, unlabeled=replace(batch.unlabeled, partner=other))
    assert bool(method.step(batch, HALF_WAY).loss.isfinite())


def test_grey_images(clip: str) -> None:
    torch.manual_seed(0)
    net, _ = build_model(clip, "vlg", 3, head_features=8, in_channels=1)
    kit = replace(small_kit(steps=10), net=net, classes=CLASSES)
    method = build_semivl(kit, SemiVLParams()).train()
    assert isinstance(method, SemiVL)
    assert method.guide is not None
    assert method.guide(torch.randn(1, 1, 20, 30)).shape == (1, 3, 20, 30)
