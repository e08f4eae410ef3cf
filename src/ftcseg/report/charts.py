"""Small charts as inline SVG: lines over steps, bars per class.

Runs are told apart by colour, dash and marker, bars by colour and hatching, so that a page also reads in black and
white. Colours are CSS variables with a light and a dark value; text takes the page's own colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ftcseg.report.page import escape

Point: TypeAlias = tuple[float, float | None]
"""(step, value); None leaves a gap."""
Form: TypeAlias = Callable[[float], str]
"""How a value is written."""

MAX_LINES = 8
"""Styles there are, so runs that fit on one page."""
_DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 4", "4 2", "1 3", "9 3 2 3 2 3")
_LIGHT = ("#0072b2", "#c04a00", "#00805c", "#a03c7c", "#7a5c00", "#3c78a8", "#555555", "#8a2f2f")
_DARK = ("#56b4e9", "#ff9a5c", "#35cfa4", "#e79ac6", "#f0c24b", "#9cc3ea", "#bbbbbb", "#f08c8c")
_HATCHES = (
    "",
    '<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5"/>',
    '<circle cx="2" cy="2" r="1"/><circle cx="5" cy="5" r="1"/>',
    '<path d="M0 3H6"/>',
    '<path d="M3 0V6"/>',
    '<path d="M0 0L6 6M-1 5L1 7M5 -1L7 1"/>',
    '<path d="M0 3H6M3 0V6"/>',
    '<path d="M0 6L6 0M0 0L6 6"/>',
)
STYLE = (
    ":root {" + " ".join(f"--s{i}: {c};" for i, c in enumerate(_LIGHT)) + " }\n"
    "@media (prefers-color-scheme: dark) { :root {"
    + " ".join(f"--s{i}: {c};" for i, c in enumerate(_DARK))
    + " } }\n"
    + "\n".join(f".s{i} {{ color: var(--s{i}); }}" for i in range(MAX_LINES))
    + """
