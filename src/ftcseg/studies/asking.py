"""From what a user says to a study: words become an Ask, and what the study does not know is an error that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftcseg.data.split import parse_amount
from ftcseg.errors import UsageError, unknown_name
from ftcseg.studies import Study, find_study, running
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.budget import parse_budget, settle
from ftcseg.studies.plan import EMBEDDED, Ask
from ftcseg.studies.sets import Place
from ftcseg.studies.tables import Answer

_SEED_BOUND = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A user's words; what is left empty is the study's own choice."""

    dataset: Sequence[str] = ()
    labels: Sequence[str] = ()
    seeds: Sequence[str] = ()
    budget: str | None = None
    only: Sequence[str] = ()
    settings: Sequence[str] = ()
    ftc: str | None = None
    options: Sequence[str] = ()


def study(name: str, *, out: str | Path = "studies", root: str | Path | None = None, **choices: object) -> Answer:
    """Run the grid of runs that answers a question, or what is missing of it; the answer is also written to OUT/NAME.

    The choices are those of `ftcseg study`: dataset, labels, seeds, budget, only, settings, ftc, options; each may be
    one value or several. `study("ablation", seeds=[0, 1, 2], budget="400steps")`.
    """
    told = {key: value if key in ("budget", "ftc") else _several(value) for key, value in choices.items()}
    unknown = [key for key in told if key not in Choices.__dataclass_fields__]
    if unknown:
        raise unknown_name("choice of a study", unknown[0], Choices.__dataclass_fields__)
    place = Place(Path(out), None if root is None else Path(root))
    return running.run_study(asked(name, Choices(**told), place))  # type: ignore[arg-type]


def asked(name: str, choices: Choices, place: Place, say: Callable[[str], None] = lambda _: None) -> Inquiry:
    """The study that is meant, with everything settled."""
    found = find_study(name)
    inquiry = Inquiry(name, found, _ask(found, choices), place)
    if choices.budget is None:
        return inquiry
    settled = settle(parse_budget(choices.budget), inquiry)
    if settled.why:
        say(settled.why)
    return replace(inquiry, ask=settled.ask)


def _ask(found: Study, choices: Choices) -> Ask:
    ask = found.defaults
    if choices.dataset:
        datasets = _each(choices.dataset)
        own = ask.settings if datasets == (EMBEDDED,) else ()  # the defaults' settings are for the simulated set
        ask = replace(ask, datasets=datasets, settings=own)
    if choices.labels:
        ask = replace(ask, labels=_each(str(parse_amount(text)) for text in choices.labels))
    if choices.seeds:
        ask = replace(ask, seeds=tuple(dict.fromkeys(map(_seed, choices.seeds))))
    ask = replace(ask, settings=(*ask.settings, *choices.settings), ftc=choices.ftc or ask.ftc)
    ask = replace(ask, options={**found.options, **_options(found, choices.options)})
    return replace(ask, only=_rows(found, ask, _each(choices.only)))


def _several(value: object) -> list[str]:
    """One value or many, as the command line would have them."""
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, (list, tuple, range, set)) else [str(value)]


def _each(values: Iterable[str]) -> tuple[str, ...]:
    """Every value once: said twice, it would count twice in a mean."""
    return tuple(dict.fromkeys(values))


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text) < _SEED_BOUND:
        raise UsageError(
            f"{text!r} is no seed. Write whole numbers from 0 to {_SEED_BOUND - 1}, such as --seeds 0 1 2."
        )
    return int(text)


def _rows(found: Study, ask: Ask, only: tuple[str, ...]) -> tuple[str, ...]:
    """The asked rows; one that the study has not is an error that lists those it has."""
    # Some rows are there only where they are asked for by name.
    cells = [*found.plan(replace(ask, only=())), *(found.plan(replace(ask, only=only)) if only else ())]
    rows = _each(cell.row for cell in cells)
    unknown = [row for row in only if row not in rows]
    if unknown and rows:
        raise UsageError(f"This study has no row {unknown[0]!r}. Its rows: {', '.join(repr(row) for row in rows)}.")
    return only


def _options(found: Study, told: Sequence[str]) -> dict[str, str]:
    chosen = {}
    for text in told:
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--option {text} has no value. Write --option KEY=VALUE.")
        if key not in found.options:
            raise unknown_name("option of this study", key, found.options)
        chosen[key] = value
    return chosen
