"""The page of a study's answer: the finding, the tables, the figures, then how all of it was made."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ftcseg.report.page import escape, folded, note, page, section, table
from ftcseg.report.pictures import file_url
from ftcseg.studies.figures import Figure, Pictures
from ftcseg.studies.tables import Answer, Table, numeric, paper_note

FIRST_LINES = 3
"""Of the finding, in large letters."""
GRID_SIDE, GRID_LIMIT = 2400, 2_500_000
"""Pixels and characters of a grid of pictures inside the page; the file beside it has no limit."""
_MANY_RUNS = 12  # more of them are folded away
_STYLE = """
p.finding { font-size: 1.35rem; line-height: 1.35; margin: .4rem 0; max-width: 66rem; text-wrap: pretty; }
table.answer { min-width: 0; }
table.answer th, table.answer td { padding: .3rem .8rem; }
table.answer th:first-child, table.answer td:first-child { padding-left: .2rem; }
table.answer thead th { border-bottom: 2px solid var(--line); }
table.answer .paper { background: #0072b21f; }
table.answer td { white-space: nowrap; } table.answer td.long { white-space: normal; min-width: 11rem; }
.command span { display: inline-block; max-width: 100%; }
.drawn { margin: 1rem 0 1.75rem; } .drawn img { width: 100%; display: block; }
.drawn img.chart { max-width: 50rem; } .drawn img.grid-of { width: auto; max-width: 100%; }
.drawn figcaption { margin-top: .25rem; opacity: .8; }
@media (prefers-color-scheme: dark) {
  table.answer .paper { background: #56b4e92b; }
  .drawn img.chart { filter: invert(.9) hue-rotate(180deg); }
  .drawn img.grid-of { background: #fff; }
}
"""
_CODE = re.compile(r"`([^`]+)`")
_OPTION = re.compile(r" (?=--)")  # a command's lines begin with options
_LONG = 40  # letters of a cell that may take several lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How an answer was made: what is told at the end of its page."""

    question: str
    paper: str
    """The paper's table or figure it stands beside; nothing where empty."""
    command: str
    facts: Sequence[tuple[str, str]]
    """(name, value): splits, seeds, versions."""
    runs: Sequence[tuple[str, str | None]]
    """(title, relative address of its report)."""
    planned: int
    missing: int
    failures: Sequence[str]


def study_page(name: str, answer: Answer, story: Story, figures: Path) -> str:
    """HTML of an answer; its figures are read from the folder they were drawn into."""
    finding = [f'<p class="finding">{_prose(text)}</p>' for text in answer.finding[:FIRST_LINES]]
    more = [f"<p>{_prose(text)}</p>" for text in answer.finding[FIRST_LINES:]]
    body = [*finding, _stand(story), *more]
    for place, one in enumerate(answer.tables):
        told = paper_note(answer.tables) if one.paper and not any(t.paper for t in answer.tables[:place]) else ""
        body.append(section(one.title, _table(one), *([note(told)] if told else [])))
    if answer.figures:
        body.append(section("Figures", *(_figure(one, figures) for one in answer.figures)))
    if answer.remarks:
        body.append(section("Remarks", _list(answer.remarks)))
    body.append(section("How this was made", *_made(story)))
    footer = "Made by ftcseg study from the files of its runs; open it anywhere, it needs no network."
    return page(f"Study: {name}", body, footer, _STYLE)


def _stand(story: Story) -> str:
    """The question and how far the study is, in a lower voice under the finding."""
    told = f"{story.question[:1].upper()}{story.question[1:]}."
    told += f" In the paper: {story.paper}." if story.paper else ""
    if story.missing:
        told += f" {story.missing} of {story.planned} runs are missing: the numbers may change."
    return note(told)


def _table(shown: Table) -> str:
    """Best bold, second in italics, the paper's columns tinted."""
    right = numeric(shown)
    words = [_words(shown, i, i in right) for i in range(len(shown.headings))]
    head = "".join(f'<th scope="col"{w}>{escape(h)}</th>' for w, h in zip(words, shown.headings, strict=True))
    rows = []
    for i, row in enumerate(shown.rows):
        cells = [
            f"<td{w}>{_stressed(shown, i, j, text)}</td>" for j, (w, text) in enumerate(zip(words, row, strict=True))
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    inside = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table class="answer">{inside}</table></div>'


def _words(shown: Table, column: int, right: bool) -> str:
    """The style words of a column's cells, as an attribute."""
    long = any(len(row[column]) > _LONG for row in shown.rows)
    chosen = [word for word, on in (("n", right), ("paper", column in shown.paper), ("long", long)) if on]
    return f' class="{" ".join(chosen)}"' if chosen else ""


def _stressed(shown: Table, row: int, column: int, text: str) -> str:
    told = escape(text)
    if (row, column) in shown.best:
        return f"<b>{told}</b>"
    return f"<i>{told}</i>" if (row, column) in shown.second else told


def _figure(figure: Figure, folder: Path) -> str:
    """A figure inside the page, with the addresses of its files."""
    svg, png = folder / f"{figure.name}.svg", folder / f"{figure.name}.png"
    if isinstance(figure, Pictures):
        whole = _address(png, "png")  # as it is where it is small: encoding it again takes seconds
        kind, address = "grid-of", whole if len(whole) <= GRID_LIMIT else file_url(png, GRID_SIDE, GRID_LIMIT)
    else:
        # Dotted hatches are thousands of paths: the lighter of the two goes into the page.
        heavy = svg.stat().st_size > 2 * png.stat().st_size
        kind, address = "chart", _address(png, "png") if heavy else _address(svg, "svg+xml")
    links = ", ".join(_link(f"{folder.name}/{file.name}", file.suffix[1:].upper()) for file in (svg, png))
    image = f'<img class="{kind}" src="{address}" alt="{escape(figure.title)}">'
    return f'<figure class="drawn">{image}<figcaption>As a file: {links}</figcaption></figure>'


def _address(file: Path, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _made(story: Story) -> list[str]:
    words = " ".join(f"<span>{escape(part)}</span>" for part in _OPTION.split(story.command))
    parts = [f'<p><code class="command">{words}</code></p>']
    done = story.planned - story.missing
    facts = [("runs", f"{done} of {story.planned} finished, {len(story.failures)} failed"), *story.facts]
    parts.append(table(("what", "value"), [(escape(name), escape(value)) for name, value in facts]))
    if story.failures:
        parts += ["<h3>What failed</h3>", _list(story.failures)]
    if story.runs:
        told = [escape(title) if address is None else _link(address, title) for title, address in story.runs]
        runs = "<ul>" + "".join(f"<li>{text}</li>" for text in told) + "</ul>"
        parts.append(folded(f"{len(told)} runs it was read from", runs, unfolded=len(told) <= _MANY_RUNS))
    return parts


def _list(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_prose(text)}</li>" for text in texts) + "</ul>"


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(quote(address, errors="replace"))}">{escape(text)}</a>'


def _prose(text: str) -> str:
    """A sentence whose `code` is set as such."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
