"""Where the paper's own numbers do not fit together, each with the arithmetic that shows it.

Everything is computed here from the numbers as they are printed; nothing is judged beyond what the arithmetic gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftcseg.data.sets import SETS
from ftcseg.studies import (
    atc_components,
    class_anchored,
    conditions,
    cost,
    foreground,
    opr_components,
    opr_layers,
    prototypes,
    pseudo_labels,
    voc_controlled,
)
from ftcseg.studies.paper_main import ABLATION, AMOUNTS, DINOV2, JOINT, MAIN, RN101
from ftcseg.studies.rows import BASELINE, FTC, WITH_ATC, WITH_OPR

HALF = 0.005
"""A number that is printed with two places may be off by so much."""
TITLES = {"flsmd": "FLSMD", "fssg": "FSSG", "suim": "SUIM", "acdc-driving": "ACDC"}
COST_MIOU = (35.61, 58.78, 63.20, 58.75, 62.55, 61.90, 63.20)  # the last column of the inference-cost table
TEXT_GAINS = {"flsmd": 5.31, "fssg": 4.42, "suim": 8.54, "acdc-driving": 2.09}  # over UniMatch V2 with 2 % labels
TEXT_DEVIATIONS = (0.05, 0.07, 0.61, 218.0)  # of OPR on any number of stages: M, G, ms, MB
TEXT_RANGES = ((12.7, 18.0), (29.7, 79.2), (99.2, 99.9))  # of the prototypes' P, F, H
TEXT_INTERACTION = (1.2, 2.9)
VOC_CHANGES, VOC_GAINS = (-7.58, -6.25), (4.60, 5.93)
FOREGROUND_CHANGES = (-2.75, -4.13, -9.46)
STANDING_BOTTLE = 1.67  # percent of pixels, as printed
QUOTED_PIXELS = {"standing-bottle": (0.045, 1.19), "valve": (0.063, 1.67)}
"""Shares of FLSMD's pixels and of its foreground in percent, measured earlier, for when the set is not at hand."""
TRAINING = {"text": (240, 5e-6), "released ACDC configuration": (180, 6.25e-7)}  # epochs, learning rate
OTHER_ENCODERS = {"semivl": "CLIP ViT-B/16", "vc": "ResNet-50"}
"""What the methods' own published code uses, where the paper lists RN-101."""
PROTOTYPES, WIDTH, TOKENS = 16, 384, 37 * 37  # of one OPR stage on DINOv2-S at 518 x 518


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place where numbers or words disagree."""

    number: int
    where: str
    says: str
    arithmetic: str
    verdict: str
    reading: str


@dataclass(frozen=True, slots=True)
class Product:
    """One cell of the pseudo-label table: the correctly kept rate as printed, and accuracy times what is left."""

    row: str
    group: str
    printed: float
    product: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Pooled:
    """A value for all classes beside those of head and tail."""

    row: str
    kind: str
    whole: float
    head: float
    tail: float

    @property
    def is_between(self) -> bool:
        """Whether it could come from head and tail alone."""
        return min(self.head, self.tail) <= self.whole <= max(self.head, self.tail)


# ---------------------------------------------------------------- arithmetic


def products() -> list[Product]:
    """Every cell of the pseudo-label table; «holds» allows for rounding to two places."""
    found = []
    for row, kinds in pseudo_labels.PAPER.items():
        for place, group in enumerate(pseudo_labels.GROUPS):
            right, gone, kept = (kinds[kind][place] for kind in ("accuracy", "filtered", "correct_kept"))
            stays = 1 - gone / 100
            off = HALF * stays + HALF * right / 100 + HALF
            found.append(Product(row, group, kept, right * stays, abs(right * stays - kept) <= off))
    return found


def swapped() -> list[tuple[Product, Product]]:
    """Cells that do not hold and print what is another row's product for the same group."""
    cells = products()
    return [
        (one, other)
        for one in cells
        for other in cells
        if not one.holds
        and one.group == other.group
        and one.row != other.row
        and abs(one.printed - other.product) <= 0.01
    ]


def pooled() -> list[Pooled]:
    """Accuracy and filtered rate of all classes beside head and tail."""
    return [
        Pooled(row, kind, *kinds[kind])
        for row, kinds in pseudo_labels.PAPER.items()
        for kind in ("accuracy", "filtered")
    ]


