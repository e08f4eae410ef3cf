"""What a measured step comes to, in words and ready-made cells: the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftcseg.bench.spread import Spread

MILLI, GIGA, MEBI = 1e3, 1e9, 2**20
_HUNDRED = 100.0


def about(record: Mapping[str, Any]) -> str:
    """«A step of ftc: efficientnet-lite0 + fusion, 154x238, 4+4 images, 8 classes»."""
    asked, step = record["asked"], record["step"]
    changes = "".join(f", {change}" for change in asked["settings"])
    size = "x".join(map(str, step["size"]))
    batch = "+".join(map(str, asked["batch"]))
    network = f"{step['encoder']} + {step['head']}"
    return f"A step of {asked['method']}: {network}, {size}, {batch} images, {step['classes']} classes{changes}"


def findings(record: Mapping[str, Any]) -> list[str]:
    """What was found, the most important first, a sentence each."""
    step, groups = record["step"], record["step"]["groups"]
    lines = [
        f"A step takes {spread(step['seconds'], MILLI)} ms: {step['images_per_second']['median']:.2f} images a second.",
        f"Forward and backward take {_percent(groups['forward'] + groups['backward'])} of it, losses and mixing "
        f"{_percent(groups['losses'])}, data {_percent(groups['data'])}, upkeep {_percent(groups['upkeep'])}.",
        f"{step['flops'] / GIGA:.2f} GFLOP a step; {step['flops_per_second'] / GIGA:.1f} GFLOP/s are "
        f"{_percent(step['of_matmul'])} of what this machine multiplies matrices with "
        f"({record['matmul']['flops_per_second'] / GIGA:.1f} GFLOP/s); within forward and backward "
        f"{_percent(step['compute_of_matmul'])}.",
    ]
    if step["memory"] is not None:
        held = step["memory"]
        lines.append(
            f"At most {held['peak'] / MEBI:.0f} MiB are held, {held['above'] / MEBI:.0f} MiB more than before "
            f"anything was built ({held['how']})."
        )
    lines.append(
        f"The parts sum up to the whole within {abs(step['unaccounted']):.3%}; a watched step takes "
        f"{spread(step['watching'], 1, 3)} of an unwatched one."
    )
    lines += _unsteady(record)
    if record["interrupted"]:
        lines.append(f"Interrupted: {step['seconds']['count']} of {record['steps']} rounds were measured.")
    return lines


def part_rows(step: Mapping[str, Any]) -> list[list[str]]:
    """(part, milliseconds, middle half, share) of each part."""
    return [
        [
            name,
            f"{part['seconds']['median'] * MILLI:.2f}",
            f"{part['seconds']['low'] * MILLI:.2f} to {part['seconds']['high'] * MILLI:.2f}",
            _percent(part["share"]),
        ]
        for name, part in step["parts"].items()
    ]


def other_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """(configuration, time, memory, what the ratios are) of everything that took turns with ours."""
    rows = []
    for other in [*([record["against"]] if record["against"] else []), *record["tries"]]:
        is_try = other["name"].startswith("try ")
        if not other["works"]:
            rows.append([other["name"], "does not work", "", other["reason"]])
            continue
        memory = other["memory"]
        told = "" if memory is None else f"{memory['above']:.3f}"
        rows.append([other["name"], spread(other["time"], 1, 3), told, "it over ours" if is_try else "ours over it"])
    return rows


def machine_line(record: Mapping[str, Any]) -> str:
    """Processor, threads, versions, rate."""
    machine, versions, matmul = record["machine"], record["versions"], record["matmul"]
    rates = Spread.of(matmul["each_time"]).as_json()
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['device']}; "
        f"torch {versions['torch']}, Python {versions['python']}; float32 matrices of side {matmul['side']}: "
        f"{spread(rates, 1 / GIGA)} GFLOP/s; seed {record['asked']['seed']}."
    )


def spread(values: Mapping[str, float], factor: float, digits: int = 1) -> str:
    """«812.0 (790.1 to 840.3)»: the median, and between which half of the measurements lie."""
    median, low, high = (f"{values[key] * factor:.{digits}f}" for key in ("median", "low", "high"))
    return f"{median} ({low} to {high})"


def _percent(share: float) -> str:
    return f"{_HUNDRED * share:.1f} %"


def _unsteady(record: Mapping[str, Any], most: float = 0.1) -> list[str]:
    rates = Spread.of(record["matmul"]["each_time"])
    if rates.high <= (1 + most) * rates.low:
        return []
    return [
        "The matrix-multiply rate moved by more than a tenth while this was measured: others share the processor. "
        "Ratios of what took turns still hold; times and rates mean less."
    ]
