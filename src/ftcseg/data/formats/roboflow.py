"""Roboflow's «Semantic Segmentation Masks» export.

root/
  train/  valid/  test/
    _classes.csv               `Pixel Value, Class` and one line a class; the same in each folder
    a.jpg  a_mask.png          a mask beside its image; an image without one is unlabelled
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ftcseg.data.files_found import (
    PART_NAMES,
    Section,
    Tally,
    class_table,
    found,
    id_coding,
    is_file,
    section_records,
    subfolders,
    text_lines,
)
from ftcseg.errors import DataError, LayoutError
from ftcseg.types import Found

LAYOUT = "roboflow"
TABLE = "_classes.csv"


def can_read(root: Path) -> bool:
    """Whether a folder of a part, or the root itself, has Roboflow's table of pixel values."""
    return bool(_tables(root))


def records(root: Path) -> Found:
    """Every image of every part; the tables must agree."""
    tables = [_names(root, table) for table in _tables(root)]
    if not tables or any(names != tables[0] for names in tables):
        raise LayoutError(
            f"The tables {TABLE} below {root} are missing or differ.",
            remedy="Export all parts together, so that a value means the same in each.",
        )
    tally = Tally()
    listed = [record for section in _sections(root) for record in section_records(root, section, tally)]
    classes = class_table(tables[0], TABLE)
    return replace(found(LAYOUT, root, listed, tally), classes=classes, coding=id_coding(classes))


def _sections(root: Path) -> list[Section]:
    names = subfolders(root)
    parts = [Section(names[name], None, part) for name, part in PART_NAMES.items() if name in names]
    return parts or [Section("", None, "train")]


def _tables(root: Path) -> list[str]:
    """The tables that list pixel values: Roboflow's exports for whole images have others of the same name."""
    paths = [f"{section.images}/{TABLE}".lstrip("/") for section in _sections(root)]
    return [path for path in paths if is_file(root / path) and _header(root, path).startswith("pixel value")]


def _header(root: Path, table: str) -> str:
    try:
        return next((line for _, line in text_lines(root, table)), "").casefold()
    except DataError:  # not text, or not here: no table of ours
        return ""


def _names(root: Path, source: str) -> dict[int, str]:
    """Class names by pixel value."""
    names: dict[int, str] = {}
    for number, line in text_lines(root, source)[1:]:
        match = re.fullmatch(r"(\d{1,5})\s*,\s*(.+)", line)
        if match is None or int(match[1]) in names:
            raise LayoutError(
                f"{source}, line {number}: {line[:120]!r} is no «value, class», or repeats a value.",
                remedy="Export it again, or mend the line.",
            )
        names[int(match[1])] = match[2].strip()
    return names
