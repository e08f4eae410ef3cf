"""A split drawn from an examined set: what `ftcseg split` and `ftcseg train --labels` share."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from ftcseg.data import split as splitting
from ftcseg.data.doctor import Examination
from ftcseg.data.split import Candidate, Split, parse_amount
from ftcseg.errors import UsageError

Whole: TypeAlias = bool | Literal["val"]
"""Whether frames of one sequence stay together: nowhere, in every list, or in the validation part alone."""
_SEED_BOUND = 2**32


def candidates_of(
    examination: Examination, *, redraw_val: bool
) -> tuple[list[Candidate], list[Candidate], dict[str, list[str]]]:
    """Training images with usable masks, those without, and the images of the other parts."""
    training = {"train", "val"} if redraw_val else {"train"}
    masked: list[Candidate] = []
    unmasked: list[Candidate] = []
    held: dict[str, list[str]] = {"val": [], "test": []}
    rows = zip(examination.records, examination.facts, examination.pixels, examination.sequences.of, strict=True)
    for record, facts, pixels, sequence in rows:
        if facts.image.problem is not None:
            continue
        if record.part not in training:
            held[record.part].append(record.image)
        elif pixels:
            masked.append(Candidate(record.image, pixels, sequence))
        elif record.mask is None:
            unmasked.append(Candidate(record.image, {}, sequence))
    if not masked:
        name = examination.description.name
        raise UsageError(
            f"No training image of {name} has a usable mask. See «ftcseg doctor» for why; label a few first."
        )
    return masked, unmasked, held


def drawn(  # noqa: PLR0913  each choice has a name
    examination: Examination,
    labels: str | int,
    *,
    seed: int,
    by_sequence: Whole = False,
    cuts: tuple[float | None, str | None] = (None, None),
    val: str | int | None = None,
    tune: str | int | None = None,
) -> tuple[Split, dict[str, list[str]]]:
    """The split and the images of the other parts; `cuts` are (long-tail ratio, level of balance).

    `val` draws the validation part anew, from training and validation images alike. `tune` draws one from the training
    images only and leaves the set's own validation and test images out: for choosing settings that are judged later.
    With `by_sequence="val"` that part is whole sequences, and labels are drawn frame by frame from the others.
    """
    if val is not None and tune is not None:
        raise UsageError("--val draws the validation part anew, --tune makes one inside the training part: choose one.")
    if not 0 <= seed < _SEED_BOUND:
        raise UsageError(f"The seed {seed} is out of range. Use a whole number from 0 to {_SEED_BOUND - 1}.")
    amount = parse_amount(str(labels))
    long_tail, balanced = cuts
    candidates, unmasked, held = candidates_of(examination, redraw_val=val is not None)
    options: dict[str, splitting.Option] = {}
    held_out = val if tune is None else tune
    if by_sequence == "val":
        if held_out is None:
            raise UsageError("Whole sequences for the validation part alone: say with --val or --tune how many frames.")
        options["val_by_sequence"] = True
    if held_out is not None:
        kept, out = splitting.hold_out(candidates, parse_amount(str(held_out)), seed, by_sequence=bool(by_sequence))
        candidates, held["val"] = list(kept), [c.id for c in out]
        options["val" if tune is None else "tune"] = str(held_out)
        if tune is not None:
            held["test"] = []
        if by_sequence:  # a frame without a mask must not carry the held-out scenes back into training
            scenes = {c.sequence for c in out if c.sequence}
            unmasked = [c for c in unmasked if c.sequence not in scenes]
    thin: dict[int, float] = {}
    dropped: tuple[str, ...] = ()
    if balanced is not None:
        groups = {row.id: row.group for row in examination.classes}
        balance = splitting.balance(candidates, groups, seed, level=balanced)
        candidates, thin, options["balanced"] = list(balance.kept), dict(balance.thin), balanced
        dropped = balance.dropped
    classes = examination.description.classes
    whole = by_sequence is True
    split = splitting.draw(candidates, amount, seed, classes, unlabeled_extra=unmasked, by_sequence=whole)
    if long_tail is not None:
        split = splitting.long_tail(split, candidates, long_tail, classes)
    options["asked"] = amount.of(len(candidates))
    left_out = tuple(sorted({*split.left_out, *dropped}))
    return replace(split, options={**split.options, **options}, thin=thin, left_out=left_out), held
