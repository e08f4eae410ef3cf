"""Results made by hand, for tests of what studies read off them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ftcseg.studies import STUDIES
from ftcseg.studies.plan import Ask, Cell
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.tables import Table

MEMBERS = {"background": ("bed",), "head": ("wall",), "tail": ("hook",)}
PIXELS = {"bed": 9000, "wall": 900, "hook": 100}


def made(
    cell: Cell, miou: float, tail: float | None = None, *, best: float | None = None, run: Path = Path()
) -> Result:
    """A run that ended at this mIoU; `tail` is the IoU of the rarest class."""
    ious = {"bed": 0.9, "wall": 0.5, "hook": tail}
    classes = [
        {"id": i, "name": name, "iou": ious[name], "precision": None, "recall": None, "pixels": PIXELS[name]}
        for i, name in enumerate(ious)
    ]
    last: dict[str, Any] = {"miou": miou, "groups": {"head": 0.5, "middle": None, "tail": tail}, "classes": classes}
    return Result(
        cell, "key", last, {**last, "miou": miou if best is None else best}, None, "split", 60.0, MEMBERS, run
    )


def evidence_of(cells: Sequence[Cell], scores: Mapping[str, Sequence[float | None]], **more: Any) -> Evidence:
    """The planned runs of each row with these mIoUs in the order of the plan; None is a run that is missing."""
    results = []
    for row, values in scores.items():
        own = [cell for cell in cells if cell.row == row]
        assert len(own) == len(values), f"{row} has {len(own)} cells"
        results += [made(cell, value, **more) for cell, value in zip(own, values, strict=True) if value is not None]
    return Evidence(results)


def defaults_of(name: str) -> Ask:
    """What a study is asked where nobody says anything, its options filled in as the command line does."""
    from dataclasses import replace

    return replace(STUDIES[name].defaults, options=dict(STUDIES[name].options))


def cells_of(table: Table, row: str) -> dict[str, str]:
    """One row of a table by its headings."""
    return next(dict(zip(table.headings, cells, strict=True)) for cells in table.rows if cells[0] == row)


def split_note(folder: Path, labeled: int) -> Path:
    """A run's folder that says how many images were labelled."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "split.json").write_text(json.dumps({"images": {"labeled": labeled}}), encoding="utf-8")
    return folder
