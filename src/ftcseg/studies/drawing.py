"""A study's figures as files: SVG whose text is text, and PNG.

Series are told apart by colour and by hatching, or marker and dash, so that a figure also reads in black and white. The
same figure gives the same bytes. matplotlib is imported when something is drawn, and its global state is left alone.
"""

from __future__ import annotations

import hashlib
import math
import os
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.files import atomic, cache_folder, inside, read_text
from ftcseg.report.pictures import MAX_PIXELS
from ftcseg.studies.figures import Bars, Figure, Lines, Pictures, Value

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Item = TypeVar("Item")

COLORS = ("#0072b2", "#c04a00", "#00805c", "#a03c7c", "#7a5c00", "#3c78a8", "#555555", "#8a2f2f")
"""Those of the pages' charts on light ground."""
_HATCHES = ("", "////", "....", "----", "||||", "\\\\\\\\", "++++", "xxxx")
_MARKERS = (("o", 6.0), ("s", 6.0), ("^", 7.0), ("D", 5.5), ("v", 7.0), ("P", 8.0), ("X", 8.0), ("*", 10.5))
_DASHES = ("-", (0, (6, 3)), (0, (1.5, 2)), (0, (6, 2, 1.5, 2)), (0, (10, 3)), (0, (3, 1.5)), (0, (1, 1)), (0, (4, 1)))
_INK, _SOFT, _RULE = "#222222", "#555555", "#dddddd"
_TINT = 0.25  # of a hatched bar's colour on white

_DPI = 150
_WIDTH = 7.2  # inches, of charts: at a page's width the text keeps its size
_LINES_HEIGHT = 4.2
_BAR, _BLOCK_GAP, _TEXT_LINE = 0.21, 0.16, 0.17  # inches
_AROUND = 1.0  # inches above and below the bars: title and axis
_LETTER = 0.078  # inches of a letter on average
_KEY = 0.62  # inches of a legend's sample, with the gaps
_GROUP_LETTERS, _KEY_LETTERS, _TITLE_LETTERS, _LABEL_LETTERS = 22, 34, 74, 84
_TEXT_LINES = 3
_FEW_PLACES, _LEAST_GAP = 10, 0.055  # places that are each written along the bottom, and how near they may come
_CAPTION, _PICTURE, _GRID_WIDTH, _PAD = 1.8, 2.3, 12.0, 0.08  # inches
_CAPTION_LINES = 8
_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _SOFT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "hatch.linewidth": 0.9,
    "legend.frameon": False,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "white",
    "savefig.dpi": _DPI,
    "svg.fonttype": "none",
    "svg.hashsalt": "ftcseg",
    "text.parse_math": False,  # a name with two $ is a name
}


def draw(figure: Figure, folder: Path) -> tuple[Path, Path]:
    """NAME.svg and NAME.png in this folder; drawn only where the files there show something else."""
    svg, png = inside(folder, f"{figure.name}.svg"), inside(folder, f"{figure.name}.png")
    mark = fingerprint(figure)
    if _is_drawn(svg, png, mark):
        return svg, png
    with _style():
        canvas = canvas_of(figure)
        title = _clean(figure.title)
        about = {"Date": None, "Creator": "ftcseg", "Identifier": mark, "Title": title}
        with atomic(svg) as file:
            canvas.savefig(file, format="svg", metadata=about)
        with atomic(png) as file:
            canvas.savefig(file, format="png", metadata={"Software": None, "Title": title, "Source": mark})
    return svg, png


def fingerprint(figure: Figure) -> str:
    """Stands for all that is seen: the numbers, the content of pictures, and how the program draws."""
    digest = hashlib.sha256(f"{version('matplotlib')}\n".encode())
    digest.update(Path(__file__).read_bytes())
    if isinstance(figure, Pictures):
        digest.update(repr((figure.name, figure.title, figure.heads, figure.key)).encode())
        for caption, paths in figure.rows:
            digest.update(repr(caption).encode())
            for path in paths:
                digest.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"none")
    else:
        digest.update(repr(figure).encode())
    return f"sha256:{digest.hexdigest()}"


