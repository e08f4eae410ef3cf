"""A study's answer as text: Markdown for reading, LaTeX for papers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from ftcseg.files import shown
from ftcseg.studies.figures import Figure
from ftcseg.studies.statistics import Summary

_ONE = r"[<>~≈≤≥]?\s?[+\-−]?\d[\d,]*(\.\d+)?(e[+\-]?\d+)?"
_NUMBER = re.compile(rf"({_ONE}(\s?%)?(\s?±\s?{_ONE})?(\s?%)?|n/a|no test|[-–—]?)[*†]?")
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~#]|(?<!\w)_|_(?!\w)")
_LONG = 40  # letters that no line of a printed table holds beside others
_TEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
    **{letter: f"\\{letter}" for letter in "&%_#${}"},
    **{"[": "{[}", "*": "{*}"},  # or they would belong to the \\ of the line before
    **{"<": "$<$", ">": "$>$", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "·": r"$\cdot$", "→": r"$\to$"},
    **{"≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$", "²": "$^2$", "…": r"\dots{}", "–": "--", "—": "---"},
    **{"«": "``", "»": "''", "λ": r"$\lambda$", "τ": r"$\tau$", "γ": r"$\gamma$", "μ": r"$\mu$", "Δ": r"$\Delta$"},
    **{"†": r"\dag{}", "✓": r"$\surd$"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; the first column names the row. `best` and `second` are (row, column) places."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    second: frozenset[tuple[int, int]] = frozenset()
    paper: frozenset[int] = frozenset()
    """Columns whose numbers are the paper's, not ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study found: the finding in at most three sentences, then its tables, figures and remarks."""

    finding: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table: what each row has in it, a number over seeds or ready words; «n/a» where nothing."""

    heading: str
    values: Mapping[str, Summary | str | None]
    best: Literal["high", "low"] | None = "high"
    """Which number leads; None where none is better than another."""
    scale: float = 100.0
    digits: int = 1
    paper: bool = False
    """Whether the numbers are the paper's; they lead nothing."""


def table_of(title: str, name: str, rows: Sequence[str], columns: Sequence[Column]) -> Table:
    """A table with the best of each column bold and the second in italics; `name` heads the rows' names."""
    best: set[tuple[int, int]] = set()
    second: set[tuple[int, int]] = set()
    for number, column in enumerate(columns, 1):
        for places, row in _leaders(rows, column):
            (best if places == 0 else second).add((row, number))
    return Table(
        title,
        (name, *(column.heading for column in columns)),
        tuple((row, *(_written(column, row) for column in columns)) for row in rows),
        frozenset(best),
        frozenset(second),
        frozenset(number for number, column in enumerate(columns, 1) if column.paper),
    )


def spoken(found: Summary | None, scale: float = 100.0, digits: int = 1) -> str:
    """«41.2 ± 0.7», or «n/a»."""
    if found is None:
        return "n/a"
    mean = f"{found.mean * scale:.{digits}f}"
    return mean if found.std is None else f"{mean} ± {found.std * scale:.{digits}f}"


def _written(column: Column, row: str) -> str:
    value = column.values.get(row)
    return value if isinstance(value, str) else spoken(value, column.scale, column.digits)


def _leaders(rows: Sequence[str], column: Column) -> list[tuple[int, int]]:
    """(0 for the best or 1 for the second, row). Ties share a place; nobody leads alone, nor where all are alike."""
    if column.best is None or column.paper:
        return []
    means = {i: v.mean for i, row in enumerate(rows) if isinstance(v := column.values.get(row), Summary)}
    ranked = sorted(set(means.values()), reverse=column.best == "high")
    if len(means) < 2 or len(ranked) < 2:
        return []
    return [(place, i) for i, value in means.items() if (place := ranked.index(value)) < 2]


def numeric(table: Table) -> frozenset[int]:
    """Columns of numbers, which are set to the right; the first names the row."""
    columns = range(1, len(table.headings))
    return frozenset(i for i in columns if all(_NUMBER.fullmatch(row[i]) for row in table.rows))


def paper_note(tables: Sequence[Table]) -> str:
    """What must be said where the paper's numbers stand beside ours; nothing where none do."""
    if not any(table.paper for table in tables):
        return ""
    return (
        "Columns marked as the paper's hold its printed numbers. Its partitions are not distributed, so its splits "
        "differ from these: compare the differences between rows, not single numbers across columns."
    )


def markdown(answer: Answer, title: str, notes: Sequence[str] = ()) -> str:
    """The whole answer as a Markdown page; figures are expected in figures/ beside it."""
    lines = [f"# {_plain(title)}", "", *map(_prose, answer.finding), ""]
    for table in answer.tables:
        right = numeric(table)
        rules = ["---:" if i in right else "---" for i in range(len(table.headings))]
        lines += [f"## {_plain(table.title)}", "", _row([_plain(text) for text in table.headings]), _row(rules)]
        for i, row in enumerate(table.rows):
            lines.append(_row([_stressed(table, i, j, _plain(text)) for j, text in enumerate(row)]))
        lines.append("")
    for figure in answer.figures:
        file = f"figures/{quote(figure.name)}"
        lines += [f"[![{_plain(figure.title)}]({file}.png)]({file}.svg)", ""]
    lines += [f"- {_prose(text)}" for text in (*answer.remarks, paper_note(answer.tables), *notes) if text]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """One table for a paper: best bold, second in italics, the published columns between vertical rules."""
    lines = [f"% {_line(table.title)}"]
    if table.paper:
        lines.append("% slanted heading, vertical rules: numbers of the published paper, on splits of its own")
    lines += [rf"\begin{{tabular}}{{{_tex_columns(table)}}}", r"\hline"]
    heads = [rf"\emph{{{_tex(h)}}}" if i in table.paper else _tex(h) for i, h in enumerate(table.headings)]
    lines.append(" & ".join(heads) + r" \\ \hline")
    for i, row in enumerate(table.rows):
        cells = [_tex(text) for text in row]
        for j, text in enumerate(cells):
            if (i, j) in table.best:
                cells[j] = rf"\textbf{{{text}}}"
            elif (i, j) in table.second:
                cells[j] = rf"\textit{{{text}}}"
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _tex_columns(table: Table) -> str:
    """Numbers right, words left, long words in lines of their own; a rule wherever ours and the paper's meet."""
    right = numeric(table)
    told = ""
    for i in range(len(table.headings)):
        if i and (i in table.paper) != (i - 1 in table.paper):
            told += "|"
        longest = max((len(row[i]) for row in table.rows), default=0)
        told += "r" if i in right else "l" if longest <= _LONG else r"p{0.3\linewidth}"
    return told


def _stressed(table: Table, row: int, column: int, text: str) -> str:
    mark = "**" if (row, column) in table.best else "*" if (row, column) in table.second else ""
    return f"{mark}{text}{mark}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _line(text: str) -> str:
    """Without breaks: a cell, a heading and a comment end with their line."""
    return shown(" ".join(text.split()))


def _plain(text: str) -> str:
    """Data in Markdown: nothing in it is a sign. An underscore within a word is none anyway."""
    return _MARKDOWN.sub(r"\\\g<0>", _line(text))


def _prose(text: str) -> str:
    """A sentence of a study, which may hold `code`; what it quotes must become neither a tag nor a link."""
    parts = re.split(r"(`[^`]*`)", _line(text))
    return "".join(part if place % 2 else re.sub(r"[<\[]", r"\\\g<0>", part) for place, part in enumerate(parts))


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in _line(text) if letter.isprintable())
