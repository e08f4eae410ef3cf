"""Draws, long tails and balances, on candidates made by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.data.split import (
    Amount,
    Candidate,
    ClassCount,
    Split,
    balance,
    draw,
    hold_out,
    long_tail,
    parse_amount,
    quotas,
)
from ftcseg.errors import UsageError
from ftcseg.rng import shuffled
from ftcseg.types import ClassTable, Group

CLASSES = ClassTable.named("background", "bottle", "can", "rope")
BOTTLE, CAN, ROPE = 1, 2, 3

DIVES = [
    Candidate(
        f"images/f{i:02}.png",
        {0: 900, BOTTLE if i % 2 else CAN: 100} | ({ROPE: 5} if i in (4, 17) else {}),
        sequence=f"dive{i // 4}",
    )
    for i in range(20)
]
"""Five dives of four frames; bottles and cans by turns, rope in dives 1 and 4 only."""


def amount(text: str | int) -> Amount:
    return parse_amount(str(text))


def in_draw_order(*held: set[int], seed: int = 0, salt: str = "labels") -> list[Candidate]:
    """Candidates that hold these classes, one pixel each, and are drawn in this order."""
    names = shuffled([f"{i}.png" for i in range(len(held))], seed, salt)
    return [Candidate(name, dict.fromkeys(classes, 1)) for name, classes in zip(names, held, strict=True)]


def ids(candidates: Sequence[Candidate]) -> set[str]:
    return {candidate.id for candidate in candidates}


# ---------------------------------------------------------------- amounts


@pytest.mark.parametrize(
    ("text", "total", "count"),
    [
        ("2%", 1494, 30),  # 29.88
        ("5%", 1494, 75),  # 74.7
        ("10%", 1494, 149),  # 149.4
        ("2.5%", 20, 1),  # exactly a half, up
        ("12.5 %", 20, 3),  # 2.5, up and not to the even
        ("30", 1494, 30),
        (" 0 ", 10, 0),
        ("100%", 7, 7),
    ],
)
def test_amounts_are_counts_or_percentages(text: str, total: int, count: int) -> None:
    assert parse_amount(text).of(total) == count


@pytest.mark.parametrize("text", ["2%", "2.5%", "30", "100%"])
def test_an_amount_reads_as_it_was_written(text: str) -> None:
    assert str(parse_amount(text)) == text


def test_a_bare_fraction_is_refused_with_what_it_probably_meant() -> None:
    with pytest.raises(UsageError, match=r"'0\.02' is no amount\. Did you mean 2%\? Write a percentage"):
        parse_amount("0.02")


@pytest.mark.parametrize("text", ["", "%", "-5", "-5%", "30.5", "1e3", "nan", "inf%", "two", "٣", "9" * 5000, "2%%"])
def test_nonsense_is_no_amount(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no amount\. Write a percentage"):
        parse_amount(text)


def test_more_than_everything_is_refused() -> None:
    with pytest.raises(UsageError, match="120% is more than there is"):
        parse_amount("120%")


# ---------------------------------------------------------------- draw


def test_images_are_drawn_in_hash_order() -> None:
    first, second, third, fourth = in_draw_order({0}, {0}, {0}, {0})
    split = draw([fourth, second, third, first], amount(2), 0, CLASSES)
    assert set(split.labeled) == {first.id, second.id}
    assert set(split.unlabeled) == {third.id, fourth.id}


def test_a_missing_class_takes_the_place_of_the_last_image_drawn() -> None:
    images = in_draw_order({0}, {0}, {0}, {0}, {0, ROPE}, {0, ROPE})
    assert set(draw(images, amount(3), 0, CLASSES).labeled) == ids([images[0], images[1], images[4]])


def test_an_image_that_a_class_depends_on_is_not_swapped_out() -> None:
    # The third one drawn holds the only can so far, so the second one leaves for the rope.
    images = in_draw_order({0}, {0}, {0, CAN}, {0}, {0, ROPE})
    assert set(draw(images, amount(3), 0, CLASSES).labeled) == ids([images[0], images[2], images[4]])


def test_the_rarest_class_is_swapped_in_first_and_may_bring_another() -> None:
    # Rope is in one image, which also holds a can: the can at place 2 is then not needed.
    images = in_draw_order({0}, {0}, {CAN}, {CAN, ROPE})
    assert set(draw(images, amount(2), 0, CLASSES).labeled) == ids([images[0], images[3]])


def test_what_was_swapped_in_stays_while_drawn_images_can_leave() -> None:
    # The rope of place 3 comes in for place 2; then the can of place 4, which also holds rope, for place 1.
    images = in_draw_order({0}, {0}, {0}, {ROPE}, {CAN, ROPE}, {CAN}, {CAN})
    assert set(draw(images, amount(3), 0, CLASSES).labeled) == ids([images[0], images[3], images[4]])


def test_where_swapping_gets_stuck_a_cover_is_found() -> None:
    # Drawn: the can. Swapping in a bottle cannot let the can go; the one image with both would do.
    images = in_draw_order({CAN}, {BOTTLE}, {BOTTLE, CAN})
    assert draw(images, amount(1), 0, CLASSES).labeled == (images[2].id,)


def test_too_few_labels_for_the_classes_names_them_and_the_least_number() -> None:
    images = in_draw_order({0, BOTTLE}, {0, CAN}, {0, CAN}, {0, ROPE})
    with pytest.raises(UsageError, match=r"asks for 2 labelled images, .* \(no room for can\)\. Ask for at least 3\."):
        draw(images, amount(2), 0, CLASSES)
    with pytest.raises(UsageError, match=r"--labels 25% asks for 1 labelled image, .*\(no room for can, rope\)"):
        draw(images, amount("25%"), 0, CLASSES)


def test_more_labels_than_masks_says_how_many_there_are() -> None:
    with pytest.raises(UsageError, match="--labels 300 asks for 300 labelled images") as refusal:
        draw(DIVES, amount(300), 0, CLASSES)
    assert str(refusal.value).endswith("; the training part has 20 with masks. Ask for at most 20.")


@pytest.mark.parametrize("text", ["0", "0%", "1%"])
def test_no_label_at_all_says_the_least_number(text: str) -> None:
    # A can with rope and a bottle: two images show everything.
    with pytest.raises(UsageError, match=rf"--labels {text} is no image at all, of the 20 .* Ask for at least 2,"):
        draw(DIVES, amount(text), 0, CLASSES)


def test_without_masks_there_is_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="no image with a mask"):
        draw([], amount("2%"), 0, CLASSES)


def test_images_without_masks_are_unlabeled() -> None:
    split = draw(DIVES, amount("100%"), 0, CLASSES, unlabeled_extra=[Candidate("b.png"), Candidate("a.png")])
    assert split.unlabeled == ("a.png", "b.png")
    assert split.left_out == ()


def test_the_labels_are_counted_for_every_class() -> None:
    images = [Candidate("a", {0: 5, CAN: 7}), Candidate("b", {0: 6, CAN: 1, BOTTLE: 0})]
    split = draw(images, amount(2), 0, CLASSES)
    assert split.counts == {0: ClassCount(2, 11), 1: ClassCount(0, 0), 2: ClassCount(2, 8), 3: ClassCount(0, 0)}


def test_how_the_split_was_made_is_kept() -> None:
    split = draw(DIVES, amount("25%"), 3, CLASSES)
    assert (split.seed, split.options) == (3, {"labels": "25%", "by_sequence": False})


def test_the_list_of_seed_0_is_this_one_on_every_platform() -> None:
    # Written down once. If this fails, published splits can no longer be drawn again.
    split = draw(DIVES, amount("25%"), 0, CLASSES)
    assert split.labeled == tuple(f"images/f{i}.png" for i in ("00", "04", "07", "08", "17"))
    assert split.digest() == "fc9aed7373b1abc48d329742f321d8eaa536aac1c3cd2db9f3d7c082bb1c479b"


def test_the_digest_depends_on_what_is_trained_on_and_nothing_else() -> None:
    split = Split(("a",), ("b", "c"), 0, {}, {})
    assert split.digest() == replace(split, seed=5, options={"labels": "1"}, left_out=("d",)).digest()
    others = [
        replace(split, labeled=("a", "b"), unlabeled=("c",)),
        replace(split, unlabeled=("b\nc",)),
        replace(split, thin={1: 0.5}),
    ]
    assert len({split.digest(), *(other.digest() for other in others)}) == 4


def test_names_in_any_script_have_a_digest() -> None:
    assert len(Split(("бутылка/ü.png", "\udcff.png"), (), 0, {}, {}).digest()) == 64


held_classes = st.dictionaries(st.integers(0, 3), st.integers(1, 50), max_size=3)
pools = st.lists(st.tuples(held_classes, st.integers(0, 6)), min_size=1, max_size=25).map(
    lambda drawn: [
        Candidate(f"{i:02}.png", pixels, f"s{number}" if number else "") for i, (pixels, number) in enumerate(drawn)
    ]
)


@given(pool=pools, seed=st.integers(-5, 2**40), data=st.data())
@settings(max_examples=200, deadline=None)
def test_every_draw_is_exact_disjoint_and_shows_every_class(
    pool: list[Candidate], seed: int, data: st.DataObject
) -> None:
    # At most four classes, so four images always suffice.
    wanted = data.draw(st.integers(min(4, len(pool)), len(pool)))
    split = draw(pool, amount(wanted), seed, CLASSES)
    assert len(split.labeled) == wanted
    assert sorted(split.labeled + split.unlabeled) == sorted(ids(pool))
    held = set().union(*(c.classes for c in pool))
    assert {class_id for class_id, count in split.counts.items() if count.images} == held
    assert draw(pool[::-1], amount(wanted), seed, CLASSES) == split


@given(pool=pools, wanted=st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_a_draw_is_refused_only_for_want_of_labels(pool: list[Candidate], wanted: int) -> None:
    held = set().union(*(c.classes for c in pool))
    fewest = next(
        n
        for n in itertools.count(1)
        if any(held <= set().union(*(c.classes for c in some)) for some in itertools.combinations(pool, n))
    )
    if wanted > len(pool):
        return
    try:
        assert len(draw(pool, amount(wanted), 0, CLASSES).labeled) == wanted >= fewest
    except UsageError:
        assert wanted <= fewest  # with four classes, the greedy cover is at most one above the fewest


def test_another_seed_draws_another_list() -> None:
    lists = {draw(DIVES, amount(5), seed, CLASSES).labeled for seed in range(20)}
    assert len(lists) > 10


# ---------------------------------------------------------------- whole sequences


def frames(**lengths: int) -> list[Candidate]:
    return [Candidate(f"{name}{i}", {0: 1}, name) for name, length in lengths.items() for i in range(length)]


def sequences_of(names: Sequence[str], pool: Sequence[Candidate]) -> set[str]:
    return {c.sequence for c in pool if c.id in set(names)}


def test_whole_sequences_come_as_near_as_they_can() -> None:
    # Dives of four: 5 of 20 is nearest to one dive, and it must be one that holds rope.
    split = draw(DIVES, amount("25%"), 0, CLASSES, by_sequence=True)
    assert len(split.labeled) == 4
    assert sequences_of(split.labeled, DIVES) <= {"dive1", "dive4"}
    # 10 is as far from 8 as from 12: the fewer.
    assert len(draw(DIVES, amount(10), 0, CLASSES, by_sequence=True).labeled) == 8
    assert len(draw(DIVES, amount(11), 0, CLASSES, by_sequence=True).labeled) == 12


def test_a_sequence_far_too_long_is_passed_over() -> None:
    pool = frames(long=500, a=10, b=10, c=10)
    for seed in range(10):
        assert len(draw(pool, amount(20), seed, CLASSES, by_sequence=True).labeled) == 20


def test_the_shortest_sequence_is_labelled_where_all_are_too_long() -> None:
    split = draw(frames(a=30, b=20, c=40), amount(1), 0, CLASSES, by_sequence=True)
    assert len(split.labeled) == 20


def test_one_sequence_always_stays_unlabelled() -> None:
    # 96 of 100 is nearest to all; the shorter sequence stays behind.
    split = draw(frames(a=90, b=10), amount(96), 0, CLASSES, by_sequence=True)
    assert (len(split.labeled), len(split.unlabeled)) == (90, 10)


def test_one_single_sequence_cannot_be_divided() -> None:
    with pytest.raises(UsageError, match=r"--labels 10% by whole sequences takes all 96 images"):
        draw(frames(a=96), amount("10%"), 0, CLASSES, by_sequence=True)
    without_classes = [replace(c, pixels={}) for c in frames(a=96)]
    with pytest.raises(UsageError, match=r"takes all 96 images"):
        draw(without_classes, amount("10%"), 0, CLASSES, by_sequence=True)


def test_unmasked_frames_of_a_labelled_sequence_are_left_out() -> None:
    extra = [Candidate("x", sequence="a"), Candidate("y", sequence="b"), Candidate("z")]
    split = draw(frames(a=2, b=30), amount(2), 0, CLASSES, unlabeled_extra=extra, by_sequence=True)
    assert split.labeled == ("a0", "a1")
    assert split.left_out == ("x",)
    assert {"y", "z"} <= set(split.unlabeled)


def test_a_sequence_may_be_called_like_an_image() -> None:
    pool = [Candidate("a", {0: 1}), Candidate("b", {0: 1}, "a"), Candidate("c", {0: 1}, "a")]
    assert draw(pool, amount(1), 0, CLASSES, by_sequence=True).labeled == ("a",)


def test_single_images_in_place_of_sequences_are_still_counted_exactly() -> None:
    images = in_draw_order({BOTTLE}, {CAN}, {ROPE})
    with pytest.raises(UsageError, match="Ask for at least 3"):
        draw(images, amount(2), 0, CLASSES, by_sequence=True)


@given(pool=pools, seed=st.integers(0, 99), percent=st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_no_sequence_is_on_both_sides(pool: list[Candidate], seed: int, percent: int) -> None:
    try:
        split = draw(pool, amount(f"{percent}%"), seed, CLASSES, by_sequence=True)
    except UsageError:
        return
    shared = sequences_of(split.labeled, pool) & sequences_of(split.unlabeled, pool)
    assert shared <= {""}
    assert split.labeled
    assert sorted(split.labeled + split.unlabeled) == sorted(ids(pool))
    held = set().union(*(c.classes for c in pool))
    assert {class_id for class_id, count in split.counts.items() if count.images} == held


# ---------------------------------------------------------------- hold out


def test_a_validation_part_is_held_out_by_whole_sequences() -> None:
    kept, held = hold_out(DIVES, amount("20%"), 0)
    assert (len(kept), len(held)) == (16, 4)
    assert not {c.sequence for c in kept} & {c.sequence for c in held}
    assert [*kept, *held] != DIVES
    assert sorted([*kept, *held], key=DIVES.index) == DIVES


def test_training_keeps_every_class() -> None:
    # Rope is in one dive only: that dive is never held out.
    pool = [replace(c, pixels={0: 1} | ({ROPE: 1} if c.sequence == "dive2" else {})) for c in DIVES]
    for seed in range(20):
        _, held = hold_out(pool, amount(8), seed)
        assert len(held) == 8
        assert "dive2" not in {c.sequence for c in held}


def test_something_is_always_held_out() -> None:
    kept, held = hold_out(frames(a=50, b=60), amount(5), 0)
    assert (len(kept), len(held)) == (60, 50)


def test_single_images_can_be_held_out() -> None:
    kept, held = hold_out(DIVES, amount(3), 1, by_sequence=False)
    assert (len(kept), len(held)) == (17, 3)


@pytest.mark.parametrize("text", ["0", "1%", "20", "100%"])
def test_both_parts_need_an_image(text: str) -> None:
    with pytest.raises(UsageError, match="Hold out at least 1 and at most 19"):
        hold_out(DIVES, amount(text), 0)


def test_what_cannot_be_held_out_is_refused() -> None:
    with pytest.raises(UsageError, match="Of 1 images none"):
        hold_out(frames(a=1), amount("50%"), 0)
    with pytest.raises(UsageError, match="No sequence of these 9 images can be held out"):
        hold_out(frames(a=9), amount(3), 0)
    with pytest.raises(UsageError, match=r"take a class out of training\. Hold out at most 1"):
        hold_out(in_draw_order({BOTTLE}, {CAN}, {CAN}), amount(2), 0, by_sequence=False)


# ---------------------------------------------------------------- long tail


@pytest.mark.parametrize(
    ("largest", "ratio", "num_classes", "expected"),
    [
        (8, 4, 3, [8, 4, 2]),  # 8 · 4^0, 8 · 4^-½, 8 · 4^-1
        (100, 20, 2, [100, 5]),
        (9, 4, 3, [9, 5, 2]),  # 4.5 goes up, 2.25 down
        (3, 100, 3, [3, 1, 1]),  # 0.3 and 0.03 are still one image
        (7, 1, 3, [7, 7, 7]),
        (5, 20, 1, [5]),
        (5, 20, 0, []),
    ],
)
def test_quotas_fall_exponentially(largest: int, ratio: float, num_classes: int, expected: list[int]) -> None:
    assert quotas(largest, ratio, num_classes) == expected


def everything_unlabeled(pool: Sequence[Candidate], labeled: Sequence[Candidate] = ()) -> Split:
    rest = ids(pool) - ids(labeled)
    return Split(tuple(sorted(ids(labeled))), tuple(sorted(rest)), 0, {}, {"labels": "0"})


def single_class_images(**how_many: int) -> list[Candidate]:
    return [
        Candidate(f"{name}{i}", {0: 9, CLASSES.names.index(name): 1})
        for name, count in how_many.items()
        for i in range(count)
    ]


def test_both_parts_are_cut_to_quotas_of_their_own() -> None:
    # Labelled 4 of each class, unlabelled 16, 12, 9; ratio 4: quotas 4, 2, 1 and 16, 8, 4.
    pool = single_class_images(bottle=20, can=16, rope=13)
    labeled = single_class_images(bottle=4, can=4, rope=4)
    split = long_tail(everything_unlabeled(pool, labeled), pool, 4, CLASSES)
    assert Counter(name.rstrip("0123456789") for name in split.labeled) == {"bottle": 4, "can": 2, "rope": 1}
    assert Counter(name.rstrip("0123456789") for name in split.unlabeled) == {"bottle": 16, "can": 8, "rope": 4}
    assert split.counts[BOTTLE] == ClassCount(4, 4)
    assert split.options == {"labels": "0", "long_tail": 4}
    assert sorted(split.labeled + split.unlabeled + split.left_out) == sorted(ids(pool))


def test_an_image_belongs_to_its_rarest_foreground_class() -> None:
    # Bottles are in 6 images, ropes in 4, of which 2 hold both: each owns 4. Ratio 4 leaves all 4 and 1.
    both = [Candidate(f"both{i}", {0: 1, BOTTLE: 1, ROPE: 1}) for i in range(2)]
    pool = single_class_images(bottle=4, rope=2) + both
    split = long_tail(everything_unlabeled(pool), pool, 4, CLASSES)
    kept = [c for c in pool if c.id in split.unlabeled]
    assert sum(ROPE in c.classes for c in kept) == 1
    assert sum(ROPE not in c.classes for c in kept) == 4


def test_background_and_unmasked_images_stay() -> None:
    pool = [*single_class_images(bottle=4, can=4), *single_class_images(background=5)]
    split = everything_unlabeled(pool)
    split = long_tail(replace(split, unlabeled=(*split.unlabeled, "unmasked")), pool, 4, CLASSES)
    assert "unmasked" in split.unlabeled
    assert sum(name.startswith("background") for name in split.unlabeled) == 5
    assert len(split.unlabeled) == 4 + 1 + 5 + 1


def test_a_class_that_only_rides_along_is_not_lost() -> None:
    # Bottles are common, but the labels show them in rope images only. Owned: bottle 50, can 10, rope 8; of 10 cans and
    # 8 ropes ratio 10 leaves 3 and 1, and where that rope image has no bottle, one more that has.
    labeled = [
        *single_class_images(can=10),
        *(Candidate(f"rope{i}", {ROPE: 1}) for i in range(4)),
        *(Candidate(f"both{i}", {ROPE: 1, BOTTLE: 1}) for i in range(4)),
    ]
    pool = [*labeled, *single_class_images(bottle=50)]
    ropes = set()
    for seed in range(10):
        cut = long_tail(replace(everything_unlabeled(pool, labeled), seed=seed), pool, 10, CLASSES)
        assert (cut.counts[BOTTLE].images, cut.counts[CAN].images) == (1, 3)
        ropes.add(cut.counts[ROPE].images)
    assert ropes == {1, 2}


@pytest.mark.parametrize("ratio", [0.5, 0, -1, float("nan")])
def test_a_ratio_below_one_is_refused(ratio: float) -> None:
    with pytest.raises(UsageError, match="a ratio of 1 or more"):
        long_tail(everything_unlabeled(DIVES), DIVES, ratio, CLASSES)


@given(pool=pools, ratio=st.floats(1, 100), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_a_long_tail_loses_images_but_no_class(pool: list[Candidate], ratio: float, seed: int) -> None:
    split = draw(pool, amount(min(4, len(pool))), seed, CLASSES)
    cut = long_tail(split, pool, ratio, CLASSES)
    assert set(cut.labeled) <= set(split.labeled)
    assert set(cut.unlabeled) <= set(split.unlabeled)
    for before, after in ((split.labeled, cut.labeled), (split.unlabeled, cut.unlabeled)):
        held, kept = ([c.classes for c in pool if c.id in names] for names in (before, after))
        assert set().union(*held) == set().union(*kept)


# ---------------------------------------------------------------- balance

GROUPS: dict[int, Group] = {0: "background", BOTTLE: "head", CAN: "middle", ROPE: "tail"}


def test_head_images_are_dropped_until_the_head_is_as_large_as_the_tail() -> None:
    # Ten images of 10 bottle pixels against 30 rope pixels: 3 stay. Background and can are left alone.
    pool = [Candidate(f"b{i}", {0: 90, BOTTLE: 10}) for i in range(10)]
    pool += [Candidate("rope", {0: 70, ROPE: 30}), Candidate("can", {0: 1, CAN: 99})]
    even = balance(pool, GROUPS, 0, tolerance=0.0)
    assert len(even.dropped) == 7
    assert Counter(c.id[0] for c in even.kept) == {"b": 3, "r": 1, "c": 1}
    assert (even.reached, even.missed, even.thin) == ({BOTTLE: 1.0}, (), {})


def test_the_tolerance_includes_its_edge() -> None:
    # 13 against 10 is 30 % off: nothing to do, though 0.3 is a little less in binary.
    pool = [Candidate("a", {BOTTLE: 3}), Candidate("b", {BOTTLE: 10}), Candidate("c", {ROPE: 10})]
    even = balance(pool, GROUPS, 0, tolerance=0.3)
    assert (even.dropped, even.missed) == ((), ())
    assert even.reached == {BOTTLE: 1.3}
    assert balance(pool, GROUPS, 0, tolerance=0.29).dropped == ("a",)


def test_the_head_meets_the_mean_of_several_tail_classes() -> None:
    # Tails of 10 and 30 have mean 20; two bottles of 10 stay.
    groups: dict[int, Group] = {BOTTLE: "head", CAN: "tail", ROPE: "tail"}
    pool = [Candidate(f"b{i}", {BOTTLE: 10}) for i in range(6)]
    pool += [Candidate("can", {CAN: 10}), Candidate("rope", {ROPE: 30})]
    assert len(balance(pool, groups, 0).dropped) == 4


def test_images_with_tail_pixels_go_last() -> None:
    # 60 bottle against 20 rope pixels: any four images of 10 bottle pixels would do, and the four without rope go.
    pool = [Candidate(f"both{i}", {BOTTLE: 10, ROPE: 1}) for i in range(2)]
    pool += [Candidate(f"bottle{i}", {BOTTLE: 10}) for i in range(4)] + [Candidate("rope", {ROPE: 18})]
    for seed in range(5):
        assert balance(pool, GROUPS, seed).dropped == ("bottle0", "bottle1", "bottle2", "bottle3")


def test_head_and_tail_that_are_always_together_are_left_as_they_are() -> None:
    # Every image has twice as many bottle as rope pixels: dropping one would change nothing.
    even = balance([Candidate(f"{i}", {BOTTLE: 10, ROPE: 5}) for i in range(4)], GROUPS, 0)
    assert even.dropped == ()
    assert even.reached == {BOTTLE: 2.0}
    assert even.missed == (BOTTLE,)


def test_the_last_image_of_a_class_stays_and_the_shortfall_is_reported() -> None:
    pool = [Candidate("a", {BOTTLE: 90, ROPE: 10}), Candidate("b", {BOTTLE: 10, CAN: 1})]
    even = balance(pool, GROUPS, 0)
    assert even.dropped == ()
    assert even.reached == {BOTTLE: 10.0}
    assert even.missed == (BOTTLE,)


def test_at_the_pixel_level_every_image_stays() -> None:
    # 100 bottle pixels against 25: a quarter is kept.
    pool = [Candidate("a", {0: 9, BOTTLE: 60}), Candidate("b", {BOTTLE: 40, CAN: 500}), Candidate("c", {ROPE: 25})]
    even = balance(pool, GROUPS, 0, level="pixel")
    assert even.kept == tuple(pool)
    assert even.dropped == ()
    assert even.thin == {BOTTLE: 0.25}
    assert (even.reached, even.missed) == ({BOTTLE: 1.0}, ())


def test_a_head_smaller_than_the_tail_cannot_be_thinned() -> None:
    pool = [Candidate("a", {BOTTLE: 10}), Candidate("b", {ROPE: 40})]
    even = balance(pool, GROUPS, 0, level="pixel")
    assert (even.thin, even.reached, even.missed) == ({}, {BOTTLE: 0.25}, (BOTTLE,))


def test_balance_follows_the_seed() -> None:
    pool = [Candidate(f"b{i}", {BOTTLE: 10}) for i in range(10)] + [Candidate("rope", {ROPE: 30})]
    assert balance(pool, GROUPS, 4) == balance(pool, GROUPS, 4)
    assert len({balance(pool, GROUPS, seed).dropped for seed in range(10)}) > 5


def test_what_balance_cannot_mean_is_refused() -> None:
    with pytest.raises(UsageError, match="there are 1 head and 0 tail classes"):
        balance([Candidate("a", {BOTTLE: 1, ROPE: 0})], GROUPS, 0)
    with pytest.raises(UsageError, match=r"no level of balance called 'pixels'\. Did you mean pixel"):
        balance(DIVES, GROUPS, 0, level="pixels")
    with pytest.raises(UsageError, match="tolerance of 1 has no meaning"):
        balance(DIVES, GROUPS, 0, tolerance=1)
