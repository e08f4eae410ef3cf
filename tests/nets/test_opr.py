"""OPR against numbers worked out by hand.

The example: 4 channels, 2 prototypes, 3 classes (0 is background), one image of 1x3 pixels.

    mu_1 = (3, 4, 0, 0), length 5        p_1 = (6, 8, 0, 0), length 10
    mu_2 = (0, 3, 4, 0), length 5        p_2 = (0, 0, 2, 0), length 2
                                         p_3 = 0

    S    cos(p_1, mu_1) = 50/50 = 1      cos(p_1, mu_2) = 24/50 = .48
         cos(p_2, mu_1) = 0              cos(p_2, mu_2) = 8/10 = .8          p_3: 0 and 0

    Z    class 0 = 2 x_1,  class 1 = x_2,  class 2 = x_3 + .5
         mu_1: (6, 4, .5), background: gamma_1 = 0        mu_2: (0, 3, 4.5), class 2: gamma_2 = 1

    F*   p_1 + .48 mu_2 = (6, 9.44, 1.92, 0)      p_2 + .8 mu_2 = (0, 2.4, 5.2, 0)      p_3 = 0

    L_O  cos(mu_1, mu_2) = 12/25 = .48, squared .2304
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.nets.heads import DPTHead, FusionHead
from ftcseg.nets.opr import OPR, OPR_READINGS, OPRParams, OPRStack, labels_at
from ftcseg.nets.opr_start import needs_data, start_prototypes
from ftcseg.types import IGNORE

MU = torch.tensor([[3.0, 4, 0, 0], [0, 3, 4, 0]])
PIXELS = torch.tensor([[6.0, 8, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
FEATURES = PIXELS.T.reshape(1, 4, 1, 3)
W = torch.tensor([[2.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
B = torch.tensor([0.0, 0.0, 0.5])


def example(**switches: Any) -> OPR:
    opr = OPR(4, 3, OPRParams(count=2, **switches))
    with torch.no_grad():
        opr.prototypes.copy_(MU)
        if opr.probe is not None:
            opr.probe.weight.copy_(W)
            assert opr.probe.bias is not None
            opr.probe.bias.copy_(B)
    return opr


def pixels_of(maps: Tensor) -> list[list[float]]:
    return maps[0, :, 0].T.tolist()


def near(rows: list[list[float]]) -> Any:
    return [pytest.approx(row, abs=1e-5) for row in rows]


# The hand-worked example, step by step


def test_similarity_is_the_cosine() -> None:
    assert example().similarity(FEATURES)[0].tolist() == near([[1, 0, 0], [0.48, 0.8, 0]])


def test_gate_logits_are_w_mu_plus_b() -> None:
    assert example().gate_logits().tolist() == near([[6, 4, 0.5], [0, 3, 4.5]])


def test_a_prototype_that_looks_like_background_is_shut_out() -> None:
    assert example().gates().tolist() == [0, 1]


def test_pixels_are_drawn_towards_open_prototypes() -> None:
    assert pixels_of(example()(FEATURES)) == near([[6, 9.44, 1.92, 0], [0, 2.4, 5.2, 0], [0, 0, 0, 0]])


def test_overlap_is_the_squared_cosine_of_the_pair() -> None:
    assert example().overlap().item() == pytest.approx(0.2304)


def test_statistics_of_the_example() -> None:
    seen = example().statistics(FEATURES)
    # ||F* - F||² = (.48·5)² + (.8·5)² = 5.76 + 16 = 21.76; ||F||² = 100 + 4
    assert (seen.open_gates, seen.change, seen.overlap) == (
        1,
        pytest.approx(math.sqrt(21.76 / 104)),
        pytest.approx(0.2304),
    )


# Each switch has its own hand value


def test_gate_none_lets_everyone_speak() -> None:
    # p_1 + 1·mu_1 + .48·mu_2
    assert pixels_of(example(gate="none")(FEATURES)) == near([[9, 13.44, 1.92, 0], [0, 2.4, 5.2, 0], [0, 0, 0, 0]])


def test_gate_soft_weighs_by_the_best_foreground_score() -> None:
    opr = example(gate="soft")
    assert opr.gates().tolist() == [4, 4.5]
    # p_1 + 4·mu_1 + 4.5·.48·mu_2 = (6 + 12, 8 + 16 + 6.48, 8.64);  p_2 + 4.5·.8·mu_2
    assert pixels_of(opr(FEATURES)) == near([[18, 30.48, 8.64, 0], [0, 10.8, 16.4, 0], [0, 0, 0, 0]])


def test_gate_soft_is_never_negative() -> None:
    opr = example(gate="soft")
    assert opr.probe is not None
    opr.probe.bias.data.fill_(-10.0)
    assert opr.gates().tolist() == [0, 0]


def test_aggregate_unit_sums_prototypes_of_length_one() -> None:
    # p_1 + .48·(0, .6, .8, 0);  p_2 + .8·(0, .6, .8, 0)
    rebuilt = pixels_of(example(aggregate="unit")(FEATURES))
    assert rebuilt == near([[6, 8.288, 0.384, 0], [0, 0.48, 2.64, 0], [0, 0, 0, 0]])


def test_without_residual_only_the_correction_remains() -> None:
    rebuilt = pixels_of(example(residual=False)(FEATURES))
    assert rebuilt == near([[0, 1.44, 1.92, 0], [0, 2.4, 3.2, 0], [0, 0, 0, 0]])


def test_similarity_softmax_makes_prototypes_compete() -> None:
    # p_1: 10 against 4.8 -> 1/(1 + e^5.2) = .0054863 for mu_2;  p_2: 0 against 8 -> .9996646;  p_3: a tie
    opr = example(similarity="softmax")
    assert opr.similarity(FEATURES)[0].tolist() == near([[0.9945137, 0.0003354, 0.5], [0.0054863, 0.9996646, 0.5]])
    # even a zero pixel gets half of mu_2
    assert pixels_of(opr(FEATURES))[2] == pytest.approx([0, 1.5, 2, 0])


def test_ortho_fro_is_the_unsquared_norm() -> None:
    assert example(ortho="fro").overlap().item() == pytest.approx(0.48 * math.sqrt(2))


def test_foreground_ids_decide_who_is_open() -> None:
    assert example(foreground=(0,)).gates().tolist() == [1, 0]
    assert example(foreground=(0, 1, 2)).gates().tolist() == [1, 1]
    assert example(foreground=(1,), gate="soft").gates().tolist() == [4, 3]


def test_prior_correction_gives_rare_classes_a_voice() -> None:
    opr = example(prior_correction=True)
    assert opr.gates().tolist() == [0, 1]  # a flat prior until told otherwise
    opr.set_prior(torch.tensor([96, 3, 1]))
    # -log shares are .0408, 3.5066, 4.6052: mu_1 becomes (6.0408, 7.5066, 5.1052), now class 1
    assert opr.gate_logits()[0].tolist() == pytest.approx([6.0408, 7.5066, 5.1052], abs=1e-4)
    assert opr.gates().tolist() == [1, 1]


def test_a_class_never_seen_keeps_the_prior_finite() -> None:
    opr = example(prior_correction=True)
    opr.set_prior(torch.tensor([10, 5, 0]))
    assert opr.gate_logits().isfinite().all()


def test_head_wide_lets_the_classifier_judge() -> None:
    opr = example(gate_head="head_wide")
    assert opr.probe is None
    head = FusionHead((4, 4, 4, 4), 3, features=8, wide=4)
    head.classifier.weight.data.copy_(W[:, :, None, None])
    assert head.classifier.bias is not None
    head.classifier.bias.data.copy_(B)
    assert opr.gate_logits(head.classify).tolist() == near([[6, 4, 0.5], [0, 3, 4.5]])
    assert opr.gates(head.classify).tolist() == [0, 1]


def test_legacy_is_the_sum_of_its_switches() -> None:
    # 4·softmax_1·mu_1 + 4.5·softmax_2·mu_2 on p_1: 4·.9945137 = 3.9780548;  4.5·.0054863 = .0246884
    legacy = OPR_READINGS["legacy"]
    assert (legacy.gate_head, legacy.layers) == ("probe", 1)
    opr = example(gate=legacy.gate, similarity=legacy.similarity, ortho=legacy.ortho)
    first = pixels_of(opr(FEATURES))[0]
    assert first == pytest.approx([6 + 11.934164, 8 + 15.912219 + 0.074065, 0.0987536, 0], abs=1e-4)
    assert opr.overlap().item() == pytest.approx(0.6788225)


# Counts and starts


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_a_stage_with_a_probe_costs_10379_parameters() -> None:
    assert count(OPR(384, 11, OPR_READINGS["legacy"])) == 10_379
    assert count(OPR(384, 11, OPR_READINGS["paper"])) == 10_379
    assert count(OPR(384, 11, OPR_READINGS["released"])) == 6_144


@pytest.mark.parametrize("ortho", ["pairs", "fro"])
def test_prototypes_start_orthogonal(ortho: Any) -> None:
    opr = OPR(384, 11, OPRParams(ortho=ortho))
    assert opr.overlap().item() == pytest.approx(0, abs=1e-5)
    assert opr.prototypes.norm(dim=1).tolist() == pytest.approx([1.0] * 16, abs=1e-5)


def test_an_overlap_of_exactly_zero_has_a_finite_gradient() -> None:
    opr = OPR(4, 3, OPRParams(count=2, ortho="fro"))
    opr.prototypes.data.copy_(torch.eye(4)[:2])
    opr.overlap().backward()
    assert opr.overlap().item() == 0
    assert opr.prototypes.grad is not None
    assert opr.prototypes.grad.isfinite().all()


def test_more_prototypes_than_channels_must_overlap() -> None:
    opr = OPR(4, 3, OPRParams(count=10))
    assert opr.prototypes.norm(dim=1).tolist() == pytest.approx([1.0] * 10, abs=1e-5)
    # 10·6 / (2·4) = 7.5 pairs of squared cosines at the very least; all 45 pairs equal would be 45
    assert 7.5 - 1e-4 <= opr.overlap().item() < 15


# Gradients


def test_a_shut_prototype_learns_nothing_from_the_task() -> None:
    opr = example()
    opr(FEATURES).square().sum().backward()
    assert opr.prototypes.grad is not None
    assert opr.prototypes.grad[0].tolist() == [0, 0, 0, 0]
    assert opr.prototypes.grad[1].abs().sum() > 0
    assert opr.probe is not None
    assert opr.probe.weight.grad is None


def test_a_soft_gate_teaches_the_probe() -> None:
    opr = example(gate="soft")
    opr(FEATURES).square().sum().backward()
    assert opr.probe is not None
    assert opr.probe.weight.grad is not None
    assert opr.probe.weight.grad.abs().sum() > 0


def test_the_gradient_is_the_true_one() -> None:
    opr = example(gate="soft", similarity="softmax", prior_correction=True).double()
    features = torch.randn(2, 4, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features.requires_grad_(True)
    assert torch.autograd.gradcheck(opr, (features,))


def test_a_pixel_of_zeros_has_a_finite_gradient() -> None:
    features = torch.zeros(1, 4, 1, 1, requires_grad=True)
    example()(features).sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_neither_overflows_nor_divides_by_zero(dtype: torch.dtype) -> None:
    opr = example().to(dtype)
    features = FEATURES.to(dtype) * 1000  # squares of 8000 are beyond float16
    rebuilt = opr(features)
    assert rebuilt.dtype == dtype
    assert rebuilt.isfinite().all()
    assert pixels_of(opr.similarity(features)[:, :, None])[0] == pytest.approx([1, 0.48], abs=0.01)


def test_autocast_keeps_the_sum_exact() -> None:
    opr = example()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert opr(FEATURES).dtype == torch.float32
        assert opr.overlap().item() == pytest.approx(0.2304)


# The probe


def test_probe_loss_by_hand() -> None:
    # p_2 = (0, 0, 2, 0) scores (0, 0, 2.5); labelled 2 it costs log(2 + e^2.5) - 2.5; the other two are ignored
    labels = torch.tensor([[[IGNORE, 2, IGNORE]]])
    assert example().probe_loss(FEATURES, labels).item() == pytest.approx(math.log(2 + math.exp(2.5)) - 2.5)


def test_a_unit_probe_reads_directions_only() -> None:
    # sqrt(4) = 2: p_1 = (6, 8, 0, 0) of length 10 is read as (1.2, 1.6, 0, 0) and scores (2.4, 1.6, 0.5)
    labels = torch.tensor([[[1, IGNORE, IGNORE]]])
    expected = math.log(math.exp(2.4) + math.exp(1.6) + math.exp(0.5)) - 1.6
    opr = example(probe_unit=True)
    assert opr.probe_loss(FEATURES, labels).item() == pytest.approx(expected)
    assert opr.probe_loss(FEATURES * 50, labels).item() == pytest.approx(expected)
    # mu_1 = (3, 4, 0, 0) of length 5 reads the same direction; mu_2 = (0, 0.6, 0.8, 0) times 2 scores (0, 1.2, 2.1)
    assert opr.gate_logits().tolist() == near([[2.4, 1.6, 0.5], [0.0, 1.2, 2.1]])


def test_the_probe_does_not_bend_the_encoder() -> None:
    labels = torch.tensor([[[0, 2, IGNORE]]])
    features = FEATURES.clone().requires_grad_(True)
    opr = example()
    opr.probe_loss(features, labels).backward()
    assert features.grad is None
    assert opr.probe is not None
    assert opr.probe.weight.grad is not None
    assert opr.prototypes.grad is None
    example(probe_detach=False).probe_loss(features, labels).backward()
    assert features.grad is not None


def test_probe_loss_of_nothing_is_zero_and_trains_nothing() -> None:
    opr = example()
    loss = opr.probe_loss(FEATURES, torch.full((1, 1, 3), IGNORE))
    loss.backward()
    assert loss.item() == 0
    assert opr.probe is not None
    assert opr.probe.weight.grad is not None
    assert opr.probe.weight.grad.abs().sum() == 0
    assert example(gate_head="head_wide").probe_loss(FEATURES, torch.zeros(1, 1, 3, dtype=torch.long)).item() == 0


def test_labels_are_read_under_the_centre_of_each_cell() -> None:
    labels = torch.arange(36).reshape(1, 6, 6)
    assert labels_at(labels, (2, 2)).tolist() == [[[7, 10], [25, 28]]]
    assert labels_at(torch.full((1, 5, 7), IGNORE), (2, 3)).unique().tolist() == [IGNORE]


# Class-anchored prototypes and starts from data


def test_class_mean_prototypes_start_at_the_class_means() -> None:
    stack = OPRStack((4,), 3, OPRParams(layers=1, prototypes="class_mean"))
    (_, opr), *_ = stack
    assert opr.probe is None
    # class 0 meets (6, 8, 0, 0) and (0, 0, 2, 0): mean (3, 4, 1, 0); class 1 meets p_3; class 2 nobody
    start_prototypes(stack, [([FEATURES], torch.tensor([[[0, 0, 1]]]))])
    assert opr.prototypes[:2].tolist() == near([[3, 4, 1, 0], [0, 0, 0, 0]])
    # the unmet class: a random direction of the mean length of the others
    assert opr.prototypes[2].norm().item() == pytest.approx(math.sqrt(26) / 2, abs=1e-4)
    assert opr.gates().tolist() == [0, 1, 1]  # by their own class ids
    assert opr(FEATURES).shape == FEATURES.shape


def test_class_means_are_summed_over_batches_and_skip_ignored_pixels() -> None:
    stack = OPRStack((4,), 2, OPRParams(layers=1, prototypes="class_mean", foreground=(0, 1)))
    (_, opr), *_ = stack
    start_prototypes(
        stack,
        [
            ([FEATURES], torch.tensor([[[0, 1, IGNORE]]])),
            ([FEATURES], torch.tensor([[[IGNORE, 0, IGNORE]]])),
        ],
    )
    assert opr.prototypes.tolist() == near([[3, 4, 1, 0], [0, 0, 2, 0]])


def test_init_scale_gives_prototypes_the_features_length() -> None:
    stack = OPRStack((4,), 3, OPRParams(layers=1, count=2, init_scale=0.5))
    (_, opr), *_ = stack
    start_prototypes(stack, [([FEATURES], torch.tensor([[[0, 1, IGNORE]]]))])
    # the labelled pixels are 10 and 2 long, 6 on average
    assert opr.prototypes.norm(dim=1).tolist() == pytest.approx([3, 3], abs=1e-5)
    assert opr.overlap().item() == pytest.approx(0, abs=1e-10)


def test_init_features_takes_the_main_directions_of_the_foreground() -> None:
    stack = OPRStack((4,), 3, OPRParams(layers=1, count=3, init="features"))
    (_, opr), *_ = stack
    # foreground: twice along -e_3, once along e_2; background along e_1 counts for nothing
    pixels = torch.tensor([[0.0, 0, -5, 0], [0, 0, -1, 0], [0, 3, 0, 0], [9, 0, 0, 0]])
    start_prototypes(stack, [([pixels.T.reshape(1, 4, 2, 2)], torch.tensor([[[1, 1], [2, 0]]]))])
    assert opr.prototypes[:2].tolist() == near([[0, 0, -1, 0], [0, 1, 0, 0]])
    assert opr.overlap().item() == pytest.approx(0, abs=1e-10)


def test_init_features_with_more_prototypes_than_channels() -> None:
    stack = OPRStack((4,), 3, OPRParams(layers=1, count=6, init="features"))
    start_prototypes(stack, [([FEATURES], torch.tensor([[[1, 2, 0]]]))])
    (_, opr), *_ = stack
    assert opr.prototypes.norm(dim=1).tolist() == pytest.approx([1.0] * 6, abs=1e-5)


def test_starting_from_no_labelled_pixel_is_an_error() -> None:
    stack = OPRStack((4,), 3, OPRParams(layers=1, prototypes="class_mean"))
    with pytest.raises(UsageError, match="no labelled pixel"):
        start_prototypes(stack, [([FEATURES], torch.full((1, 1, 3), IGNORE))])


def test_only_data_driven_readings_want_data() -> None:
    assert not any(needs_data(params) for params in OPR_READINGS.values())
    assert needs_data(OPRParams(init_scale=1.0))


# The stack


def test_the_stack_rebuilds_only_the_deepest_stages() -> None:
    stack = OPRStack((4, 4, 4, 4), 3, OPRParams(layers=2, count=2, gate="none"))
    head = FusionHead((4, 4, 4, 4), 3, features=8)
    features = [torch.randn(1, 4, 2, 2) for _ in range(4)]
    rebuilt = stack(features, head)
    assert [a is b for a, b in zip(features, rebuilt, strict=True)] == [True, True, False, False]
    assert stack.levels == (2, 3)


def test_overlap_of_the_stack_is_the_mean_over_stages() -> None:
    stack = OPRStack((4, 4), 3, OPRParams(layers=2, count=2))
    (_, shallow), (_, deep) = stack
    shallow.prototypes.data.copy_(MU)  # .2304
    deep.prototypes.data.copy_(torch.eye(4)[:2])  # 0
    assert stack.overlap().item() == pytest.approx(0.1152)


def test_project_asks_the_whole_head() -> None:
    head = DPTHead((4, 4, 4, 4), 3, features=8)
    opr = example(gate_head="project")
    stack = OPRStack((4, 4, 4, 4), 3, opr.params)
    alone = [torch.zeros(2, 4, 1, 1) for _ in range(4)]
    alone[3] = MU[:, :, None, None]
    expected = head(alone).mean(dim=(2, 3))
    assert torch.allclose(opr.gate_logits(stack.judge(head, 3)), expected)
    assert not torch.allclose(opr.gate_logits(stack.judge(head, 2)), expected)
    for favourite, gates in ((0, [0, 0]), (2, [1, 1])):
        head.classifier.weight.data.zero_()
        assert head.classifier.bias is not None
        head.classifier.bias.data.copy_(torch.eye(3)[favourite])
        assert opr.gates(stack.judge(head, 3)).tolist() == gates


def test_a_teacher_holds_the_same_module() -> None:
    opr = example()
    opr.set_prior(torch.tensor([1.0, 2, 3]))
    teacher = copy.deepcopy(opr)
    assert torch.equal(teacher(FEATURES), opr(FEATURES))
    fresh = OPR(4, 3, opr.params)
    fresh.load_state_dict(opr.state_dict())
    assert torch.equal(fresh.log_prior, opr.log_prior)


# Calls that cannot mean anything


def test_switches_refuse_unknown_words() -> None:
    with pytest.raises(UsageError, match="hard"):
        OPRParams(gate="hrad")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="own class"):
        OPRParams(prototypes="class_mean", gate="soft")
    with pytest.raises(UsageError, match="at least one prototype"):
        OPRParams(count=0)
    with pytest.raises(UsageError, match="1 to 2"):
        OPRStack((4, 4), 3, OPRParams(layers=3))
    with pytest.raises(UsageError, match="0 to 2"):
        OPR(4, 3, OPRParams(foreground=(1, 3)))
    with pytest.raises(UsageError, match="0 to 2"):
        OPR(4, 3, OPRParams(foreground=()))


def test_a_gate_without_a_judge_says_so() -> None:
    with pytest.raises(UsageError, match="judgement"):
        example(gate_head="project")(FEATURES)
    head = FusionHead((4, 4, 4, 4), 3, features=8)
    with pytest.raises(UsageError, match="wide=4"):
        example(gate_head="head_wide")(FEATURES, head.classify)
