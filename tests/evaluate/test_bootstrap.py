"""Intervals by resampling, on examples whose draws can be enumerated.

Of two images A and B there are three draws: AA and BB, a quarter of them each, and AB, half of them.
"""

from __future__ import annotations

import doctest
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ftcseg.errors import UsageError
from ftcseg.evaluate.bootstrap import bootstrap, bootstrap_difference, bootstrap_statistic, rate
from ftcseg.evaluate.per_image import PerImage

MODULE = sys.modules["ftcseg.evaluate.bootstrap"]


def _counts(*images: list[tuple[int, int, int]]) -> NDArray[np.int64]:
    return np.array(images, dtype=np.int64)


def test_two_images_enumerated() -> None:
    # A: 1 hit, 2 said, 2 true: 1/3. B: 3 hit, 4 said, 4 true: 3/5. Both: 4 / (6 + 6 - 4) = 1/2.
    counts = _counts([(1, 2, 2)], [(3, 4, 4)])
    found = bootstrap(counts).classes[0]
    assert found is not None
    assert (found.value, found.low, found.high, found.draws) == pytest.approx((1 / 2, 1 / 3, 3 / 5, 2000))
    # The middle 60 % of the draws still reach into AA and BB (a quarter each); the middle 40 % are all AB.
    wide, tight = bootstrap(counts, share=0.6).miou, bootstrap(counts, share=0.4).miou
    assert wide is not None
    assert tight is not None
    assert (wide.low, wide.high) == pytest.approx((1 / 3, 3 / 5))
    assert (tight.low, tight.high) == pytest.approx((1 / 2, 1 / 2))


def test_an_absent_class_is_left_out_of_a_draw_and_one_never_present_has_no_interval() -> None:
    # Class 0 is always right. Class 1 is in A only, and missed: BB does not know it. Class 2 is nowhere.
    found = bootstrap(_counts([(9, 9, 9), (0, 0, 4), (0, 0, 0)], [(9, 9, 9), (0, 0, 0), (0, 0, 0)]))
    right, missed, nowhere = found.classes
    assert right is not None
    assert missed is not None
    assert found.miou is not None
    assert nowhere is None
    assert (right.low, right.high, right.draws) == (1.0, 1.0, 2000)
    assert (missed.low, missed.high) == (0.0, 0.0)
    assert 1400 < missed.draws < 1600  # three quarters
    assert (found.miou.value, found.miou.low, found.miou.high) == (0.5, 0.5, 1.0)  # BB: class 0 alone


def test_groups_are_means_of_their_classes() -> None:
    counts = _counts([(1, 2, 2), (5, 5, 5), (0, 1, 0)], [(3, 4, 4), (5, 5, 5), (0, 1, 0)])
    found = bootstrap(counts, groups={"head": [0, 1], "middle": [], "tail": [2]})
    head, tail = found.groups["head"], found.groups["tail"]
    assert head is not None
    assert tail is not None
    assert (head.value, head.low, head.high) == pytest.approx((3 / 4, 2 / 3, 4 / 5))
    assert (tail.low, tail.high) == (0.0, 0.0)  # predicted and nowhere true counts as 0
    assert found.groups["middle"] is None


def _scenes(count: int) -> NDArray[np.int64]:
    random = np.random.Generator(np.random.PCG64(1))
    true = np.full((count, 4), 100)
    hit = random.integers(20, 100, (count, 4))
    return np.stack([hit, hit, true], axis=2)


def test_copies_of_a_frame_say_nothing_new() -> None:
    scenes = _scenes(12)
    frames = np.repeat(scenes, 10, axis=0)
    clusters = [f"scene{i // 10}" for i in range(120)]
    alone, by_image, by_sequence = bootstrap(scenes), bootstrap(frames), bootstrap(frames, clusters)
    assert (by_image.over, by_image.units) == ("images", 120)
    assert (by_sequence.over, by_sequence.units) == ("sequences", 12)
    # Sequences of ten equal frames are drawn as the twelve scenes are, and all shares stay the same.
    assert by_sequence.classes == alone.classes
    for narrow, honest in zip(by_image.classes, by_sequence.classes, strict=True):
        assert narrow is not None
        assert honest is not None
        ratio = (honest.high - honest.low) / (narrow.high - narrow.low)
        assert 2.5 < ratio < 4  # the square root of 10 is 3.2


def test_clusters_need_no_order() -> None:
    scenes, order = _scenes(6), [3, 0, 5, 1, 4, 2]
    names = ["a", "b", "b", "c", "a", "d"]
    found = bootstrap(scenes, names)
    assert found.units == 4
    # Numbered by their first appearance: a renamed cluster is the same cluster.
    assert bootstrap(scenes, [f"x{name}" for name in names]).classes == found.classes
    shuffled = bootstrap(scenes[order], [names[i] for i in order])
    assert [c and c.value for c in shuffled.classes] == [c and c.value for c in found.classes]


def test_few_units_are_told() -> None:
    scenes = _scenes(12)
    assert bootstrap(scenes).warning == ""
    assert bootstrap(scenes[:3]).warning == "With 3 images the interval is too narrow."
    one = bootstrap(scenes, ["film"] * 12)
    assert one.warning == "One sequence cannot tell how much sequences differ, so there is no interval."
    assert one.miou is None
    assert one.classes == (None,) * 4
    assert one.as_json()["classes"] == [None] * 4


