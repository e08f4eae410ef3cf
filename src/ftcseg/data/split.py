"""Which training images are labelled, which are not: drawn by seed, the same list on every platform.

    split = draw(candidates, parse_amount("2%"), seed=0, classes=classes)
    split.labeled, split.unlabeled, split.digest()

Whatever is drawn, every class the candidates hold is among the labels (reading D6). Two further cuts are for studies:
`long_tail` makes a drawn split longer-tailed (reading D5); `balance` evens out the candidates before a draw, or any
other list of images (reading D3). Nothing here opens a file: a candidate says what its mask holds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from ftcseg.errors import UsageError, unknown_name
from ftcseg.rng import shuffled
from ftcseg.types import ClassTable, Group

Option: TypeAlias = str | int | float | bool

TOLERANCE = 0.1
"""A head class counts as balanced within ±10 % of the tail's mean. Our choice: the paper gives none (reading D3)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One training image and what its mask holds; where there is no mask, `pixels` stays empty."""

    id: str
    """The image's path below the root of its set; no two are the same."""
    pixels: Mapping[int, int] = field(default_factory=dict)
    """Class id -> pixel count, for the classes present. IGNORE is no class."""
    sequence: str = ""
    """Frames of one sequence share this; an empty one stands for an image on its own."""

    @property
    def classes(self) -> frozenset[int]:
        """The ids of the classes this image holds."""
        return frozenset(class_id for class_id, count in self.pixels.items() if count > 0)


@dataclass(frozen=True, slots=True)
class Amount:
    """So many images, or so many in a hundred; `parse_amount` reads one."""

    value: Fraction
    is_percent: bool

    def of(self, total: int) -> int:
        """How many of `total` images this is: 2 % of 1494 is 30. Halves are rounded up."""
        exact = self.value * total / 100 if self.is_percent else self.value
        return math.floor(exact + Fraction(1, 2))

    def __str__(self) -> str:
        return f"{float(self.value):.10g}{'%' if self.is_percent else ''}"


@dataclass(frozen=True, slots=True)
class ClassCount:
    """How many images hold a class, and in how many pixels."""

    images: int
    pixels: int


