"""Head, middle and tail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftcseg.data.groups import class_groups, rarest
from ftcseg.types import ClassTable


def named(count: int) -> ClassTable:
    """Background and so many classes."""
    return ClassTable.named("background", *(f"c{i}" for i in range(1, count + 1)))


def test_eleven_classes_are_four_three_four() -> None:
    # FLSMD's pixels, in units of 0.001 %: wall, tire, chain and can lead; the last four are tail.
    shares = [96240, 240, 260, 470, 88, 74, 200, 89, 45, 580, 63, 1660]
    groups = class_groups(named(11), dict(enumerate(shares)))
    assert groups[0] == "background"
    assert {c for c, g in groups.items() if g == "head"} == {11, 9, 3, 2}
    assert {c for c, g in groups.items() if g == "middle"} == {1, 6, 7}
    assert {c for c, g in groups.items() if g == "tail"} == {4, 5, 10, 8}


@pytest.mark.parametrize(
    ("foreground", "head", "middle", "tail"),
    [(1, 1, 0, 0), (2, 1, 0, 1), (3, 1, 1, 1), (4, 1, 2, 1), (5, 2, 1, 2), (6, 2, 2, 2), (7, 2, 3, 2), (19, 6, 7, 6)],
)
def test_thirds_of_other_numbers(foreground: int, head: int, middle: int, tail: int) -> None:
    pixels = {c: 1000 - c for c in range(foreground + 1)}
    groups = list(class_groups(named(foreground), pixels).values())
    assert [groups.count(g) for g in ("head", "middle", "tail")] == [head, middle, tail]
    assert groups[1] == "head"  # the class with most pixels


def test_a_class_without_pixels_is_tail() -> None:
    assert class_groups(named(3), {1: 5, 3: 1}) == {0: "background", 1: "head", 3: "middle", 2: "tail"}


def test_equal_pixels_go_by_id() -> None:
    assert class_groups(named(3), {}) == {0: "background", 1: "head", 2: "middle", 3: "tail"}


def test_a_class_that_says_its_group_keeps_it() -> None:
    table = named(3)
    first = replace(table[1], group="tail")
    overruled = ClassTable((table[0], first, *table.classes[2:]))
    assert class_groups(overruled, {1: 9, 2: 5, 3: 1}) == {0: "background", 1: "tail", 2: "middle", 3: "tail"}


def test_without_background_every_class_has_its_rank() -> None:
    table = ClassTable.named("water", "diver", "wreck", background=None)
    assert class_groups(table, {0: 1, 1: 5, 2: 3}) == {1: "head", 2: "middle", 0: "tail"}


def test_no_classes_have_no_groups() -> None:
    assert class_groups(ClassTable(()), {}) == {}


def test_the_rarest_object_is_there_and_is_no_background() -> None:
    classes = named(3)  # background 0 and the objects 1, 2, 3
    assert rarest(classes, {0: 1, 1: 50, 2: 7, 3: 7}) == 2
    assert rarest(classes, {0: 900, 1: 50, 2: 0}) == 1
    assert rarest(classes, {0: 900}) is None
