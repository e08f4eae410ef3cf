"""Counted costs, worked out by hand."""

from __future__ import annotations

import torch
from torch import nn

from ftcseg.nets.build import build_model
from ftcseg.nets.cost import Cost, cost, seconds, training_peak
from ftcseg.nets.opr import OPR_READINGS


class Small(nn.Module):
    """A convolution, two norms and an enlargement."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)  # 3·4·9 + 4 = 112 parameters
        self.batch = nn.BatchNorm2d(4)  # 8
        self.layer = nn.LayerNorm(6)  # 12

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.layer(self.batch(self.conv(images)))
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)


def test_a_small_net_by_hand() -> None:
    # 5x6 pixels: 3·4·9·30 = 3240 multiply-adds; 4·30 = 120 elements: 2·120 + 5·120 of norms, 4·(4·120) of the map
    assert cost(Small(), (1, 3, 5, 6)) == Cost(132, 3240, 240 + 600 + 1920)


def test_the_papers_network_costs_the_papers_number_with_norms_and_enlargements() -> None:
    with torch.device("meta"):
        net, _ = build_model("dinov2-small", "dpt", 11, opr=OPR_READINGS["legacy"])
    found = cost(net, (1, 3, 518, 518))
    # LayerNorm 28 times over 1370·384, the maps 64·(37² + 74² + 148² + 296²) and the logits 11·518²
    assert found.others == 5 * 28 * 1370 * 384 + 4 * 64 * (37**2 + 74**2 + 148**2 + 296**2) + 4 * 11 * 518**2
    # the paper's inference table: 24.81 M and 56.96 G, which is one legacy stage
    assert (round(found.parameters / 1e6, 2), round((found.macs + found.others) / 1e9, 2)) == (24.81, 56.96)


class Sleepy(nn.Module):
    """Notes whose turn it is."""

    def __init__(self, name: str, turns: list[str]) -> None:
        super().__init__()
        self.name, self.turns, self.weight = name, turns, nn.Parameter(torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.turns.append(self.name)
        return images


def test_networks_are_timed_in_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []
    taken = seconds({name: Sleepy(name, turns) for name in "ab"}, (1, 1, 2, 2), repeats=3, warm_up=1)
    assert turns == list("abababab")
    assert {name: len(values) for name, values in taken.items()} == {"a": 3, "b": 3}
    assert min(min(values) for values in taken.values()) >= 0


class Keeps(nn.Module):
    """One 1x1 convolution of a single channel, squared: both factors are kept for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mapped = self.conv(images)
        return torch.cat([mapped, mapped.square()], 1)


def test_memory_grows_with_the_batch_and_shrinks_without_a_teacher() -> None:
    one, two = (training_peak(Keeps(), (size, 1, 64, 64)) for size in (1, 2))
    pixels = 64 * 64 * 4
    # image, map and square are alive with the stacked two and the log-probabilities of both: at least 7 maps and
    # the labels, which are twice as wide
    assert 9 * pixels <= two - one <= 13 * pixels
    # 2 parameters of 4 bytes
    assert training_peak(Keeps(), (1, 1, 64, 64)) - training_peak(Keeps(), (1, 1, 64, 64), teacher=False) == 8


def test_a_stage_of_opr_costs_memory_of_its_own_and_the_networks_stay_as_they_were() -> None:
    plain, _ = build_model("tiny", "fusion", 3, head_features=8)
    more, _ = build_model("tiny", "fusion", 3, head_features=8, opr_layers=1)
    before = {name: tensor.clone() for name, tensor in more.state_dict().items()}
    shape = (2, 3, 64, 64)
    assert training_peak(more, shape) > training_peak(plain, shape)
    assert cost(more, shape).macs > cost(plain, shape).macs
    assert more.training
    assert all(torch.equal(before[name], tensor) for name, tensor in more.state_dict().items())
