"""What every method of the table promises, whatever its paper says: losses, gradients, teachers, restarts."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ftcseg.methods
from ftcseg.methods import METHODS
from ftcseg.methods.base import Method
from ftcseg.training import _parts_of
from ftcseg.types import Clock, StepResult
from tiny_methods import (
    LATE,
    RULES,
    TOTAL,
    VARIANTS,
    WHOLE,
    Variant,
    batch_for,
    moved,
    nudge,
    students,
    train,
    weights_of,
)

EVERY = pytest.mark.parametrize("variant", VARIANTS, ids=str)
EACH = pytest.mark.parametrize("variant", WHOLE, ids=str)
EACH_SEMI = pytest.mark.parametrize("variant", [v for v in WHOLE if v.name != "supervised"], ids=str)
NAMES = pytest.mark.parametrize("name", METHODS)


def one_pair(name: str) -> bool:
    """Whether a method is one student and one teacher that follows it in every step."""
    built = Variant(name).build()
    return hasattr(built, "pair") and type(built).after_update is Method.after_update


PAIRS = [name for name in METHODS if one_pair(name)]
EACH_PAIR = pytest.mark.parametrize("variant", [v for v in WHOLE if v.name in PAIRS], ids=str)


@dataclass(frozen=True)
class Look:
    """What a step may not change."""

    teachers: dict[str, Tensor]
    parameters: list[Tensor]
    modes: list[bool]
    has_gradient: bool

    @classmethod
    def at(cls, method: Method) -> Look:
        parameters = list(method.parameters())
        return cls(
            weights_of(method.teachers()),
            [p.detach().clone() for p in parameters],
            [module.training for module in method.modules()],
            any(p.grad is not None for p in parameters),
        )


@dataclass(frozen=True)
class Taken:
    """A method, what it said before its first step, that step, and how it was before and after."""

    method: Method
    tau: Tensor
    before: Look
    result: StepResult
    after: Look


_TAKEN: dict[str, Taken] = {}  # one step shows many facts; each test looks at its own


def taken(variant: Variant) -> Taken:
    """One step of a method whose teachers differ from their students, the same one for all who ask."""
    if repr(variant) not in _TAKEN:
        method = variant.build()
        nudge(method, 1e-3)
        tau, before = method.facts()["tau"], Look.at(method)
        result = method.step(batch_for(method.views), LATE)
        _TAKEN[repr(variant)] = Taken(method, tau, before, result, Look.at(method))
    return _TAKEN[repr(variant)]


def test_the_supervised_baseline_is_the_only_one_without_unlabeled_images() -> None:
    assert {variant.name for variant in VARIANTS if not variant.learns_unlabeled} == {"supervised"}


# Loss


@EVERY
def test_the_loss_and_its_parts_are_finite(variant: Variant) -> None:
    result = taken(variant).result
    assert result.loss.shape == ()
    assert bool(result.loss.isfinite())
    parts = {name: float(part.detach()) for name, part in result.parts.items()}
    assert all(torch.tensor(list(parts.values())).isfinite()), parts
    assert parts["sup"] > 0
    assert variant.name == "supervised" or parts["unsup"] > 0
    assert ("ortho" in parts) == ("probe" in parts) == (variant.layers > 0)


@EACH
def test_the_same_seed_gives_the_same_losses_whatever_the_global_generators_say(variant: Variant) -> None:
    first, second = variant.build(), variant.build()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    losses = train(first, range(1)) + train(first, range(18, 20))
    assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn from them
    torch.manual_seed(2)
    assert train(second, range(1)) + train(second, range(18, 20)) == losses
    assert not moved(weights_of(first), weights_of(second))


# Gradients and teachers


def test_the_plain_methods_are_pairs() -> None:
    assert set(ONE_ASKING) <= set(PAIRS)


@EVERY
def test_gradients_reach_all_that_learns_and_nothing_else(variant: Variant) -> None:
    method = taken(variant).method
    taken(variant).result.loss.backward()
    grads = {name: p.grad for name, p in method.named_parameters()}
    learning = {name for name, p in method.named_parameters() if p.requires_grad}
    assert {name for name, grad in grads.items() if grad is not None} == learning
    assert all(bool(grad.isfinite().all()) for grad in grads.values() if grad is not None)
    assert not any(p.requires_grad for teacher in method.teachers() for p in teacher.parameters())
    for net in students(method).values():
        parts = {name.split(".")[0] for name, p in net.named_parameters() if p.requires_grad}
        assert parts == {"encoder", "head"} | ({"opr"} if variant.layers else set())


ONE_ASKING = ("supervised", "mean-teacher", "fixmatch", "flexmatch", "freematch", "unimatch-v2", "ftc")
"""Pairs without parts of their own, that ask student and teacher once a step."""


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in ONE_ASKING], ids=str)
def test_only_the_student_of_a_pair_learns(variant: Variant) -> None:
    method = variant.build()
    assert all(name.startswith("pair.student.") for name, p in method.named_parameters() if p.requires_grad)


@EVERY
def test_a_step_moves_no_weight_and_no_teacher(variant: Variant) -> None:
    before, after = taken(variant).before, taken(variant).after
    assert not moved(before.teachers, after.teachers)
    assert all(torch.equal(a, b) for a, b in zip(before.parameters, after.parameters, strict=True))
    assert not after.has_gradient


@EVERY
def test_a_step_leaves_every_network_in_its_mode(variant: Variant) -> None:
    before = taken(variant).before.modes
    assert taken(variant).after.modes == before
    method = variant.build()
    method.train()  # as the loop does after an evaluation: a teacher's mode was decided once
    assert [module.training for module in method.modules()] == before


@EACH
def test_after_the_update_teachers_move_and_students_do_not(variant: Variant) -> None:
    method = variant.build()
    nudge(method)
    teachers, learning = weights_of(method.teachers()), [p.clone() for p in method.parameters() if p.requires_grad]
    # Methods in rounds are looked at within their first: between two rounds a student begins anew.
    method.after_update(Clock(step=1, total=TOTAL) if hasattr(method, "rounds") else LATE)
    assert bool(moved(teachers, weights_of(method.teachers()))) == bool(method.teachers())
    after = [p for p in method.parameters() if p.requires_grad]
    assert all(torch.equal(a, b) for a, b in zip(learning, after, strict=True))
    assert all(bool(value.isfinite().all()) for value in weights_of(method).values() if value.is_floating_point())


@EACH_PAIR
def test_after_the_update_the_teacher_goes_a_tenth_of_the_way(variant: Variant) -> None:
    method = variant.build()
    nudge(method)
    before = weights_of(method.teachers())
    method.after_update(LATE)  # 20 steps old: the decay is the stated 0.9
    after, student = weights_of(method.teachers()), weights_of(method.pair.student)
    assert moved(before, after)
    for name, value in after.items():
        goal = student[name.replace("0.net.", "0.")]
        expected = 0.9 * before[name] + 0.1 * goal if value.is_floating_point() else goal
        torch.testing.assert_close(value, expected)


@EACH_PAIR
def test_when_the_burn_in_ends_the_teacher_is_the_student(variant: Variant) -> None:
    method = variant.but(teaching={"burn_in": 2}).build()
    train(method, range(2))
    student, teacher = method.pair.student.state_dict(), method.pair.teacher.net.state_dict()
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    train(method, range(2, 4))
    assert moved(weights_of(method.pair.student), weights_of(method.pair.teacher.net))


@EACH_SEMI
def test_the_burn_in_learns_from_labels_alone(variant: Variant) -> None:
    method = variant.but(teaching={"burn_in": 3}).build()
    _, thresholds = method.labeler()
    rule = weights_of(thresholds)
    young = method.step(batch_for(method.views), Clock(step=2, total=TOTAL))
    assert "unsup" not in young.parts
    assert young.pseudo is None
    assert bool(young.loss.isfinite())
    assert not moved(rule, weights_of(thresholds))
    assert "unsup" in method.step(batch_for(method.views), Clock(step=3, total=TOTAL)).parts


@EACH_SEMI
def test_the_weight_of_pseudo_labels_grows_after_the_burn_in(variant: Variant) -> None:
    ramped, whole = (variant.but(teaching={"burn_in": 3, "ramp": ramp}).build() for ramp in (10, 0))
    clock = Clock(step=4, total=TOTAL)
    young, full = (method.step(batch_for(method.views), clock) for method in (ramped, whole))
    assert float(young.parts["unsup"].detach()) == pytest.approx(float(full.parts["unsup"].detach()), rel=1e-5)
    assert float(young.loss.detach()) != float(full.loss.detach())


@EACH_SEMI
def test_without_unlabeled_images_there_are_labels(variant: Variant) -> None:
    method = variant.build()
    batch = batch_for(method.views)
    result = method.step(type(batch)(batch.labeled), LATE)
    assert "unsup" not in result.parts
    assert bool(result.loss.isfinite())


# Restarts


@EACH
def test_a_restored_method_goes_on_as_the_first_would(variant: Variant) -> None:
    first = variant.build()
    train(first, range(2))
    second = variant.but(weights=7).build()  # other weights, but the seed of the run stays
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert train(first, range(2, 4)) == train(second, range(2, 4))
    assert not moved(weights_of(first), weights_of(second))


@EACH
def test_a_whole_run_may_be_cut_anywhere(variant: Variant) -> None:
    short, total = variant.but(steps=8, teaching={"burn_in": 2, "ramp": 2}), 8
    straight, restarted = short.build(), short.build()
    for start, end in pairwise((0, 1, 3, 6, total)):
        kept = {name: value.clone() for name, value in restarted.state_dict().items()}
        restarted = short.build()
        restarted.load_state_dict(kept)
        steps = range(start, end)
        assert train(restarted, steps, total=total) == train(straight, steps, total=total)
        assert not moved(weights_of(straight), weights_of(restarted))


@EVERY
def test_a_checkpoint_holds_whoever_predicts_and_labels(variant: Variant) -> None:
    method = variant.build()
    parts, kept = _parts_of(method), method.state_dict()
    assert list(parts["predictors"]) == list(method.predictors())
    for place in (*parts["predictors"].values(), parts["labeler"]):
        assert f"{place}.head.classifier.weight" in kept
    # An audit builds the run's rule and fills it: it has to be of the kind that the run's settings name.
    assert type(method.labeler()[1]) is type(RULES[variant.rule](variant.classes))
    assert method.get_submodule(parts["thresholds"]) is method.labeler()[1]


@EACH
def test_predictors_answer_at_the_size_of_the_image(variant: Variant) -> None:
    method = variant.build().eval()
    images = torch.randn(1, 3, 33, 47)
    names = list(method.predictors())
    assert names
    if variant.name in PAIRS:
        assert names == ["teacher", "student"]
    for net in (*method.predictors().values(), method.labeler()[0]):
        with torch.no_grad():
            assert net(images).shape == (1, 3, 33, 47)


@EVERY
def test_facts_name_thresholds_and_what_opr_does(variant: Variant) -> None:
    step = taken(variant)
    assert step.tau.shape == (3,)  # before the first step, too: a resumed run is asked
    facts = step.method.facts()
    assert facts["tau"].shape == (3,)
    assert ("open_gates" in facts) == (variant.layers > 0)
    if variant.layers:
        assert facts["change"].shape == facts["overlap"].shape == (1,)
    for name, value in facts.items():
        assert value.dim() <= 1, name
        assert not value.is_floating_point() or bool(value.isfinite().all()), name
        assert not value.requires_grad, name


# What of the encoder learns


class Calls:
    """How often the encoders of a pair are asked, by whose they are."""

    def __init__(self, method: Method) -> None:
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
def test_a_frozen_encoder_gets_no_gradient_and_does_not_move(name: str) -> None:
    method = Variant(name, layers=1, mode="frozen").build()
    nets = students(method)
    before = {who: weights_of(net.encoder) for who, net in nets.items()}
    method.step(batch_for(method.views), LATE).loss.backward()
    for who, net in nets.items():
        assert all(p.grad is None for p in net.encoder.parameters())
        assert all((p.grad is not None) == p.requires_grad for p in net.head.parameters())
        assert not moved(before[who], weights_of(net.encoder))  # nor do its statistics move


@pytest.mark.parametrize("name", ONE_ASKING)
def test_a_frozen_encoder_is_asked_once(name: str) -> None:
    method = Variant(name, layers=1, mode="frozen").build()
    calls = Calls(method)
    method.step(batch_for(method.views), LATE).loss.backward()
    assert (calls.student, calls.teacher) == (1, 0)


@pytest.mark.parametrize(("norms", "asked"), [("joint", (1, 1)), ("labeled", (2, 1))])
@pytest.mark.parametrize("name", ["fixmatch", "flexmatch", "freematch", "unimatch-v2", "ftc"])
def test_a_learning_encoder_is_asked_for_labels_and_views(name: str, norms: str, asked: tuple[int, int]) -> None:
    method = Variant(name, teaching={"norms": norms}).build()
    calls = Calls(method)
    method.step(batch_for(method.views), LATE)
    assert (calls.student, calls.teacher) == asked


@NAMES
def test_only_the_last_blocks_learn(name: str) -> None:
    method = Variant(name, mode=2).build()
    nets = students(method)
    before = {who: weights_of(net.encoder) for who, net in nets.items()}
    method.step(batch_for(method.views), LATE).loss.backward()
    for who, net in nets.items():
        learns = [any(p.grad is not None for p in block.parameters()) for block in net.encoder.blocks()]
        assert learns == [False, False, False, True, True]
        statistics = {path.split(".")[2] for path in moved(before[who], weights_of(net.encoder))}
        assert statistics == {"2", "3"}  # of the last two stages; those of frozen blocks stand still


@NAMES
def test_statistics_that_labels_alone_may_move_are_moved_by_them_alone(name: str) -> None:
    told, blind = (Variant(name, teaching={"norms": "labeled"}).build() for _ in range(2))
    batch = batch_for(told.views)
    told.step(batch, LATE)
    blind.step(type(batch)(batch.labeled), LATE)
    for who, net in students(told).items():
        mine, theirs = (dict(found.named_buffers()) for found in (net, students(blind)[who]))
        wrong = [key for key in mine if "running" in key and not torch.allclose(mine[key], theirs[key], atol=1e-5)]
        assert not wrong


# Files


def test_no_method_imports_another() -> None:
    folder = Path(ftcseg.methods.__file__).parent
    files = sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
    shared = {"base", "kit"}
    others = {f"ftcseg.methods.{file.stem}" for file in files if file.stem not in shared}
    # Every file is in the table; a paper may have two entries, such as CReST and CReST+.
    assert {type(Variant(name).build()).__module__ for name in METHODS} == others
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


@NAMES
def test_a_method_comes_from_its_own_file_and_inherits_from_nobody_else(name: str) -> None:
    kind = type(Variant(name).build())
    assert kind.__module__.startswith("ftcseg.methods.")
    assert kind.__bases__ == (Method,)
    assert METHODS[name].title
    assert METHODS[name].line
    assert 2000 < METHODS[name].year < 2100
