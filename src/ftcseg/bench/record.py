"""What was measured, as a file: rows with a unit, and everything that they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from ftcseg.bench.machine import RateMeter, facts, versions
from ftcseg.bench.spread import Spread
from ftcseg.errors import LayoutError
from ftcseg.files import read_json, write_json

MARK, VERSION = "ftcseg bench", 1
"""What a record begins with."""

Unit: TypeAlias = Literal["s", "images/s", "bytes", "ratio", "share", "miou"]
"""Times and rates depend on the machine and are compared by its speed; the others are compared as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result that can be compared with that of another day."""

    name: str
    unit: Unit
    better: Literal["lower", "higher"]
    median: float
    low: float | None = None
    high: float | None = None
    share: float | None = None
    """Of the whole that it is a part of; None where it is no part. Tiny parts are told, and never called a loss."""


def row(name: str, unit: Unit, better: Literal["lower", "higher"], value: Spread | float, **more: float) -> Row:
    """A row of a spread, or of a single number."""
    if isinstance(value, Spread):
        return Row(
            name=name,
            unit=unit,
            better=better,
            median=value.median,
            low=value.low,
            high=value.high,
            share=more.get("share"),
        )
    return Row(name=name, unit=unit, better=better, median=value, share=more.get("share"))


def record(
    kind: str,
    asked: Mapping[str, Any],
    rows: Sequence[Row],
    meter: RateMeter,
    device: torch.device,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything in plain values. `asked` is what two records must share to be comparable, seed included."""
    return {
        MARK: VERSION,
        "kind": kind,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "asked": dict(asked),
        "versions": versions(),
        "machine": facts(device),
        "matmul": meter.as_json(),
        "rows": [asdict(each) for each in rows],
        **details,
    }


def write(values: Mapping[str, Any], path: Path) -> None:
    """Write a record as JSON."""
    write_json(path, values)


def read(path: Path) -> dict[str, Any]:
    """Read a record; LayoutError for a file that is none."""
    values = read_json(path)
    if not isinstance(values, dict) or values.get(MARK) != VERSION:
        raise LayoutError(
            f"{path} is no record of a measurement (version {VERSION}).",
            remedy="Write one with «ftcseg bench step --save FILE.json».",
        )
    missing = [key for key in ("kind", "asked", "versions", "machine", "matmul", "rows") if key not in values]
    if missing:
        raise LayoutError(f"{path} lacks {', '.join(missing)}.", remedy="Measure again.")
    return values


def rows_of(values: Mapping[str, Any]) -> list[Row]:
    """The rows of a record that was read; LayoutError where one is damaged."""
    try:
        return [Row(**each) for each in values["rows"]]
    except TypeError as error:
        raise LayoutError(f"A row of the record cannot be read ({error}).", remedy="Measure again.") from error
