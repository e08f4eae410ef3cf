"""Student, teacher and threshold: who is asked, who moves what, and the losses by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ftcseg.losses.pixel import Normaliser, pixel_loss
from ftcseg.nets.build import build_model
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.answers import Answers, ask, ask_labeled
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.types import Clock, Labeled, PseudoLabels, Unlabeled

LN2, LN43 = math.log(2), math.log(4 / 3)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def net(head: str = "fusion", *, layers: int = 0, mode: Any = "full") -> Segmenter:
    torch.manual_seed(0)
    opr = OPRParams(layers=layers, count=4)
    return build_model("tiny", head, 2, opr=opr, encoder_mode=mode, head_features=8)[0].train()


def pair(tau: float = 0.5, **teaching: Any) -> Pair:
    return Pair(net(), Fixed(2, tau), TeachingParams(**teaching))


def images(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 32, 48, generator=torch.Generator().manual_seed(seed))


# The unsupervised loss

# Four pixels. The student is torn about the first three (cross-entropy ln 2) and gives the last 3/4 (ln 4/3).
LOGITS = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, math.log(3)]]).view(1, 2, 1, 4)
# The teacher calls three of them class 0, of which it doubts one, and the last class 1.
PSEUDO = PseudoLabels(
    torch.tensor([0, 0, 0, 1]).view(1, 1, 4),
    torch.tensor([0.9, 0.9, 0.4, 0.9]).view(1, 1, 4),
    torch.ones(1, 1, 4, dtype=torch.bool),
)


@pytest.mark.parametrize(
    ("balance", "normaliser", "expected"),
    [
        ("none", "valid", (2 * LN2 + LN43) / 4),
        ("none", "kept", (2 * LN2 + LN43) / 3),
        ("none", "hw", (2 * LN2 + LN43) / 4),
        ("class", "valid", (2 * LN2 / 3 + LN43) / 2),  # two of the three pixels called 0; the one called 1; their mean
        ("class", "kept", (LN2 + LN43) / 2),
        ("class", "hw", (2 * LN2 / 3 + LN43) / 2),  # classes have no height and width: as valid
    ],
)
def test_the_unsupervised_loss_by_hand(balance: str, normaliser: Normaliser, expected: float) -> None:
    loss = pair(balance=balance, normaliser=normaliser).compare([LOGITS], [PSEUDO])
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_views_are_averaged_and_padding_is_no_pixel() -> None:
    padded = PseudoLabels(PSEUDO.labels, PSEUDO.conf, torch.tensor([True, True, False, False]).view(1, 1, 4))
    # The second view keeps two pixels of two valid ones: ln 2.
    loss = pair().compare([LOGITS, LOGITS], [PSEUDO, padded])
    assert float(loss) == pytest.approx(((2 * LN2 + LN43) / 4 + LN2) / 2, rel=1e-5)


@pytest.mark.parametrize("balance", ["none", "class"])
def test_nothing_kept_costs_nothing_and_keeps_its_graph(balance: str) -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = pair(tau=0.99, balance=balance).compare([logits], [PSEUDO])
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())


# Everything summed


@pytest.mark.parametrize(("step", "weight"), [(9, 2.0), (10, 2 * math.exp(-5)), (15, 2 * math.exp(-1.25)), (20, 2.0)])
def test_the_unsupervised_weight_fades_in_after_the_burn_in(step: int, weight: float) -> None:
    trained = pair(unsup_weight=2.0, burn_in=10 if step > 9 else 0, ramp=10 if step > 9 else 0)
    labeled = Labeled(images(1), torch.zeros(1, 1, 4, dtype=torch.int64), ("a",))
    said = Answers(LOGITS, [LOGITS], LOGITS, [])
    result = trained.conclude(said, labeled, PSEUDO, torch.tensor(0.3), Clock(step=step, total=100))
    # All four labels are 0; the last pixel gives it 1/4: ln 4.
    sup = (3 * LN2 + math.log(4)) / 4
    assert float(result.parts["sup"]) == pytest.approx(sup, rel=1e-5)
    assert float(result.loss) == pytest.approx((sup + weight * 0.3) / 2, rel=1e-5)
    assert result.pseudo is not None
    assert result.pseudo.seen.tolist() == [3, 1]
    assert result.pseudo.kept.tolist() == [2, 1]
    assert result.pseudo.conf.tolist() == pytest.approx([2.2, 0.9])


def test_the_teacher_is_the_student_then_the_mean_of_two_then_slower() -> None:
    trained = pair(ema=0.6, burn_in=2)
    weight, slow = trained.student.head.classifier.bias, trained.teacher.net.head.classifier.bias  # type: ignore[union-attr]
    path = []
    for step in range(6):
        with torch.no_grad():
            weight.fill_(float(step))
        trained.follow(Clock(step=step))
        path.append(float(slow[0]))
    # 0, 1 and 2 are copies; then decays of 1/2 and, capped, 0.6 and 0.6.
    assert path == pytest.approx([0, 1, 2, 2.5, 0.6 * 2.5 + 0.4 * 4, 0.6 * 3.1 + 0.4 * 5])


def test_facts_know_opr_only_once_it_has_worked() -> None:
    trained = Pair(net(layers=2), Fixed(2), TeachingParams())
    assert set(trained.facts()) == {"tau"}
    batch = Labeled(images(2), torch.zeros(2, 32, 48, dtype=torch.int64), ("a", "b"))
    trained.learn_labels(type("Batch", (), {"labeled": batch})())  # type: ignore[arg-type]
    assert {name: tuple(value.shape) for name, value in trained.facts().items()} == {
        "tau": (2,),
        "open_gates": (2,),
        "change": (2,),
        "overlap": (2,),
    }


# Who is asked, and whose statistics move


def statistics(model: Segmenter) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers() if "running" in name or "tracked" in name}


@pytest.mark.parametrize("head", ["fusion", "mlp", "deeplab"])
def test_strong_views_move_no_statistics_when_labels_alone_may(head: str) -> None:
    model, reference = net(head), net(head)
    strong = [images(2, 1) * 50, images(2, 2) * 50]
    ask(model, net(head), (images(2), images(2, 3), strong), norms="labeled")
    reference.decode(reference.features(images(2)), (32, 48))
    moved, expected = statistics(model), statistics(reference)
    assert moved.keys() == expected.keys()
    assert not [name for name in moved if not torch.equal(moved[name], expected[name])]
    assert any(name.startswith("head.") for name in moved) == (head != "fusion")


def test_in_one_forward_they_do_move() -> None:
    model, reference = net(), net()
    ask(model, net(), (images(2), images(2, 3), [images(2, 1) * 50]), norms="joint")
    reference.features(images(2))
    name = "encoder.stem.1.running_var"
    assert bool((statistics(model)[name] > 30 * statistics(reference)[name]).all())


def test_the_teachers_statistics_never_move() -> None:
    for norms in ("joint", "labeled"):
        trained = pair(norms=norms)
        before = statistics(trained.teacher.net)  # type: ignore[arg-type]
        labeled = Labeled(images(2), torch.zeros(2, 32, 48, dtype=torch.int64), ("a", "b"))
        valid = torch.ones(2, 32, 48, dtype=torch.bool)
        said = trained.ask(labeled, Unlabeled(images(2, 1) * 9, (), (), valid, ("c", "d")), [images(2, 2)])
        assert not said.weak.requires_grad
        assert all(torch.equal(before[k], v) for k, v in statistics(trained.teacher.net).items())  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", [0, 1])
def test_one_forward_through_a_frozen_encoder_says_what_three_say(layers: int) -> None:
    frozen, thawed = net(layers=layers, mode="frozen"), net(layers=layers, mode="frozen")
    thawed.encoder.requires_grad_(True)  # gradients, but frozen statistics: the same numbers by the other path
    shown = (images(2), images(3, 1), [images(3, 2), images(3, 3)])
    once, apart = (ask(model, net(layers=layers).eval(), shown) for model in (frozen, thawed))
    assert not once.maps[0].requires_grad
    assert apart.maps[0].requires_grad
    assert [len(view) for view in once.strong] == [3, 3]
    for ours, theirs in zip(
        [once.labeled, *once.strong, once.weak, *once.maps],
        [apart.labeled, *apart.strong, apart.weak, *apart.maps],
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def sure(model: Segmenter, class_id: int) -> Segmenter:
    """A network that calls every pixel the same."""
    with torch.no_grad():
        model.head.classifier.weight.zero_()
        assert model.head.classifier.bias is not None
        model.head.classifier.bias.copy_(torch.arange(2) == class_id)
    return model


@pytest.mark.parametrize("mode", ["full", "frozen"])
@pytest.mark.parametrize(("model", "expected"), [("student", [1.0, 0.5]), ("teacher", [0.5, 1.0])])
def test_the_accuracy_is_that_of_the_model_it_asks(mode: str, model: Any, expected: list[float]) -> None:
    # The student says 0 everywhere, the teacher 1. Labels hold both: each knows one class wholly, the other not at all.
    # From 1, with a momentum of one half, the first stays at 1 and the second falls to 0.5.
    rule = ATC(2, ATCParams(momentum=0.5, acc_model=model))
    trained = Pair(sure(net(mode=mode), 0), rule, TeachingParams())
    teacher = sure(trained.teacher.net, 1)  # type: ignore[arg-type]
    before = statistics(teacher)
    labels = torch.zeros(2, 32, 48, dtype=torch.int64)
    labels[1, :5] = 1
    labeled = Labeled(images(2), labels, ("a", "b"))
    unlabeled = Unlabeled(images(2, 1), (), (), torch.ones(2, 32, 48, dtype=torch.bool), ("c", "d"))
    said = trained.ask(labeled, unlabeled, [images(2, 2)])
    trained.judge(said, labeled, unlabeled)
    assert rule.accuracy.tolist() == pytest.approx(expected)
    assert (said.taught is not None) == (model == "teacher")
    assert said.taught is None or not said.taught.requires_grad
    assert all(torch.equal(before[k], v) for k, v in statistics(teacher).items())
    # The supervised loss is the student's, whoever is asked: class 0 gets e / (e + 1) of it, class 1 the rest.
    sup = pixel_loss(said.labeled, labels)
    wrong = 5 * 48 / (2 * 32 * 48)
    assert float(sup.detach()) == pytest.approx(math.log(math.e + 1) - (1 - wrong), rel=1e-5)


@pytest.mark.parametrize("mode", ["full", "frozen"])
@pytest.mark.parametrize(("model", "times"), [("student", 1), ("teacher", 2)])
def test_the_teacher_is_asked_about_labels_only_where_a_rule_wants_it(mode: str, model: Any, times: int) -> None:
    trained = Pair(net(mode=mode), ATC(2, ATCParams(acc_model=model)), TeachingParams())
    heads: list[int] = []
    encoders: list[int] = []
    teacher: Any = trained.teacher.net
    teacher.head.classifier.register_forward_hook(lambda *_: heads.append(1))
    teacher.encoder.register_forward_hook(lambda *_: encoders.append(1))
    labeled = Labeled(images(2), torch.zeros(2, 32, 48, dtype=torch.int64), ("a", "b"))
    unlabeled = Unlabeled(images(2, 1), (), (), torch.ones(2, 32, 48, dtype=torch.bool), ("c", "d"))
    said = trained.ask(labeled, unlabeled, [images(2, 2)])
    assert len(heads) == times
    assert len(encoders) == (times if mode == "full" else 0)  # a frozen one is the student's
    if said.taught is not None:
        with torch.no_grad():
            torch.testing.assert_close(said.taught, teacher(labeled.images), atol=1e-5, rtol=1e-4)


def test_perturbations_touch_strong_views_only() -> None:
    def silence(features: list[Tensor]) -> list[Tensor]:
        return [f * 0 for f in features]

    model, teacher = net().eval(), net().eval()
    shown = (images(2), images(2, 1), [images(2, 2)])
    plain, disturbed = ask(model, teacher, shown), ask(model, teacher, shown, silence)
    assert torch.equal(plain.labeled, disturbed.labeled)
    assert torch.equal(plain.weak, disturbed.weak)
    assert torch.equal(disturbed.strong[0][0], disturbed.strong[0][1])  # nothing is left of what was seen
    assert not torch.equal(plain.strong[0], disturbed.strong[0])


@pytest.mark.parametrize("mode", ["full", "frozen"])
def test_what_the_classifiers_read_comes_with_what_they_say(mode: str) -> None:
    model, teacher = net(mode=mode).eval(), net(layers=1).eval()
    said = ask(model, teacher, (images(2), images(3, 1), [images(3, 2), images(3, 3)]), teacher_on_labels=True)
    read = said.embedded
    assert read is not None
    assert read.taught is not None
    assert said.taught is not None
    for who, embedding, logits in (
        (model, read.labeled, said.labeled),
        (model, read.strong[1], said.strong[1]),
        (teacher, read.weak, said.weak),
        (teacher, read.taught, said.taught),
    ):
        torch.testing.assert_close(who.classify(embedding, (32, 48)), logits)
    assert not read.weak.requires_grad
    assert not read.taught.requires_grad
    alone = ask_labeled(model, images(2))
    assert alone.strong == []
    assert alone.embedded is not None
    torch.testing.assert_close(alone.embedded.labeled, read.labeled, atol=1e-5, rtol=1e-4)
