"""What a run that needs too much memory can do with less of, in the order in which it costs least."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ftcseg.config.schema import RunConfig
from ftcseg.errors import OutOfMemory, is_out_of_memory
from ftcseg.train.machine import Machine
from ftcseg.train.memory import in_mb, memory_told

SMALLER_CROP = 0.75
"""Of each side, before it is rounded to what the encoder takes."""
_MOMENTS = {"adamw": 2, "sgd": 1}
"""Numbers that the optimiser remembers of each weight."""


@dataclass(frozen=True, slots=True)
class Need:
    """What of a run's memory has nothing to do with its images, in bytes."""

    weights: int
    """Of all networks, teachers included, with gradients and the optimiser's memory."""
    encoder_learning: int
    """Of these, the gradients and the optimiser's memory of the encoder's weights."""


def need_of(method: nn.Module, config: RunConfig) -> Need:
    """Counted, not measured."""
    per_weight = 1 + _MOMENTS[config.optim.kind]  # a gradient, and what the optimiser remembers
    named = dict(method.named_parameters())
    held = sum(_bytes(tensor) for tensor in [*named.values(), *method.buffers()])
    learning = {name: per_weight * _bytes(tensor) for name, tensor in named.items() if tensor.requires_grad}
    encoder = sum(count for name, count in learning.items() if "encoder" in name.split("."))
    return Need(held + sum(learning.values()), encoder)


@contextmanager
def training_told(
    config: RunConfig, method: nn.Module, multiple: int, machine: Machine, folder: Path
) -> Iterator[None]:
    """Within it, memory that runs out is an OutOfMemory that says what a step consists of and what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        need = need_of(method, config)
        remedies = lighter_training(config, need, multiple, machine.device)
        raise OutOfMemory(
            f"Out of memory in training: {memory_told(error, machine.device)} {_tried(config, machine.format)} "
            f"{_share_of_weights(need)}{_listed(remedies)}\n"
            f"What was saved in {folder} is whole: where there is more memory, ftcseg train --resume {folder} goes on. "
            f"With other settings it is another run: give it another --out."
        ) from error


@contextmanager
def evaluation_told(config: RunConfig, multiple: int, machine: Machine) -> Iterator[None]:
    """The same for evaluations. They have made their batches smaller by themselves already."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        seen = "whole images" if config.evaluation.window is None else f"windows of {config.evaluation.window}"
        raise OutOfMemory(
            f"Out of memory in the evaluation, which looked at {seen} one by one: "
            f"{memory_told(error, machine.device)}{_listed(lighter_evaluation(config, multiple))}\n"
            f"The checkpoints are whole: where there is more memory, ftcseg train --resume goes on from them."
        ) from error


def _tried(config: RunConfig, number_format: str) -> str:
    """What a step of this run consists of."""
    data, model = config.data, config.model
    crop = "whole frames" if data.crop is None else f"{data.crop[0]}x{data.crop[1]} pixels"
    learns = {"full": "learning", "frozen": "frozen"}.get(str(model.mode), f"learning in its last {model.mode} blocks")
    return (
        f"A step has {data.labeled_batch} labelled and {data.unlabeled_batch} unlabelled images of {crop}, "
        f"the encoder {model.encoder} ({learns}) and the precision {number_format}."
    )


def lighter_training(config: RunConfig, need: Need | None, multiple: int, device: torch.device) -> list[str]:
    """Settings that need less memory, each with what it saves as far as that can be counted."""
    return [
        *_smaller_batch(config),
        *_computed_again(config),
        *_half_precision(config, device),
        *_smaller_crop(config, multiple),
        *_frozen(config, need),
    ]


def _listed(remedies: list[str]) -> str:
    if not remedies:
        return " Nothing can be made smaller any more but the encoder (model.encoder) and the images (data.short_side)."
    lines = []
    for number, remedy in enumerate(remedies, 1):
        options, why = remedy.split(": ", 1)
        asked = " ".join(f"--set {shlex.quote(option)}" for option in options.split(" "))
        lines.append(f"\n  {number}. {asked}  ({why})")
    return " Try, in this order:" + "".join(lines)


def _share_of_weights(need: Need) -> str:
    """How the memory of a step divides."""
    return (
        f"Weights, gradients and the optimiser take {in_mb(need.weights)} of it whatever the batch; "
        f"the rest grows with images x pixels."
    )


def lighter_evaluation(config: RunConfig, multiple: int) -> list[str]:
    """What an evaluation can do with less of."""
    window = config.evaluation.window
    side = window or min(config.data.crop or (2 * multiple, 2 * multiple))
    smaller = max(multiple, side // 2 // multiple * multiple)
    if window is not None and smaller >= window:
        return []
    return [f"evaluation.window={smaller}: squares of {smaller}x{smaller} pixels, one after the other"]


def _smaller_batch(config: RunConfig) -> list[str]:
    labeled, unlabeled = config.data.labeled_batch, config.data.unlabeled_batch
    if labeled == unlabeled == 1:
        return []
    both = math.gcd(labeled, unlabeled)
    by = next((factor for factor in range(2, both + 1) if both % factor == 0), 0)
    if by:
        batch = f"data.labeled_batch={labeled // by} data.unlabeled_batch={unlabeled // by}"
        again = f"optim.accumulate={config.optim.accumulate * by}"
        return [f"{batch} {again}: as many images per update, 1/{by} of them at a time"]
    smaller = max(1, labeled // 2), max(1, unlabeled // 2)
    less = 1 - sum(smaller) / (labeled + unlabeled)
    batch = f"data.labeled_batch={smaller[0]} data.unlabeled_batch={smaller[1]}"
    return [f"{batch} optim.accumulate={config.optim.accumulate * 2}: {less:.0%} fewer images at a time"]


def _computed_again(config: RunConfig) -> list[str]:
    if config.model.checkpointing or config.model.mode == "frozen":
        return []
    return ["model.checkpointing=true: the encoder's blocks keep their inputs only; steps take longer, results stay"]


def _half_precision(config: RunConfig, device: torch.device) -> list[str]:
    if device.type != "cuda" or config.precision != "32-true":
        return []
    return ["precision=bf16-mixed: most of what is kept for the backward pass takes half the room"]


def _smaller_crop(config: RunConfig, multiple: int) -> list[str]:
    if config.data.crop is None:
        return []
    height, width = config.data.crop
    sides = [max(multiple, int(side * SMALLER_CROP) // multiple * multiple) for side in (height, width)]
    less = 1 - sides[0] * sides[1] / (height * width)
    return [f"data.crop=[{sides[0]},{sides[1]}]: {less:.0%} fewer pixels"] if less > 0 else []


def _frozen(config: RunConfig, need: Need | None) -> list[str]:
    if config.model.mode == "frozen":
        return []
    saved = "" if need is None else f" {in_mb(need.encoder_learning)} of gradients and optimiser less, and"
    return [f"model.mode=frozen:{saved} nothing is kept of the encoder for a backward pass; it does not learn"]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