def printed_miou() -> dict[str, float]:
    """Every mIoU of the paper, by the place it is printed in."""
    found = {
        f"main tables, {TITLES[name]} {amount}, {method} {encoder}": numbers[i][0]
        for name, methods in MAIN.items()
        for method, encoders in methods.items()
        for encoder, numbers in encoders.items()
        for i, amount in enumerate(AMOUNTS)
    }
    found |= {f"joint calibration, {TITLES[n]} {AMOUNTS[i]}, M{k + 3}": r[k] for n, i, r, k in _joint()}
    found |= {f"components, M{i}": value for i, value in enumerate(ABLATION, 1)}
    tables = {
        "OPR components": opr_components,
        "ATC components": atc_components,
        "prototype formulation": class_anchored,
    }
    for name, module in tables.items():
        found |= {f"{name}, {row}": value for row, value in module.PAPER["mIoU"].items()}
    found |= {f"foreground set, {row}": value for row, value in foreground.PAPER["mIoU"].items()}
    found |= {f"OPR layers, {row}": value for row, value in opr_layers.PAPER_MIOU.items()}
    return found | {f"inference cost, {row}": value for row, value in zip(cost.PAPER, COST_MIOU, strict=True)}


def places_of(value: float) -> list[str]:
    """Where a mIoU is printed."""
    return [place for place, printed in printed_miou().items() if printed == value]


def same_in_both() -> list[str]:
    """Settings in which M5 of the joint calibration equals FTC-Seg of the main tables."""
    return [
        f"{TITLES[name]} {AMOUNTS[i]}"
        for name, rows in JOINT.items()
        for i, row in enumerate(rows)
        if row[2] == MAIN[name]["ftc"][DINOV2][i][0]
    ]


def reversed_encoders() -> list[str]:
    """Settings in which FTC-Seg is better with RN-101 than with DINOv2-S."""
    return [
        f"{TITLES[name]} {amount}"
        for name, methods in MAIN.items()
        for i, amount in enumerate(AMOUNTS)
        if methods["ftc"][RN101][i][0] > methods["ftc"][DINOV2][i][0]
    ]


def not_first() -> list[str]:
    """Cells of the main tables in which another method with the same encoder is above FTC-Seg."""
    return [
        f"{TITLES[name]} {amount} {encoder}: {method} {numbers[encoder][i][0]} > {methods['ftc'][encoder][i][0]}"
        for name, methods in MAIN.items()
        for method, numbers in methods.items()
        for encoder in numbers
        if encoder in methods["ftc"]
        for i, amount in enumerate(AMOUNTS)
        if numbers[encoder][i][0] > methods["ftc"][encoder][i][0]
    ]


def agreeing() -> list[tuple[str, int, int]]:
    """What can be computed anew and comes out as printed: (what, how many do, of how many)."""
    joint = [_is(row[2] - max(row[:2]), row[3]) for rows in JOINT.values() for row in rows]
    gains = [_is(MAIN[n]["ftc"][DINOV2][0][0] - MAIN[n]["unimatch-v2"][DINOV2][0][0], g) for n, g in TEXT_GAINS.items()]
    tail, noise = voc_controlled.PAPER.values()
    voc = [_is(noise[m] - tail[m], change) for m, change in zip((BASELINE, FTC), VOC_CHANGES, strict=True)]
    voc += [_is(c[FTC] - c[BASELINE], gain) for c, gain in zip((tail, noise), VOC_GAINS, strict=True)]
    sets = list(foreground.PAPER["mIoU"].values())
    changes = [_is(value - sets[0], told) for value, told in zip(sets[1:], FOREGROUND_CHANGES, strict=True)]
    columns = list(zip(*prototypes.PAPER, strict=True))[1:]
    ranges = [(min(c), max(c)) == told for c, told in zip(columns, TEXT_RANGES, strict=True)]
    severe = [values[-1] for values in conditions.PAPER.values()]
    within = [(round(min(severe), 1), round(max(severe), 1)) == TEXT_INTERACTION]
    costs = list(opr_layers.PAPER_COST.values())
    rise = [_is(costs[-1][i] - costs[0][i], told) for i, told in enumerate(TEXT_DEVIATIONS)]
    checks = {
        "joint calibration: M5 - max(M3, M4)": joint,
        "text: gains over UniMatch V2 with 2 % labels": gains,
        "VOC: changes and gains": voc,
        "foreground set: changes of mIoU": changes,
        "text: ranges of the prototypes' P, F and H": ranges,
        "introduction: interaction of 1.2 to 2.9 points, by the severe column": within,
        "text: deviations of 0.05 M, 0.07 G, 0.61 ms, 218 MB, reached exactly where it says «below»": rise,
    }
    return [(name, sum(found), len(found)) for name, found in checks.items()]


def _is(value: float, printed: float) -> bool:
    return abs(value - printed) < HALF + 1e-9


