"""What a run derives from its data and its length, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from ftcseg.config.load import Draft
from ftcseg.config.schema import RunConfig
from ftcseg.errors import UsageError
from ftcseg.teaching.teacher import REFERENCE_STEPS, SHORTEST_TEACHER, scaled_momentum
from ftcseg.types import Part

SHORT_RUN = 20_000
"""Runs below this many steps get a burn-in and a ramp: a teacher of few steps calls rare objects background."""
BURN_IN_SHARE = 0.5
RAMP_SHARE = 0.1
EVALUATIONS = 5
SAVES = 20
LOG_LINES = 100


@dataclass(frozen=True, slots=True)
class Facts:
    """What the settings depend on."""

    frame: tuple[int, int]
    """(height, width) of the commonest labelled image."""
    part: Part
    """The part to evaluate when nobody chose one."""
    foreground: tuple[int, ...]
    background: tuple[int, ...] = ()
    rarest: int | None = None
    """The foreground class with the fewest pixels in the set; None where no foreground class has any."""


def resolve(draft: Draft, facts: Facts) -> RunConfig:
    """Fill in what nobody set, and build."""
    config = draft.build()
    steps = config.steps

    def choose(key: str, value: object, why: str) -> None:
        if not draft.given(key) or (key == "data.crop" and config.data.crop is None):  # null asks for the frame
            draft.set(key, value, why)

    choose("data.part", facts.part, "validation where there is a part of its own, else test")
    if config.data.short_side is not None:
        factor = config.data.short_side / min(facts.frame)
        frame = [round(side * factor) for side in facts.frame]
        choose(
            "data.crop", frame, f"the frame {facts.frame[0]}x{facts.frame[1]} at short side {config.data.short_side}"
        )
    else:
        choose("data.crop", list(facts.frame), "the frame")
    share = f"{steps} steps instead of the paper's {REFERENCE_STEPS}: the same share of the run is remembered"
    for rule, told in (("atc", config.atc), ("flexmatch", config.flexmatch), ("freematch", config.freematch)):
        choose(f"{rule}.momentum", scaled_momentum(told.momentum, steps), share)
    choose("teaching.ema", scaled_momentum(config.teaching.ema, steps, shortest=SHORTEST_TEACHER), share)
    if steps < SHORT_RUN and config.method != "supervised":
        choose("teaching.burn_in", round(BURN_IN_SHARE * steps), "a short run: labels first, for half of it")
        choose("teaching.ramp", round(RAMP_SHARE * steps), "a short run: pseudo-labels fade in over a tenth of it")
    choose("opr.foreground", *_foreground(config, facts))
    choose("evaluation.every", max(1, steps // EVALUATIONS), "a fifth of the run")
    choose("save_every", max(1, steps // SAVES), "a twentieth of the run")
    choose("log_every", max(1, steps // LOG_LINES), "a hundredth of the run")
    return draft.build()


def _foreground(config: RunConfig, facts: Facts) -> tuple[list[int], str]:
    """Class ids that OPR takes for foreground, and why these."""
    told = config.foreground
    if told == "objects":
        return list(facts.foreground), "the classes that are not background"
    ids = {*facts.foreground, *(facts.background if told.startswith("everything") else ())}
    if told.endswith("without_rarest"):
        ids -= {facts.rarest}
    if not ids:
        raise UsageError(f"foreground={told} leaves no class at all: this set has a single object class.")
    return sorted(ids), f"foreground={told}, which is wrong on purpose"