@dataclass(frozen=True, slots=True)
class Split:
    """The labelled and the unlabelled images of one draw, each list in the order of its names."""

    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]
    seed: int
    counts: Mapping[int, ClassCount]
    """What the labels hold, for every class of the set, before any thinning."""
    options: Mapping[str, Option]
    """How the split was made, as it would be asked for again."""
    thin: Mapping[int, float] = field(default_factory=dict)
    """Class id -> share of its pixels to keep; from Balance.thin, where candidates were balanced at the pixel level."""
    left_out: tuple[str, ...] = ()
    """Images in neither list: unmasked frames of a labelled sequence, and what `long_tail` or a balance took away."""

    def digest(self) -> str:
        """A fingerprint of what is trained on: equal lists and thinning, equal digest, on every platform."""
        thin = sorted(self.thin.items())
        text = json.dumps({"labeled": self.labeled, "unlabeled": self.unlabeled, "thin": thin}, sort_keys=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Balance:
    """A list of images whose head classes have been cut down to the tail, as far as that went."""

    kept: tuple[Candidate, ...]
    dropped: tuple[str, ...]
    thin: Mapping[int, float]
    """Share of pixels to keep, for each head class that is thinned; see Split.thin."""
    reached: Mapping[int, float]
    """Head class id -> its pixels as a multiple of the tail's mean; 1 is perfect."""
    missed: tuple[int, ...]
    """Head classes still outside the tolerance, because every further cut would lose a class or make things worse."""


# ---------------------------------------------------------------- amounts


def parse_amount(text: str) -> Amount:
    """An amount as people write it: "2%", "2.5 %" or "30". A bare fraction is refused, since it could mean either."""
    text = text.strip()
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(%?)", text)
    if not match or ("." in match[1] and not match[2]):
        share = Fraction(match[1]) if match else Fraction(1)
        meant = f"Did you mean {Amount(share * 100, is_percent=True)}? " if share < 1 else ""
        raise UsageError(f"{text!r} is no amount. {meant}Write a percentage (2%) or a whole number of images (30).")
    amount = Amount(Fraction(match[1]), is_percent=bool(match[2]))
    if amount.is_percent and amount.value > 100:
        raise UsageError(f"{amount} is more than there is. Ask for at most 100%.")
    return amount


# ---------------------------------------------------------------- draw


def draw(
    candidates: Sequence[Candidate],
    amount: Amount,
    seed: int,
    classes: ClassTable,
    *,
    unlabeled_extra: Iterable[Candidate] = (),
    by_sequence: bool = False,
) -> Split:
    """A seeded draw of labelled images that shows every class the candidates hold (reading D6).

    Images come in hash order. A class that is missing then is swapped in, rarest first: the first image that holds it,
    for the last one drawn that no class depends on. `unlabeled_extra` are the images without masks.

    With `by_sequence`, labelled and unlabelled images never share a sequence. Whole sequences are drawn, each if it
    brings the count nearer to the amount, so the count may be off; every class is still shown. Unmasked frames of a
    labelled sequence are left out.
    """
    wanted = _labels_wanted(amount, candidates)
    blocks = _blocks(candidates, seed, "labels", by_sequence)
    chosen = _choose(blocks, wanted)
    if _is_of_single_images(blocks) and _count(chosen) != wanted:
        raise _too_few_for_all_classes(amount, wanted, blocks, classes)
    labeled = _members(chosen)
    sequences = {c.sequence for c in labeled if c.sequence and by_sequence}
    extra = list(unlabeled_extra)
    unlabeled = [c for c in _without([*candidates, *extra], labeled) if c.sequence not in sequences]
    if not unlabeled and wanted < len(candidates):
        raise UsageError(
            f"--labels {amount} by whole sequences takes all {len(candidates)} images and leaves none unlabelled. "
            "Draw single images instead, or divide the set into more sequences."
        )
    return Split(
        labeled=_names(labeled),
        unlabeled=_names(unlabeled),
        seed=seed,
        counts=_class_counts(labeled, classes),
        options={"labels": str(amount), "by_sequence": by_sequence},
        left_out=_names(c for c in extra if c.sequence in sequences),
    )


def hold_out(
    candidates: Sequence[Candidate], amount: Amount, seed: int, *, by_sequence: bool = True
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """The candidates as (kept, held): a seeded validation part, by whole sequences, that costs training no class.

    The number held is the nearest to the amount that whole sequences allow, and never none. A class too rare to be in
    both parts stays in training, so validation may lack it.
    """
    total, wanted = len(candidates), amount.of(len(candidates))
    if total < 2:
        raise UsageError(f"Of {total} images none can be held out. A validation part needs a training part beside it.")
    if not 0 < wanted < total:
        raise UsageError(
            f"Holding out {amount} of {total} images is {min(wanted, total)} of them, which leaves one part empty. "
            f"Hold out at least 1 and at most {total - 1}."
        )
    blocks = _blocks(candidates, seed, "validation", by_sequence)
    kept = _choose(blocks, total - wanted)
    if _is_of_single_images(blocks) and _count(kept) != total - wanted:
        most = total - len(_cover(blocks))
        raise UsageError(
            f"Holding out {amount} of {total} images would take a class out of training. Hold out at most {most}."
        )
    held = _without(candidates, _members(kept))
    if not held:
        raise UsageError(
            f"No sequence of these {total} images can be held out: each is the only one, or the only one of its class. "
            "Hold out single images instead, or divide the set into more sequences."
        )
    return tuple(_without(candidates, held)), tuple(held)


def _labels_wanted(amount: Amount, candidates: Sequence[Candidate]) -> int:
    total, wanted = len(candidates), amount.of(len(candidates))
    if total == 0:
        raise UsageError("The training part has no image with a mask, so none can be labelled. Add masks first.")
    if wanted > total:
        raise UsageError(
            f"--labels {amount} asks for {_images(wanted)}; the training part has {total} with masks. "
            f"Ask for at most {total}."
        )
    if wanted == 0:
        least = len(_cover([_Block((c,), c.classes) for c in candidates]))
        raise UsageError(
            f"--labels {amount} is no image at all, of the {total} with masks. "
            f"Ask for at least {max(least, 1)}, so that every class is shown."
        )
    return wanted


def _too_few_for_all_classes(amount: Amount, wanted: int, blocks: Sequence[_Block], classes: ClassTable) -> UsageError:
    cover = _cover(blocks)
    shown = frozenset[int]().union(*(block.classes for block in cover[:wanted]))
    missing = ", ".join(classes[class_id].name for class_id in sorted(set(_rarest_first(blocks)) - shown))
    return UsageError(
        f"--labels {amount} asks for {_images(wanted)}, too few to show every class (no room for {missing}). "
        f"Ask for at least {len(cover)}."
    )


def _images(count: int) -> str:
    return f"{count} labelled image{'s' if count != 1 else ''}"


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """What is drawn in one piece: a single image, or all frames of a sequence."""

    members: tuple[Candidate, ...]
    classes: frozenset[int]

    @property
    def size(self) -> int:
        return len(self.members)


def _blocks(candidates: Sequence[Candidate], seed: int, salt: str, by_sequence: bool) -> list[_Block]:
    """The blocks in the hash order of their names."""
    members: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        # The NUL keeps a sequence apart from an image that is called the same.
        whole = by_sequence and candidate.sequence
        members.setdefault(f"sequence\0{candidate.sequence}" if whole else candidate.id, []).append(candidate)
    return [
        _Block(tuple(members[name]), frozenset[int]().union(*(c.classes for c in members[name])))
        for name in shuffled(list(members), seed, salt)
    ]


def _choose(blocks: Sequence[_Block], wanted: int) -> list[_Block]:
    """Blocks of about `wanted` images that show every class; never none, nor all where fewer would do.

    Single images come to exactly `wanted`, unless that is too few for the classes; then there are more.
    """
    drawn = _filled([], blocks, wanted) or [min(blocks, key=lambda block: block.size)]
    chosen = _filled(_with_missing_classes(drawn, blocks, wanted), blocks, wanted)
    if _count(chosen) != wanted:  # swapping one by one can get stuck where starting from a cover does not
        from_cover = _filled(_cover(blocks), blocks, wanted) or chosen
        chosen = min(chosen, from_cover, key=lambda some: abs(_count(some) - wanted))
    if 1 < len(chosen) == len(blocks) and wanted < _count(blocks):
        holders = _holders(chosen)
        spare = [block for block in chosen if _is_spare(block, holders)]
        if spare:
            chosen.remove(min(spare, key=lambda block: block.size))
    return chosen


def _filled(chosen: list[_Block], blocks: Sequence[_Block], wanted: int) -> list[_Block]:
    """`chosen`, and after it every further block that brings the count nearer to `wanted`."""
    filled, taken, count = list(chosen), set(chosen), _count(chosen)
    for block in blocks:
        if abs(count + block.size - wanted) < abs(count - wanted) and block not in taken:
            filled.append(block)
            count += block.size
    return filled


def _with_missing_classes(drawn: list[_Block], blocks: Sequence[_Block], wanted: int) -> list[_Block]:
    """`drawn`, with the first block of every missing class swapped in for the last ones that no class depends on."""
    chosen = list(drawn)
    for class_id in _rarest_first(blocks):
        if not any(class_id in block.classes for block in chosen):
            # In front, because the last ones leave first.
            chosen.insert(0, next(block for block in blocks if class_id in block.classes))
            chosen = _trimmed(chosen, wanted)
    return chosen


def _trimmed(chosen: list[_Block], wanted: int) -> list[_Block]:
    """`chosen` without the last blocks, as long as that brings the count nearer to `wanted` and loses no class."""
    kept, holders, count = list(chosen), _holders(chosen), _count(chosen)
    for block in reversed(chosen):
        if abs(count - block.size - wanted) < abs(count - wanted) and _is_spare(block, holders):
            kept.remove(block)
            holders.subtract(block.classes)
            count -= block.size
    return kept


def _cover(blocks: Sequence[_Block]) -> list[_Block]:
    """Few blocks that show every class between them: for the rarest missing class, the holder that adds most classes.

    The fewest possible are not promised (that is the set cover problem), only that what this finds is a cover.
    """
    classes = _rarest_first(blocks)
    missing = set(classes)
    cover: list[_Block] = []
    for class_id in classes:
        if class_id in missing:
            holders = (block for block in blocks if class_id in block.classes)
            cover.append(max(holders, key=lambda block: len(block.classes & missing)))
            missing -= cover[-1].classes
    return cover


def _rarest_first(blocks: Sequence[_Block]) -> list[int]:
    """The classes that are held at all, the one in the fewest images first."""
    images = Counter(class_id for member in _members(blocks) for class_id in member.classes)
    return sorted(images, key=lambda class_id: (images[class_id], class_id))


def _holders(blocks: Iterable[_Block]) -> Counter[int]:
    """Class id -> in how many blocks it is."""
    return Counter(class_id for block in blocks for class_id in block.classes)


def _is_spare(block: _Block, holders: Counter[int]) -> bool:
    return all(holders[class_id] > 1 for class_id in block.classes)


def _is_of_single_images(blocks: Iterable[_Block]) -> bool:
    return all(block.size == 1 for block in blocks)


def _count(blocks: Iterable[_Block]) -> int:
    return sum(block.size for block in blocks)


def _members(blocks: Iterable[_Block]) -> list[Candidate]:
    return [member for block in blocks for member in block.members]


def _without(candidates: Iterable[Candidate], taken: Iterable[Candidate]) -> list[Candidate]:
    names = {candidate.id for candidate in taken}
    return [candidate for candidate in candidates if candidate.id not in names]


def _names(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(sorted(candidate.id for candidate in candidates))


def _class_counts(candidates: Collection[Candidate], classes: ClassTable) -> dict[int, ClassCount]:
    images = Counter(class_id for c in candidates for class_id in c.classes)
    pixels = _pixel_sums(candidates)
    return {c.id: ClassCount(images[c.id], pixels[c.id]) for c in classes}


def _pixel_sums(candidates: Iterable[Candidate]) -> Counter[int]:
    sums: Counter[int] = Counter()
    for candidate in candidates:
        sums.update(candidate.pixels)
    return sums


# ---------------------------------------------------------------- long tail


def long_tail(split: Split, candidates: Sequence[Candidate], ratio: float, classes: ClassTable) -> Split:
    """The split with both its parts cut to exponential image quotas, head to tail as `ratio` to one (reading D5).

    Every image belongs to the rarest foreground class it holds. Classes are ranked by the images that belong to them
    among all candidates, so that both parts share one ranking; each part then has its own quotas. A class with fewer
    images than its quota keeps them all. Images of pure background stay, and so do those without masks, whose classes
    nobody knows. A class that would vanish with other classes' images keeps one image above quota.
    """
    if not ratio >= 1:
        raise UsageError(f"A long tail of {ratio:g} to 1 has no meaning. Ask for a ratio of 1 or more, such as 20.")
    owners = _owners(candidates, classes)
    sizes = Counter(owners.values())
    ranking = sorted(sizes, key=lambda class_id: (-sizes[class_id], class_id))
    known = {candidate.id: candidate for candidate in candidates}

    def cut(names: tuple[str, ...]) -> list[Candidate]:
        hashed = [known[name] for name in shuffled([n for n in names if n in known], split.seed, "long tail")]
        return _within_quotas(hashed, owners, ranking, ratio)

    labeled, unlabeled = cut(split.labeled), cut(split.unlabeled)
    unmasked = [Candidate(name) for name in split.unlabeled if name not in known]
    kept = {candidate.id for candidate in (*labeled, *unlabeled, *unmasked)}
    return replace(
        split,
        labeled=_names(labeled),
        unlabeled=_names([*unlabeled, *unmasked]),
        counts=_class_counts(labeled, classes),
        options={**split.options, "long_tail": ratio},
        left_out=tuple(sorted({*split.left_out, *split.labeled, *split.unlabeled} - kept)),
    )


def quotas(largest: int, ratio: float, num_classes: int) -> list[int]:
    """Images per class from head to tail, largest · ratio^(-rank / (num_classes - 1)), halves up and never none."""
    steps = max(num_classes - 1, 1)
    # Rounded to a millionth first, so that the last bit of a platform's power function decides nothing.
    exact = (round(largest * ratio ** (-rank / steps), 6) for rank in range(num_classes))
    return [max(1, math.floor(size + 0.5)) for size in exact]


def _owners(candidates: Sequence[Candidate], classes: ClassTable) -> dict[str, int]:
    """Image id -> the rarest foreground class it holds; images of pure background have no owner."""
    foreground = frozenset(classes.foreground)
    images = Counter(class_id for c in candidates for class_id in c.classes & foreground)
    return {
        c.id: min(c.classes & foreground, key=lambda class_id: (images[class_id], class_id))
        for c in candidates
        if c.classes & foreground
    }


def _within_quotas(
    hashed: Sequence[Candidate], owners: Mapping[str, int], ranking: Sequence[int], ratio: float
) -> list[Candidate]:
    """The first images of every class in hash order, up to its quota; then one of every class lost that way."""
    sizes = Counter(owners[c.id] for c in hashed if c.id in owners)
    largest = max(sizes.values(), default=0)
    room = Counter(dict(zip(ranking, quotas(largest, ratio, len(ranking)), strict=True)))
    kept: list[Candidate] = []
    rest: list[Candidate] = []
    for candidate in hashed:
        owner = owners.get(candidate.id)
        (kept if owner is None or room[owner] > 0 else rest).append(candidate)
        if owner is not None:
            room[owner] -= 1
    shown = frozenset[int]().union(*(c.classes for c in kept))
    for candidate in rest:
        if candidate.classes - shown:
            kept.append(candidate)
            shown |= candidate.classes
    return kept


# ---------------------------------------------------------------- balance


def balance(
    candidates: Sequence[Candidate],
    groups: Mapping[int, Group],
    seed: int,
    *,
    level: str = "image",
    tolerance: float = TOLERANCE,
) -> Balance:
    """The candidates with head classes cut down to the mean pixel count of the tail classes (reading D3).

    At the image level, images are dropped in hash order, those without tail pixels first, wherever that brings the head
    nearer to the tail and loses no class. Hash order rather than largest first: dropping the images with the biggest
    objects would leave a head of small ones. At the pixel level every image stays, and `thin` says which share of each
    head class's pixels to keep.
    """
    if level not in LEVELS:
        raise unknown_name("level of balance", level, LEVELS)
    if not 0 <= tolerance < 1:
        raise UsageError(
            f"A tolerance of {tolerance:g} has no meaning. Choose one from 0 up to 1, such as {TOLERANCE}."
        )
    held = _pixel_sums(candidates)
    head = [class_id for class_id in sorted(held) if held[class_id] and groups.get(class_id) == "head"]
    tail = [class_id for class_id in sorted(held) if held[class_id] and groups.get(class_id) == "tail"]
    if not head or not tail:
        raise UsageError(
            f"Balancing needs head and tail classes in the images; there are {len(head)} head and {len(tail)} tail "
            "classes. Name the groups of the classes, or balance a larger set."
        )
    written = Fraction(str(tolerance))  # 0.3 means three tenths, not the binary number just below
    return LEVELS[level](candidates, _Scale(head, tail, written), seed)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How far head classes are from the tail's mean; in exact fractions, so that every platform decides alike."""

    head: Sequence[int]
    tail: Sequence[int]
    tolerance: Fraction

    def multiples(self, pixels: Mapping[int, int]) -> dict[int, Fraction]:
        """Head class id -> its pixels as a multiple of the tail's mean."""
        tail = sum(pixels[class_id] for class_id in self.tail)
        return {class_id: Fraction(pixels[class_id] * len(self.tail), tail) for class_id in self.head}

    def excess(self, multiple: Fraction) -> Fraction:
        """How far outside the tolerance this is."""
        return max(Fraction(0), abs(multiple - 1) - self.tolerance)

    def gap(self, pixels: Mapping[int, int]) -> Fraction:
        """The excess of the whole head."""
        return sum((self.excess(multiple) for multiple in self.multiples(pixels).values()), Fraction(0))


def _balance_images(candidates: Sequence[Candidate], scale: _Scale, seed: int) -> Balance:
    dropped = _images_to_drop(candidates, scale, seed)
    kept = _without(candidates, dropped)
    multiples = scale.multiples(_pixel_sums(kept))
    return Balance(
        kept=tuple(kept),
        dropped=_names(dropped),
        thin={},
        reached={class_id: float(multiple) for class_id, multiple in multiples.items()},
        missed=tuple(class_id for class_id, multiple in multiples.items() if scale.excess(multiple)),
    )


def _balance_pixels(candidates: Sequence[Candidate], scale: _Scale, _seed: int) -> Balance:
    multiples = scale.multiples(_pixel_sums(candidates))
    outside = {class_id: multiple for class_id, multiple in multiples.items() if scale.excess(multiple)}
    thin = {class_id: float(1 / multiple) for class_id, multiple in outside.items() if multiple > 1}
    return Balance(
        kept=tuple(candidates),
        dropped=(),
        thin=thin,
        reached={class_id: 1.0 if class_id in thin else float(multiple) for class_id, multiple in multiples.items()},
        missed=tuple(class_id for class_id in outside if class_id not in thin),  # smaller than the tail as it is
    )


LEVELS: Mapping[str, Callable[[Sequence[Candidate], _Scale, int], Balance]] = {
    "image": _balance_images,
    "pixel": _balance_pixels,
}


def _images_to_drop(candidates: Sequence[Candidate], scale: _Scale, seed: int) -> list[Candidate]:
    """The images whose going narrows the gap, in passes until it is closed or a pass finds none."""
    by_id = {candidate.id: candidate for candidate in candidates}
    hashed = [by_id[name] for name in shuffled(list(by_id), seed, "balance")]
    order = sorted(hashed, key=lambda c: not c.classes.isdisjoint(scale.tail))  # stable: hash order within each half
    pixels, images = _pixel_sums(candidates), Counter(class_id for c in candidates for class_id in c.classes)
    dropped: list[Candidate] = []
    gap, found_one = scale.gap(pixels), True
    while gap > 0 and found_one:
        found_one, staying = False, []
        for candidate in order:
            after = pixels.copy()
            after.subtract(candidate.pixels)
            loses_a_class = any(images[class_id] == 1 for class_id in candidate.classes)
            if not loses_a_class and (narrower := scale.gap(after)) < gap:
                pixels, gap, found_one = after, narrower, True
                images.subtract(candidate.classes)
                dropped.append(candidate)
            else:
                staying.append(candidate)
        order = staying
    return dropped
