"""A study's answer as text: Markdown for reading, LaTeX for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ftcseg.studies.figures import Figure
from ftcseg.studies.statistics import Summary


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
    """(0 for the best or 1 for the second, row); ties share a place, and a lone row leads nobody."""
    if column.best is None or column.paper:
        return []
    means = {i: v.mean for i, row in enumerate(rows) if isinstance(v := column.values.get(row), Summary)}
    ranked = sorted(set(means.values()), reverse=column.best == "high")
    if len(means) < 2:
        return []
    return [(place, i) for i, value in means.items() if (place := ranked.index(value)) < 2]


def markdown(answer: Answer, title: str, notes: Sequence[str] = ()) -> str:
    """The whole answer as a Markdown page."""
    lines = [f"# {title}", "", *answer.finding, ""]
    for table in answer.tables:
        lines += [f"## {table.title}", "", _row(table.headings), _row(["---", *["---:"] * (len(table.headings) - 1)])]
        for i, row in enumerate(table.rows):
            lines.append(_row([_stressed(table, i, j, text, "**", "*") for j, text in enumerate(row)]))
        lines.append("")
    lines += [f"- {remark}" for remark in (*answer.remarks, *notes)]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """One table for a paper: best bold, second in italics."""
    columns = "l" + "r" * (len(table.headings) - 1)
    lines = [f"% {table.title}", rf"\begin{{tabular}}{{{columns}}}", r"\hline"]
    lines.append(" & ".join(map(_tex, table.headings)) + r" \\ \hline")
    for i, row in enumerate(table.rows):
        cells = [_tex(text) for text in row]
        for j, text in enumerate(cells):
            if (i, j) in table.best:
                cells[j] = rf"\textbf{{{text}}}"
            elif (i, j) in table.second:
                cells[j] = rf"\textit{{{text}}}"
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _stressed(table: Table, row: int, column: int, text: str, best: str, second: str) -> str:
    mark = best if (row, column) in table.best else second if (row, column) in table.second else ""
    return f"{mark}{text}{mark}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$"}
    special |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, letter) for letter in text)
