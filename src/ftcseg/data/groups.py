"""Head, middle and tail: thirds of the foreground classes by pixel share, background apart (reading D1)."""

from __future__ import annotations

from collections.abc import Mapping

from ftcseg.types import ClassTable, Group


def class_groups(classes: ClassTable, pixels: Mapping[int, int]) -> dict[int, Group]:
    """The group of every class id; a class that says its own group keeps it.

    With 11 foreground classes: the 4 with most pixels are head, the 4 with fewest tail, the 3 between middle. Two
    foreground classes are one head and one tail; a single one is head.
    """
    ranked = sorted(classes.foreground, key=lambda c: (-pixels.get(c, 0), c))
    third = (len(ranked) + 1) // 3 if len(ranked) > 1 else 0
    groups: dict[int, Group] = {c.id: "background" for c in classes if c.background}
    for rank, class_id in enumerate(ranked):
        if rank < third or len(ranked) == 1:
            groups[class_id] = "head"
        elif rank >= len(ranked) - third:
            groups[class_id] = "tail"
        else:
            groups[class_id] = "middle"
    return groups | {c.id: c.group for c in classes if c.group is not None}


def rarest(classes: ClassTable, pixels: Mapping[int, int]) -> int | None:
    """The foreground class with the fewest pixels, and at least one; of equals the first. None where there is none."""
    there = [c for c in classes.foreground if pixels.get(c, 0) > 0]
    return min(there, key=lambda c: (pixels[c], c), default=None)
