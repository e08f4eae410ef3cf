"""One self-contained HTML page: no network, no script, everything from data escaped, light and dark.

Its policy allows pictures inside the page and one style sheet, known by its hash; whatever else got into a page, by a
mistake of ours, a browser would neither run nor fetch.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence

from ftcseg.files import shown

_POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
_OWN_STYLE = re.compile(r' style="([^"<>&]*)"')
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 72rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p.lead { font-size: 1.05rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; min-width: 30rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.over { text-align: center; border: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
th { vertical-align: bottom; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figure div { display: flex; gap: 2px; background: #000; }
figure img { width: 50%; height: auto; object-fit: contain; image-rendering: auto; }
figcaption { font-size: .8rem; overflow-wrap: anywhere; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; border: 1px solid var(--line);
  margin-right: .4em; }
.bar { display: inline-block; height: .7em; background: #0072b2; border-radius: 2px; }
.error { color: #d55e00; font-weight: 600; } .warning { color: #b07a00; font-weight: 600; } .note { opacity: .75; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; } p { max-width: 46rem; }
details { margin: .75rem 0; } summary { cursor: pointer; }
.tag { font-size: .75rem; opacity: .75; border: 1px solid var(--line); border-radius: 1em; padding: 0 .5em; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
footer { margin-top: 3rem; font-size: .8rem; opacity: .7; }
"""


def escape(text: str) -> str:
    """Text from data for a page: no sign of HTML, nothing that turns the direction of writing or cannot be written."""
    return "\n".join(html.escape(shown(line)) for line in text.split("\n"))


def page(title: str, body: Iterable[str], footer: str, style: str = "") -> str:
    """The whole page around its sections; `style` is what its sections add to the style sheet."""
    content, rules = _without_inline("\n".join(body))
    sheet = f"{_STYLE}{style}{rules}"
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{sheet}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n{content}\n<footer>{escape(footer)}</footer></body></html>\n"
    )


def _without_inline(content: str) -> tuple[str, str]:
    """The content with every style of a single element moved to a rule, since a policy cannot tell ours from others.

    Only we write such attributes: quotes from data are escaped.
    """
    known: dict[str, int] = {}
    moved = _OWN_STYLE.sub(lambda found: f' data-s="{known.setdefault(found[1], len(known))}"', content)
    return moved, "".join(f'[data-s="{place}"] {{ {style} }}\n' for style, place in known.items())


def lead(text: str) -> str:
    """The answer in a sentence or two, before anything else."""
    return f'<p class="lead">{escape(text)}</p>'


def section(title: str, *parts: str) -> str:
    """A heading and what stands under it."""
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(parts)


def note(text: str) -> str:
    """A remark in a lower voice."""
    return f'<p class="note">{escape(text)}</p>'


def folded(title: str, inside: str, *, unfolded: bool = False) -> str:
    """Something that opens and closes when its title is pressed."""
    return f"<details{' open' if unfolded else ''}><summary>{escape(title)}</summary>{inside}</details>"


def gallery(figures: Iterable[tuple[Sequence[str], str]]) -> str:
    """Pictures side by side: ((address, address), caption) each."""
    cells = []
    for addresses, caption in figures:
        images = "".join(f'<img src="{escape(a)}" alt="{escape(caption)}">' for a in addresses)
        cells.append(f"<figure><div>{images}</div><figcaption>{escape(caption)}</figcaption></figure>")
    return f'<div class="grid">{"".join(cells)}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    over: Sequence[tuple[str, int]] = (),
) -> str:
    """A table of ready-made cells (escape what comes from data); columns in `numbers` are set to the right.

    `over` heads several columns at once: (("", 1), ("stage 1", 3)).
    """
    right = set(numbers)
    mark = ['<{0} class="n">{1}</{0}>' if i in right else "<{0}>{1}</{0}>" for i in range(len(head))]
    top = "".join(m.format("th", escape(h)) for m, h in zip(mark, head, strict=True))
    body = "".join(f"<tr>{''.join(m.format('td', c) for m, c in zip(mark, row, strict=True))}</tr>" for row in rows)
    above = "".join(f'<th class="over" colspan="{count}">{escape(text)}</th>' for text, count in over)
    first = f"<tr>{above}</tr>" if above else ""
    return f'<div class="wide"><table>{first}<tr>{top}</tr>{body}</table></div>'


def swatch(color: tuple[int, int, int]) -> str:
    """A small square of a class's colour."""
    return '<span class="key" style="background:#{:02x}{:02x}{:02x}"></span>'.format(*color)


def bar(share: float) -> str:
    """A share of 0-1 as a bar."""
    return f'<span class="bar" style="width:{max(share, 0) * 8:.2f}em"></span>'


def points(share: float | None) -> str:
    """A share of 0-1 in hundredths, "41.2"; n/a where there is none."""
    return "n/a" if share is None else f"{100 * share:.1f}"


def figure(value: float | None, digits: int = 3) -> str:
    """A number to so many digits that count; n/a where there is none."""
    return "n/a" if value is None else f"{value:.{digits}g}"