def _joint() -> list[tuple[str, int, Sequence[float], int]]:
    return [(name, i, row, k) for name, rows in JOINT.items() for i, row in enumerate(rows) for k in range(3)]


# ---------------------------------------------------------------- points


def all_points(networks: Mapping[str, Any] | None, pixels: Mapping[str, int] | None) -> list[Point]:
    """The fifteen points; `networks` are counts of ours, `pixels` those of FLSMD's classes, each where at hand."""
    found = [
        *_repeated_numbers(),
        *_costs(networks),
        *_pseudo_labels(),
        _tail_iou(),
        _pixel_share(pixels),
        *_results(),
        *_wording(),
    ]
    return sorted(found, key=lambda point: point.number)


def _repeated_numbers() -> list[Point]:
    value = ABLATION[2]
    places = places_of(value)
    m1, flsmd, fssg = ABLATION[0], MAIN["flsmd"]["supervised"], MAIN["fssg"]["supervised"]
    m3, m4, m5 = JOINT["fssg"][0][:3]
    same = same_in_both()
    baseline, anchored = ABLATION[1], class_anchored.PAPER["mIoU"][BASELINE]
    unimatch = MAIN["fssg"]["unimatch-v2"][DINOV2][0][0]
    return [
        Point(
            number=1,
            where="main tables, ablations, appendix",
            says=f"{value} is FTC-Seg on FLSMD with 2 % labels, and EMA + OPR on FSSG",
            arithmetic=f"{value} is printed in {len(places)} places: {'; '.join(places)}. M1 of the ablation is {m1}; "
            f"labels only is {fssg[DINOV2][0][0]} on FSSG and {flsmd[DINOV2][0][0]} on FLSMD",
            verdict="The ablations fit FSSG alone; one number to two places belongs to two different experiments.",
            reading="Ablations are FSSG with 2 % labels; the main table stays as printed.",
        ),
        Point(
            number=2,
            where="components ablation, joint calibration, main tables",
            says=f"FSSG with 2 %: M3 and M4 are {ABLATION[2]:.2f} and {ABLATION[3]:.2f}, elsewhere {m3:.2f} and "
            f"{m4:.2f}; M5 is {m5:.2f} in both",
            arithmetic=f"M3 differs by {ABLATION[2] - m3:.2f}, M4 by {ABLATION[3] - m4:.2f}, M5 by "
            f"{ABLATION[4] - m5:.2f}; M5 equals the main tables in {len(same)} of "
            f"{sum(map(len, JOINT.values()))} settings ({', '.join(same)}); "
            f"FLSMD: {JOINT['flsmd'][0][2]} against {MAIN['flsmd']['ftc'][DINOV2][0][0]}",
            verdict="Other seeds explain that M3 and M4 move, and not that M5 does not.",
            reading="Each study stands beside its own table.",
        ),
        Point(
            number=3,
            where="ablations, prototype formulation",
            says=f"the EMA baseline is {baseline}, and {anchored}",
            arithmetic=f"they differ by {anchored - baseline:.2f}; UniMatch V2 on FSSG with 2 % is {unimatch}",
            verdict="The second is UniMatch V2's number.",
            reading="M2 is UniMatch V2's training without OPR and ATC; either number may stand beside it.",
        ),
    ]


def _costs(networks: Mapping[str, Any] | None) -> list[Point]:
    flops = {row: one[1] for row, one in cost.PAPER.items()}
    ours, one_layer = "our network is not counted yet", "not counted yet"
    if networks is not None:
        ours = f"our count of the network without OPR is {_giga(networks['0']):.2f} G"
        told = [f"{n}: {_mega(networks[str(n)]):.2f} M, {_giga(networks[str(n)]):.2f} G" for n in range(5)]
        one_layer = f"ours with OPR on 0 to 4 stages: {'; '.join(told)}; both numbers are those of {fitting(networks)}"
    stage = 2 * PROTOTYPES * WIDTH * TOKENS / 1e9
    return [
        Point(
            number=4,
            where="inference cost, OPR layers",
            says=f"one network without OPR takes {flops[BASELINE]} G (M2) and {flops[WITH_ATC]} G (M4, UniMatch V2)",
            arithmetic=f"M4 - M2 = {flops[WITH_ATC] - flops[BASELINE]:.2f} G, though ATC acts in training only; "
            f"M5 - M3 = {flops[FTC] - flops[WITH_OPR]:.2f} G; one OPR stage is 2 x {PROTOTYPES} x {WIDTH} x {TOKENS} = "
            f"{stage:.4f} G; {ours}",
            verdict="Two counts of the same network were mixed.",
            reading="Differences within a column are compared, not the two bases.",
        ),
        Point(
            number=5,
            where="text, inference cost",
            says="OPR sits on two stages by default; FTC-Seg has "
            f"{cost.PAPER['FTC-Seg'][0]} M and {flops['FTC-Seg']} G",
            arithmetic=one_layer,
            verdict="The printed cost is that of one stage, as in the released code's default.",
            reading="ftc-paper takes two stages, ftc-released one; both are offered (reading A2).",
        ),
    ]


