"""What commands print with: the terminal, tables, progress bars. Rich is imported when something is drawn."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ftcseg.parallel import Progress

BAR = "█"
_BEYOND_JSON = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")


def plain(text: object) -> str:
    """Lines that may quote data, for a terminal: nothing in them moves its cursor, colours it or turns its writing."""
    from ftcseg.files import shown  # help needs none of it

    return "\n".join(map(shown, str(text).split("\n")))


def marked(text: object) -> str:
    """Text from data within rich's markup: no sign of that either."""
    from rich.markup import escape

    from ftcseg.files import shown

    return escape(shown(text))


def json_text(value: object) -> str:
    """JSON for programs and people: in its strings, what would steer a terminal is written as JSON's own escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def console() -> Console:
    """Standard output, for tables."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # «| head» is no failure: main() knows what to do

    return Piped(highlight=False, soft_wrap=False)


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A progress(done, total) that draws a bar on the error stream, or nothing where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def bar(share: float, width: int = 16) -> str:
    """A share of 0-1 as a bar; anything above zero shows at least a sliver."""
    eighths = " ▏▎▍▌▋▊▉"
    filled = max(share * width, 1 / 8 if share > 0 else 0)
    whole, rest = int(filled), int((filled % 1) * 8)
    return (BAR * whole + (eighths[rest] if rest else "")).ljust(width)
