"""The network that a user of each method gets can be written."""

from __future__ import annotations

import pytest
import torch
from small_exports import noise, normalised, spec_of

from ftcseg.export.plain import PlainNet
from ftcseg.methods import METHODS
from ftcseg.nets.segmenter import Segmenter
from tiny_methods import Variant


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_gives_its_users_can_be_written(name: str) -> None:
    net = next(iter(Variant(name, layers=1).build().predictors().values()))
    assert isinstance(net, Segmenter)
    spec, images = spec_of(net), noise(net, (2, 45, 66))
    written = PlainNet(net, spec, None)
    with torch.no_grad():
        assert (written(images) - net.eval()(normalised(images, spec))).abs().max() < 1e-5