def _pseudo_labels() -> list[Point]:
    outside = [one for one in pooled() if not one.is_between]
    said = "; ".join(f"{o.row} {o.kind} {o.whole:.2f} beside {o.head:.2f} and {o.tail:.2f}" for o in outside)
    cells = products()
    broken = [f"{c.row} {c.group} {c.printed:.2f} instead of {c.product:.2f}" for c in cells if not c.holds]
    pairs = [f"{a.printed} of {a.row} {a.group} is the product of {b.row} {b.group}" for a, b in swapped()]
    return [
        Point(
            number=6,
            where="pseudo-label analysis",
            says="values for all, head and tail classes",
            arithmetic=f"{len(outside)} of {len(pooled())} values for all classes lie outside head and tail: {said}",
            verdict="Head and tail alone cannot give these: further classes count in, and which they are is not said.",
            reading="Classes are thirds: head, middle and tail, with background apart (reading D1).",
        ),
        Point(
            number=7,
            where="pseudo-label analysis",
            says="accuracy, filtered rate and correctly kept rate",
            arithmetic=f"kept = accuracy x (1 - filtered) holds in {sum(c.holds for c in cells)} of {len(cells)} cells "
            f"within rounding; {'; '.join(broken)}. {'; '.join(pairs)}",
            verdict="Where it holds it holds to the last digit. For means over classes it need not hold; then it would "
            "hardly hold anywhere. Two ways of counting, or exchanged cells.",
            reading="The definition by truth, under which the product always holds (reading D2).",
        ),
    ]


def _tail_iou() -> Point:
    atc, anchored = atc_components.PAPER["tail IoU"], class_anchored.PAPER["tail mIoU"]
    diver = foreground.PAPER["rarest"][foreground.CORRECT]
    return Point(
        number=8,
        where="ATC components, prototype formulation, foreground set",
        says=f"IoU of FSSG's tail for the same baseline: {atc[BASELINE]} and {anchored[BASELINE]}",
        arithmetic=f"they differ by {atc[BASELINE] - anchored[BASELINE]:.2f}; with ATC {atc[WITH_ATC]}, with OPR "
        f"{anchored[WITH_OPR]}, and diver with OPR {diver:.2f}",
        verdict="The two tables mean different classes by «tail», or different measures.",
        reading="The tail is the lowest third by pixel share everywhere; classes are listed one by one beside it.",
    )


def _pixel_share(pixels: Mapping[str, int] | None) -> Point:
    if pixels is None:
        shares, source = QUOTED_PIXELS, "measured earlier; --dataset flsmd measures it anew"
    else:
        shares, source = _shares(pixels), "measured now"
    bottle, valve = shares["standing-bottle"], shares["valve"]
    return Point(
        number=9,
        where="experimental setup",
        says=f"standing bottle is {STANDING_BOTTLE} % of FLSMD's pixels",
        arithmetic=f"it is {bottle[0]:.3f} % of all and {bottle[1]:.2f} % of the foreground pixels; valve is "
        f"{valve[0]:.3f} % and {valve[1]:.2f} % ({source})",
        verdict=f"{STANDING_BOTTLE} is "
        + ("valve's share of the foreground." if _is(valve[1], STANDING_BOTTLE) else "neither share of the class."),
        reading="Shares are counted from the masks, of all labelled pixels.",
    )


