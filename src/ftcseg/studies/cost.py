"""What a prediction costs with and without OPR, and which reading of the paper its cost table describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ftcseg.config.load import draft_for
from ftcseg.nets.opr import OPR_READINGS, OPRParams
from ftcseg.studies.network_costs import (
    GIGA,
    MILLION,
    everything,
    fresh,
    measured,
    millions,
    per_second,
    products,
    slower,
    whole_number,
)
from ftcseg.studies.plan import Ask, Bench, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import BASELINE, FTC, WITH_ATC, WITH_OPR
from ftcseg.studies.tables import Answer, Column, Table, table_of

DEFAULTS = Ask()
OPTIONS: Mapping[str, str] = {
    "encoder": "dinov2-small",
    "head": "dpt",
    "size": "518",
    "classes": "11",
    "repeats": "9",
}
NETWORKS = "networks"
"""The measurement's name."""
PLAIN, ASKED, EMPTIED = "without OPR", "the reading asked for", "the reading asked for, 0 stages"
AGAIN = "without OPR, timed once more"
"""The plain network beside itself: how far times differ that should not."""
READINGS: Mapping[str, OPRParams] = {
    "probe, 1 stage": OPRParams(layers=1),
    "probe, 2 stages (the paper's text)": OPRParams(layers=2),
    "legacy, 1 stage": OPR_READINGS["legacy"],
    "prototypes alone, 1 stage": OPRParams(layers=1, gate="none"),
    "prototypes pushed through the head, 1 stage": OPRParams(layers=1, gate_head="project"),
    "wide head, 0 stages": OPRParams(layers=0, gate_head="head_wide"),
    "wide head, 1 stage (the released code)": OPR_READINGS["released"],
}
"""Ways to build OPR that the paper's text, its released code and its older module leave open (readings A2, A3)."""
METHODS: Mapping[str, str] = {
    "labels only": PLAIN,
    "UniMatch V2": PLAIN,
    "FTC-Seg": ASKED,
    BASELINE: EMPTIED,
    WITH_OPR: ASKED,
    WITH_ATC: EMPTIED,
    FTC: ASKED,
}
"""Which network predicts for whom: ATC and the teacher are gone when training ends. A wide head stays without OPR."""
PAPER: Mapping[str, tuple[float, float, float]] = {
    "labels only": (24.79, 56.94, 122.62),
    "UniMatch V2": (24.79, 56.94, 122.62),
    "FTC-Seg": (24.81, 56.96, 120.93),
    BASELINE: (24.79, 56.88, 122.62),
    WITH_OPR: (24.81, 56.92, 120.93),
    WITH_ATC: (24.79, 56.94, 122.62),
    FTC: (24.81, 56.96, 120.93),
}
"""Parameters (M), FLOPs (G), frames a second on an RTX 4090."""


def measures(ask: Ask) -> list[Measure]:
    """All networks in one sitting, so that their times can be compared."""
    numbers = {key: whole_number(ask, key) for key in ("size", "classes", "repeats")}
    told = {**numbers, "encoder": ask.options["encoder"], "head": ask.options["head"], "ftc": ask.ftc}
    return [Measure(name=NETWORKS, take=partial(_take, told), dataset=ask.datasets[0], told=told)]


def asked_opr(ftc: str) -> OPRParams:
    """The OPR of a reading of FTC-Seg."""
    return draft_for(ftc, "cpu", ()).build().opr


def _take(told: Mapping[str, Any], _bench: Bench) -> dict[str, Any]:
    asked = asked_opr(told["ftc"])
    emptied = replace(asked, layers=0)
    wide = {EMPTIED: emptied} if emptied.gate_head == "head_wide" else {}  # it is the plain network otherwise
    variants = {PLAIN: None, ASKED: asked, AGAIN: None, **wide, **READINGS}
    nets = {name: fresh(told["encoder"], told["head"], told["classes"], opr) for name, opr in variants.items()}
    found = measured(nets, (1, 3, told["size"], told["size"]), repeats=told["repeats"])
    found["networks"].setdefault(EMPTIED, found["networks"][PLAIN])
    return found


def read(ask: Ask, evidence: Evidence) -> Answer:
    """One table by method, one by reading, and what the paper's numbers tell about its network."""
    taken = evidence.measured.get(NETWORKS)
    if taken is None:
        return Answer(("Nothing has been measured yet.",))
    found: Mapping[str, Any] = taken["networks"]
    fits = [name for name in READINGS if _is_papers(found[name])]
    return Answer(
        tuple(_finding(ask, found, fits)),
        (_by_method(found), _by_reading(found, fits)),
        (
            f"Times were taken on this machine ({taken['machine']}; one image of {taken['shape'][2]} x "
            f"{taken['shape'][3]}), the networks taking turns after a round to warm up: median, and in brackets the "
            "middle half of the rounds. Ratios are against the plain network in the same round. Weights are random; a "
            "prediction costs the same with any.",
            "«Products» are the multiply-adds of convolutions, linear layers and attention; «all» adds 5 operations "
            "for each element of a LayerNorm and 4 for each of a bilinear map, as fvcore does.",
            *_explained(ask, found),
        ),
    )


