"""Threshold rules against numbers worked out by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.types import IGNORE, PseudoLabels

NAN = float("nan")
EVERY_RULE = [Fixed(3), ATC(3, ATCParams())]


def row(ids: Sequence[int]) -> Tensor:
    """One image of one row."""
    return torch.tensor(ids).view(1, 1, -1)


def logits_of(answers: Sequence[int], num_classes: int = 3) -> Tensor:
    """Logits of one row of pixels that answer these classes."""
    return F.one_hot(row(answers), num_classes).movedim(-1, 1).float()


def pseudo_of(ids: Sequence[int], conf: float = 0.9, padding: int = 0) -> PseudoLabels:
    """A row of pseudo-labels, the last `padding` of them not valid."""
    labels = row(ids)
    return PseudoLabels(
        labels, torch.full(labels.shape, conf), torch.arange(len(ids)).view(1, 1, -1) < len(ids) - padding
    )


def see(atc: Thresholds, target: Sequence[int], answers: Sequence[int], seen: Sequence[int], padding: int = 0) -> None:
    atc.observe(target=row(target), logits=logits_of(answers), pseudo=pseudo_of(seen, padding=padding))


def close(values: Tensor, expected: Sequence[float], within: float = 1e-5) -> bool:
    return values.tolist() == pytest.approx(expected, abs=within)


# ---------------------------------------------------------------- every rule


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: type(rule).__name__)
def test_all_thresholds_start_at_tau0(rule: Thresholds) -> None:
    assert close(rule.tau(), [0.95] * 3)
    assert close(rule.facts()["tau"], [0.95] * 3)


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: type(rule).__name__)
def test_equal_to_the_threshold_is_enough_and_padding_never_is(rule: Thresholds) -> None:
    tau = rule.tau()[1].item()
    below = torch.nextafter(torch.tensor(tau), torch.tensor(0.0)).item()
    conf = torch.tensor([[[tau, below, 1.0, NAN]]])
    valid = torch.tensor([[[True, True, False, True]]])
    assert rule.accept(PseudoLabels(row([1, 1, 1, 1]), conf, valid)).tolist() == [[[True, False, False, False]]]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: type(rule).__name__)
def test_everything_a_rule_remembers_survives_a_checkpoint(rule: Thresholds) -> None:
    used, fresh = copy.deepcopy(rule), copy.deepcopy(rule)
    see(used, [0, 1, 2], [0, 0, 0], [1, 1, 1])
    fresh.load_state_dict(used.state_dict())
    for name, fact in used.facts().items():
        assert torch.equal(fact, fresh.facts()[name]), name


def test_a_pasted_pixel_keeps_the_threshold_of_its_own_class() -> None:
    atc = ATC(3, ATCParams())
    atc.accuracy.copy_(torch.tensor([1.0, 0.5, 1.0]))  # tau of class 1 is 0.90
    labels = torch.tensor([[[0]], [[1]]])
    pseudo = PseudoLabels(labels, torch.full((2, 1, 1), 0.92), torch.ones(2, 1, 1, dtype=torch.bool))
    assert atc.accept(pseudo).flatten().tolist() == [False, True]
    swapped = mix_pseudo(pseudo, torch.ones(2, 1, 1, dtype=torch.bool))
    assert atc.accept(swapped).flatten().tolist() == [True, False]


# ---------------------------------------------------------------- ATC, two steps by hand


def test_two_steps_by_hand() -> None:
    atc = ATC(3, ATCParams(momentum=0.9))

    # Labels: 6, 3, 1 pixels of the classes, two unknown. Hits: 6 of 6, 1 of 3, 0 of 1.
    # Unlabeled: 5, 3, 0 pixels, and two of class 2 in the padding.
    see(
        atc,
        target=[0] * 6 + [1] * 3 + [2] + [IGNORE] * 2,
        answers=[0] * 6 + [1, 0, 0] + [1] + [2, 2],
        seen=[0] * 5 + [1] * 3 + [2] * 2,
        padding=2,
    )
    assert close(atc.prior, [0.36, 0.33, 0.31])  # 0.9 / 3 + 0.1 * (0.6, 0.3, 0.1)
    assert close(atc.predicted, [0.3625, 0.3375, 0.30])  # 0.9 / 3 + 0.1 * (0.625, 0.375, 0)
    assert close(atc.accuracy, [1.0, 0.933333, 0.9])  # 0.9 + 0.1 * (1, 1/3, 0)
    assert close(atc.difficulty(), [0.0, 0.066667, 0.1])
    assert close(atc.bias(), [0.006944, 0.022727, -0.032258])  # 0.3625/0.36 - 1, 0.3375/0.33 - 1, 0.30/0.31 - 1
    assert close(atc.tau(), [0.950347, 0.944470, 0.938387])
    # 0.95 + 0.000347; 0.95 - 0.006667 + 0.001136; 0.95 - 0.01 - 0.001613

    # Labels: 4 pixels of class 0, half of them hit; 4 of class 1, all hit; class 2 is absent. Unlabeled: 1, 1, 2.
    see(atc, target=[0] * 4 + [1] * 4, answers=[0, 0, 2, 2, 1, 1, 1, 1], seen=[0, 1, 2, 2])
    assert close(atc.prior, [0.374, 0.347, 0.279])  # 0.9 * old + 0.1 * (0.5, 0.5, 0)
    assert close(atc.predicted, [0.35125, 0.32875, 0.32])  # 0.9 * old + 0.1 * (0.25, 0.25, 0.5)
    assert close(atc.accuracy, [0.95, 0.94, 0.9])  # 0.9 + 0.05; 0.84 + 0.1; kept
    assert close(atc.bias(), [-0.060829, -0.052594, 0.146953])
    assert close(atc.tau(), [0.941959, 0.941370, 0.947348])
    # 0.95 - 0.005 - 0.003041; 0.95 - 0.006 - 0.002630; 0.95 - 0.01 + 0.007348
    assert not atc.facts()["bias_clamped"].any()
    assert not atc.facts()["tau_clamped"].any()


def test_default_momentum_moves_a_thousandth_of_the_way() -> None:
    atc = ATC(2, ATCParams())
    atc.observe(target=row([0, 0]), logits=logits_of([1, 1], 2), pseudo=pseudo_of([1, 1]))
    assert close(atc.accuracy, [0.999, 1.0], within=1e-7)
    assert close(atc.prior, [0.5005, 0.4995], within=1e-7)
    assert close(atc.predicted, [0.4995, 0.5005], within=1e-7)


# ---------------------------------------------------------------- ATC, range and clamps


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tau_stays_between_080_and_098_whatever_is_seen(data: st.DataObject) -> None:
    ids = st.lists(st.integers(0, 2), min_size=4, max_size=4)
    atc = ATC(3, ATCParams(momentum=data.draw(st.sampled_from([0.0, 0.5, 0.9]))))
    for _ in range(data.draw(st.integers(1, 6))):
        see(atc, data.draw(ids), data.draw(ids), data.draw(ids))
        assert atc.tau().min() >= 0.80 - 1e-6
        assert atc.tau().max() <= 0.98 + 1e-6
        assert atc.prior.sum().item() == pytest.approx(1, abs=1e-5)
        assert atc.predicted.sum().item() == pytest.approx(1, abs=1e-5)


def test_the_ends_of_the_range_are_reached() -> None:
    atc = ATC(3, ATCParams(momentum=0.0))
    # Class 0: labeled, never hit, never seen. Class 1: not labeled, seen everywhere.
    see(atc, [0, 0], [1, 1], [1, 1])
    assert close(atc.tau(), [0.80, 0.98, 0.90])  # 0.95 - 0.1 - 0.05; clamped; 0.95 - 0.05, in neither


def test_binding_clamps_are_reported_and_counted() -> None:
    atc = ATC(3, ATCParams(momentum=0.5))
    # P_l (2/3, 1/6, 1/6), P_u (1/6, 2/3, 1/6): ratio 4 for class 1, push 0.05 * 3 = 0.15 > 0.1, and 1.05 > 0.98.
    see(atc, [0], [0], [1])
    facts = atc.facts()
    assert facts["bias_clamped"].tolist() == [False, True, False]
    assert facts["tau_clamped"].tolist() == [False, True, False]
    assert close(facts["tau"], [0.95 + 0.05 * (0.25 - 1), 0.98, 0.95])
    see(
        atc, [1], [1], [0]
    )  # back to P_l = (1/3, 7/12, 1/12), P_u = (7/12, 1/3, 1/12): nothing binds but tau of class 0
    facts = atc.facts()
    assert facts["bias_clamped"].tolist() == [False, False, False]  # 0.05 * 0.75 = 0.0375
    assert facts["tau_clamped"].tolist() == [True, False, False]  # 0.9875
    assert facts["bias_clamped_steps"].tolist() == [0, 1, 0]
    assert facts["tau_clamped_steps"].tolist() == [1, 1, 0]


def test_without_clips_the_paper_is_taken_at_its_word() -> None:
    atc = ATC(3, ATCParams(momentum=0.5, clip=None, bias_clip=None))
    see(atc, [0], [0], [1])
    assert close(atc.tau(), [0.9125, 1.10, 0.95], within=1e-4)  # class 1: 0.95 + 0.05 * 3
    assert not atc.facts()["bias_clamped"].any()
    assert not atc.facts()["tau_clamped"].any()


@pytest.mark.parametrize(("mode", "tau"), [("full", 0.8875), ("difficulty", 0.90), ("bias", 0.9375)])
def test_modes_switch_one_signal_off(mode: str, tau: float) -> None:
    atc = ATC(2, ATCParams(mode=mode))  # type: ignore[arg-type]
    atc.accuracy.fill_(0.5)  # pulls by 0.05
    atc.prior.copy_(torch.tensor([0.4, 0.6]))
    atc.predicted.copy_(torch.tensor([0.3, 0.7]))  # 0.3 / 0.4 - 1 = -0.25 pushes by -0.0125
    assert atc.tau()[0].item() == pytest.approx(tau, abs=1e-6)


# ---------------------------------------------------------------- ATC, readings


def test_absent_class_keeps_its_accuracy() -> None:
    atc = ATC(3, ATCParams(momentum=0.5))
    atc.accuracy.copy_(torch.tensor([1.0, 1.0, 0.3]))
    see(atc, [0, 1], [0, 2], [0])
    assert close(atc.accuracy, [1.0, 0.5, 0.3])


def test_absent_class_can_count_as_zero() -> None:
    atc = ATC(3, ATCParams(momentum=0.5, absent="zero"))
    see(atc, [0, 1], [0, 2], [0])
    assert close(atc.accuracy, [1.0, 0.5, 0.5])


def test_accuracy_can_be_iou() -> None:
    atc = ATC(3, ATCParams(momentum=0.0, acc="iou"))
    # Class 0: 2 of 4 hit, one more answered: 2 / (4 + 3 - 2). Class 1: 1 of 2 hit, 3 answered: 1 / 4. Class 2 absent.
    see(atc, [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0], [0])
    assert close(atc.accuracy, [0.4, 0.25, 1.0])


def test_seen_share_can_be_of_kept_pixels() -> None:
    atc = ATC(3, ATCParams(momentum=0.0, pu="kept"))
    conf = torch.tensor([[[0.96, 0.5, 0.96, 0.96]]])
    pseudo = PseudoLabels(row([0, 1, 1, 2]), conf, torch.tensor([[[True, True, True, False]]]))
    atc.observe(target=row([0]), logits=logits_of([0]), pseudo=pseudo)
    assert close(atc.predicted, [0.5, 0.5, 0.0])


def test_seen_share_can_be_soft() -> None:
    atc = ATC(3, ATCParams(momentum=0.0, pu="soft"))
    assert atc.needs_soft
    atc.observe(target=row([0]), logits=logits_of([0]), pseudo=pseudo_of([0]), soft=torch.tensor([1.5, 0.5, 2.0]))
    assert close(atc.predicted, [0.375, 0.125, 0.5])


def test_prior_can_start_at_and_stay_the_labeled_sets() -> None:
    pixels = torch.tensor([70, 20, 10])
    started = ATC(3, ATCParams(momentum=0.5, init="dataset"), pixels)
    assert close(started.prior, [0.7, 0.2, 0.1])
    assert close(started.tau(), [0.95] * 3)
    see(started, [1], [1], [1])
    assert close(started.prior, [0.35, 0.6, 0.05])
    fixed = ATC(3, ATCParams(momentum=0.5, init="dataset", pl="dataset"), pixels)
    see(fixed, [1], [1], [1])
    assert close(fixed.prior, [0.7, 0.2, 0.1])
    assert close(fixed.predicted, [0.35, 0.6, 0.05])


def test_log_forms_by_hand() -> None:
    shares = {"prior": torch.tensor([0.95, 0.05]), "predicted": torch.tensor([0.97, 0.03])}
    expected = {
        "ratio": [0.97 / 0.95 - 1, 0.03 / 0.05 - 1],  # 0.0211, -0.4
        "log_ratio": [math.log(0.97 / 0.95), math.log(0.03 / 0.05)],  # 0.0208, -0.5108
        "log_odds": [math.log(0.97 / 0.03) - math.log(0.95 / 0.05), math.log(0.03 / 0.97) - math.log(0.05 / 0.95)],
    }  # log odds: 3.4761 - 2.9444 = 0.5317, and -0.5317
    for form, bias in expected.items():
        atc = ATC(2, ATCParams(bias_form=form))  # type: ignore[arg-type]
        for name, values in shares.items():
            getattr(atc, name).copy_(values)
        assert close(atc.bias(), bias, within=1e-4), form
        assert close(atc.tau(), [min(0.98, 0.95 + 0.05 * b) for b in bias], within=1e-5), form


def test_shares_are_doubted_by_how_few_images_show_a_class() -> None:
    # On 100, 4 and 1 images: doubts of 0.1, 0.5 and 1. P_u / P_l - 1 is 0.5, -0.6 and -0.5.
    images = torch.tensor([100, 4, 1])
    expected = {
        0.0: [0.5, -0.6, -0.5],
        1.0: [0.4, -0.1, 0.0],  # half a share too few says nothing where one image is all there is
        2.0: [0.3, 0.0, 0.0],
    }
    for margin, bias in expected.items():
        atc = ATC(3, ATCParams(bias_margin=margin, lambda_b=0.05), labeled_images=images)
        atc.prior.copy_(torch.tensor([0.5, 0.25, 0.25]))
        atc.predicted.copy_(torch.tensor([0.75, 0.1, 0.125]))
        assert close(atc.bias(), bias, within=1e-4), margin
        assert close(atc.tau(), [0.95 + 0.05 * b for b in bias], within=1e-5), margin


def test_a_class_on_no_labelled_image_is_doubted_like_one_on_a_single_image() -> None:
    atc = ATC(3, ATCParams(bias_margin=1.0), labeled_images=torch.tensor([0, 1, 4]))
    assert close(atc.doubt, [1.0, 1.0, 0.5])
    assert "doubt" not in dict(ATC(3, ATCParams()).named_buffers())  # nothing new in runs that do not doubt


def test_what_the_teacher_is_unsure_of_can_be_what_is_difficult() -> None:
    params = ATCParams(
        difficulty="confidence", momentum=0.5, tau0=1.2, lambda_d=2.0, mode="difficulty", clip=(0.5, 0.95)
    )
    atc = ATC(4, params)
    called = pseudo_of([0, 0, 1, 1, 3], padding=1)  # of class 2 there is none, of class 3 only what is not valid
    told = PseudoLabels(called.labels, torch.tensor([[[0.9, 0.7, 0.5, 0.7, 0.3]]]), called.valid)
    # Every label is missed, which an accuracy would hold against class 0.
    atc.observe(target=row([0, 0]), logits=logits_of([1, 1], num_classes=4), pseudo=told)
    assert close(atc.confidence, [0.9, 0.8, 1.0, 1.0])  # half way from 1 to 0.8 and to 0.6; nothing seen, nothing moves
    assert close(atc.tau(), [0.95, 0.8, 0.95, 0.95])  # 1.2 - 2 x 0.1 = 1.0, 1.2 - 2 x 0.2 = 0.8, 1.2 and 1.2
    assert close(atc.accuracy, [0.5, 1.0, 1.0, 1.0])
    assert "confidence" not in dict(ATC(4, ATCParams()).named_buffers())  # nothing new in runs that go by labels


@pytest.mark.parametrize("form", ["log_ratio", "log_odds"])
def test_log_forms_stay_finite_for_classes_nobody_saw(form: str) -> None:
    atc = ATC(3, ATCParams(bias_form=form, momentum=0.0))  # type: ignore[arg-type]
    see(atc, [0, 0], [0, 0], [1, 1])
    assert atc.bias().isfinite().all()
    assert close(atc.tau(), [0.85, 0.98, 0.95])  # -0.1 at the clamp, 0.1 at both clamps, unseen in both


# ---------------------------------------------------------------- ATC, empty and broken steps


def contested(rival: float | None, *pixels: Sequence[float]) -> list[float]:
    """Confidences of pixels of which these are the probabilities, with shares of 0.96, 0.03 and 0.01."""
    atc = ATC(3, ATCParams(init="dataset", rival=rival), torch.tensor([96.0, 3.0, 1.0]))
    logits = torch.tensor(pixels).log().T[None, :, None]
    pseudo = atc.labels_of(logits, torch.ones(1, 1, len(pixels), dtype=torch.bool))
    assert pseudo.labels.flatten().tolist() == [max(range(3), key=p.__getitem__) for p in pixels]
    return [round(one, 4) for one in pseudo.conf.flatten().tolist()]


def test_the_commonest_class_is_not_learnt_where_it_has_a_rival() -> None:
    # 0.97 / 0.96 = 1.0104 against 0.010 / 0.01 = 1 and against 0.011 / 0.01 = 1.1; of another class nothing is asked
    pixels = ((0.97, 0.02, 0.010), (0.969, 0.02, 0.011), (0.1, 0.85, 0.05))
    assert contested(None, *pixels) == [0.97, 0.969, 0.85]
    assert contested(1.0, *pixels) == [0.97, 0.0, 0.85]
    assert contested(2.0, *pixels) == [0.97, 0.969, 0.85]
    assert contested(0.5, *pixels) == [0.0, 0.0, 0.85]


def test_class_shares_are_divided_out_before_a_pixel_is_named() -> None:
    # Shares of 0.96, 0.03, 0.01 to the power of 0.5 divide 0.8, 0.15, 0.05 into 0.8165, 0.8660, 0.5000: 2.1825 in all.
    atc = ATC(3, ATCParams(init="dataset", adjust=0.5), torch.tensor([96.0, 3.0, 1.0]))
    pixel = torch.tensor([0.8, 0.15, 0.05]).log()[None, :, None, None]
    pseudo = atc.labels_of(pixel, torch.ones(1, 1, 1, dtype=torch.bool))
    assert pseudo.labels.item() == 1
    assert pseudo.conf.item() == pytest.approx(0.3968, abs=1e-4)


def test_what_the_teacher_says_stays_as_it_is() -> None:
    atc = ATC(3, ATCParams(rival=0.1, adjust=0.5))
    logits = torch.randn(2, 3, 4, 5)
    before = logits.clone()
    atc.labels_of(logits, torch.ones(2, 4, 5, dtype=torch.bool))
    assert torch.equal(logits, before)


def test_a_step_without_labels_or_pixels_changes_nothing() -> None:
    atc = ATC(3, ATCParams(momentum=0.5))
    see(atc, [0, 1], [0, 2], [0, 1])
    before = {name: buffer.clone() for name, buffer in atc.named_buffers()}
    see(atc, [IGNORE, IGNORE], [0, 1], [0, 1], padding=2)
    for name, buffer in atc.named_buffers():
        assert torch.equal(buffer, before[name]), name


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["logits", "conf", "soft"])
def test_non_finite_numbers_never_enter_the_statistics(bad: float, where: str) -> None:
    atc = ATC(3, ATCParams(momentum=0.5, pu="soft"))
    logits, pseudo, soft = logits_of([1, 1]), pseudo_of([1, 1]), torch.ones(3)
    {"logits": logits, "conf": pseudo.conf, "soft": soft}[where][..., 0] = bad
    atc.observe(target=row([0, 0]), logits=logits, pseudo=pseudo, soft=soft)
    assert close(atc.tau(), [0.95] * 3)
    assert close(atc.accuracy, [1.0] * 3)
    assert atc.skipped_steps == 1


def test_observing_needs_no_graph() -> None:
    atc = ATC(3, ATCParams())
    atc.observe(target=row([0]), logits=logits_of([0]).requires_grad_(), pseudo=pseudo_of([0]))
    assert not atc.tau().requires_grad


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "dificulty"}, "full, difficulty, bias"),
        ({"bias_form": "logit"}, "log_odds"),
        ({"momentum": 1.0}, "momentum"),
        ({"eps": 0.0}, "eps"),
        ({"pl": "dataset"}, "init: dataset"),
        ({"rival": 0.0}, "rival"),
        ({"bias_margin": -1.0}, "bias_margin"),
        ({"adjust": -0.1}, "adjust"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ATCParams(**wrong)  # type: ignore[arg-type]


def test_dataset_start_needs_the_dataset() -> None:
    with pytest.raises(UsageError, match="labeled pixels"):
        ATC(3, ATCParams(init="dataset"))
