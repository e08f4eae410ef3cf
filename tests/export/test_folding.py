from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_exports import TABLE, livened, noise, normalised, spec_of

from ftcseg.export.folding import Folded
from ftcseg.export.plain import PlainNet
from ftcseg.nets.build import build_model
from ftcseg.nets.cost import cost
from ftcseg.nets.opr import OPR, OPRParams

CLASS_MEAN = OPRParams(layers=1, prototypes="class_mean")


def test_a_pixel_is_drawn_towards_the_open_prototype_alone() -> None:
    """F = (3, 4), length 5, cosine 3/5 with (2, 0): F* = (3, 4) + 0.6 (2, 0). Class 0 is background: shut."""
    stage = OPR(2, 2, CLASS_MEAN)
    stage.prototypes.data = torch.tensor([[0.0, 9.0], [2.0, 0.0]])
    folded = Folded(stage, None)
    assert folded.count == 1
    answer = folded(torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)).flatten().tolist()
    assert answer == pytest.approx([4.2, 4.0])


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"aggregate": "unit"},
        {"gate": "soft"},
        {"gate": "none"},
        {"similarity": "softmax"},
        {"similarity": "softmax", "gate": "soft"},
        {"residual": False},
        {"prototypes": "class_mean"},
        {"count": 40},
        {"prior_correction": True},
    ],
    ids=str,
)
def test_folding_changes_nothing(choice: dict[str, Any]) -> None:
    torch.manual_seed(0)
    stage = OPR(24, 4, OPRParams(**{"layers": 1, "count": 9, **choice})).double()
    stage.set_prior(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    torch.nn.init.normal_(stage.prototypes)
    gates = stage.gates()
    assert stage.params.gate != "hard" or 0 < int(gates.sum()) < len(gates)  # some are shut, some are not
    features = torch.randn(2, 24, 5, 7, dtype=torch.float64)
    features[0, :, 0, 0] = 0  # a pixel without a direction
    with torch.no_grad():
        assert (Folded(stage, None)(features) - stage(features)).abs().max() < 1e-9


def test_many_prototypes_become_one_product() -> None:
    few, many = (Folded(OPR(8, 4, OPRParams(layers=1, gate="none", count=count)), None) for count in (4, 5))
    assert few.say is not None  # two of 4 x 8 cost as much as one of 8 x 8
    assert many.say is None
    assert many.look.shape == (8, 8, 1, 1)


@pytest.mark.parametrize("residual", [True, False])
def test_nothing_is_left_where_every_gate_is_shut(residual: bool) -> None:
    stage = OPR(8, 4, replace(CLASS_MEAN, residual=residual))
    stage.is_foreground.zero_()
    features = torch.randn(1, 8, 2, 2)
    answer = Folded(stage, None)(features)
    assert torch.equal(answer, features if residual else torch.zeros_like(features))


@pytest.mark.parametrize("gate_head", ["probe", "project", "head_wide"])
def test_the_whole_network_folded_is_the_network(gate_head: Any) -> None:
    torch.manual_seed(1)
    opr = OPRParams(layers=1 if gate_head == "head_wide" else 2, count=12, gate_head=gate_head)
    net, _ = build_model("tiny", "fusion", len(TABLE), opr=opr, head_features=8)
    net = (livened(net) if gate_head == "probe" else net.eval()).double()
    spec = spec_of(net)
    images = noise(net, (2, 45, 70)).double()
    with torch.no_grad():
        assert (PlainNet(net, spec, None)(images) - net(normalised(images, spec))).abs().max() < 1e-9


def test_a_folded_network_has_no_probe_and_costs_next_to_nothing() -> None:
    """Two stages of 16 prototypes in 384 channels: 2·2·16·384 multiply-adds a token, of DINOv2-S's 21 million."""
    nets = [build_model("dinov2-small", "dpt", 11, opr=OPRParams(layers=layers, gate="none"))[0] for layers in (0, 2)]
    plain, folded = (PlainNet(net, spec_of(net), (70, 98)) for net in nets)
    assert not [name for name, _ in folded.named_parameters() if "probe" in name or "prototypes" in name]
    macs = [cost(net, (1, 3, 70, 98)).macs for net in (plain, folded)]
    assert macs[1] - macs[0] == 2 * 2 * 16 * 384 * 5 * 7
    assert macs[1] < 1.02 * macs[0]
