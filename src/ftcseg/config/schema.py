"""Every setting of a run, with its default and its meaning. Plain frozen dataclasses; `load.py` fills them."""

from __future__ import annotations

from collections.abc import Mapping
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
                raise UsageError(f"{key} cannot be {value}: it must be at least {least}.")
        for at in self.keep_at:
            if not 0 < at <= (self.steps if isinstance(at, int) else 1):
                raise UsageError(
                    f"keep_at cannot hold {at}: write steps from 1 to {self.steps}, or shares of the run up to 1.0."
                )
