"""Two records of the same measurement: what was lost, what was gained, and on how fast a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ftcseg.bench.record import Row, read, rows_of
from ftcseg.errors import UsageError

LIMIT = 0.10
"""A loss above this is flagged."""
RATE_NOISE = 0.03
"""Matrix-multiply rates that differ by less are called equal: one machine differs that much from itself."""
SMALLEST_SHARE = 0.01
"""Parts below this share of the whole, before and after, are told but never flagged: twice nothing is nothing."""

Verdict: TypeAlias = Literal["loss", "gain", "same", "not judged"]


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both records."""

    name: str
    unit: str
    old: float
    new: float
    """As it was measured."""
    fair: float
    """As it would have been on the old record's machine, by the rates of both."""
    loss: float
    """By how much it became worse: 0.25 is a quarter more time, or a rate that takes a quarter more time. Below 0
    where it became better."""
    verdict: Verdict
    overlap: bool
    """Whether the middle halves of both overlap: then it may be chance."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every row of both records, and what a reader has to know about them."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    rate: float
    """The new machine's matrix-multiply rate over the old one's; 1 where they are called equal."""
    limit: float

    @property
    def losses(self) -> list[Change]:
        """What became worse by more than the limit."""
        return [change for change in self.changes if change.verdict == "loss"]

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        told = asdict(self)
        return {**told, "changes": list(told["changes"]), "notes": list(self.notes), "losses": len(self.losses)}


def bench_compare(old: str | Path, new: str | Path, *, limit: float = LIMIT) -> Comparison:
    """Compare two files that «ftcseg bench ... --save» wrote.

    Example: `ftcseg.bench_compare("speed-0.1.json", "speed-now.json").losses`
    """
    if not 0 <= limit < 1:
        raise UsageError(f"A limit of {limit} flags nothing sensible. Give a share such as 0.10.")
    return compared(read(Path(old)), read(Path(new)), limit)


def compared(old: Mapping[str, Any], new: Mapping[str, Any], limit: float = LIMIT) -> Comparison:
    """The comparison of two records; UsageError where they measured different things."""
    _refuse_unlike(old, new)
    rate = _rate(new) / _rate(old)
    equal = abs(rate - 1) <= RATE_NOISE
    notes = _notes(old, new, rate, equal=equal)
    rate = 1.0 if equal else rate
    before, after = ({row.name: row for row in rows_of(values)} for values in (old, new))
    shared = [name for name in before if name in after]
    for text, only in (("old", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        if only:
            notes.append(f"Only in the {text} record: {', '.join(sorted(only))}.")
    if not shared:
        raise UsageError("The two records have no row in common.")
    return Comparison(
        tuple(_change(before[name], after[name], rate, limit) for name in shared), tuple(notes), rate, limit
    )


def _change(old: Row, new: Row, rate: float, limit: float) -> Change:
    factor = {"s": rate, "images/s": 1 / rate}.get(old.unit, 1.0)
    fair = new.median * factor
    worse, better = (fair, old.median) if old.better == "lower" else (old.median, fair)
    loss = 0.0 if worse == better else worse / better - 1 if better > 0 else float("inf")
    return Change(
        old.name, old.unit, old.median, new.median, fair, loss, _verdict(old, new, loss, limit), _meet(old, new, factor)
    )


def _verdict(old: Row, new: Row, loss: float, limit: float) -> Verdict:
    if old.share is not None and new.share is not None and max(old.share, new.share) < SMALLEST_SHARE:
        return "not judged"
    if loss > limit:
        return "loss"
    return "gain" if loss < 1 / (1 + limit) - 1 else "same"


def _meet(old: Row, new: Row, factor: float) -> bool:
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.low <= new.high * factor and new.low * factor <= old.high


def _rate(values: Mapping[str, Any]) -> float:
    rate = float(values["matmul"]["flops_per_second"])
    if not rate > 0:
        raise UsageError(f"A record says that its machine multiplies {rate} times a second. Measure again.")
    return rate


def _refuse_unlike(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if old["kind"] != new["kind"]:
        raise UsageError(f"One record is of «bench {old['kind']}», the other of «bench {new['kind']}».")
    keys = [key for key in {**old["asked"], **new["asked"]} if old["asked"].get(key) != new["asked"].get(key)]
    if keys:
        told = "; ".join(f"{key}: {old['asked'].get(key)} and {new['asked'].get(key)}" for key in keys)
        raise UsageError(f"The two records measured different things ({told}). Measure the same, then compare.")


def _notes(old: Mapping[str, Any], new: Mapping[str, Any], rate: float, *, equal: bool) -> list[str]:
    giga = [f"{_rate(values) / 1e9:.1f}" for values in (old, new)]
    if equal:
        notes = [f"Both machines multiply matrices alike: {giga[0]} and {giga[1]} GFLOP/s. Times stand as measured."]
    else:
        notes = [
            f"The machines multiply matrices at {giga[0]} and {giga[1]} GFLOP/s, a factor of {rate:.2f}: times and "
            "rates of the new record are brought to the old machine's speed before they are judged."
        ]
    for group in ("machine", "versions"):
        for key in {**old[group], **new[group]}:
            was, now = old[group].get(key), new[group].get(key)
            if was != now:
                notes.append(f"{key}: {was} before, {now} now.")
    if old.get("interrupted") or new.get("interrupted"):
        notes.append("A record was interrupted: it rests on fewer rounds than were asked for.")
    return notes