def _is_drawn(svg: Path, png: Path, mark: str) -> bool:
    if not (svg.is_file() and png.is_file()):
        return False
    try:
        with Image.open(png, formats=("PNG",)) as image:
            told = image.info.get("Source")
    except Exception:  # a damaged file is drawn anew
        return False
    return told == mark and f">{mark}<" in read_text(svg)


@contextmanager
def _style() -> Iterator[None]:
    os.environ.setdefault("MPLCONFIGDIR", str(cache_folder() / "matplotlib"))  # or its lists go to the home folder
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # viewers of the SVG have more letters
        yield


def canvas_of(figure: Figure) -> Canvas:
    """The figure on matplotlib's canvas, ready to be saved."""
    if isinstance(figure, Bars):
        return _bars(figure)
    return _lines(figure) if isinstance(figure, Lines) else _pictures(figure)


# ---------------------------------------------------------------- bars


def _bars(figure: Bars) -> Canvas:
    """Bars lie: names, values and many bars all have room that way."""
    names = [_wrapped(name, _GROUP_LETTERS) for name in figure.groups]
    count = max(len(figure.series), 1)
    blocks = [max(count * _BAR, (name.count("\n") + 1) * _TEXT_LINE) for name in names]
    tops = [sum(blocks[:i]) + i * _BLOCK_GAP for i in range(len(blocks))]
    height = max(sum(blocks) + len(blocks) * _BLOCK_GAP, _BAR)  # a chart without groups is drawn, too
    canvas, axes = _chart(figure, height + _AROUND + _legend_lines(figure) * _TEXT_LINE * 1.4)
    middles = [top + block / 2 for top, block in zip(tops, blocks, strict=True)]
    heights = [known.mean for _, values in figure.series for value in values if (known := _known(value))]
    keys: list[Artist] = []
    for style, (_, values) in enumerate(figure.series):
        places = [middle + (style - (count - 1) / 2) * _BAR for middle in middles]
        keys.append(_bar_key(style))
        for place, value in zip(places, values, strict=True):
            _bar(axes, place, _known(value), style, _digits(heights))
    axes.axvline(0, color=_SOFT, linewidth=0.8)
    axes.set_ylim(height - _BLOCK_GAP / 2, -_BLOCK_GAP / 2)
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_wrapped(_label(figure), _LABEL_LETTERS))
    if not any(heights):
        axes.set_xlim(0, 1)
    _legend(axes, keys, figure, 1.0)
    return canvas


