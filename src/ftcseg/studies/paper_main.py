"""What the paper prints of its main tables, of M1 to M5 and of their joint calibration, in percent as it stands there.

A set goes by its name in `data/sets`, a row by the name of its method.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from ftcseg.data.sets import SETS
from ftcseg.data.split import parse_amount
from ftcseg.errors import UsageError
from ftcseg.studies.statistics import Summary

AMOUNTS = ("2%", "5%", "10%")
SEEDS = 3
RN101, DINOV2, MIT = "RN-101", "DINOv2-S", "MiT-B2"

Printed: TypeAlias = tuple[tuple[float, float], ...]
"""(mean, std) at each of AMOUNTS."""

FLSMD: Mapping[str, Mapping[str, Printed]] = {
    "supervised": {
        RN101: ((46.47, 1.17), (55.15, 0.47), (61.94, 0.83)),
        DINOV2: ((51.08, 0.50), (61.02, 0.95), (68.48, 0.70)),
    },
    "ael": {RN101: ((52.70, 1.54), (64.89, 1.24), (70.73, 0.88))},
    "dual-teacher": {MIT: ((56.23, 0.70), (66.09, 0.56), (69.61, 0.71))},
    "unimatch-v1": {RN101: ((50.70, 1.47), (56.14, 0.68), (61.66, 1.34))},
    "beyond-pixels": {RN101: ((48.19, 0.60), (55.52, 1.32), (60.49, 0.93))},
    "semivl": {RN101: ((53.38, 1.16), (65.16, 0.89), (70.02, 0.49))},
    "vc": {RN101: ((50.53, 1.63), (59.36, 1.31), (66.86, 1.34))},
    "unimatch-v2": {DINOV2: ((57.24, 0.49), (66.49, 0.51), (69.81, 0.57))},
    "ftc": {
        RN101: ((58.33, 0.94), (67.20, 0.77), (71.01, 0.45)),
        DINOV2: ((62.55, 1.22), (68.91, 0.69), (72.54, 0.72)),
    },
}
FSSG: Mapping[str, Mapping[str, Printed]] = {
    "supervised": {
        RN101: ((17.64, 1.35), (32.23, 0.66), (52.27, 1.01)),
        DINOV2: ((35.61, 0.89), (41.67, 1.42), (54.58, 0.32)),
    },
    "ael": {RN101: ((53.51, 1.02), (57.84, 0.98), (63.08, 0.46))},
    "dual-teacher": {MIT: ((58.31, 0.80), (60.16, 0.93), (65.91, 1.01))},
    "unimatch-v1": {RN101: ((58.39, 0.88), (60.87, 0.70), (63.15, 1.27))},
    "beyond-pixels": {RN101: ((57.20, 1.08), (62.37, 0.88), (64.52, 0.36))},
    "semivl": {RN101: ((58.85, 0.70), (62.19, 0.29), (65.24, 0.97))},
    "vc": {RN101: ((49.76, 1.20), (54.75, 0.88), (59.27, 1.09))},
    "unimatch-v2": {DINOV2: ((58.78, 1.32), (61.21, 0.72), (64.41, 0.75))},
    "ftc": {
        RN101: ((60.49, 0.82), (64.35, 0.61), (70.13, 1.14)),
        DINOV2: ((63.20, 0.98), (65.49, 1.07), (67.53, 0.68)),
    },
}
SUIM: Mapping[str, Mapping[str, Printed]] = {
    "supervised": {
        RN101: ((35.64, 1.44), (45.47, 1.52), (52.68, 0.97)),
        DINOV2: ((56.61, 0.80), (62.56, 1.29), (64.26, 1.15)),
    },
    "unimatch-v1": {RN101: ((47.86, 2.17), (49.17, 1.98), (55.01, 1.71))},
    "semivl": {RN101: ((55.99, 0.79), (58.43, 0.60), (60.15, 1.32))},
    "unimatch-v2": {DINOV2: ((58.37, 0.92), (66.12, 1.07), (68.43, 0.85))},
    "ftc": {
        RN101: ((54.71, 0.53), (59.05, 1.46), (62.85, 0.97)),
        DINOV2: ((66.91, 1.35), (69.86, 0.98), (70.21, 0.90)),
    },
}
ACDC: Mapping[str, Mapping[str, Printed]] = {
    "supervised": {
        RN101: ((36.62, 1.13), (44.43, 0.91), (48.47, 1.27)),
        DINOV2: ((52.60, 0.45), (56.57, 0.62), (66.98, 0.97)),
    },
    "unimatch-v1": {RN101: ((45.09, 2.36), (50.81, 1.49), (51.66, 1.20))},
    "semivl": {RN101: ((45.13, 0.57), (50.65, 0.71), (52.97, 0.97))},
    "unimatch-v2": {DINOV2: ((59.59, 2.48), (67.50, 1.63), (68.55, 1.77))},
    "ftc": {
        RN101: ((45.56, 1.35), (51.80, 0.89), (55.73, 1.04)),
        DINOV2: ((61.68, 1.42), (69.82, 0.97), (70.09, 0.86)),
    },
}
MAIN: Mapping[str, Mapping[str, Mapping[str, Printed]]] = {
    "flsmd": FLSMD,
    "fssg": FSSG,
    "suim": SUIM,
    "acdc-driving": ACDC,
}

ABLATION = (35.61, 58.75, 62.55, 61.90, 63.20)
"""M1 to M5 on FSSG with 2 % labels."""

JOINT: Mapping[str, tuple[tuple[float, float, float, float, float], ...]] = {
    "flsmd": (
        (59.80, 60.17, 63.07, 2.90, 0.0436),
        (66.72, 66.49, 68.84, 2.12, 0.0225),
        (71.24, 70.99, 73.49, 2.25, 0.0356),
    ),
    "fssg": (
        (60.87, 61.24, 63.20, 1.96, 0.0448),
        (62.73, 62.46, 66.31, 3.58, 0.0160),
        (63.97, 64.16, 68.01, 3.85, 0.0086),
    ),
    "suim": (
        (64.49, 63.79, 67.04, 2.55, 0.0192),
        (67.14, 67.33, 70.33, 3.00, 0.0041),
        (67.53, 68.17, 70.49, 2.32, 0.0086),
    ),
    "acdc-driving": (
        (58.32, 59.07, 61.03, 1.96, 0.0769),
        (64.92, 64.12, 68.29, 3.37, 0.0448),
        (67.37, 68.07, 71.60, 3.53, 0.0356),
    ),
}
"""M3, M4, M5, their difference and Holm's p at each of AMOUNTS."""

