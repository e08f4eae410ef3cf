"""CamVid and its kin: RGB masks with a table of colours.

root/
  class_dict.csv               name,r,g,b with a header; or label_colors.txt, `r g b name` a line
  train/x.png  train_labels/x_L.png
  images/  labels/             or other folders that images-masks knows

Void and unlabelled are no classes: their pixels are unknown.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

from ftcseg.data.files_found import (
    Tally,
    color_coding,
    found,
    section_records,
    sections,
    text_file,
    text_lines,
    with_listed_parts,
)
from ftcseg.errors import LayoutError
from ftcseg.types import Color, Found

LAYOUT = "camvid"
TABLES = ("class_dict.csv", "label_colors.txt")


def can_read(root: Path) -> bool:
    """Whether a table of colours lies beside folders of images."""
    return text_file(root, TABLES) is not None and bool(sections(root))


def records(root: Path) -> Found:
    """Every image with its mask, and the classes of the table."""
    source = text_file(root, TABLES)
    if source is None:
        raise LayoutError(f"{root} has no table of colours.", remedy=f"Add {' or '.join(TABLES)}.")
    read = _csv_entries if source.endswith(".csv") else _text_entries
    classes, coding = color_coding(read(root, source), source)
    tally = Tally()
    listed = [record for section in sections(root) for record in section_records(root, section, tally)]
    listed = with_listed_parts(root, listed, tally)
    return replace(found(LAYOUT, root, listed, tally), classes=classes, coding=coding)


def _csv_entries(root: Path, source: str) -> list[tuple[str, Color]]:
    lines = text_lines(root, source)
    rows = list(csv.reader(line for _, line in lines))
    return [_entry(source, number, row[0], row[1:]) for (number, _), row in zip(lines[1:], rows[1:], strict=True)]


def _text_entries(root: Path, source: str) -> list[tuple[str, Color]]:
    split = [(number, re.split(r"\s+", line, maxsplit=3)) for number, line in text_lines(root, source)]
    return [_entry(source, number, words[-1], words[:3]) for number, words in split]


def _entry(source: str, number: int, name: str, channels: list[str]) -> tuple[str, Color]:
    shades = [int(c) for c in channels if re.fullmatch(r"\s*\d{1,3}\s*", c) and int(c) <= 255]
    if len(shades) != 3 or len(channels) != 3:
        raise LayoutError(
            f"{source}, line {number}: {name[:80]!r} has no colour of three numbers from 0 to 255.",
            remedy="Write name,r,g,b in a .csv with a header, r g b name in a .txt.",
        )
    return name.strip(), (shades[0], shades[1], shades[2])
