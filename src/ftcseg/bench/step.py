"""`ftcseg bench step`: how long a training step takes, where the time goes, and how others compare, in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ftcseg.bench.case import Case, differing, parse_batch, placed
from ftcseg.bench.flops import FlopCounter
from ftcseg.bench.fresh import elsewhere
from ftcseg.bench.machine import RateMeter
from ftcseg.bench.page import write_step_page
from ftcseg.bench.parts import GROUPS, PARTS
from ftcseg.bench.record import Row, record, row, write
from ftcseg.bench.rig import Rig, Taken
from ftcseg.bench.spread import Spread, ratios
from ftcseg.errors import FtcsegError, UsageError, unknown_name
from ftcseg.parallel import Progress, silent

COMPUTE = ("teacher", "student", "backward")
"""The parts that a network's multiplications happen in."""
MEMORY_STEPS = 2
_REASON = 240  # letters of a reason why something does not work


@dataclass(frozen=True, slots=True)
class Try:
    """An option of training, and the settings it stands for."""

    line: str
    settings: tuple[str, ...]


TRIES: Mapping[str, Try] = {
    "compile": Try("the encoder through torch.compile", ("model.compile=true",)),
    "contiguous": Try("without channels_last, which is the default", ("model.channels_last=false",)),
    "bf16": Try("forward and backward in bfloat16 where torch allows it", ("precision=bf16-mixed",)),
    "checkpointing": Try("encoder blocks run twice and keep less", ("model.checkpointing=true",)),
    "frozen": Try("an encoder that does not learn", ("model.mode=frozen",)),
    "foreach": Try("the optimiser over lists of tensors instead of fused", ("optim.implementation=foreach",)),
    "loop": Try("the optimiser tensor by tensor", ("optim.implementation=loop",)),
    "workers": Try("batches made by a process beside", ("data.workers=1",)),
}
"""What «--try NAME» measures against the configuration as it is."""


@dataclass(slots=True)
class Rounds:
    """What was taken so far: whole rounds only, so that every list is of one length."""

    alone: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of steps that nobody watched, by the name of the configuration."""
    watched: list[Taken] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Options that do not work here, and why."""
    interrupted: bool = False


OURS = ""
"""The name of the configuration that was asked for."""


