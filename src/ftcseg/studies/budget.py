"""How long every run of a study is: so many steps, about so many minutes, or as long as the paper's.

All rows take the same steps, or the comparison would be one of computers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ftcseg.config.load import flat, preset, settings
from ftcseg.config.schema import RunConfig
from ftcseg.data.drawing import drawn
from ftcseg.errors import UsageError
from ftcseg.files import read_json, to_yaml, write_json
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.estimate import Estimates, seconds_of
from ftcseg.studies.plan import Ask, Cell, digest
from ftcseg.studies.sets import Sets

EPOCHS = 240
"""Passes over the unlabelled images."""
ACDC = "acdc-driving"
ACDC_SETTINGS = ("data.labeled_batch=1", "data.unlabeled_batch=1", "data.crop=[798, 798]")
"""The public code's for this set; the others have 4+4 images and crops of 518 (reading C6)."""
FORMS = "400steps (so many in every run), 20minutes (every run takes about so long) or paper (240 epochs, its settings)"
NOTE = "budget.json"
LONGEST = 10**7

_TEXT = re.compile(r"(?:(\d+)\s*steps?|(\d+(?:\.\d+)?)\s*min(?:ute)?s?|(paper))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """What was asked for; `amount` is of steps or minutes."""

    kind: Literal["steps", "minutes", "paper"]
    amount: float = 0.0

    def __str__(self) -> str:
        return "paper" if self.kind == "paper" else f"{self.amount:g}{self.kind}"


@dataclass(frozen=True, slots=True)
class Settled:
    """An ask with its length, and how that came about."""

    ask: Ask
    why: str = ""


def parse_budget(text: str) -> Budget:
    """«400steps», «20minutes» or «paper»; anything else is an error that shows the three."""
    told = _TEXT.fullmatch(text.strip())
    if told is None:
        raise UsageError(f"{text!r} is no budget. Write {FORMS}.")
    steps, minutes, paper = told.groups()
    budget = Budget("paper") if paper else Budget("steps", int(steps)) if steps else Budget("minutes", float(minutes))
    if not paper and not 0 < budget.amount <= LONGEST:
        raise UsageError(f"{text!r} is no length for a run. Write {FORMS}.")
    return budget


def settle(budget: Budget, inquiry: Inquiry) -> Settled:
    """The inquiry's ask with the steps that the budget comes to; the paper's budget brings its settings along."""
    if budget.kind == "steps":
        return Settled(replace(inquiry.ask, steps=int(budget.amount)))
    if not inquiry.study.plan(inquiry.ask):
        return Settled(inquiry.ask, "This study trains nothing, so that it has no budget.")
    return _by_paper(inquiry) if budget.kind == "paper" else _by_minutes(budget, inquiry)


# ---------------------------------------------------------------- minutes


def _by_minutes(budget: Budget, inquiry: Inquiry) -> Settled:
    """Steps of which the slowest row makes about so many minutes; found once and then kept."""
    ask, note = inquiry.ask, inquiry.folder / NOTE
    # Seeds and label amounts are left out: more of them must not change the length of what is finished.
    told = {key: value for key, value in asdict(ask).items() if key not in ("steps", "seeds", "labels")}
    key = digest({**told, "budget": str(budget)})
    known = _noted(note)
    if key in known:
        steps = known[key]["steps"]
        why = f"{budget} are {steps} steps, as {note} says; remove that line to have it timed again."
        return Settled(replace(ask, steps=steps), why)
    estimates = Estimates(Sets(inquiry.place))
    steps, slowest = min(
        ((_most(cell, estimates, 60 * budget.amount), cell.row) for cell in _kinds(inquiry.study.plan(ask))),
    )
    if steps == 0:
        raise UsageError(
            f"{budget} are too few: {slowest} takes longer for its start and its evaluations alone. Ask for more "
            f"minutes, or for fewer images with --set evaluation.images=20 --set evaluation.audit_images=20."
        )
    line = {"budget": str(budget), "steps": steps, "slowest": slowest}
    write_json(note, {**known, key: line})
    return Settled(replace(ask, steps=steps), f"{budget} are {steps} steps, by the slowest row, {slowest}.")


def _noted(note: Path) -> dict[str, Any]:
    """What was found before, by question; lines that tell no number of steps are none."""
    told = read_json(note) if note.is_file() else {}
    lines = told.items() if isinstance(told, dict) else ()
    return {key: line for key, line in lines if isinstance(line, dict) and type(line.get("steps")) is int}


def _kinds(cells: Iterable[Cell]) -> list[Cell]:
    """One cell of each kind that may differ in time."""
    return list({(cell.method, cell.dataset, cell.settings): cell for cell in cells}.values())


def _most(cell: Cell, estimates: Estimates, seconds: float) -> int:
    """The largest readable number of steps that takes no longer; 0 where not even one step fits."""
    timed, _ = estimates.timed(cell, estimates.look(cell))

    def takes(steps: int) -> float:
        return seconds_of(timed, estimates.look(replace(cell, steps=steps)))

    return largest_readable(lambda steps: takes(steps) <= seconds)


def largest_readable(fits: Callable[[int], bool]) -> int:
    """The largest number of two digits and zeros for which this holds; 0 where it holds for none."""
    numbers = [digits * 10**zeros for zeros in range(6) for digits in range(1 if zeros == 0 else 10, 100)]
    low, high = 0, len(numbers)  # the first `low` fit, those from `high` on do not
    while low < high:
        middle = (low + high) // 2
        if fits(numbers[middle]):
            low = middle + 1
        else:
            high = middle
    return numbers[low - 1] if low else 0


# ---------------------------------------------------------------- the paper's


def _by_paper(inquiry: Inquiry) -> Settled:
    """240 epochs at the paper's crops and batches; of several label amounts, those of the longest for all."""
    ask = inquiry.ask
    sets = Sets(inquiry.place)
    found = {dataset: sets.examined(dataset, ask.seeds[0]) for dataset in ask.datasets}
    driving = {dataset for dataset in found if found[dataset].description.set_name == ACDC}
    if driving and driving != set(found):
        raise UsageError(
            f"The paper trains on {ACDC} with other crops and batches than on other sets. Ask for it in a study of its "
            f"own: --dataset {ACDC} --out studies-{ACDC}."
        )
    own = [text for text in ask.settings if text not in inquiry.study.defaults.settings]
    chosen = (*paper_settings(), *(ACDC_SETTINGS if driving else ()), *own)
    batch = 1 if driving else int(flat(preset("gpu"))["data.unlabeled_batch"])
    steps = {
        f"{dataset} at {labels}": paper_steps(len(drawn(found[dataset], labels, seed=ask.seeds[0])[0].unlabeled), batch)
        for dataset in ask.datasets
        for labels in ask.labels
    }
    longest = max(steps.values())
    each = ", ".join(f"{where} {count}" for where, count in steps.items())
    why = f"{EPOCHS} epochs in steps: {each}." + (f" All take {longest}." if len(set(steps.values())) > 1 else "")
    return Settled(replace(ask, steps=longest, settings=chosen), why)


def paper_steps(unlabeled: int, batch: int) -> int:
    """The paper's epochs in steps; a last batch that is not full is one, too."""
    return EPOCHS * max(1, -(-unlabeled // batch))


def paper_settings() -> tuple[str, ...]:
    """Everything the preset of the paper sets, and the plain default of what the preset for CPUs has instead."""
    theirs, plain = flat(preset("gpu")), dict(settings(RunConfig()))
    chosen = {key: plain[key] for key in flat(preset("cpu")) if key in plain} | theirs
    del chosen["steps"]
    return tuple(f"{key}={_inline(value)}" for key, value in chosen.items())


def _inline(value: object) -> str:
    return to_yaml([value]).strip().removeprefix("- ") if not isinstance(value, list) else str(value)
