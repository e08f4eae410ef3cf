"""A study's answer as text: Markdown for reading, LaTeX for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ftcseg.studies.statistics import Summary


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; the first column names the row. `best` and `second` are (row, column) places."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    second: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study found: the finding in at most three sentences, then its tables and remarks."""

    finding: tuple[str, ...]
    tables: tuple[Table, ...]
    remarks: tuple[str, ...] = field(default=())


def spoken(found: Summary | None, scale: float = 100.0) -> str:
    """«41.2 ± 0.7», or «n/a»."""
    if found is None:
        return "n/a"
    mean = f"{found.mean * scale:.1f}"
    return mean if found.std is None else f"{mean} ± {found.std * scale:.1f}"


def leaders(columns: Sequence[Sequence[float | None]]) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """Places of the highest and second highest number of each column, counted from column 1; ties share a place."""
    best, second = set(), set()
    for number, column in enumerate(columns, 1):
        ranked = sorted({value for value in column if value is not None}, reverse=True)
        for row, value in enumerate(column):
            if ranked and value == ranked[0]:
                best.add((row, number))
            elif len(ranked) > 1 and value == ranked[1]:
                second.add((row, number))
    return frozenset(best), frozenset(second)


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