def _bar(axes: Axes, place: float, value: Value | None, style: int, digits: int) -> None:
    """One bar with its error bar and its value at the end; «n/a» where there is none."""
    if value is None:
        axes.annotate("n/a", (0, place), (4, 0), textcoords="offset points", va="center", color=_SOFT, style="italic")
        return
    axes.barh(place, value.mean, height=_BAR * 0.86, linewidth=0.9, **_fill(style))
    spread = _spread(value)
    if spread:
        _whisker(axes, value.mean, place, spread)
    text = f"{value.mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread is not None else "")
    end = max(value.mean + (spread or 0), 0)  # right of zero also where the bar goes left: at the left are the names
    text = text.replace("-", "\N{MINUS SIGN}")
    axes.annotate(text, (end, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)


def _whisker(axes: Axes, mean: float, place: float, spread: float) -> None:
    from matplotlib.patheffects import AbstractPathEffect, withStroke

    halo: list[AbstractPathEffect] = [withStroke(linewidth=3, foreground="white")]  # or it would vanish in a dark bar
    drawn = axes.errorbar(mean, place, xerr=spread, fmt="none", ecolor=_INK, elinewidth=1.2, capsize=2.5)
    for part in (*drawn.lines[1], *drawn.lines[2]):
        part.set_path_effects(halo)


def _bar_key(style: int) -> Artist:
    from matplotlib.patches import Patch

    return Patch(linewidth=0.9, **_fill(style))


def _fill(style: int) -> dict[str, Any]:
    """The first style is solid, the others a tint with lines on it."""
    from matplotlib.colors import to_rgb

    color = COLORS[style % len(COLORS)]
    tint = tuple(1 - _TINT * (1 - part) for part in to_rgb(color))
    hatch = _HATCHES[_second(style, len(_HATCHES))]
    return {"facecolor": tint if hatch else color, "edgecolor": color, "hatch": hatch}


# ---------------------------------------------------------------- lines


def _lines(figure: Lines) -> Canvas:
    canvas, axes = _chart(figure, _LINES_HEIGHT + _legend_lines(figure) * _TEXT_LINE * 1.4)
    keys: list[Artist] = []
    for style, (_, places) in enumerate(figure.series):
        known = [(x, value) for x, value in places if _known(value) and math.isfinite(x)]
        look = _look(style)
        spreads = [_spread(value) or 0.0 for _, value in known]
        xs, ys = [x for x, _ in known], [value.mean for _, value in known]
        if any(spreads):
            axes.errorbar(xs, ys, yerr=spreads, capsize=3, elinewidth=1, **look)
        else:
            axes.plot(xs, ys, **look)
        keys.append(_line_key(style))
    marked = figure.chosen if figure.chosen is not None and math.isfinite(figure.chosen) else None
    places_across = sorted({x for _, line in figure.series for x, _ in line if math.isfinite(x)})
    _bottom(axes, places_across, marked, log=figure.log)
    axes.set_xlabel(_wrapped(figure.across, _LABEL_LETTERS))
    axes.set_ylabel(_wrapped(_label(figure), _LABEL_LETTERS // 2))
    axes.margins(x=0.04, y=0.1)
    if marked is not None:
        axes.axvline(marked, color=_SOFT, linewidth=1.2, linestyle=(0, (3, 2)), zorder=1)
        axes.annotate(
            f"default {marked:g}", (marked, 1), (0, 2), ("data", "axes fraction"), "offset points",
            ha="center", va="bottom", color=_SOFT,
        )  # fmt: skip
    _legend(axes, keys, figure, 1.0 if marked is None else 1.07)
    return canvas


def _look(style: int) -> dict[str, Any]:
    second = _second(style, len(_MARKERS))
    marker, size = _MARKERS[second]
    look = {"color": COLORS[style % len(COLORS)], "linestyle": _DASHES[second], "linewidth": 1.8}
    return look | {"marker": marker, "markersize": size, "markeredgecolor": "white", "markeredgewidth": 0.5}


def _line_key(style: int) -> Artist:
    from matplotlib.lines import Line2D

    return Line2D([], [], **_look(style))


def _bottom(axes: Axes, places: Sequence[float], marked: float | None, *, log: bool) -> None:
    """The axis along the bottom: few places that lie apart are written as they are."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

    positive = [x for x in (*places, *([] if marked is None else [marked])) if x > 0]
    if log and positive:
        if all(x > 0 for x in (*places, *([] if marked is None else [marked]))):
            axes.set_xscale("log")
            at = [math.log(x) for x in places]
        else:  # zero has no place on it: a straight piece from there to the first that has one
            axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
            at = [math.log(x) if x > 0 else math.log(min(positive)) - 1 for x in places]
    else:
        at = list(places)
    span = max(at, default=0) - min(at, default=0)
    apart = all(b - a >= _LEAST_GAP * span for a, b in pairwise(at))
    if 0 < len(places) <= _FEW_PLACES and apart and span:
        axes.set_xticks(list(places), [f"{x:g}" for x in places])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif not log and all(x == int(x) for x in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


# ---------------------------------------------------------------- pictures


def _pictures(figure: Pictures) -> Canvas:
    """Every picture under its head and beside its caption, all of a row equally high."""
    from matplotlib.figure import Figure as Canvas

    columns = max(len(figure.heads), 1)
    side = min(_PICTURE, (_GRID_WIDTH - _CAPTION) / columns - _PAD)
    letters = max(6, int(side / _LETTER))
    rows = [(caption, [_read(path) for path in paths]) for caption, paths in figure.rows]
    highs = [_height(images, side, caption) for caption, images in rows]
    heads = [_wrapped(head, letters) for head in figure.heads]
    head_room = max((head.count("\n") + 1 for head in heads), default=1) * _TEXT_LINE + 0.06
    width = _CAPTION + columns * (side + _PAD) + _PAD
    title = _wrapped(figure.title, int(width / _LETTER / 1.25))
    title_room = (title.count("\n") + 1) * 0.22 + 0.12
    key_columns = _columns([name for name, _ in figure.key], width) if figure.key else 1
    key_room = _key_lines([name for name, _ in figure.key], key_columns) * _TEXT_LINE + (_PAD if figure.key else 0)
    height = title_room + head_room + sum(highs) + len(highs) * _PAD + _PAD + key_room
    canvas = Canvas(figsize=(width, height))
    canvas.text(_PAD / width, 1 - _PAD / height, title, va="top", weight="bold", fontsize=11)
    top = height - title_room - head_room
    for column, head in enumerate(heads):
        middle = _CAPTION + column * (side + _PAD) + side / 2
        canvas.text(middle / width, (top + 0.04) / height, head, ha="center", va="bottom", fontsize=9.5)
    for (caption, images), high in zip(rows, highs, strict=True):
        canvas.text(_PAD / width, (top - high / 2) / height, _caption(caption), va="center", fontsize=9.5)
        for column, image in zip(range(columns), images, strict=True):
            left = _CAPTION + column * (side + _PAD)
            box = (left / width, (top - high) / height, side / width, high / height)
            _tile(canvas.add_axes(box), image, side, high)
        top -= high + _PAD
    if figure.key:
        _color_key(canvas, figure.key, key_columns)
    return canvas


def _color_key(canvas: Canvas, key: Sequence[tuple[str, str]], columns: int) -> None:
    """Under the pictures: a patch of its colour for every name."""
    from matplotlib.patches import Patch

    ordered = _by_columns(key, columns)
    canvas.legend(
        [Patch(facecolor=color) for _, color in ordered], [_wrapped(name, _KEY_LETTERS) for name, _ in ordered],
        loc="lower left", ncols=columns, borderaxespad=0.2, handlelength=1.2, handleheight=1.0, columnspacing=1.4,
    )  # fmt: skip


def _height(images: Sequence[Image.Image | None], side: float, caption: str) -> float:
    """Inches of a row: what its tallest picture takes at full width, and never less than the caption."""
    lines = _caption(caption).count("\n") + 1
    tallest = max((image.height / image.width for image in images if image is not None), default=0.5)
    return max(side * min(tallest, 2.0), lines * _TEXT_LINE)


def _caption(text: str) -> str:
    return _wrapped(text, int((_CAPTION - 2 * _PAD) / _LETTER), _CAPTION_LINES)


def _read(path: Path) -> Image.Image | None:
    """A picture; None where it is missing or damaged, which must not cost the others."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG", "JPEG")) as file:
                return file.convert("RGB") if file.width * file.height <= MAX_PIXELS else None
    except Exception:  # decoders raise whatever they like
        return None


def _tile(axes: Axes, image: Image.Image | None, wide: float, high: float) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(0, high)
    if image is None:
        axes.text(wide / 2, high / 2, "no picture", ha="center", va="center", color=_SOFT, style="italic")
        return
    scale = min(wide / image.width, high / image.height)
    own = image.width * scale, image.height * scale
    left, low = (wide - own[0]) / 2, (high - own[1]) / 2
    size = max(1, round(own[0] * _DPI)), max(1, round(own[1] * _DPI))
    # Smaller ones are enlarged pixel by pixel: a mask has no colours between its classes.
    kind = Image.Resampling.LANCZOS if size[0] < image.width else Image.Resampling.NEAREST
    pixels: NDArray[np.uint8] = np.asarray(image.resize(size, kind))
    axes.imshow(pixels, extent=(left, left + own[0], low, low + own[1]), aspect="auto", interpolation="none")
    axes.set_xlim(0, wide)
    axes.set_ylim(0, high)


# ---------------------------------------------------------------- what charts share


def _chart(figure: Bars | Lines, height: float) -> tuple[Canvas, Axes]:
    from matplotlib.figure import Figure as Canvas

    title = _wrapped(figure.title, _TITLE_LETTERS)
    canvas = Canvas(figsize=(_WIDTH, height + title.count("\n") * 0.2), layout="constrained")
    canvas.suptitle(title, x=0.012, ha="left", weight="bold", fontsize=11)
    return canvas, canvas.add_subplot()


def _label(figure: Bars | Lines) -> str:
    return f"{figure.label} (± {figure.spread})" if figure.spread else figure.label


def _columns(names: Sequence[str], width: float = _WIDTH - _GROUP_LETTERS * _LETTER) -> int:
    """As many as fit, then as few as the same number of lines takes."""
    longest = max((len(line) for name in names for line in _wrapped(name, _KEY_LETTERS).split("\n")), default=1)
    fit = max(1, min(len(names), int(width / (_KEY + longest * _LETTER))))
    return math.ceil(len(names) / math.ceil(len(names) / fit))


def _legend_lines(figure: Bars | Lines) -> int:
    names = [name for name, _ in figure.series]
    return _key_lines(names, _columns(names)) if len(names) > 1 else 0


def _key_lines(names: Sequence[str], columns: int) -> int:
    """Lines of text of a legend, every row as high as its longest name takes."""
    lines = max((_wrapped(name, _KEY_LETTERS).count("\n") + 1 for name in names), default=0)
    return lines * math.ceil(len(names) / columns)


def _legend(axes: Axes, keys: list[Artist], figure: Bars | Lines, above: float) -> None:
    """Above the axes, where it covers nothing; none where there is one series only."""
    names = [name for name, _ in figure.series]
    if len(names) < 2:
        return
    told = [_wrapped(name, _KEY_LETTERS) for name in names]
    columns = _columns(names)
    ordered = _by_columns(list(zip(keys, told, strict=True)), columns)
    axes.legend(
        [key for key, _ in ordered], [name for _, name in ordered],
        loc="lower left", bbox_to_anchor=(0, above), ncols=columns, borderaxespad=0.3,
        handlelength=3.2, handleheight=1.1, columnspacing=1.4,
    )  # fmt: skip


def _by_columns(items: Sequence[Item], columns: int) -> list[Item]:
    """The order in which a legend, which fills columns first, shows them row by row."""
    return [items[i] for column in range(columns) for i in range(column, len(items), columns)]


def _second(style: int, count: int) -> int:
    """The hatching or marker of a style: when colours come round again, they meet another one."""
    return (style + style // len(COLORS)) % count


def _known(value: Value | None) -> Value | None:
    """The value where it is a number."""
    return value if value is not None and math.isfinite(value.mean) else None


def _spread(value: Value) -> float | None:
    return value.spread if value.spread is not None and math.isfinite(value.spread) and value.spread >= 0 else None


def _digits(values: Sequence[float]) -> int:
    """After the point: three that count in the largest number, at least one below a thousand."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0:
        return 1
    order = math.floor(math.log10(largest))
    return 0 if order >= 3 else min(max(2 - order, 1), 6)


def _clean(text: str) -> str:
    """One line of what can be shown; XML has no place for the rest."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _wrapped(text: str, letters: int, most: int = _TEXT_LINES) -> str:
    """At most so many lines; what is longer ends in «…»."""
    return "\n".join(textwrap.wrap(_clean(text), letters, max_lines=most, placeholder=" …"))
