"""Figures as files."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from defusedxml import ElementTree
from PIL import Image

from ftcseg.report import charts
from ftcseg.studies import drawing
from ftcseg.studies.drawing import COLORS, canvas_of, draw
from ftcseg.studies.figures import Bars, Figure, Lines, Pictures, Value

BARS = Bars(
    name="tail",
    title="Rarest classes",
    label="IoU, hundredths",
    spread="standard deviation over 3 seeds",
    groups=("tire", "a standing bottle of glass"),
    series=(("labels only", (Value(20, 0.7), Value(25))), ("ftc", (Value(-4, 1), None))),
)
LINES = Lines(
    name="sweep",
    title="How much lambda_D matters",
    label="mIoU",
    across="lambda_D",
    series=(
        ("student", ((0.01, Value(41, 0.5)), (0.1, Value(43, 0.5)), (1.0, Value(40, 0.5)))),
        ("teacher", ((0.01, Value(42)), (1.0, Value(44)))),
    ),
    chosen=0.1,
    log=True,
)
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def words(svg: Path) -> list[str]:
    """Every piece of text of an SVG."""
    found = ElementTree.fromstring(svg.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()) for one in found]


def _size(png: Path) -> tuple[int, int]:
    with Image.open(png) as file:
        return file.size


def _picture(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (40, 20)) -> Path:
    Image.new("RGB", size, color).save(path)
    return path


@pytest.fixture
def grid(tmp_path: Path) -> Pictures:
    red, green, blue = (_picture(tmp_path / f"{i}.png", c) for i, c in enumerate((RED, GREEN, BLUE)))
    rows = (("first image", (red, green)), ("second image", (tmp_path / "none.png", blue)))
    return Pictures(name="grid", title="What was seen", heads=("input", "truth"), rows=rows)


# ---------------------------------------------------------------- what is drawn


def test_bars_carry_their_names_values_and_gaps_as_text(tmp_path: Path) -> None:
    svg, png = draw(BARS, tmp_path / "figures")
    told = words(svg)
    assert {"20.0 ± 0.7", "25.0", "−4.0 ± 1.0", "labels only", "ftc", "tire"} <= set(told)
    assert told.count("n/a") == 1
    assert {"a standing bottle of", "glass"} <= set(told)  # 22 letters a line
    assert "IoU, hundredths (± standard deviation over 3 seeds)" in told
    assert "Rarest classes" in told
    assert _size(png)[0] == 1080  # 7.2 inches of 150 dots


def test_bars_are_as_long_as_their_values_and_begin_at_zero() -> None:
    (axes,) = canvas_of(BARS).axes
    ends = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches)  # type: ignore[attr-defined]
    assert ends == [(0, -4), (0, 20), (0, 25)]
    whiskers = [tuple(segment[:, 0]) for part in axes.collections for segment in part.get_segments()]  # type: ignore[attr-defined]
    assert sorted(whiskers) == [(-5, -3), (pytest.approx(19.3), pytest.approx(20.7))]
    tops = [axes.transData.transform((0, label))[1] for label in axes.get_yticks()]
    assert tops[0] > tops[1]  # the first group on top


def test_lines_mark_the_default_and_write_the_places_that_were_tried(tmp_path: Path) -> None:
    told = words(draw(LINES, tmp_path)[0])
    assert {"default 0.1", "0.01", "0.1", "1", "student", "teacher", "lambda_D", "mIoU"} <= set(told)
    (axes,) = canvas_of(LINES).axes
    assert axes.get_xscale() == "log"
    marks = [line for line in axes.lines if list(line.get_xdata()) == [0.1, 0.1]]
    assert len(marks) == 1


def test_zero_has_a_place_on_an_axis_that_multiplies(tmp_path: Path) -> None:
    line = tuple((float(x), Value(x)) for x in (0, 10, 100))
    figure = Lines(name="x", title="x", label="y", across="labels", series=(("a", line),), log=True)
    (axes,) = canvas_of(figure).axes
    at = [axes.transData.transform((x, 0))[0] for x in (0, 10, 100)]
    assert at[0] < at[1] < at[2]
    assert {"0", "10", "100"} <= set(words(draw(figure, tmp_path)[0]))


def test_pictures_keep_their_places_and_a_missing_one_is_named(grid: Pictures, tmp_path: Path) -> None:
    svg, png = draw(grid, tmp_path / "figures")
    assert {"input", "truth", "first image", "second image", "What was seen", "no picture"} <= set(words(svg))
    with Image.open(png) as file:
        pixels = np.asarray(file.convert("RGB"))
    middles = {}
    for name, color in (("red", RED), ("green", GREEN), ("blue", BLUE)):
        rows, columns = np.nonzero((pixels == color).all(axis=2))
        middles[name] = rows.mean(), columns.mean()
        # 2.3 inches of 150 dots, half as high as wide; a dot may be lost at each edge
        assert abs(np.ptp(columns) - 345) <= 3
        assert abs(np.ptp(rows) - 172) <= 3
    assert middles["red"][0] == pytest.approx(middles["green"][0], abs=1)
    assert middles["red"][1] < middles["green"][1]
    assert middles["green"][1] == pytest.approx(middles["blue"][1], abs=1)
    assert middles["green"][0] < middles["blue"][0]


def test_the_colours_of_pictures_are_named_under_them(grid: Pictures, tmp_path: Path) -> None:
    plain = _size(draw(grid, tmp_path / "plain")[1])
    key = (("tire", "#123456"), ("a hook", "#fedcba"))
    svg, png = draw(replace(grid, key=key), tmp_path / "named")
    assert {"tire", "a hook"} <= set(words(svg))
    with Image.open(png) as file:
        pixels = np.asarray(file.convert("RGB"))
    rows, columns = zip(*(np.nonzero((pixels == c).all(axis=2)) for c in ((18, 52, 86), (254, 220, 186))), strict=True)
    assert min(one.min() for one in rows) > np.nonzero((pixels == BLUE).all(axis=2))[0].max()
    assert columns[0].max() < columns[1].min()
    assert pixels.shape[1] == plain[0]
    assert pixels.shape[0] > plain[1]
    long = _size(draw(replace(grid, key=(("a name of many words " * 3, "#123456"), key[1])), tmp_path / "long")[1])
    assert long[1] > pixels.shape[0]  # a name of two lines has room for both


def test_twenty_series_are_told_apart_without_colour() -> None:
    bars = [drawing._fill(i) for i in range(20)]
    assert len({(one["edgecolor"], one["hatch"]) for one in bars}) == 20
    assert len({one["hatch"] for one in bars[:8]}) == 8
    looks = [drawing._look(i) for i in range(20)]
    assert len({(one["color"], one["marker"]) for one in looks}) == 20
    assert len({(one["marker"], one["linestyle"]) for one in looks[:8]}) == 8


def test_colours_are_those_of_the_pages() -> None:
    assert charts._LIGHT == COLORS


@pytest.mark.parametrize(
    ("values", "digits"),
    [([61.2, 3.0], 1), ([100.4], 1), ([7.21], 2), ([0.453], 3), ([24_811.0], 0), ([0.0], 1), ([], 1)],
)
def test_values_are_written_to_three_digits_that_count(values: list[float], digits: int) -> None:
    assert drawing._digits(values) == digits


# ---------------------------------------------------------------- wild input


def test_names_are_only_names(tmp_path: Path) -> None:
    names = ("$a$ & <b>", "_hidden", "a\x00b\nc", "瓶", r"\frac", "x" * 300)
    values = (Value(1, 0.1), None, Value(float("nan")), Value(float("inf")), Value(2, float("nan")), Value(3, -1.0))
    figure = Bars(name="wild", title="<&$", label="%", groups=names, series=tuple((name, values) for name in names))
    told = words(draw(figure, tmp_path)[0])
    for name in ("$a$ & <b>", "_hidden", "a b c", "瓶", r"\frac"):
        assert told.count(name) == 2  # beside the bars and in the legend
    assert told.count("n/a") == 3 * len(names)
    assert any(text.endswith("…") for text in told)


@pytest.mark.parametrize(
    "figure",
    [
        Bars(name="x", title="x", label="y", groups=("a",), series=(("b", (None,)),)),
        Bars(name="x", title="x", label="y", groups=("a",), series=(("b", (Value(0),)),)),
        Bars(name="x", title="x", label="y", groups=(), series=()),
        Lines(name="x", title="x", label="y", across="z", series=()),
        Lines(name="x", title="x", label="y", across="z", series=(("a", ()),), chosen=3.0, log=True),
        Lines(name="x", title="x", label="y", across="z", series=(("a", ((1.0, Value(2)),)),), chosen=1.0),
        Pictures(name="x", title="x", heads=(), rows=()),
    ],
)
def test_what_is_not_there_yet_is_drawn_empty(figure: Figure, tmp_path: Path) -> None:
    svg, png = draw(figure, tmp_path)
    assert "x" in words(svg)
    assert min(_size(png)) > 0


# ---------------------------------------------------------------- files


def test_the_same_figure_gives_the_same_bytes_and_leaves_no_trace(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    first, second = draw(LINES, tmp_path / "a"), draw(LINES, tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert dict(mpl.rcParams) == before
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["sweep.png", "sweep.svg"]
    assert b"<dc:date>" not in first[0].read_bytes()


def test_only_what_changed_is_drawn(grid: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(drawing, "canvas_of", lambda figure: drawn.append(figure.name) or canvas_of(figure))
    folder = tmp_path / "figures"
    svg, png = draw(grid, folder)
    draw(grid, folder)
    assert drawn == ["grid"]
    _picture(tmp_path / "0.png", BLUE)  # another picture of the same name
    draw(grid, folder)
    assert drawn == ["grid"] * 2
    png.write_bytes(b"damaged")
    draw(grid, folder)
    svg.unlink()
    draw(grid, folder)
    assert drawn == ["grid"] * 4
    draw(grid, folder)
    assert drawn == ["grid"] * 4


def test_matplotlib_is_imported_here_only_and_only_when_something_is_drawn() -> None:
    source = Path(drawing.__file__).parents[1]
    users = [path for path in source.rglob("*.py") if "matplotlib" in path.read_text(encoding="utf-8")]
    assert users == [Path(drawing.__file__)]
    at_once = [node for node in ast.parse(users[0].read_text(encoding="utf-8")).body if "Import" in type(node).__name__]
    assert at_once
    assert not any("matplotlib" in ast.unparse(node) for node in at_once)
