from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scripted_nets import Facts, Scripted
from torch import nn

from ftcseg.errors import ImageError, UsageError
from ftcseg.evaluate import predictor as module
from ftcseg.evaluate.batches import SHELVES, ahead, by_size
from ftcseg.evaluate.predictor import Predictor, prepare
from ftcseg.nets.build import build_model
from ftcseg.types import Pixels

SURE = {0: (0.9, 0.1), 255: (0.2, 0.8)}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on two cores that others use too wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def noise(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def tiny_predictor(**options: object) -> Predictor:
    torch.manual_seed(0)
    net, _ = build_model("tiny", "fusion", 3, in_channels=1, head_features=8)
    return Predictor(net, Facts(short_side=32), **options)  # type: ignore[arg-type]


# Sizes


def test_an_flsmd_frame_is_seen_at_322x476() -> None:
    net = Scripted(SURE)
    (said,) = Predictor(net, Facts(multiple=14)).labels_and_conf([np.zeros((320, 480, 1), np.uint8)])
    assert net.shown == [(1, 1, 322, 476)]
    assert said.labels.shape == said.conf.shape == (320, 480)


@pytest.mark.parametrize(
    ("shape", "short_side", "multiple", "seen"),
    [
        ((40, 60), 20, 1, (20, 30)),
        ((60, 40), 20, 8, (32, 24)),  # 30 x 20; halves go up
        ((7, 9), None, 1, (7, 9)),
        ((1, 1), None, 14, (14, 14)),
        ((3, 900), 6, 4, (8, 1800)),
    ],
)
def test_images_are_brought_to_the_short_side_and_then_to_a_multiple(
    shape: tuple[int, int], short_side: int | None, multiple: int, seen: tuple[int, int]
) -> None:
    net = Scripted(SURE)
    facts = Facts(short_side=short_side, multiple=multiple)
    (probabilities,) = Predictor(net, facts).probabilities([np.zeros((*shape, 1), np.uint8)])
    assert net.shown == [(1, 1, *seen)]
    assert probabilities.shape == (2, *shape)


def test_logits_are_brought_back_before_they_are_compared() -> None:
    # Two pixels become three: the middle one lies halfway. Logits 4 and -3 average to 0.5, and class 1 wins by them;
    # the probabilities, or the classes, of the two would tie or lose.
    class Two(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[[[0.0, 0.0]], [[4.0, -3.0]]]])

    said = Predictor(Two(), Facts(short_side=1)).labels_and_conf([np.zeros((3, 3, 1), np.uint8)])
    assert said[0].labels[0].tolist() == [1, 1, 0]
    assert said[0].conf[0, 1] == pytest.approx(1 / (1 + np.exp(-0.5)))


# Depths and channels


def test_every_depth_is_scaled_by_its_own_white() -> None:
    grey = noise(6, 5, 1)
    for image in (grey, grey.astype(np.uint16) * 257, (grey / 255).astype(np.float32)):
        prepared = prepare(image, Facts())
        assert torch.allclose(prepared.scaled[0], torch.from_numpy(grey / 255).float().movedim(-1, 0), atol=1e-6)


