"""Tables in pages of docs/results, made from the records beside them.

A table stands between the lines `<!-- table KIND:NAME,NAME -->` and `<!-- end -->`; all other text is left alone.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
_TABLE = re.compile(r"(<!-- table (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

Kinds = Mapping[str, Callable[..., str]]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is words and whose other columns are numbers."""
    ruler = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ruler, *rows)) + "\n"


def filled(text: str, kinds: Kinds) -> str:
    """The page with every table as its records have it."""

    def made(match: re.Match[str]) -> str:
        kind, _, names = match[2].partition(":")
        return match[1] + "\n" + kinds[kind](*(name.strip() for name in names.split(","))) + "\n" + match[3]

    return _TABLE.sub(made, text)


def rewrite(pages: Sequence[Path], kinds: Kinds, about: str | None) -> int:
    """Rewrite the pages, or with --check say by 1 that one is out of date."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 where the page is out of date")
    asked = parser.parse_args()
    stale = False
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = filled(before, kinds)
        stale = stale or before != after
        if not asked.check:
            page.write_text(after, encoding="utf-8")
    return int(asked.check and stale)
