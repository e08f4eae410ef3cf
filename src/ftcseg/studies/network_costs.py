"""Networks side by side: counts, times taken in turns, and the memory of a training step."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ftcseg.errors import UsageError
from ftcseg.nets.build import build_model
from ftcseg.nets.cost import cost, seconds, training_peak
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.studies.plan import Ask

MILLION, GIGA, MEBI = 1e6, 1e9, 2**20
QUARTERS = 4
WHOLE = 100  # milliseconds from which on fractions are noise


def measured(
    nets: Mapping[str, Segmenter], shape: tuple[int, int, int, int], *, repeats: int, images: int = 0
) -> dict[str, Any]:
    """Counts of every network, its seconds in each round, and the bytes of a training step on `images` at once if any.

    The networks stand under «networks», by name, in plain numbers.
    """
    taken = seconds(nets, shape, repeats=repeats) if repeats else {}
    found: dict[str, Any] = {}
    for name, net in nets.items():
        found[name] = {**asdict(cost(net, shape)), "seconds": taken.get(name, [])}
        if images:
            found[name]["peak"] = training_peak(net, (images, *shape[1:]))
    return {"shape": list(shape), "images": images, "machine": machine(), "networks": found}


def machine() -> str:
    """What times were taken on, without naming it."""
    kind = "CUDA device" if torch.cuda.is_available() else f"{platform.machine()} processor"
    return f"{kind}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def fresh(encoder: str, head: str, classes: int, opr: OPRParams | None) -> Segmenter:
    """A network with random weights, ready to predict, where predicting is fastest."""
    net, _ = build_model(encoder, head, classes, opr=opr)
    return net.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def whole_number(ask: Ask, key: str, least: int = 1) -> int:
    """An option that counts something."""
    text = ask.options[key]
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"--option {key}={text} must be a whole number from {least} on.")
    return int(text)


def millions(found: Mapping[str, Any], digits: int = 2) -> str:
    """Parameters, in millions."""
    return f"{found['parameters'] / MILLION:.{digits}f}"


def products(found: Mapping[str, Any], digits: int = 2) -> str:
    """Multiply-adds of matrix products and convolutions, in G."""
    return f"{found['macs'] / GIGA:.{digits}f}"


def everything(found: Mapping[str, Any], digits: int = 2) -> str:
    """The same with normalisations and bilinear maps, as the paper's tool counts."""
    return f"{(found['macs'] + found['others']) / GIGA:.{digits}f}"


def milliseconds(found: Mapping[str, Any]) -> str | None:
    """«812 (790 to 840)»: the median, and between which half of the rounds lie; None where no time was taken."""
    times = [1000 * value for value in found["seconds"]]
    if not times:
        return None
    low, high = middle_half(times)
    digits = 0 if low >= WHOLE else 2
    return f"{statistics.median(times):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def per_second(found: Mapping[str, Any]) -> str | None:
    """Images a second, by the median round."""
    return f"{1 / statistics.median(found['seconds']):.3g}" if found["seconds"] else None


def slower(found: Mapping[str, Any], plain: Mapping[str, Any]) -> str | None:
    """«1.02 (1.00 to 1.05)»: time against the plain network's of the same round, median and middle half."""
    ratios = [ours / theirs for ours, theirs in zip(found["seconds"], plain["seconds"], strict=True)]
    if not ratios:
        return None
    low, high = middle_half(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """The quartiles: half of the values lie between."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=QUARTERS, method="inclusive")
    return low, high
