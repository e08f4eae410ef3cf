"""Write the tables of docs/results/speed.md from the records of `ftcseg bench` beside it.

.venv/bin/python scripts/speed_tables.py            # after new records were put into docs/results/speed
.venv/bin/python scripts/speed_tables.py --check    # 1 where the page says something else than the records
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pages import RESULTS, markdown, rewrite

PAGE = RESULTS / "speed.md"
FOLDER = PAGE.with_suffix("")
PARTS = ("load", "augment", "teacher", "student", "losses", "mixing", "backward", "optimiser", "ema", "thresholds")
LAST = ("logging", "guard", "other")
MEBI, MILLI, HUNDRED = 2**20, 1e3, 100

Record = dict[str, Any]


def record(name: str) -> Record:
    """What one measurement wrote."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def spread(found: Record | None, factor: float = 1.0, digits: int = 2) -> str:
    """The median with its middle half."""
    if found is None:
        return ""
    median, low, high = (f"{factor * found[key]:.{digits}f}" for key in ("median", "low", "high"))
    return f"{median} ({low} to {high})"


def parts(*names: str) -> str:
    """Where the time of a step goes, a column for every record."""
    steps = [record(name)["step"] for name in names]
    heads = ["part of the step"] + [f"{step['encoder']}, ms | share" for step in steps]
    rows = []
    for part in (*PARTS, *LAST):
        told = [step["parts"][part] for step in steps]
        rows.append(
            [part] + [f"{MILLI * one['seconds']['median']:.1f} | {HUNDRED * one['share']:.1f} %" for one in told]
        )
    lines = markdown(heads, rows).splitlines()
    lines[1] = "|---" + "|---:" * (2 * len(steps)) + "|"
    return "\n".join(lines) + "\n"


def whole(*names: str) -> str:
    """The step as a whole, a column for every record."""
    records = [record(name) for name in names]
    steps = [found["step"] for found in records]

    def row(name: str, told: Callable[[Record], str]) -> list[str]:
        return [name, *(told(step) for step in steps)]

    def share(*groups: str) -> Callable[[Record], str]:
        return lambda step: f"{HUNDRED * sum(step['groups'][group] for group in groups):.1f} %"

    rows = [
        row("a step, ms", lambda s: spread(s["seconds"], MILLI, 0)),
        row("images a second", lambda s: spread(s["images_per_second"])),
        row("forward and backward", share("forward", "backward")),
        row("all else", share("data", "losses", "upkeep")),
        row("GFLOP a step", lambda s: f"{s['flops'] / 1e9:.0f}"),
        ["matrix-multiply rate, GFLOP/s", *(f"{r['matmul']['flops_per_second'] / 1e9:.0f}" for r in records)],
        row("share of that rate, the step", lambda s: f"{HUNDRED * s['of_matmul']:.1f} %"),
        row("share of that rate, forward and backward", lambda s: f"{HUNDRED * s['compute_of_matmul']:.1f} %"),
        row(
            "peak memory above the imports, MiB", lambda s: f"{s['memory']['above'] / MEBI:.0f}" if s["memory"] else ""
        ),
    ]
    return markdown(["", *(f"{step['encoder']} + {step['head']}" for step in steps)], rows)


def ratios(*names: str) -> str:
    """Everything that was measured in turns with a step, for each record."""
    rows = []
    for name in names:
        found = record(name)
        step = found["step"]
        for other in [*([found["against"]] if found["against"] else []), *found["tries"]]:
            head = [step["encoder"], other["name"]]
            if not other["works"]:
                rows.append([*head, "does not work: " + other["reason"], ""])
                continue
            memory = other["memory"]
            rows.append([*head, spread(other["time"], digits=3), f"{memory['above']:.3f}" if memory else ""])
    return markdown(["encoder", "beside", "time", "memory"], rows)


def change(before: str, after: str) -> str:
    """What one change did to the groups of a step."""
    old, new = record(before)["step"], record(after)["step"]
    rows = []
    for name in ("teacher", "student", "losses", "backward"):
        rows.append([name, *(f"{MILLI * step['parts'][name]['seconds']['median']:.0f}" for step in (old, new))])
    rows.append(["the step", *(f"{MILLI * step['seconds']['median']:.0f}" for step in (old, new))])
    rows.append(["share of the matrix-multiply rate", *(f"{HUNDRED * step['of_matmul']:.1f} %" for step in (old, new))])
    rows.append(["peak memory, MiB", *(f"{step['memory']['above'] / MEBI:.0f}" for step in (old, new))])
    return markdown(["ms", "before", "after"], rows)


def curve(name: str) -> str:
    """One scaling curve."""
    found = record(name)
    kinds = list(found["points"][0]["seconds"])
    rows = [
        [str(point["at"]), *(spread(point["seconds"][kind], MILLI, 1) for kind in kinds)] for point in found["points"]
    ]
    return markdown([found["over"], *(f"{kind}, ms" for kind in kinds)], rows)


def answers(name: str) -> str:
    """Every way of asking one network."""
    rows = []
    for way in record(name)["ways"]:
        if not way["works"]:
            rows.append([way["name"], f"does not work: {way['reason']}", *[""] * 6])
            continue
        latency = " / ".join(f"{MILLI * way['latency'][p]:.0f}" for p in ("p50", "p90", "p99") if way["latency"][p])
        held = way["memory"]
        rows.append(
            [
                way["name"],
                spread(way["images_per_second"]),
                latency,
                f"{way['faster']['median']:.2f} x {way['than']}",
                f"{held['above'] / MEBI:.0f}" if held else "",
                f"{HUNDRED * way['miou']:.2f}" if way["miou"] is not None else "",
                f"{HUNDRED * way['agreement']:.2f} %" if way["agreement"] is not None else "",
                f"{way['ready']:.1f}",
            ]
        )
    heads = ("way", "images a second", "ms p50 / p90 / p99", "speed", "MiB", "mIoU", "pixels alike", "ready, s")
    return markdown(heads, rows)


KINDS: dict[str, Callable[..., str]] = {
    "parts": parts,
    "whole": whole,
    "ratios": ratios,
    "change": change,
    "curve": curve,
    "answers": answers,
}


if __name__ == "__main__":
    sys.exit(rewrite([PAGE], KINDS, __doc__))
