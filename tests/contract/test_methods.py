"""What every method of the table promises, whatever its paper says."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_methods import (
    HEIGHT,
    LATE,
    PIXELS,
    VARIANTS,
    WHOLE,
    WIDTH,
    Variant,
    batch_for,
    moved,
    train,
    weights_of,
    with_labels,
    with_valid,
)
from torch import Tensor, nn

import ftcseg.methods
from ftcseg.methods import METHODS
from ftcseg.teaching.answers import Answers
from ftcseg.teaching.thresholds.atc import ATC
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.types import IGNORE, Clock, Labeled, PseudoLabels, Unlabeled

EVERY = pytest.mark.parametrize("variant", VARIANTS, ids=str)
SEMI = [variant for variant in VARIANTS if variant.name != "supervised"]
EACH = pytest.mark.parametrize("variant", WHOLE, ids=str)
EVERY_SEMI = pytest.mark.parametrize("variant", SEMI, ids=str)
NAMES = pytest.mark.parametrize("name", METHODS)


def test_the_supervised_baseline_is_the_only_one_without_unlabeled_images() -> None:
    assert [variant.name for variant in VARIANTS if not variant.learns_unlabeled] == ["supervised"] * 2


# Loss


@EVERY
def test_the_loss_is_finite_and_the_sum_of_its_parts(variant: Variant) -> None:
    method = variant.build()
    result = method.step(batch_for(method.views), LATE)
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    base = parts["sup"] if variant.name == "supervised" else (parts["sup"] + parts["unsup"]) / 2
    opr = parts["ortho"] + parts["probe"] if variant.layers else 0.0
    assert float(result.loss.detach()) == pytest.approx(base + opr, rel=1e-5)
    assert parts["sup"] > 0
    assert variant.name == "supervised" or parts["unsup"] > 0
    assert ("ortho" in parts) == ("probe" in parts) == (variant.layers > 0)


@EACH
def test_the_same_seed_gives_the_same_loss_twice(variant: Variant) -> None:
    first, second = variant.build(), variant.build()
    assert train(first, range(3)) == train(second, range(3))
    assert not moved(weights_of(first), weights_of(second))


# Gradients and teachers


@EVERY
def test_gradients_reach_all_of_the_student_and_nothing_else(variant: Variant) -> None:
    method = variant.build()
    method.step(batch_for(method.views), LATE).loss.backward()
    grads = {name: p.grad for name, p in method.named_parameters()}
    student = {name for name, p in method.named_parameters() if p.requires_grad}
    assert all(name.startswith("pair.student.") for name in student)
    assert {name.split(".")[2] for name in student} == {"encoder", "head"} | ({"opr"} if variant.layers else set())
    assert {name for name, grad in grads.items() if grad is not None} == student
    assert all(bool(grad.isfinite().all()) for grad in grads.values() if grad is not None)
    assert not any(p.requires_grad for teacher in method.teachers() for p in teacher.parameters())


@EVERY
def test_a_step_moves_no_weight_and_no_teacher(variant: Variant) -> None:
    method = variant.build()
    _nudge(method.pair.student)
    teachers, parameters = weights_of(method.teachers()), [p.clone() for p in method.parameters()]
    method.step(batch_for(method.views), LATE)
    assert not moved(teachers, weights_of(method.teachers()))
    assert all(torch.equal(a, b) for a, b in zip(parameters, method.parameters(), strict=True))


@EVERY
def test_after_the_update_the_teacher_goes_a_tenth_of_the_way(variant: Variant) -> None:
    method = variant.build()
    _nudge(method.pair.student)
    before = weights_of(method.teachers())
    method.after_update(LATE)  # 20 steps old: the decay is the stated 0.9
    after, student = weights_of(method.teachers()), weights_of(method.pair.student)
    assert moved(before, after)
    for name, value in after.items():
        goal = student[name.replace("0.net.", "0.")]
        expected = 0.9 * before[name] + 0.1 * goal if value.is_floating_point() else goal
        torch.testing.assert_close(value, expected)


@EVERY
def test_when_the_burn_in_ends_the_teacher_is_the_student(variant: Variant) -> None:
    method = variant.but(teaching={"burn_in": 3}).build()
    train(method, range(3))
    student, teacher = method.pair.student.state_dict(), method.pair.teacher.net.state_dict()
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    train(method, range(3, 6))
    assert moved(weights_of(method.pair.student), weights_of(method.pair.teacher.net))


@EVERY_SEMI
def test_the_burn_in_learns_from_labels_alone(variant: Variant) -> None:
    method = variant.but(teaching={"burn_in": 3}).build()
    rule = weights_of(method.pair.thresholds)
    young = method.step(batch_for(method.views), Clock(step=2, total=40))
    assert "unsup" not in young.parts
    assert young.pseudo is None
    assert not moved(rule, weights_of(method.pair.thresholds))
    assert "unsup" in method.step(batch_for(method.views), Clock(step=3, total=40)).parts


@EVERY_SEMI
def test_without_unlabeled_images_there_are_labels(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    result = method.step(type(batch)(batch.labeled), LATE)
    assert "unsup" not in result.parts
    assert bool(result.loss.isfinite())


@EACH
def test_a_restored_method_goes_on_as_the_first_would(variant: Variant) -> None:
    first = variant.build()
    train(first, range(2))
    second = variant.but(weights=7).build()  # other weights, but the seed of the run stays
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert train(first, range(2, 4)) == train(second, range(2, 4))
    assert not moved(weights_of(first), weights_of(second))


# Edges


@EVERY
def test_a_batch_of_one_image(variant: Variant) -> None:
    method = variant.build()
    method.step(batch_for(method.views, labeled=1, unlabeled=1), LATE).loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@EACH
def test_more_unlabeled_images_than_labeled_ones(variant: Variant) -> None:
    method = variant.build()
    result = method.step(batch_for(method.views, labeled=1, unlabeled=3), LATE)
    assert bool(result.loss.isfinite())
    assert result.pseudo is None or int(result.pseudo.seen.sum()) == 3 * PIXELS


@EVERY
def test_a_crop_without_a_known_pixel_costs_nothing(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    result = method.step(with_labels(batch, torch.full_like(batch.labeled.labels, IGNORE)), LATE)
    result.loss.backward()
    assert float(result.parts["sup"].detach()) == 0.0
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


@EVERY
def test_a_class_that_is_absent_from_the_batch(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    result = method.step(with_labels(batch, torch.zeros_like(batch.labeled.labels)), LATE)
    assert bool(result.loss.isfinite())
    rule = method.pair.thresholds
    if isinstance(rule, ATC):
        assert rule.accuracy.tolist()[1:] == [1.0, 1.0]  # nobody asked about these classes: nothing was learnt of them
        # Half of uniform thirds, half of a batch that is all background.
        assert rule.prior.tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@EVERY_SEMI
def test_padding_is_neither_counted_nor_learnt(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    half = batch.unlabeled.valid.clone()
    half[0] = False
    counts = method.step(with_valid(batch, half), LATE).pseudo
    assert counts is not None
    assert int(counts.seen.sum()) == PIXELS  # of one image
    nothing = method.step(with_valid(batch, torch.zeros_like(half)), LATE)
    assert nothing.pseudo is not None
    assert int(nothing.pseudo.seen.sum()) == 0
    assert float(nothing.parts["unsup"].detach()) == 0.0
    assert bool(nothing.loss.isfinite())


@pytest.mark.parametrize("classes", [2, 40])
@EACH
def test_any_number_of_classes(variant: Variant, classes: int) -> None:
    method = variant.but(classes=classes).build()
    result = method.step(batch_for(method.views, classes=classes), LATE)
    assert bool(result.loss.isfinite())
    assert result.pseudo is None or result.pseudo.seen.shape == (classes,)


@pytest.mark.parametrize("channels", [1, 5])
@EACH
def test_grey_and_many_channels(variant: Variant, channels: int) -> None:
    method = variant.but(channels=channels).build()
    assert all(torch.tensor(train(method, range(2), channels=channels)).isfinite())


@EACH
def test_predictors_answer_at_the_size_of_the_image(variant: Variant) -> None:
    method = variant.build().eval()
    images = torch.randn(1, 3, 33, 47)
    assert list(method.predictors()) == ["teacher", "student"]
    for net in method.predictors().values():
        with torch.no_grad():
            assert net(images).shape == (1, 3, 33, 47)


@EACH
def test_facts_name_thresholds_and_what_opr_does(variant: Variant) -> None:
    method = variant.build()
    method.step(batch_for(method.views), LATE)
    facts = method.facts()
    assert facts["tau"].shape == (3,)
    assert ("open_gates" in facts) == (variant.layers > 0)
    if variant.layers:
        assert facts["change"].shape == facts["overlap"].shape == (1,)


# Pseudo-labels


@EVERY_SEMI
def test_every_valid_pixel_is_seen_and_no_more_are_kept(variant: Variant) -> None:
    method = variant.build()
    counts = method.step(batch_for(method.views), LATE).pseudo
    assert counts is not None
    assert int(counts.seen.sum()) == 2 * PIXELS
    assert bool((counts.kept <= counts.seen).all())
    assert int(counts.kept.sum()) > 0


@EVERY_SEMI
def test_views_and_pseudo_labels_are_cut_by_the_same_boxes(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    assert batch.unlabeled is not None
    pair, seen = method.pair, {}
    ask, judge, compare = pair.ask, pair.judge, pair.compare

    def watched_ask(labeled: Labeled, unlabeled: Unlabeled, strong: list[Tensor], *drop: Any) -> Answers:
        seen["strong"] = strong
        return ask(labeled, unlabeled, strong, *drop)

    def watched_judge(*asked: Any) -> PseudoLabels:
        seen["pseudo"] = judge(*asked)
        return seen["pseudo"]

    def watched_compare(strong: list[Tensor], mixed: list[PseudoLabels]) -> Tensor:
        seen["mixed"] = mixed
        return compare(strong, mixed)

    monkeypatch.setattr(pair, "ask", watched_ask)
    monkeypatch.setattr(pair, "judge", watched_judge)
    monkeypatch.setattr(pair, "compare", watched_compare)
    method.step(batch, LATE)
    # The left half of the first image is the second's; the second image has no box.
    half, views = WIDTH // 2, batch.unlabeled.strong
    assert len(seen["strong"]) == len(seen["mixed"]) == len(views) == method.views.strong
    for shown, view, mixed in zip(seen["strong"], views, seen["mixed"], strict=True):
        assert torch.equal(shown[0, :, :, :half], view[1, :, :, :half])
        assert torch.equal(shown[0, :, :, half:], view[0, :, :, half:])
        assert torch.equal(shown[1], view[1])
        for name in ("labels", "conf"):
            cut, whole = getattr(mixed, name), getattr(seen["pseudo"], name)
            assert torch.equal(cut[0, :, :half], whole[1, :, :half])
            assert torch.equal(cut[0, :, half:], whole[0, :, half:])
            assert torch.equal(cut[1], whole[1])


@pytest.mark.parametrize("name", ["fixmatch", "unimatch-v2", "ftc"])
def test_what_nobody_is_sure_of_weighs_nothing(name: str) -> None:
    method = Variant(name).build()
    method.pair.thresholds = Fixed(3, 1.1)  # no probability reaches it
    result = method.step(batch_for(method.views), LATE)
    assert result.pseudo is not None
    assert int(result.pseudo.kept.sum()) == 0
    assert float(result.loss.detach()) == pytest.approx(float(result.parts["sup"].detach()) / 2)


@pytest.mark.parametrize(("name", "drops"), [("fixmatch", False), ("unimatch-v2", True), ("ftc", True)])
def test_complementary_dropout_is_drawn_anew_each_step(name: str, drops: bool) -> None:
    at = {}
    for step in (20, 21):
        method = Variant(name).build()
        at[step] = float(method.step(batch_for(method.views), Clock(step=step, total=40)).parts["unsup"].detach())
    assert (at[20] != at[21]) == drops


def test_ftc_without_opr_and_with_a_fixed_threshold_is_unimatch_v2() -> None:
    assert train(Variant("ftc").build(), range(3)) == train(Variant("unimatch-v2").build(), range(3))


# What of the encoder learns


class Calls:
    """How often the encoders of a method are asked, by whose they are."""

    def __init__(self, method: ftcseg.methods.Method) -> None:
        self.student = self.teacher = 0
        method.pair.student.encoder.register_forward_hook(self._student)
        teacher = method.pair.teacher.net
        assert isinstance(teacher.encoder, nn.Module)
        teacher.encoder.register_forward_hook(self._teacher)

    def _student(self, *_: object) -> None:
        self.student += 1

    def _teacher(self, *_: object) -> None:
        self.teacher += 1


@NAMES
def test_a_frozen_encoder_gets_no_gradient_and_is_asked_once(name: str) -> None:
    method = Variant(name, layers=1, mode="frozen").build()
    before, calls = weights_of(method.pair.student.encoder), Calls(method)
    method.step(batch_for(method.views), LATE).loss.backward()
    assert (calls.student, calls.teacher) == (1, 0)
    assert all(p.grad is None for p in method.pair.student.encoder.parameters())
    assert all((p.grad is not None) == p.requires_grad for p in method.pair.student.head.parameters())
    assert not moved(before, weights_of(method.pair.student.encoder))  # nor do its statistics move


@pytest.mark.parametrize(("norms", "asked"), [("joint", (1, 1)), ("labeled", (2, 1))])
@pytest.mark.parametrize("name", ["fixmatch", "unimatch-v2", "ftc"])
def test_a_learning_encoder_is_asked_for_labels_and_views(name: str, norms: str, asked: tuple[int, int]) -> None:
    method = Variant(name, teaching={"norms": norms}).build()
    calls = Calls(method)
    method.step(batch_for(method.views), LATE)
    assert (calls.student, calls.teacher) == asked


@NAMES
def test_only_the_last_blocks_learn(name: str) -> None:
    method = Variant(name, mode=2).build()
    before = weights_of(method.pair.student.encoder)
    method.step(batch_for(method.views), LATE).loss.backward()
    learns = [any(p.grad is not None for p in block.parameters()) for block in method.pair.student.encoder.blocks()]
    assert learns == [False, False, False, True, True]
    statistics = {name.split(".")[2] for name in moved(before, weights_of(method.pair.student.encoder))}
    assert statistics == {"2", "3"}  # of the last two stages; those of frozen blocks stand still


# Files


def test_no_method_imports_another() -> None:
    folder = Path(ftcseg.methods.__file__).parent
    files = sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
    others = {f"ftcseg.methods.{file.stem}" for file in files if file.stem != "base"}
    assert len(others) == len(METHODS)
    for file in files:
        assert not _imports(file) & (others | {"ftcseg.methods"}), file.name


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports relatively"
            found |= {str(node.module), *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def _nudge(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1)


def test_the_tests_look_at_the_size_they_say() -> None:
    batch = batch_for(METHODS["ftc"].build(Variant("ftc").build().pair, 0).views)
    assert batch.unlabeled is not None
    assert len(batch.unlabeled.strong) == 2
    assert batch.labeled.images.shape == (2, 3, HEIGHT, WIDTH)
