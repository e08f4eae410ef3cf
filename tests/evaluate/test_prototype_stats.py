"""What prototypes answer to, on a map of two by two cells."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ftcseg.errors import UsageError
from ftcseg.evaluate.prototype_stats import Responses, answers, at_cells, deepest, prototype_stats
from ftcseg.nets.build import build_model
from ftcseg.nets.opr import OPRParams
from ftcseg.types import ClassInfo, ClassTable, Sample

T = torch.tensor
LABELS = T([0, 1, 1, 2])  # background, two cells of class 1, one of class 2


def test_purity_selectivity_and_entropy_by_hand() -> None:
    found = Responses(1, 3, [1, 2])
    found.add(T([[0.4, 0.2, 0.2, 0.8]]), LABELS)
    (one,) = found.prototypes()
    assert one.mass == pytest.approx(1.6)
    assert one.dominant == 2  # 0.8 against 0.2 + 0.2
    assert one.purity == pytest.approx(0.8 / 1.2)
    assert one.selectivity == pytest.approx(1.2 / 1.6)
    # shares 1/6, 1/6, 4/6 over three foreground cells
    entropy = -(2 * math.log(1 / 6) / 6 + 4 * math.log(4 / 6) / 6)
    assert one.entropy == pytest.approx(entropy / math.log(3))


def test_a_prototype_that_answers_alike_everywhere_shows_the_chance_levels() -> None:
    found = Responses(1, 3, [1, 2])
    found.add(torch.full((1, 4), 0.3), LABELS)
    (one,), chance = found.prototypes(), found.chance()
    assert (one.purity, one.selectivity) == pytest.approx((2 / 3, 3 / 4))
    assert (chance.purity, chance.selectivity) == pytest.approx((2 / 3, 3 / 4))
    assert (chance.cells, chance.foreground) == (4, 3)
    assert one.entropy == pytest.approx(1.0)
    assert one.dominant == 1


def test_what_is_below_zero_has_no_mass() -> None:
    found = Responses(3, 3, [1, 2])
    found.add(T([[-1.0, -0.5, -0.1, -0.2], [0.5, -0.5, -0.1, -0.2], [-1.0, -1.0, 0.5, -1.0]]), LABELS)
    silent, outside, single = found.prototypes()
    assert (silent.mass, silent.dominant, silent.purity, silent.selectivity, silent.entropy) == (
        0,
        None,
        None,
        None,
        None,
    )
    assert (outside.dominant, outside.selectivity) == (None, 0.0)
    assert (single.dominant, single.purity, single.selectivity, single.entropy) == (1, 1.0, 1.0, 0.0)


def test_cells_that_nobody_knows_are_skipped() -> None:
    found = Responses(1, 3, [1, 2])
    found.add(T([[0.4, 0.2, 0.9, 0.8]]), T([0, 1, -1, 2]))
    assert found.prototypes()[0].mass == pytest.approx(1.4)
    assert found.chance().cells == 3


@given(st.lists(st.floats(-1, 1, width=32), min_size=12, max_size=12), st.permutations(range(12)))
def test_neither_order_nor_pieces_change_anything(values: list[float], order: list[int]) -> None:
    labels = T([0, 1, 2] * 4)
    similarity = T([values])
    whole, pieces = Responses(1, 3, [1, 2]), Responses(1, 3, [1, 2])
    whole.add(similarity, labels)
    for part in (order[:5], order[5:]):
        pieces.add(similarity[:, part], labels[part])
    (a,), (b,) = whole.prototypes(), pieces.prototypes()
    assert a.mass == pytest.approx(b.mass)
    for one in (a, b):
        for value in (one.purity, one.selectivity, one.entropy):
            assert value is None or -1e-9 <= value <= 1 + 1e-9


def test_without_foreground_there_is_nothing_to_select() -> None:
    with pytest.raises(UsageError, match="foreground"):
        Responses(1, 3, [])


def test_a_cell_takes_the_pixel_under_its_centre() -> None:
    labels = np.zeros((6, 6), dtype=np.int16)
    labels[4, 4] = 1
    labels[0, 0] = 2
    assert at_cells(labels, torch.Size((2, 2))).tolist() == [[0, 0], [0, 1]]


FACTS = SimpleNamespace(in_channels=1, mean=(0.5,), std=(0.25,), short_side=None, multiple=32)


class Images(list):  # type: ignore[type-arg]
    classes = ClassTable((ClassInfo(0, "sea", background=True), ClassInfo(1, "hook"), ClassInfo(2, "can")))

    def labeled(self) -> Images:
        return self


def network(**choices: object) -> object:
    torch.manual_seed(0)
    params = OPRParams(layers=1, count=4, **choices)  # type: ignore[arg-type]
    return build_model("tiny", "fusion", 3, opr=params, in_channels=1, head_features=8)[0].eval()


def images() -> Images:
    rng = np.random.default_rng(0)
    samples = [
        Sample(str(i), rng.integers(0, 255, (32, 64, 1), dtype=np.uint8), rng.integers(0, 3, (32, 64)).astype(np.int16))
        for i in range(2)
    ]
    return Images(samples)


def test_the_correction_is_what_the_stage_adds() -> None:
    net = network(gate="none")
    found = prototype_stats(net, images(), FACTS, [1, 2])  # type: ignore[arg-type]
    assert found is not None
    assert found.gates == (1.0, 1.0, 1.0, 1.0)
    _, stage, _ = deepest(net)  # type: ignore[arg-type]
    sizes, moved, alone = 0.0, 0.0, 0.0
    for sample in images():
        features, similarity = answers(net, sample.image, FACTS)  # type: ignore[arg-type]
        pixels = features.flatten(2)[0].T  # (cells, C)
        sizes += float(pixels.norm(dim=1).sum())
        added = similarity.flatten(1).T @ stage.prototypes.detach()
        moved += float(added.norm(dim=1).sum())
        alone += float((similarity.flatten(1)[0, :, None] * stage.prototypes.detach()[0]).norm(dim=1).sum())
    assert found.change == pytest.approx(moved / sizes, rel=1e-4)
    assert found.corrections[0] == pytest.approx(alone / sizes, rel=1e-4)


def test_a_shut_gate_adds_nothing() -> None:
    net = network()
    _, stage, _ = deepest(net)  # type: ignore[arg-type]
    assert stage.probe is not None
    with torch.no_grad():
        stage.probe.weight.zero_()
        stage.probe.bias.copy_(T([1.0, 0.0, 0.0]))  # every prototype looks like background
    found = prototype_stats(net, images(), FACTS, [1, 2])  # type: ignore[arg-type]
    assert found is not None
    assert set(found.gates) == {0.0}
    assert set(found.corrections) == {0.0}
    assert found.change == pytest.approx(0.0, abs=1e-5)


def test_a_network_without_opr_is_told() -> None:
    net, _ = build_model("tiny", "fusion", 3, in_channels=1, head_features=8)
    with pytest.raises(UsageError, match=r"opr\.layers=1"):
        deepest(net)