def test_draws_depend_on_the_seed_and_not_on_how_many_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = _scenes(12)
    found = bootstrap(scenes, draws=101)
    assert bootstrap(scenes, draws=101) == found
    assert bootstrap(scenes, draws=101, seed=1) != found
    monkeypatch.setattr(MODULE, "_CELLS", 70)  # five draws of twelve at a time
    assert bootstrap(scenes, draws=101) == found


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    held = 0
    for seed in range(200):  # 40 images each; their shares differ widely, and are 1/2 in the mean
        part = random.binomial(100, random.beta(2, 2, 40))
        tallies = np.stack([part, np.full(40, 100)], axis=1)
        found = bootstrap_statistic(tallies, lambda sums: rate(sums[:, 0], sums[:, 1]), draws=300, seed=seed)
        assert found is not None
        held += found.low <= 0.5 <= found.high
    assert 180 <= held <= 198  # 190 would be 95 %; percentiles of 40 images are a little too narrow


def test_a_difference_is_drawn_alike_for_both() -> None:
    # A: 2/6 against 1/7. B: 4/4 against 4/4. AB: 6/10 against 5/11.
    ours = PerImage(_counts([(2, 4, 4)], [(4, 4, 4)]), ("a.png", "b.png"))
    theirs = PerImage(_counts([(1, 4, 4)], [(4, 4, 4)]), ("a.png", "b.png"))
    found = bootstrap_difference([ours], [theirs])
    assert found.miou is not None
    assert (found.miou.value, found.miou.low, found.miou.high) == pytest.approx((8 / 55, 0.0, 4 / 21), abs=1e-12)
    assert found.miou == found.classes[0]
    turned = PerImage(theirs.counts[::-1], ("b.png", "a.png"))
    assert bootstrap_difference([ours], [turned]) == found
    same = bootstrap_difference([ours], [ours], ["film", "dive"], groups={"tail": [0]})
    assert same.over == "sequences"
    assert same.groups["tail"] is not None
    assert (same.groups["tail"].low, same.groups["tail"].high) == (0.0, 0.0)


def test_a_difference_over_seeds_is_the_mean_of_theirs() -> None:
    # First seed as above: 8/55 of all, 4/21 of A alone, 0 of B alone. Second seed: 6/10 and 6/10, no difference.
    ours = PerImage(_counts([(2, 4, 4)], [(4, 4, 4)]), ("a.png", "b.png"))
    theirs = PerImage(_counts([(1, 4, 4)], [(4, 4, 4)]), ("a.png", "b.png"))
    found = bootstrap_difference([ours, ours], [theirs, ours]).miou
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((4 / 55, 0.0, 2 / 21), abs=1e-12)


def test_runs_on_other_images_have_no_difference() -> None:
    ours = PerImage(_counts([(2, 4, 4)], [(4, 4, 4)]), ("a.png", "b.png"))
    with pytest.raises(UsageError, match="same part"):
        bootstrap_difference([ours], [PerImage(ours.counts, ("a.png", "c.png"))])
    with pytest.raises(UsageError, match="same part"):
        bootstrap_difference([ours], [PerImage(np.repeat(ours.counts, 2, axis=1), ours.names)])


def _interaction(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """I = CL - OL - CB + OB of pooled rates, from (draws, OB OL CB CL, dropped and all)."""
    ob, ol, cb, cl = rate(sums[..., 0], sums[..., 1]).T
    return cl - ol - cb + ob


def test_an_interaction_of_pooled_rates() -> None:
    # A: 1, 2, 3, 6 of 10 dropped: I = 0.2. B: 0, 3, 3, 24 of 30: I = 0.6. AB: (30 - 5 - 6 + 1) / 40 = 0.5.
    tallies = np.array([[(1, 10), (2, 10), (3, 10), (6, 10)], [(0, 30), (3, 30), (3, 30), (24, 30)]])
    found = bootstrap_statistic(tallies, _interaction)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.2, 0.6))
    twice = bootstrap_statistic(np.repeat(tallies, 3, axis=0), _interaction, [0, 0, 0, 1, 1, 1])
    assert twice is not None
    assert (twice.value, twice.low, twice.high) == pytest.approx((0.5, 0.2, 0.6))


def test_draws_without_a_whole_are_left_out() -> None:
    found = bootstrap_statistic(np.array([[1, 2], [0, 0]]), lambda sums: rate(sums[:, 0], sums[:, 1]))
    assert found is not None
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert 1400 < found.draws < 1600
    assert bootstrap_statistic(np.zeros((2, 2)), lambda sums: rate(sums[:, 0], sums[:, 1])) is None


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2**40), min_size=6, max_size=6), min_size=2, max_size=6))
def test_intervals_stay_between_0_and_1_and_values_are_divided_once(rows: list[list[int]]) -> None:
    extra = np.array(rows, dtype=np.int64).reshape(len(rows), 2, 3)
    counts = extra.copy()
    counts[:, :, 1:] += extra[:, :, :1]  # what was hit was said, and is true
    found = bootstrap(counts, draws=50)
    for number, one in enumerate(found.classes):
        hit, said, true = (sum(int(v) for v in counts[:, number, k]) for k in range(3))
        union = said + true - hit
        if one is None:
            assert union == 0
            continue
        assert one.value == hit / union
        assert 0 <= one.low <= one.high <= 1


def test_two_thousand_draws_of_four_hundred_images_take_less_than_a_second() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    began = time.process_time()
    bootstrap(random.integers(0, 1000, (400, 20, 3)))
    assert time.process_time() - began < 1


def test_the_example_in_the_text_runs() -> None:
    assert doctest.testmod(MODULE).failed == 0
