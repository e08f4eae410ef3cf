"""The network as it is written answers as the network does, whatever the size: judged in torch, without an exporter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_exports import NETS, net_of, noise, normalised, spec_of

from ftcseg.export.graphs import fitting, least_side
from ftcseg.export.plain import GridEmbed, Mirrored, PlainNet
from ftcseg.nets.encoders.base import Options
from ftcseg.nets.encoders.dinov2 import DinoV2, Embed, Shape, grid_positions
from ftcseg.nets.encoders.efficientnet_lite import EfficientNetLite
from ftcseg.nets.segmenter import Segmenter
from tiny_clip import save_clip

SINGLE = 2e-5  # of logits of about 1 to 5, in float32
DOUBLE = 1e-9


def sizes_for(net: Segmenter) -> list[tuple[int, int]]:
    """The least one, and odd and even ones."""
    step, least = net.encoder.multiple, fitting(least_side(net), net.encoder.multiple)
    return [(least, least), (least + step, least + 2 * step), (least + 4 * step, least + 3 * step)]


@pytest.mark.parametrize("kind", NETS)
def test_every_family_answers_as_it_did(kind: str) -> None:
    net = net_of(kind)
    spec = spec_of(net)
    for size in sizes_for(net):
        images = noise(net, (2, *size), seed=1)
        with torch.no_grad():
            truth = net(normalised(images, spec))
            for fixed in (None, size):
                assert (PlainNet(net, spec, fixed)(images) - truth).abs().max() < SINGLE
        assert len(truth.argmax(1).unique()) > 1


def test_a_clip_answers_as_it_did(tmp_path: Path) -> None:
    net = net_of("", save_clip(tmp_path))
    spec = spec_of(net)
    images = noise(net, (2, 32, 48), seed=1)
    with torch.no_grad():
        assert (PlainNet(net, spec, None)(images) - net(normalised(images, spec))).abs().max() < SINGLE


def test_the_network_itself_is_left_as_it_was() -> None:
    net = net_of("efficientnet-fusion").train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    PlainNet(net, spec_of(net), None)(noise(net, (1, 40, 40)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert net.training
    assert any(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("size", [(32, 32), (33, 32), (32, 33), (47, 61), (64, 50)])
def test_the_mirror_needs_no_odd_pixel(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    encoder = EfficientNetLite(0.25, 0.25).eval().double()
    images = torch.rand(1, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        truth = encoder(images)
        maps = Mirrored(encoder)(images)
    assert [m.shape for m in maps] == [m.shape for m in truth]
    assert max(float((a - b).abs().max()) for a, b in zip(maps, truth, strict=True)) < DOUBLE


@pytest.mark.parametrize("grid", [(37, 37), (37, 36), (1, 1), (5, 9), (60, 80)])
def test_positions_by_products_are_positions_by_interpolation(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    encoder = DinoV2(Shape(24, 4, 2, (0, 1, 2, 3)), Options())
    assert isinstance(encoder.embed, Embed)
    truth = grid_positions(encoder.embed.pos_embed.detach(), *grid)[:, 1:]
    assert (GridEmbed(encoder.embed, None)._places(*grid) - truth).abs().max() < 1e-6