TAIL_LEADS: Mapping[str, tuple[str, float]] = {
    "flsmd": ("standing bottle", 8.91),
    "fssg": ("diver", 10.04),
    "suim": ("robots", 13.60),
    "acdc-driving": ("motorcycle", 9.78),
}
"""The class whose IoU is drawn, and FTC-Seg's lead there over the second best in points, with 2 % labels."""


def paper_set(dataset: str) -> str | None:
    """Which of the paper's sets this is, by a set's name or its folder's; None for any other."""
    name = Path(dataset).name.lower()
    for known in MAIN:
        if name == known or name in {Path(folder).name.lower() for folder in SETS[known].folders}:
            return known
    return None


def paper_place(dataset: str, labels: str) -> tuple[str, int] | None:
    """The paper's set and which of AMOUNTS this is; None where the paper has no such setting."""
    known = paper_set(dataset)
    try:
        amount = str(parse_amount(labels))
    except UsageError:  # the run will say so
        return None
    return None if known is None or amount not in AMOUNTS else (known, AMOUNTS.index(amount))


def published(dataset: str, labels: str, method: str) -> dict[str, Summary]:
    """The main tables' mIoU of a method as shares, by encoder."""
    place = paper_place(dataset, labels)
    if place is None:
        return {}
    told = MAIN[place[0]].get(method, {})
    return {encoder: share(*numbers[place[1]]) for encoder, numbers in told.items()}


def share(mean: float, std: float | None = None) -> Summary:
    """A number of the paper in percent as a share over its seeds."""
    return Summary(SEEDS, mean / 100, None if std is None else std / 100, None)