def _results() -> list[Point]:
    turned, lost = reversed_encoders(), not_first()
    alone, unimatch = MAIN["fssg"]["supervised"][RN101][0][0], MAIN["fssg"]["unimatch-v1"][RN101][0][0]
    ftc = {encoder: MAIN["fssg"]["ftc"][encoder][2][0] for encoder in (RN101, DINOV2)}
    right, tail = opr_components.PAPER["all classes"], opr_components.PAPER["tail"]
    drop = {row: right[WITH_OPR] - right[row] for row in opr_components.TAKEN_OUT}
    tail_drop = {row: tail[WITH_OPR] - tail[row] for row in opr_components.TAKEN_OUT}
    most, tail_most = (max(found, key=lambda row: found[row]) for found in (drop, tail_drop))
    gate = opr_components.NO_GATE
    return [
        Point(
            number=10,
            where="main tables, FSSG",
            says=f"FTC-Seg with 10 %: RN-101 {ftc[RN101]}, DINOv2-S {ftc[DINOV2]}",
            arithmetic=f"RN-101 leads by {ftc[RN101] - ftc[DINOV2]:.2f}; so it does in {len(turned)} of "
            f"{len(MAIN) * len(AMOUNTS)} settings ({', '.join(turned)}). With 2 %, UniMatch adds "
            f"{unimatch - alone:.2f} to labels only ({alone} to {unimatch})",
            verdict="One setting runs against all others.",
            reading="Printed as it is; no conclusion is drawn from this cell.",
        ),
        Point(
            number=11,
            where="OPR components",
            says="without the gate pseudo-label accuracy drops most",
            arithmetic=f"over all classes {most} drops most ({drop[most]:.2f}), to {right[gate]}, "
            f"{right[BASELINE] - right[gate]:.2f} below no OPR at all; in the tail {tail_most} drops most "
            f"({tail_drop[tail_most]:.2f}), and {gate} stays {tail[gate] - tail[BASELINE]:.2f} above no OPR",
            verdict="It holds for all classes and not for the tail, which OPR is meant for.",
            reading="Both columns are shown, with mIoU.",
        ),
        Point(
            number=14,
            where="main tables, joint calibration",
            says="best or highly competitive in most configurations",
            arithmetic=f"below another method with the same encoder in {len(lost)} of "
            f"{sum(len(m['ftc']) * len(AMOUNTS) for m in MAIN.values())} cells ({'; '.join(lost)}); p is "
            f"0.05 or more in {sum(row[4] >= 0.05 for rows in JOINT.values() for row in rows)} of "
            f"{sum(map(len, JOINT.values()))} settings (ACDC {AMOUNTS[0]}, {JOINT['acdc-driving'][0][4]})",
            verdict="As the text says; the exceptions are these.",
            reading="Every cell stands beside ours, with its spread.",
        ),
    ]


def _wording() -> list[Point]:
    (epochs, rate), (own_epochs, own_rate) = TRAINING.values()
    classes = SETS["acdc-driving"].classes
    inside = len(classes.foreground)
    cells = {m: sum(len(sets[m][RN101]) for sets in MAIN.values() if m in sets) for m in OTHER_ENCODERS}
    named = "; ".join(f"{m} {count} cells, its own code has {OTHER_ENCODERS[m]}" for m, count in cells.items())
    return [
        Point(
            number=12,
            where="experimental setup, released configuration",
            says=f"all models train for {epochs} epochs at {rate:g}",
            arithmetic=f"the released ACDC configuration has {own_epochs} epochs at {own_rate:g}: "
            f"{own_epochs / epochs:.2f} times the epochs, 1/{rate / own_rate:g} of the rate. {inside} of "
            f"{len(classes)} ACDC classes are foreground, so that no gate can shut",
            verdict="ACDC was trained otherwise, and what the gate does is not tested there.",
            reading="Both are presets; for ACDC every class is foreground (reading A10).",
        ),
        Point(
            number=13,
            where="method",
            says="C is classes and channels, P prototypes and probabilities; confidence > threshold; one strong view",
            arithmetic="nothing to compute: the released code keeps confidence >= threshold and takes two strong views",
            verdict="Notation, and two small differences between text and code.",
            reading=">=, and two strong views; one is a setting.",
        ),
        Point(
            number=15,
            where="main tables",
            says="SemiVL and VC with RN-101",
            arithmetic=named,
            verdict="Either other encoders were built in, or the labels are not the encoders'.",
            reading="Each method runs with the encoder the study asks for, and says so.",
        ),
    ]


def _shares(pixels: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Percent of all and of the foreground pixels; class 0 is background in FLSMD."""
    everything = sum(pixels.values())
    inside = everything - pixels["background"]
    return {name: (100 * count / everything, 100 * count / inside) for name, count in pixels.items()}


def fitting(networks: Mapping[str, Any]) -> str:
    """With OPR on how many stages our network has the parameters and operations that are printed of FTC-Seg."""
    found = [str(n) for n in range(5) if _fits(networks[str(n)], cost.PAPER["FTC-Seg"])]
    return " or ".join(found) or "none"


def _fits(counts: Mapping[str, int], printed: Sequence[float]) -> bool:
    return _is(_mega(counts), printed[0]) and _is(_giga(counts), printed[1])


def _mega(counts: Mapping[str, int]) -> float:
    return float(counts["parameters"] / 1e6)


def _giga(counts: Mapping[str, int]) -> float:
    return float(counts["operations"] / 1e9)
