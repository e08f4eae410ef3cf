"""The page of a measured step: its bar, its parts, what it was compared with, and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ftcseg.bench.bar import Segment, storeys
from ftcseg.bench.parts import PARTS
from ftcseg.bench.words import about, findings, machine_line, other_rows, part_rows
from ftcseg.files import write_text
from ftcseg.report.charts import MAX_LINES, STYLE, hatches
from ftcseg.report.page import lead, note, page, section, table

_WIDTH, _HEIGHT, _GAP = 960, 30, 3
_LETTER = 8.2  # of a name in the bar, in the drawing's own units
_OWN = (
    "svg.flame { display: block; width: 100%; height: auto; } svg.flame text { fill: currentColor; font-size: 14px; }"
)


def write_step_page(record: Mapping[str, Any], path: Path) -> Path:
    """Write the page of a record of «bench step»."""
    write_text(path, step_page(record))
    return path


def step_page(record: Mapping[str, Any]) -> str:
    """The page as text: no script, nothing from elsewhere."""
    first, *rest = findings(record)
    rows = [[escape(cell) for cell in cells] for cells in part_rows(record["step"])]
    told = [[*row, escape(PARTS[name])] for row, name in zip(rows, record["step"]["parts"], strict=True)]
    sections = [
        hatches(),
        lead(first),
        flame(record["step"]),
        *(note(text) for text in rest),
        section("Parts of the step", table(("part", "ms", "middle half", "share", "what"), told, (1, 2, 3))),
    ]
    others = other_rows(record)
    if others:
        heads = ("configuration", "time", "memory", "what")
        sections.append(section("Beside it", table(heads, [[escape(cell) for cell in row] for row in others], (1, 2))))
    sections.append(section("The machine", f"<p>{escape(machine_line(record))}</p>"))
    return page(about(record), sections, f"ftcseg {record['versions']['ftcseg']}, {record['when']}", STYLE + _OWN)


def flame(step: Mapping[str, Any]) -> str:
    """The bar as inline SVG; what is too narrow for its name says it when it is pointed at."""
    rows = storeys(step)
    height = len(rows) * (_HEIGHT + _GAP)
    drawn = "".join(_storey(row, number * (_HEIGHT + _GAP)) for number, row in enumerate(rows))
    label = "Where the time of a step goes: " + ", ".join(f"{s.name} {100 * s.share:.1f} %" for s in rows[-1])
    head = f'class="flame" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}"'
    return f"<svg {head}>{drawn}</svg>"


def _storey(segments: Sequence[Segment], y: int) -> str:
    total = sum(segment.share for segment in segments) or 1.0
    drawn, x = [], 0.0
    for segment in segments:
        width = _WIDTH * segment.share / total
        # Hatched by its place in the storey and in a colour of its own: neighbours differ in black and white as well.
        fill = f"url(#hatch{1 + segment.number % (MAX_LINES - 1)})"
        told = f"<title>{escape(segment.name)}: {100 * segment.share:.1f} %</title>"
        rect = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_HEIGHT}" stroke="currentColor" fill="{fill}"/>'
        text = ""
        if width > _LETTER * (len(segment.name) + 1):
            text = f'<text x="{x + 5:.1f}" y="{y + 20}">{escape(segment.name)}</text>'
        drawn.append(f"<g>{told}{rect}{text}</g>")
        x += width
    return "".join(drawn)
