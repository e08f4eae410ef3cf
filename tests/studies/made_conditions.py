"""Measurements of the 2x2 of conditions, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftcseg.studies.conditions import measure_name, plan
from ftcseg.studies.plan import Ask
from ftcseg.studies.results import Evidence


def measured(long: list[list[int]], balanced: list[list[int]]) -> dict[str, Any]:
    """Two images, one tail class; (pixels, dropped) of each image in each list, alike by truth and by prediction."""
    totals = {
        "long": [[0, 0], np.sum(long, axis=0).tolist()],
        "balanced": [[0, 0], np.sum(balanced, axis=0).tolist()],
    }
    tail = {"long": long, "balanced": balanced}
    return {
        "classes": [{"name": "sea", "group": "background"}, {"name": "hook", "group": "tail"}],
        "sequences": [0, 1],
        "totals": {"truth": totals, "prediction": totals},
        "tail": {"truth": tail, "prediction": tail},
        "balance": {"images": 2, "kept": 1, "with_tail": 2, "with_tail_kept": 1, "reached": {}, "missed": []},
    }


ORIGINAL = measured([[100, 10], [100, 30]], [[100, 10], [0, 0]])  # OL 40/200 = 20 %, OB 10/100 = 10 %
CORRUPTED = measured([[100, 30], [100, 60]], [[100, 30], [0, 0]])  # CL 90/200 = 45 %, CB 30/100 = 30 %


def evidence(ask: Ask, *conditions: tuple[str, int]) -> Evidence:
    cells = plan(ask)
    told = {measure_name(cell, "", 0): ORIGINAL for cell in cells}
    told |= {measure_name(cell, *condition): CORRUPTED for cell in cells for condition in conditions}
    return Evidence([], told)
