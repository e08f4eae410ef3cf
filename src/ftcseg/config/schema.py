"""Every setting of a run, with its default and its meaning. Plain frozen dataclasses; `load.py` fills them."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from ftcseg.errors import UsageError
from ftcseg.nets.opr import OPRParams
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.atc import ATCParams
from ftcseg.teaching.thresholds.flexmatch import FlexMatchParams
from ftcseg.teaching.thresholds.freematch import FreeMatchParams
from ftcseg.train.optim import OptimParams
from ftcseg.types import Part
from ftcseg.views.mix import CutMixParams
from ftcseg.views.photometric import PhotometricParams


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Which images, and how they are cut."""

    labels: str | int | None = None
    """How many labelled images to draw, 2% or 30; without it every mask of the training part is a label."""
    split: str | None = None
    """A split made by `ftcseg split`, instead of drawing one."""
    part: Part | None = None
    """The part that is evaluated; val where there is one, else test."""
    labeled_batch: int = 4
    unlabeled_batch: int = 4
    short_side: int | None = None
    """Images are brought to this shorter side first; None keeps their size."""
    crop: tuple[int, int] | None = None
    """(height, width) of training views; None is the frame itself."""
    scale: tuple[float, float] = (0.5, 2.0)
    """Random enlargement of training views."""
    flip: float = 0.5
    workers: int = 0
    """Loader processes; 0 loads in the training process."""
    cache: float = 8.0
    """GiB that decoded images may take in the cache folder (FTCSEG_CACHE); 0 keeps none there. It changes no number."""
    max_unreadable: float = 0.01
    """Share of the unlabelled images that may turn out unreadable, and be replaced, before the run stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The network."""

    encoder: str = "efficientnet-lite0"
    weights: str | None = "default"
    """"default" (the encoder's published ones), a file, or null for random."""
    head: str = "fusion"
    features: int | None = None
    """Width of the head; None is its own default."""
    mode: Literal["full", "frozen"] | int = "full"
    """What of the encoder learns: all, nothing, or its last N blocks."""
    checkpointing: bool = False
    """Trade time for memory: what the encoder's blocks compute is computed again in the backward pass."""
    channels_last: bool = True
    """Keep the channels of a pixel together in memory, which convolutions read fastest."""
    compile: bool = False
    """Have torch write kernels for the encoder first: minutes before the first step, for a few percent a step. Needs a
    C++ compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """When and how the model is judged."""

    every: int = 0
    """Steps between evaluations, a fifth of the run unless set; 0 is at the end only."""
    images: int | None = None
    """Images of the evaluations during training, evenly through the part; the final scores are always over all."""
    batch: int = 8
    window: int | None = None
    """Side of sliding windows; None evaluates whole images."""
    audit: bool = True
    """At the end, measure pseudo-labels against the masks of unlabelled images where there are any."""
    audit_images: int = 200
    """Images of that audit, evenly through the list."""


LEAST: Mapping[str, int] = {
    "seed": 0,
    "steps": 1,
    "data.labeled_batch": 1,
    "data.unlabeled_batch": 1,
    "data.workers": 0,
    "data.cache": 0,
    "data.max_unreadable": 0,
    "evaluation.every": 0,
    "evaluation.batch": 1,
    "evaluation.images": 1,
    "evaluation.audit_images": 1,
    "processes": 1,
    "nodes": 1,
    "threads": 0,
    "save_every": 0,
    "log_every": 0,
}
"""The smallest value of each number that counts something."""

_BELOW_ONE = 1 - 1e-12  # what remembers all forgets nothing, and learns nothing
_SIDE, _SHARE, _WEIGHT, _KEPT = (1, 16_384), (0.0, 1.0), (0.0, 1e12), (0.0, _BELOW_ONE)
RANGES: Mapping[str, tuple[float, float]] = {
    "seed": (0, 2**63 - 1),
    "steps": (1, 10**9),
    "data.labeled_batch": (1, 65_536),
    "data.unlabeled_batch": (1, 65_536),
    "data.short_side": _SIDE,
    "data.crop": (1, 200_000),  # a frame may be as long as images.MAX_SIDE
    "data.scale": (0.01, 100.0),
    "data.flip": _SHARE,
    "data.workers": (0, 1024),
    "model.features": (1, 1024),
    "model.mode": (0, 1000),
    "opr.layers": (0, 4),
    "opr.count": (1, 4096),
    "opr.temperature": (1e-6, 1e6),
    "opr.foreground": (0, 32_767),
    "teaching.ema": _KEPT,
    "teaching.burn_in": (0, 10**9),
    "teaching.ramp": (0, 10**9),
    "teaching.unsup_weight": _WEIGHT,
    "photometric.jitter": _SHARE,
    "photometric.brightness": _WEIGHT,
    "photometric.contrast": _WEIGHT,
    "photometric.saturation": _WEIGHT,
    "photometric.hue": (0.0, 0.5),
    "photometric.grey": _SHARE,
    "photometric.blur": _SHARE,
    "photometric.sigma": (0.0, 1000.0),
    "cutmix.chance": _SHARE,
    "cutmix.area": _SHARE,
    "cutmix.aspect": (0.001, 1000.0),
    "cutmix.tries": (0, 10**6),
    "optim.head_multiplier": _WEIGHT,
    "optim.opr_multiplier": _WEIGHT,
    "optim.weight_decay": _WEIGHT,
    "optim.betas": _KEPT,
    "optim.momentum": _KEPT,
    "optim.power": (0.0, 1000.0),
    "optim.warmup": (0, 10**9),
    "optim.accumulate": (1, 10**6),
    "evaluation.batch": (1, 65_536),
    "evaluation.window": (1, 200_000),
    "processes": (1, 1024),
    "nodes": (1, 65_536),
    "threads": (0, 4096),
}
"""Where each number lies, both ends included; of a pair, both numbers. Beyond, the run would break or mean nothing."""
PAIRS = ("data.scale", "atc.clip", "freematch.clip", "photometric.sigma", "cutmix.area", "cutmix.aspect")
"""Settings of a smallest and a largest number, in this order."""
LARGEST, LARGEST_FRACTION = 2**63 - 1, 1e30
"""The largest whole number, and the largest other one, that any setting may be: tensors hold few that are larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole run."""

    method: str = "ftc"
    params: dict[str, Any] = field(default_factory=dict)
    """The method's own settings; `ftcseg methods NAME` lists them."""
    seed: int = 0
    steps: int = 1000
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    opr: OPRParams = field(default_factory=lambda: OPRParams(layers=0))
    """Orthogonal prototype reconstruction; layers: 0 is without."""
    foreground: Literal["objects", "everything", "without_rarest", "everything_without_rarest"] = "objects"
    """What OPR's gates take for foreground unless opr.foreground names ids: every class but background; or, to see what
    a mistake costs, background too, every object class but the one with the fewest pixels, or both mistakes."""
    thresholds: Literal["fixed", "atc", "flexmatch", "freematch"] = "fixed"
    """Which pseudo-labels are learnt from, whatever the method; all but the fixed one have settings of their own."""
    tau: float = 0.95
    """The fixed threshold."""
    atc: ATCParams = field(default_factory=ATCParams)
    flexmatch: FlexMatchParams = field(default_factory=FlexMatchParams)
    freematch: FreeMatchParams = field(default_factory=FreeMatchParams)
    teaching: TeachingParams = field(default_factory=TeachingParams)
    photometric: PhotometricParams = field(default_factory=PhotometricParams)
    cutmix: CutMixParams = field(default_factory=CutMixParams)
    optim: OptimParams = field(default_factory=OptimParams)
    evaluation: EvalConfig = field(default_factory=EvalConfig)
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    processes: int = 1
    """Processes on this node, one a device."""
    nodes: int = 1
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] | None = None
    """Number format; None is half precision where the hardware computes in it."""
    threads: int = 0
    """Threads of each process; 0 shares all cores among them."""
    save_every: int = 0
    """Steps between checkpoints, a twentieth of the run unless set; 0 is with each evaluation only."""
    log_every: int = 0
    """Steps between log lines, a hundredth of the run unless set; 0 is at the end only."""
    keep_at: tuple[int | float, ...] = ()
    """Where the model is kept for good as checkpoints/step-N: steps, or shares of the run such as 0.1 (1.0: its end).
    It changes no number of the run."""

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """`keep_at` as steps, each once, from the first on."""
        steps = (at if isinstance(at, int) else max(1, round(at * self.steps)) for at in self.keep_at)
        return tuple(sorted(set(steps)))

    def __post_init__(self) -> None:
        for key, least in LEAST.items():
            value = attrgetter(key)(self)
            if value is not None and value < least:
                raise UsageError(f"{key} cannot be {shown(value)}: it must be at least {least}.")
        refuse_no_numbers(self)
        for key, (low, high) in RANGES.items():
            if not all(low <= number <= high for number in _numbers(attrgetter(key)(self))):
                told = shown(attrgetter(key)(self))
                most = "less than 1" if high == _BELOW_ONE else f"{high:g}"
                raise UsageError(f"{key} cannot be {told}: it must be from {low:g} to {most}.")
        for key in PAIRS:
            if (pair := attrgetter(key)(self)) is not None and pair[0] > pair[1]:
                raise UsageError(f"{key} cannot be {list(pair)}: the smaller number comes first.")
        for at in self.keep_at:
            if not 0 < at <= (self.steps if isinstance(at, int) else 1):
                raise UsageError(
                    f"keep_at cannot hold {at}: write steps from 1 to {self.steps}, or shares of the run up to 1.0."
                )


def shown(value: object) -> str:
    """A value for a message, short, whatever somebody wrote."""
    return reprlib.repr(list(value) if isinstance(value, tuple) else value)


def refuse_no_numbers(settings: object, prefix: str = "") -> None:
    """Refuse NaN, infinity and numbers that no tensor holds, wherever they stand."""
    for item in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            refuse_no_numbers(value, f"{prefix}{item.name}.")
        elif not all(map(_is_sane, _numbers(value))):
            raise UsageError(f"{prefix}{item.name} cannot be {shown(value)}: it must be a number of ordinary size.")


def _is_sane(number: float) -> bool:
    return abs(number) <= (LARGEST if isinstance(number, int) else LARGEST_FRACTION)  # so written, not of NaN


def _numbers(value: object) -> Iterator[float]:
    """The numbers in a setting: itself, or those of a pair, a list or a table; none in a word."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _numbers(inner)