def bench_step(  # noqa: PLR0913  the way in: each choice has a name
    method: str = "ftc",
    *,
    encoder: str | None = None,
    head: str | None = None,
    size: tuple[int, int] | None = None,
    batch: str | tuple[int, int] = (4, 4),
    steps: int = 20,
    warm_up: int = 3,
    settings: Sequence[str] = (),
    against: Sequence[str] = (),
    tries: Sequence[str] = (),
    memory: bool = True,
    dataset: str | Path | None = None,
    root: str | Path | None = None,
    seed: int = 0,
    save: str | Path | None = None,
    report: str | Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Time training steps and their parts, as `ftcseg bench step --json` prints it.

    `against` names one other configuration, `tries` options of training; they take turns with the one that is asked
    for, step by step. Ctrl-C ends the rounds early; what was measured is returned, with `interrupted` set.

    Example: `ftcseg.bench_step("ftc", against=["opr.layers=0", "thresholds=fixed"])["against"]["time"]["median"]`
    """
    if steps < 1 or warm_up < 0:
        raise UsageError(
            f"{steps} steps after {warm_up} of warm-up cannot be taken. Ask for at least 1 after 0 or more."
        )
    asked = Case(
        method=method,
        encoder=encoder,
        head=head,
        size=size,
        batch=parse_batch(batch) if isinstance(batch, str) else batch,
        settings=tuple(settings),
        dataset=None if dataset is None else str(dataset),
        root=None if root is None else str(root),
        seed=seed,
    )
    others = others_of(placed(asked), against, tries)
    result = measured(placed(asked), others, (steps, warm_up), memory=memory, progress=progress)
    if save is not None:
        write(result, Path(save))
    if report is not None:
        write_step_page(result, Path(report))
    return result


def others_of(case: Case, against: Sequence[str], tries: Sequence[str]) -> dict[str, Case]:
    """The configurations that take turns with ours, by name: the one of «--against» first, if any."""
    others = {" ".join(against): differing(case, against)} if against else {}
    for name in tries:
        if name not in TRIES:
            raise unknown_name("option to try", name, TRIES)
        others[f"try {name}"] = replace(case, settings=(*case.settings, *TRIES[name].settings))
    return others


def measured(
    case: Case, others: Mapping[str, Case], length: tuple[int, int], *, memory: bool, progress: Progress
) -> dict[str, Any]:
    """The whole measurement as a record; `length` is (steps, steps of warm-up)."""
    steps, warm_up = length
    total = steps + (1 + len(others) if memory else 0)
    with ExitStack() as stack:
        rounds = Rounds()
        rigs = _built(case, others, rounds, stack)
        ours = rigs[OURS]
        meter = RateMeter(ours.device)
        meter.take()
        flops = _warmed(rigs, rounds, max(1, warm_up))
        _alternate(rigs, rounds, steps, meter, lambda done: progress(done, total))
        facts = {**ours.facts(), "flops": flops}
        device = ours.device
    found = _step(rounds, facts, meter.rate)
    cases = {OURS: case, **{name: other for name, other in others.items() if name not in rounds.failed}}
    held = _memory(cases, rounds, steps, lambda done: progress(done, total)) if memory else {}
    found["memory"] = held.get(OURS)
    compared = [_other(name, rounds, held) for name in others]
    first = next((other for other in compared if not other["name"].startswith("try ")), None)
    details = {
        "steps": steps,
        "warm_up": max(1, warm_up),
        "step": found,
        "against": first,
        "tries": [other for other in compared if other is not first],
        "interrupted": rounds.interrupted,
    }
    asked = {**case.as_json(), "others": list(others)}
    del asked["root"]  # where sets are kept says nothing about speed
    return record("step", asked, _rows(found, compared), meter, device, details)


def _built(case: Case, others: Mapping[str, Case], rounds: Rounds, stack: ExitStack) -> dict[str, Rig]:
    rigs = {OURS: stack.enter_context(Rig(case))}
    for name, other in others.items():
        try:
            rigs[name] = stack.enter_context(Rig(other))
        except Exception as error:
            _note_failure(name, error, rounds)
    return rigs


def _warmed(rigs: dict[str, Rig], rounds: Rounds, steps: int) -> int:
    """Steps that are not timed; the operations of one of ours are counted meanwhile."""
    for name, rig in list(rigs.items()):
        try:
            for _ in range(steps):
                rig.step()
        except Exception as error:
            _note_failure(name, error, rounds)
            del rigs[name]
    with FlopCounter() as counted:
        rigs[OURS].step()
    total: int = counted.total
    return total


def _note_failure(name: str, error: Exception, rounds: Rounds) -> None:
    """An option that does not work here is a result; anything else is the caller's mistake, or ours."""
    if not name.startswith("try "):
        raise error
    lines = [line for line in str(error).splitlines() if line.strip()]
    rounds.failed[name] = f"{type(error).__name__}: {lines[0] if lines else ''}"[:_REASON]


def _alternate(rigs: Mapping[str, Rig], rounds: Rounds, steps: int, meter: RateMeter, told: Any) -> None:
    """Every configuration once a round, every other round in the other order; ours also once watched.

    The machine's own rate is taken in every round too: it moves with whoever shares the processor.
    """
    rounds.alone = {name: [] for name in rigs}
    names = list(rigs)
    try:
        for number in range(steps):
            order = names if number % 2 == 0 else names[::-1]
            taken = {name: rigs[name].step().seconds for name in order}
            watched = rigs[OURS].step(watch=True)
            for name in names:
                rounds.alone[name].append(taken[name])
            rounds.watched.append(watched)
            meter.take()
            told(number + 1)
    except KeyboardInterrupt:
        rounds.interrupted = True
        if not rounds.watched:
            raise
        whole = len(rounds.watched)
        rounds.alone = {name: seconds[:whole] for name, seconds in rounds.alone.items()}


def _memory(cases: Mapping[str, Case], rounds: Rounds, steps: int, told: Any) -> dict[str, dict[str, Any]]:
    held: dict[str, dict[str, Any]] = {}
    if rounds.interrupted:
        return held
    try:
        for number, (name, case) in enumerate(cases.items(), 1):
            try:
                held[name] = elsewhere("memory", case, {"steps": MEMORY_STEPS})
            except FtcsegError as error:
                if name == OURS:
                    raise
                held[name] = {"problem": str(error)[:_REASON]}
            told(steps + number)
    except KeyboardInterrupt:
        rounds.interrupted = True
    return held


def _step(rounds: Rounds, facts: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Our own step in numbers. Shares are of all watched steps together, so that rare work counts as it comes."""
    alone, watched = Spread.of(rounds.alone[OURS]), rounds.watched
    whole = sum(taken.seconds for taken in watched)
    parts: dict[str, Any] = {}
    for name in PARTS:
        seconds = [(taken.parts or {})[name] for taken in watched]
        parts[name] = {"seconds": Spread.of(seconds).as_json(), "share": sum(seconds) / whole, "total": sum(seconds)}
    summed = sum(part["total"] for part in parts.values())
    compute = alone.median * sum(parts[name]["share"] for name in COMPUTE)
    return {
        **facts,
        "seconds": alone.as_json(),
        "images_per_second": alone.under(facts["images"]).as_json(),
        "parts": parts,
        "groups": {name: sum(parts[part]["share"] for part in inside) for name, inside in GROUPS.items()},
        "watched_seconds": Spread.of([taken.seconds for taken in watched]).as_json(),
        "unaccounted": summed / whole - 1,
        "watching": ratios([taken.seconds for taken in watched], rounds.alone[OURS]).as_json(),
        "flops_per_second": facts["flops"] / alone.median,
        "of_matmul": facts["flops"] / alone.median / rate,
        "compute_of_matmul": facts["flops"] / compute / rate,
    }


def _other(name: str, rounds: Rounds, held: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Another configuration beside ours. Ratios of «against» are ours over it; of options, the option over ours."""
    if name in rounds.failed:
        return {"name": name, "works": False, "reason": rounds.failed[name]}
    ours, theirs = rounds.alone[OURS], rounds.alone[name]
    is_try = name.startswith("try ")
    memory = None
    if OURS in held and "above" in held.get(name, {}):
        pair = (held[name], held[OURS]) if is_try else (held[OURS], held[name])
        memory = {"above": pair[0]["above"] / max(1, pair[1]["above"]), "whole": pair[0]["peak"] / pair[1]["peak"]}
    return {
        "name": name,
        "works": True,
        "seconds": Spread.of(theirs).as_json(),
        "time": (ratios(theirs, ours) if is_try else ratios(ours, theirs)).as_json(),
        "memory": memory,
        "held": held.get(name),
    }


def _rows(found: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What two records are compared by."""
    rows = [
        row("step", "s", "lower", Spread(**found["seconds"])),
        row("images a second", "images/s", "higher", Spread(**found["images_per_second"])),
        row("compute, of the matrix-multiply rate", "share", "higher", found["compute_of_matmul"]),
    ]
    for name, part in found["parts"].items():
        rows.append(row(f"part: {name}", "s", "lower", Spread(**part["seconds"]), share=part["share"]))
    if found["memory"] is not None:
        rows.append(row("peak memory above the start", "bytes", "lower", float(found["memory"]["above"])))
    for other in others:
        if other["works"]:
            rows.append(row(f"time, {_of(other['name'])}", "ratio", "lower", Spread(**other["time"])))
            if other["memory"]:
                rows.append(row(f"memory, {_of(other['name'])}", "ratio", "lower", other["memory"]["above"]))
    return rows


def _of(name: str) -> str:
    return f"{name.removeprefix('try ')} over ours" if name.startswith("try ") else f"ours over {name}"
