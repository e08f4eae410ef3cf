"""UniMatch V1: three streams, one network, and whose pixels are pasted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import ftcseg.teaching.streams as file
from ftcseg.errors import UsageError
from ftcseg.methods.unimatch_v1 import UniMatchV1, UniMatchV1Params
from ftcseg.teaching.answers import ask_alone
from ftcseg.types import Clock, PseudoLabels
from tiny_methods import LATE, TOTAL, WIDTH, Variant, batch_for, say, weights_of


def method_with(**params: Any) -> UniMatchV1:
    built = Variant("unimatch-v1", params=params).build()
    assert isinstance(built, UniMatchV1)
    return built


def test_half_of_the_unsupervised_loss_is_the_perturbed_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    method, shown = method_with(), []

    def compared(strong: list[Tensor], mixed: list[PseudoLabels]) -> Tensor:
        shown.append(len(strong))
        return torch.tensor(0.4 if len(strong) == 2 else 0.8)

    monkeypatch.setattr(method.pupil, "compare", compared)
    say(method.pupil.student, [0.0, 0.0, 0.0])  # ln 3 for every label
    result = method.step(batch_for(method.views), LATE)
    assert shown == [2, 1]
    # 0.4 is the mean of the strong views, so 0.25 L_s1 + 0.25 L_s2 is 0.2; 0.5 L_fp is 0.4.
    assert float(result.parts["unsup"]) == pytest.approx(0.6)
    assert float(result.loss.detach()) == pytest.approx((math.log(3) + 0.2 + 0.4) / 2, rel=1e-5)


def test_the_perturbation_is_drawn_anew_and_touches_one_stream_alone() -> None:
    found = [method_with().step(batch_for(method_with().views), Clock(step, TOTAL)).parts for step in (20, 21)]
    first, second = ({name: float(part.detach()) for name, part in parts.items()} for parts in found)
    assert first["strong"] == second["strong"]
    assert first["features"] != second["features"]
    still = method_with(drop=0.0).step(batch_for(method_with().views), LATE).parts
    # Nothing silenced: the stream learns what it says itself, so it costs less than when half of it is gone.
    assert float(still["features"].detach()) < first["features"]
    assert float(still["strong"].detach()) == pytest.approx(first["strong"])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The strong views that the network is shown, and the labels they are compared with."""
    noted: dict[str, Any] = {"mixed": []}

    def watched(student: Any, shown: Any, *rest: Any) -> Any:
        noted["strong"] = shown[2]
        return ask_alone(student, shown, *rest)

    def pasted(pseudo: PseudoLabels, other: PseudoLabels, where: Tensor) -> PseudoLabels:
        noted["own"], noted["other"] = pseudo, other
        return original(pseudo, other, where)

    original = file.paste_pseudo
    monkeypatch.setattr(file, "ask_alone", watched)
    monkeypatch.setattr(file, "paste_pseudo", pasted)
    return noted


def test_the_partner_is_the_mirror_place_in_the_batch(seen: dict[str, Any]) -> None:
    method = method_with()
    assert not method.views.partner
    batch = batch_for(method.views, unlabeled=3)
    assert batch.unlabeled is not None
    method.step(batch, LATE)
    half = WIDTH // 2  # boxes: the left half of the first and of the third image
    for shown, view in zip(seen["strong"], batch.unlabeled.strong, strict=True):
        assert torch.equal(shown[0, :, :, :half], view[2, :, :, :half])
        assert torch.equal(shown[0, :, :, half:], view[0, :, :, half:])
        assert torch.equal(shown[1], view[1])
        assert torch.equal(shown[2, :, :, :half], view[0, :, :, :half])
    assert torch.equal(seen["other"].labels, seen["own"].labels.flip(0))


def test_the_partner_may_be_another_crop_of_the_same_image(seen: dict[str, Any]) -> None:
    method = method_with(partner="same_image")
    assert method.views.partner
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    assert batch.unlabeled.partner is not None
    before, modes = weights_of(method), [m.training for m in method.modules()]
    method.pupil.student.eval()
    with torch.no_grad():
        expected = method.pupil.student(batch.unlabeled.partner.weak).argmax(1)
    method.train()
    method.step(batch, LATE)
    half = WIDTH // 2
    for shown, view, other in zip(seen["strong"], batch.unlabeled.strong, batch.unlabeled.partner.strong, strict=True):
        assert torch.equal(shown[0, :, :, :half], other[0, :, :, :half])
        assert torch.equal(shown[0, :, :, half:], view[0, :, :, half:])
    # As the public code does, the partner is labelled in evaluation mode; but the labels were asked for after the
    # step's own forward had moved the statistics.
    assert bool((seen["other"].labels == expected).float().mean() > 0.5)
    assert [m.training for m in method.modules()] == modes
    assert before.keys() == weights_of(method).keys()


def test_shuffled_partners_depend_on_the_step_alone(seen: dict[str, Any]) -> None:
    orders = []
    for step in (20, 21, 20):
        method = method_with(partner="shuffle")
        method.step(batch_for(method.views, unlabeled=5), Clock(step, TOTAL))
        own, other = seen["own"].conf, seen["other"].conf
        orders.append([next(i for i in range(5) if torch.equal(own[i], image)) for image in other])
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == [0, 1, 2, 3, 4]


def test_there_is_one_network() -> None:
    method = method_with()
    assert method.teachers() == []
    assert method.predictors() == {"student": method.pupil.student}
    assert method.labeler() == (method.pupil.student, method.pupil.thresholds)
    before = weights_of(method)
    method.after_update(LATE)
    assert all(torch.equal(before[name], value) for name, value in weights_of(method).items())


def test_a_partner_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="flip, shuffle, same_image"):
        UniMatchV1Params(partner="mirror")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "norms", "times"), [("frozen", "joint", 1), ("full", "joint", 2), ("full", "labeled", 2)]
)
def test_how_often_the_encoder_is_asked(mode: str, norms: str, times: int) -> None:
    method = Variant("unimatch-v1", mode=mode, teaching={"norms": norms}).build()
    assert isinstance(method, UniMatchV1)
    asked: list[int] = []
    method.pupil.student.encoder.register_forward_hook(lambda *_: asked.append(1))
    method.step(batch_for(method.views), LATE)
    assert len(asked) == times


def test_the_streams_are_what_the_network_says_one_by_one() -> None:
    method = method_with().eval()  # without batch statistics it does not matter who goes with whom
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    shown = (batch.labeled.images, batch.unlabeled.weak, list(batch.unlabeled.strong))
    net = method.pupil.student
    said, disturbed = ask_alone(net, shown, lambda maps: [m * 0 for m in maps])
    torch.testing.assert_close(said.labeled, net(batch.labeled.images), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(said.weak, net(batch.unlabeled.weak).detach(), atol=1e-5, rtol=1e-4)
    for mine, view in zip(said.strong, batch.unlabeled.strong, strict=True):
        torch.testing.assert_close(mine, net(view), atol=1e-5, rtol=1e-4)
    assert not said.weak.requires_grad
    torch.testing.assert_close(disturbed[0], disturbed[1])  # nothing is left of either image