svg.chart { display: block; width: 100%; height: auto; overflow: visible; }
svg.chart text { fill: currentColor; font: 14px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg.small text { font-size: 13px; }
svg .axis { stroke: currentColor; opacity: .55; } svg .rule { stroke: var(--line); }
svg .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .mark { fill: currentColor; } svg .ring { fill: none; stroke: currentColor; stroke-width: 1.5; }
svg .bar { stroke: currentColor; }
svg.sample { width: 2.6em; height: 1em; vertical-align: -.15em; margin-right: .4em; }
svg.defs { position: absolute; width: 0; height: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .25rem 0 .75rem; padding: 0; list-style: none; }
.panels { display: grid; gap: 1rem 1.5rem; grid-template-columns: repeat(auto-fill, minmax(var(--w), 1fr)); }
.panels figcaption { font-size: .9rem; line-height: 1.4; }
.panels figcaption div { display: flex; background: none; justify-content: space-between; gap: .5rem; }
.values { margin-left: auto; text-align: right; font-variant-numeric: tabular-nums; font-weight: 600; }
.values span + span { margin-left: .6em; }
.values span { white-space: nowrap; }
.roomy figcaption { display: flex; justify-content: space-between; gap: .75rem; font-weight: 600; }
.bars figcaption { max-width: 17rem; border-bottom: 1px solid var(--line); } .bars svg { max-width: 17rem; }
"""
)
"""What a page with charts adds to its style sheet."""


@dataclass(frozen=True, slots=True)
class Line:
    """The values of one run over its steps; `ring` is a step to draw a ring around."""

    style: int
    points: Sequence[Point]
    ring: float | None = None

    @property
    def last(self) -> float | None:
        """The last value there is."""
        return next((y for _, y in reversed(self.points) if y is not None), None)


@dataclass(frozen=True, slots=True)
class Size:
    """A chart's drawing area in its own units, and room for the numbers at its left and below."""

    width: int
    height: int
    left: int
    bottom: int
    ticks: int  # about how many numbers along an axis
    name: str  # style class
    top: int = 8
    right: int = 10


WIDE = Size(width=480, height=250, left=40, bottom=24, ticks=5, name="chart")
SMALL = Size(width=200, height=120, left=34, bottom=20, ticks=3, name="chart small")
_FEW = 12  # points that each get a marker
_LEAST_RANGE, _LEAST_SHARE = 1e-300, 1e-9  # of an axis, by itself and of its numbers: less is a flat line
_BAR_LETTERS = 32  # of a class's name
_BAR_WIDTH, _BAR_HEIGHT, _BAR_LABEL, _BAR_GAP, _BAR_NUMBER = 260, 15, 19, 9, 44


def line_chart(lines: Sequence[Line], values: Sequence[float], form: Form, label: str, size: Size = WIDE) -> str:
    """Lines over steps from 0 on; `values` are the numbers along the value axis, as `ticks` gives them."""
    end = max((x for line in lines for x, _ in line.points), default=1) or 1
    steps = [step for step in ticks(0, end, size.ticks) if step <= 1.03 * end]
    end = max(end, steps[-1])
    low, high = values[0], values[-1]
    floor, right = size.height - size.bottom, size.width - size.right

    def x_of(step: float) -> float:
        return size.left + (right - size.left) * step / end

    def y_of(value: float) -> float:
        return floor - (floor - size.top) * (min(max(value, low), high) - low) / (high - low)

    parts = []
    for value in values:
        y = y_of(value)
        parts.append(f'<path class="rule" d="M{size.left} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{size.left - 5}" y="{y + 4.5:.1f}" text-anchor="end">{escape(form(value))}</text>')
    parts.append(f'<path class="axis" d="M{size.left} {floor}H{right}"/>')
    for step in steps:
        anchor = "start" if step == 0 else "end" if x_of(step) > right - 14 else "middle"
        parts.append(f'<text x="{x_of(step):.1f}" y="{size.height - 5}" text-anchor="{anchor}">{short(step)}</text>')
    for line in lines:
        places = [(x_of(x), None if y is None else y_of(y)) for x, y in line.points]
        parts.append(_drawn(places, line.style, _mark_places(places, line.style, crowded=len(lines) > 1)))
        ringed = next((y for x, y in line.points if x == line.ring and y is not None), None)
        if ringed is not None and line.ring is not None:
            circle = f'<circle class="ring" cx="{x_of(line.ring):.1f}" cy="{y_of(ringed):.1f}" r="7"/>'
            parts.append(f'<g class="s{line.style}">{circle}</g>')
    return _svg(size.name, size.width, size.height, label, parts)


def panel(caption: str, chart: str, values: Iterable[tuple[int, str]], mark: str = "") -> str:
    """A chart under its caption, then a mark and a value for each run: (style, text)."""
    shown = "".join(f'<span class="s{style}">{escape(text)}</span>' for style, text in values)
    tag = f'<span class="tag">{escape(mark)}</span>' if mark else ""
    under = f'<div>{tag}<span class="values">{shown}</span></div>'
    return f"<figure><figcaption>{escape(caption)}{under}</figcaption>{chart}</figure>"


def panels(cells: Iterable[str], width: str, name: str = "") -> str:
    """Panels side by side, each at least so wide."""
    return f'<div class="panels {name}" style="--w:{width}">{"".join(cells)}</div>'


def bars(rows: Sequence[tuple[str, Sequence[float | None]]], high: float, form: Form, label: str) -> str:
    """A block of bars for each row, one bar a run, in the order of the runs; None is written as n/a."""
    parts: list[str] = []
    y = 0.0
    for name, values in rows:
        shown = name if len(name) <= _BAR_LETTERS else f"{name[: _BAR_LETTERS - 1]}…"
        parts.append(f'<text x="0" y="{y + _BAR_LABEL - 6:.0f}"><title>{escape(name)}</title>{escape(shown)}</text>')
        y += _BAR_LABEL
        for style, value in enumerate(values):
            long = (_BAR_WIDTH - _BAR_NUMBER) * min(max(value or 0, 0), high) / (high or 1)
            fill = f"url(#hatch{style})" if style else "currentColor"
            rect = f'<rect class="bar" x="0.5" y="{y + 1:.0f}" width="{long:.1f}" height="{_BAR_HEIGHT - 3}"'
            parts.append(f'<g class="s{style}">{rect} fill="{fill}"/></g>' if value is not None else "")
            parts.append(f'<text x="{long + 6:.1f}" y="{y + _BAR_HEIGHT - 3:.0f}">{_written(value, form)}</text>')
            y += _BAR_HEIGHT
        y += _BAR_GAP
    return _svg("chart small", _BAR_WIDTH, int(y) or 1, label, parts)


def hatches() -> str:
    """What bars are filled with; once on a page, before the first bar."""
    cells = []
    for style, lines in enumerate(_HATCHES):
        inside = f'<rect width="6" height="6" fill="currentColor" opacity=".25"/><g stroke="currentColor">{lines}</g>'
        size = 'width="6" height="6" patternUnits="userSpaceOnUse"'
        cells.append(f'<pattern id="hatch{style}" class="s{style}" {size}>{inside}</pattern>')
    return f'<svg class="defs" aria-hidden="true"><defs>{"".join(cells[1:])}</defs></svg>'


def line_legend(names: Sequence[str]) -> str:
    """Which line is which run; nothing where there is only one."""
    return _legend(names, [line_key(style) for style in range(len(names))])


def bar_legend(names: Sequence[str]) -> str:
    """Which bar is which run; nothing where there is only one."""
    fills = [f"url(#hatch{style})" if style else "currentColor" for style in range(len(names))]
    box = '<rect class="bar" x="1" y="3" width="40" height="12"'
    samples = [f'<g class="s{style}">{box} fill="{fill}"/></g>' for style, fill in enumerate(fills)]
    return _legend(names, [_sample(sample) for sample in samples])


def line_key(style: int) -> str:
    """The sample of one run's line."""
    return _sample(_drawn([(2, 9), (21, 9), (40, 9)], style, marks=(1,)))


def thinned(points: Sequence[Point], limit: int) -> list[Point]:
    """At most `limit` points: neighbours become their mean, so that no spike is invented and none is chosen."""
    if len(points) <= limit:
        return list(points)
    bounds = [round(i * len(points) / limit) for i in range(limit + 1)]
    return [_mean(points[a:b]) for a, b in pairwise(bounds)]


def ticks(low: float, high: float, about: int) -> list[float]:
    """About so many round numbers, at least two, the first at or below `low` and the last at or above `high`."""
    size = max(abs(low), abs(high))
    if high - low <= max(_LEAST_RANGE, _LEAST_SHARE * size):
        room = size / 10 if size > _LEAST_RANGE else 0.5
        low, high = low - room, high + room
    raw = (high - low) / about
    power = math.floor(math.log10(raw))
    unit: float = 10.0**power
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(12, 1 - power)  # those of the step, or tiny numbers would all become 0
    return [round(i * step, digits) for i in range(first, max(last, first + 1) + 1)]


def short(count: float) -> str:
    """A number of steps: 500, 1.5k, 20k, 1.2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:g}"


def _mean(points: Sequence[Point]) -> Point:
    there = [y for _, y in points if y is not None]
    return sum(x for x, _ in points) / len(points), sum(there) / len(there) if there else None


def _written(value: float | None, form: Form) -> str:
    return "n/a" if value is None else escape(form(value))


def _sample(drawn: str) -> str:
    return f'<svg class="sample" viewBox="0 0 42 18" aria-hidden="true">{drawn}</svg>'


def _legend(names: Sequence[str], keys: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{k}{escape(n)}</li>" for k, n in zip(keys, names, strict=True))}</ul>'


def _drawn(places: Sequence[tuple[float, float | None]], style: int, marks: Sequence[int]) -> str:
    """A line through drawn places with its dash, and markers at some; gaps stay open, a lone place is a dot."""
    pieces: list[list[str]] = [[]]
    for x, y in places:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{x:.1f} {y:.1f}")
    path = "".join(f"M{'L'.join(piece)}" + ("h0" if len(piece) == 1 else "") for piece in pieces if piece)
    dash = f' stroke-dasharray="{_DASHES[style]}"' if _DASHES[style] else ""
    shapes = "".join(_marker(style, places[i][0], y) for i in marks if (y := places[i][1]) is not None)
    return f'<g class="s{style}"><path class="line"{dash} d="{path}"/>{shapes}</g>'


def _mark_places(places: Sequence[tuple[float, float | None]], style: int, *, crowded: bool) -> Sequence[int]:
    """Every place of a short line; of a long one among others four, shifted so that markers do not hide each other."""
    count = len(places)
    if sum(y is not None for _, y in places) <= _FEW:
        return range(count)
    stride = count // 4
    shift = stride * (2 * style + 1) // (2 * MAX_LINES)
    return [stride * i + shift for i in range(4)] if crowded else []


def _marker(style: int, x: float, y: float, r: float = 3.4) -> str:
    d = 1.4 * r  # a diamond looks smaller than it is
    shapes = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0",
        f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        f"M{x:.1f} {y - 1.3 * r:.1f}l{1.2 * r:.1f} {2.2 * r:.1f}h{-2.4 * r:.1f}z",
        f"M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l{-d:.1f} {d:.1f}l{-d:.1f} {-d:.1f}z",
        f"M{x:.1f} {y + 1.3 * r:.1f}l{1.2 * r:.1f} {-2.2 * r:.1f}h{-2.4 * r:.1f}z",
        f"M{x - r:.1f} {y - 1.2:.1f}h{2 * r}v2.4h{-2 * r}z",
        f"M{x - 1.2:.1f} {y - r:.1f}h2.4v{2 * r}h-2.4z",
        f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}h{-2 * r}l{2 * r} {-2 * r}z",
    )
    return f'<path class="mark" d="{shapes[style]}"/>'


def _svg(name: str, width: int, height: int, label: str, parts: Sequence[str]) -> str:
    head = f'class="{name}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
    return f"<svg {head}>{''.join(parts)}</svg>"