def test_the_network_sees_normalised_values() -> None:
    class Seen(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            self.images = images.clone()
            return images[:, :2]

    net = Seen()
    facts = Facts(in_channels=3, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    Predictor(net, facts).labels_and_conf([np.full((2, 2, 3), 255, np.uint8)])
    assert net.images[0, :, 0, 0].tolist() == [1.0, 3.0, 0.5]


def test_grey_frames_suit_a_coloured_model_and_grey_pictures_a_grey_one() -> None:
    grey = noise(4, 4, 1)
    assert prepare(grey, Facts(in_channels=3)).scaled[0].shape == (3, 4, 4)
    assert prepare(np.repeat(grey, 3, axis=2), Facts(in_channels=1)).scaled[0].shape == (1, 4, 4)
    with_alpha = np.concatenate([noise(4, 4, 3), np.zeros((4, 4, 1), np.uint8)], axis=2)
    assert torch.equal(
        prepare(with_alpha, Facts(in_channels=3)).scaled[0],
        prepare(with_alpha[:, :, :3], Facts(in_channels=3)).scaled[0],
    )
    assert prepare(with_alpha, Facts(in_channels=4)).scaled[0].shape == (4, 4, 4)


@pytest.mark.parametrize(
    ("image", "channels"),
    [(noise(4, 4, 3), 1), (noise(4, 4, 5), 3), (np.full((4, 4, 1), np.nan, np.float32), 1)],
)
def test_an_image_that_would_have_to_be_guessed_is_refused(image: Pixels, channels: int) -> None:
    with pytest.raises(ImageError):
        prepare(image, Facts(in_channels=channels))


# Many images


def test_a_batch_answers_as_its_images_do_one_by_one() -> None:
    predictor = tiny_predictor(batch=4)
    images = [noise(*size, 1, seed=i) for i, size in enumerate([(40, 60), (50, 50), (40, 60), (40, 60), (50, 50)])]
    together = predictor.probabilities(images)
    for image, expected in zip(images, together, strict=True):
        (alone,) = predictor.probabilities([image])
        assert alone.shape[1:] == image.shape[:2]
        assert torch.allclose(alone, expected, atol=1e-5)
    assert all(torch.allclose(p.sum(0), torch.ones(p.shape[1:])) for p in together)


def test_images_of_one_size_are_asked_about_together() -> None:
    net = Scripted(SURE)
    sizes = [(4, 6), (5, 5)] * 4
    Predictor(net, Facts(), batch=3).labels_and_conf([np.zeros((*s, 1), np.uint8) for s in sizes])
    assert [shape[0] for shape in net.shown] == [3, 3, 1, 1]


def test_large_images_go_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PIXELS", 50)
    net = Scripted(SURE)
    Predictor(net, Facts(), batch=8).labels_and_conf([np.zeros((4, 6, 1), np.uint8)] * 5)
    assert [shape[0] for shape in net.shown] == [2, 2, 1]


def test_labels_and_conf_are_the_best_of_the_probabilities() -> None:
    predictor = tiny_predictor(flips=True, scales=(0.5, 1.0))
    images = [noise(40, 60, 1)]
    (said,), (probabilities,) = predictor.labels_and_conf(images), predictor.probabilities(images)
    best, labels = probabilities.max(0)
    assert said.labels.dtype == np.int16
    assert np.array_equal(said.labels, labels.numpy())
    assert np.allclose(said.conf, best.numpy(), atol=1e-6)


# The network's mode


def test_every_module_is_in_its_old_mode_afterwards() -> None:
    predictor = tiny_predictor()
    net = predictor.net.train()
    still = net.encoder.stem
    still.eval()  # somebody froze these batch statistics
    before = {name: m.training for name, m in net.named_modules()}
    counters = {k: v.clone() for k, v in net.state_dict().items()}
    predictor.labels_and_conf([noise(40, 60, 1)])
    assert {name: m.training for name, m in net.named_modules()} == before
    assert all(torch.equal(v, counters[k]) for k, v in net.state_dict().items())
    scripted = Scripted(SURE).train()
    Predictor(scripted, Facts()).labels_and_conf([np.zeros((2, 2, 1), np.uint8)])
    assert scripted.modes == [False]
    assert scripted.training


def test_a_network_that_fails_is_put_back_too() -> None:
    class Broken(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no")

    net = Broken().train()
    with pytest.raises(RuntimeError):
        Predictor(net, Facts()).labels_and_conf([np.zeros((2, 2, 1), np.uint8)])
    assert net.training


# Windows, flips, scales


def conv_predictor(**options: object) -> Predictor:
    torch.manual_seed(0)
    return Predictor(nn.Conv2d(1, 3, 5, padding=2), Facts(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_windows_agree_with_the_whole_image_away_from_their_borders(batch: int) -> None:
    images = [noise(30, 41, 1, seed=i) for i in range(3)]
    whole, slid = conv_predictor(batch=batch), conv_predictor(window=16, batch=batch)
    inner = np.ones((30, 41), bool)  # windows start at rows 0, 10, 14 and columns 0, 10, 20, 25
    for start in (0, 10, 14):
        inner[start : start + 2] = inner[start + 14 : start + 16] = False
    for start in (0, 10, 20, 25):
        inner[:, start : start + 2] = inner[:, start + 14 : start + 16] = False
    assert inner.any()
    for a, b in zip(whole.probabilities(images), slid.probabilities(images), strict=True):
        assert torch.allclose(a[:, inner], b[:, inner], atol=1e-5)
        assert not torch.allclose(a, b, atol=1e-5)
        assert torch.allclose(b.sum(0), torch.ones(30, 41), atol=1e-5)


def test_probabilities_of_windows_are_averaged_where_they_overlap() -> None:
    class Once(nn.Module):
        """Class 1 has probability 0.2 in the first window it sees and 0.8 in the second."""

        said = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            p = (0.2, 0.8)[self.said]
            self.said += 1
            logits = torch.tensor([1 - p, p]).log().view(1, 2, 1, 1)
            return logits.expand(len(images), 2, *images.shape[-2:])

    (p,) = Predictor(Once(), Facts(), window=3, batch=1).probabilities([np.zeros((3, 4, 1), np.uint8)])
    assert p[1, 0].tolist() == pytest.approx([0.2, 0.5, 0.5, 0.8])
    # Seen at 3 x 4, the image is 5 x 7: halfway between 0.2 and 0.5 lies 0.35.
    (p,) = Predictor(Once(), Facts(short_side=3), window=3, batch=1).probabilities([np.zeros((5, 7, 1), np.uint8)])
    assert p[1, 0].tolist() == pytest.approx([0.2, 0.35, 0.5, 0.5, 0.5, 0.65, 0.8])


def test_windows_of_several_small_images_share_a_forward() -> None:
    net = Scripted(SURE)
    Predictor(net, Facts(), window=4, batch=8).labels_and_conf([np.zeros((4, 6, 1), np.uint8)] * 4)
    assert net.shown == [(8, 1, 4, 4)]  # two windows each


def test_a_window_larger_than_the_image_is_the_image() -> None:
    image = [noise(9, 12, 1)]
    assert torch.allclose(
        conv_predictor(window=64).probabilities(image)[0], conv_predictor().probabilities(image)[0], atol=1e-6
    )


def test_flips_make_the_answer_of_a_mirror_image_the_mirror_of_the_answer() -> None:
    image = noise(20, 30, 1)
    for options in ({}, {"window": 16}):
        predictor = conv_predictor(flips=True, **options)
        straight, mirrored = predictor.probabilities([image, image[:, ::-1].copy()])
        assert torch.allclose(straight, mirrored.flip(-1), atol=1e-5)
    one, other = conv_predictor().probabilities([image, image[:, ::-1].copy()])
    (both,) = conv_predictor(flips=True).probabilities([image])
    assert torch.allclose(both, (one + other.flip(-1)) / 2, atol=1e-5)


def test_each_scale_is_asked_about_and_averaged() -> None:
    net = Scripted(SURE)
    predictor = Predictor(net, Facts(short_side=10), scales=(0.5, 1.0, 2.0))
    (said,) = predictor.labels_and_conf([np.full((20, 40, 1), 255, np.uint8)] * 1)
    assert [shape[2:] for shape in net.shown] == [(5, 10), (10, 20), (20, 40)]
    assert np.allclose(said.conf, 0.8, atol=1e-5)


@pytest.mark.parametrize("options", [{"window": 3}, {"scales": ()}, {"scales": (0.0,)}, {"batch": 0}])
def test_options_that_mean_nothing_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Predictor(Scripted(SURE), Facts(multiple=14), **options)  # type: ignore[arg-type]


# Reading ahead, gathering


def test_reading_ahead_keeps_the_order_and_its_distance() -> None:
    read: list[int] = []

    def note(i: int) -> int:
        read.append(i)
        return i

    for i in ahead(note, range(20), 3):
        assert len(read) <= i + 4
        assert i in read
    assert read == list(range(20))
    with pytest.raises(ZeroDivisionError):
        list(ahead(lambda i: 1 // i, [1, 0, 1], 2))


def test_gathering_by_size_loses_nothing_and_holds_little() -> None:
    items = [(i, i % 7) for i in range(100)]
    taken = 0

    def feed() -> object:
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    given: list[tuple[int, int]] = []
    for group in by_size(feed(), lambda item: item[1], 4):  # type: ignore[arg-type]
        assert taken - len(given) <= SHELVES * 4
        assert len({size for _, size in group}) == 1
        assert len(group) <= 4
        given += group
    assert sorted(given) == items