def _by_method(found: Mapping[str, Any]) -> Table:
    of = {row: found[network] for row, network in METHODS.items()}
    columns = [
        Column(heading="parameters (M)", values={row: millions(one) for row, one in of.items()}),
        _printed("parameters (M)", 0),
        Column(heading="products (G)", values={row: products(one) for row, one in of.items()}),
        Column(heading="all (G)", values={row: everything(one) for row, one in of.items()}),
        _printed("FLOPs (G)", 1),
        Column(heading="images/s, here", values={row: per_second(one) for row, one in of.items()}),
        _printed("FPS, RTX 4090", 2),
        Column(heading="time / plain", values={row: slower(one, found[PLAIN]) for row, one in of.items()}),
        Column(
            heading="time / plain (paper)",
            values={row: f"{PAPER['UniMatch V2'][2] / fps:.3f}" for row, (_, _, fps) in PAPER.items()},
            paper=True,
        ),
    ]
    return table_of("By method and module", "method", list(METHODS), columns)


def _printed(heading: str, place: int) -> Column:
    return Column(
        heading=f"{heading} (paper)", values={row: f"{one[place]:.2f}" for row, one in PAPER.items()}, paper=True
    )


def _by_reading(found: Mapping[str, Any], fits: list[str]) -> Table:
    rows = [PLAIN, AGAIN, *READINGS]
    columns = [
        Column(heading="parameters", values={row: f"{found[row]['parameters']:,}" for row in rows}),
        Column(heading="parameters (M)", values={row: millions(found[row], 4) for row in rows}),
        Column(heading="products (G)", values={row: products(found[row], 3) for row in rows}),
        Column(heading="all (G)", values={row: everything(found[row], 3) for row in rows}),
        Column(heading="time / plain", values={row: slower(found[row], found[PLAIN]) for row in rows}),
        Column(
            heading=f"is {PAPER['FTC-Seg'][0]} M, {PAPER['FTC-Seg'][1]} G",
            values={row: "yes" if row in fits else "no" for row in rows},
        ),
    ]
    return table_of("By reading of OPR", "reading", rows, columns)


def _is_papers(one: Mapping[str, Any], row: str = "FTC-Seg") -> bool:
    """Whether both counts round to what the paper prints."""
    parameters, flops, _ = PAPER[row]
    return (millions(one), everything(one)) == (f"{parameters:.2f}", f"{flops:.2f}")


def _finding(ask: Ask, found: Mapping[str, Any], fits: list[str]) -> list[str]:
    told, plain, ours = ask.options, found[PLAIN], found[ASKED]
    same = "as the paper prints" if _is_papers(plain, "UniMatch V2") else "the paper prints 24.79 M and 56.94 G"
    added = (ours["parameters"] - plain["parameters"], ours["macs"] + ours["others"] - plain["macs"] - plain["others"])
    said = [
        f"{told['encoder']} + {told['head']} with {told['classes']} classes at {told['size']} pixels has "
        f"{millions(plain)} M parameters and {products(plain)} G multiply-adds, {everything(plain)} G with norms and "
        f"enlargements counted ({same}); FTC-Seg as read by «{ask.ftc}» adds {added[0] / MILLION:.3f} M and "
        f"{added[1] / GIGA:.3f} G.",
        f"The paper's row for FTC-Seg, {PAPER['FTC-Seg'][0]} M and {PAPER['FTC-Seg'][1]} G, is that of: "
        f"{', '.join(fits) or 'none of the readings here'}.",
    ]
    ratio, paper = slower(ours, plain), PAPER["UniMatch V2"][2] / PAPER["FTC-Seg"][2]
    if ratio is not None:
        said.append(
            f"On this machine it takes {ratio} times as long as without OPR, where the plain network against itself "
            f"takes {slower(found[AGAIN], plain)}; {paper:.3f} in the paper."
        )
    return said


def _explained(ask: Ask, found: Mapping[str, Any]) -> list[str]:
    """What the counts say about the paper's table; only where they are of its network."""
    if not _is_papers(found[PLAIN], "UniMatch V2"):
        return [f"The paper's numbers are those of DINOv2-S and DPT, not of {ask.options['encoder']}."]
    wide, two = found["wide head, 1 stage (the released code)"], found["probe, 2 stages (the paper's text)"]
    lone = found["prototypes alone, 1 stage"]
    low, high = PAPER[BASELINE][1], PAPER[WITH_ATC][1]
    return [
        f"The paper's table does not describe the released code, whose wide head makes {millions(wide)} M and "
        f"{everything(wide)} G.",
        f"Two stages, as its text says, would be {millions(two)} M and {everything(two)} G; prototypes without a probe "
        f"{millions(lone)} M. One stage with a probe of its own is what was most likely measured.",
        f"The paper prints {low} G for M2 and {high} G for M4, which is the same network: ATC is gone when training "
        f"ends. We count {everything(found[PLAIN])} G for both; {low} is explained by no way of counting here.",
    ]
