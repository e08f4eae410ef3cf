"""One file per paper. A method's step reads like its algorithm box; the parts are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ftcseg.errors import UsageError, unknown_name
from ftcseg.methods.ael import AEL, AELParams
from ftcseg.methods.base import Method
from ftcseg.methods.beyond_pixels import BeyondPixels, BeyondPixelsParams
from ftcseg.methods.cowmix import CowMix, CowMixParams
from ftcseg.methods.cps import CPS, CPSParams
from ftcseg.methods.crest import CReST, CReSTParams
from ftcseg.methods.ctfs import CTFS, CTFSParams
from ftcseg.methods.daso import DASO, DASOParams
from ftcseg.methods.dual_teacher import DualTeacher, DualTeacherParams
from ftcseg.methods.fixmatch import FixMatch, FixMatchParams
from ftcseg.methods.freematch import FreeMatch, FreeMatchStepParams
from ftcseg.methods.ftc import FTCParams, FTCSeg
from ftcseg.methods.kit import Kit
from ftcseg.methods.mean_teacher import MeanTeacher, MeanTeacherParams
from ftcseg.methods.noise_consistency import NoiseConsistency, NoiseConsistencyParams
from ftcseg.methods.semivl import SemiVLParams, build_semivl
from ftcseg.methods.supervised import Supervised
from ftcseg.methods.unimatch_v1 import UniMatchV1, UniMatchV1Params
from ftcseg.methods.unimatch_v2 import UniMatchV2, UniMatchV2Params
from ftcseg.methods.vc import VC, VCParams

GROUP = "ftcseg.methods"
"""Entry points of this group are methods of other packages, each an Entry."""


@dataclass(frozen=True, slots=True)
class NoParams:
    """For methods that have no settings of their own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: who wrote it, what it does, its own settings, how it is put together."""

    title: str
    paper: str
    year: int
    line: str
    build: Callable[[Kit, Any], Method]
    params: type = NoParams
    """A frozen dataclass: the settings `params.NAME=value`."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Values of the run that this method wants other than the defaults, nested as in a preset file."""


METHODS: Mapping[str, Entry] = {
    "supervised": Entry(
        "Labelled only",
        "",
        2015,
        "cross-entropy on the labelled images; the line to beat",
        lambda kit, _: Supervised(kit.pair()),
    ),
    "mean-teacher": Entry(
        "Mean Teacher",
        "Tarvainen and Valpola",
        2017,
        "the student is drawn to the teacher's probabilities of the same picture",
        lambda kit, params: MeanTeacher(kit.pair(), params),
        MeanTeacherParams,
        {"tau": 0.0, "teaching": {"ema": 0.99}},
    ),
    "fixmatch": Entry(
        "FixMatch",
        "Sohn et al.",
        2020,
        "one strong view, a fixed threshold, and an EMA teacher, or none: params.ema_teacher=false",
        lambda kit, params: FixMatch(kit.pair(labels_itself=not params.ema_teacher)),
        FixMatchParams,
    ),
    "cps": Entry(
        "Cross Pseudo Supervision",
        "Chen et al.",
        2021,
        "two networks, each learning the other's labels on mixed images",
        lambda kit, params: CPS(kit.pupil(), kit.another_pupil(1), params, kit.seed),
        CPSParams,
        {"tau": 0.0},
    ),
    "flexmatch": Entry(
        "FlexMatch",
        "Zhang et al.",
        2021,
        "FixMatch with lower thresholds for classes that are learnt less",
        lambda kit, params: FixMatch(kit.pair(labels_itself=not params.ema_teacher)),
        FixMatchParams,
        {"thresholds": "flexmatch"},
    ),
    "freematch": Entry(
        "FreeMatch",
        "Wang et al.",
        2023,
        "FixMatch with thresholds that follow the teacher's own confidence, and a fairness term",
        lambda kit, params: FreeMatch(kit.pair(labels_itself=not params.ema_teacher), params),
        FreeMatchStepParams,
        {"thresholds": "freematch"},
    ),
    "unimatch-v1": Entry(
        "UniMatch V1",
        "Yang et al.",
        2023,
        "two strong views and perturbed features, taught by the network itself",
        lambda kit, params: UniMatchV1(kit.pupil(), params, kit.seed),
        UniMatchV1Params,
    ),
    "unimatch-v2": Entry(
        "UniMatch V2",
        "Yang et al.",
        2025,
        "two strong views with complementary dropout; the paper's EMA baseline M2",
        lambda kit, params: UniMatchV2(kit.pair(), params, kit.seed),
        UniMatchV2Params,
    ),
    "ftc": Entry(
        "FTC-Seg",
        "FTC-Seg",
        2026,
        "M2 with orthogonal prototypes (OPR) and class thresholds (ATC)",
        lambda kit, params: FTCSeg(kit.pair(), params, kit.seed),
        FTCParams,
    ),
    "crest": Entry(
        "CReST",
        "Wei et al.",
        2021,
        "FixMatch in generations: each learns what the last was surest of, rare classes first",
        lambda kit, params: CReST(kit, params, align=False),
        CReSTParams,
    ),
    "crest-plus": Entry(
        "CReST+",
        "Wei et al.",
        2021,
        "CReST whose pseudo-labels are held to the class shares of the labels",
        lambda kit, params: CReST(kit, params, align=True),
        CReSTParams,
    ),
    "daso": Entry(
        "DASO",
        "Oh et al.",
        2022,
        "FixMatch whose pseudo-labels blend the classifier with likeness to class means, for long tails",
        DASO,
        DASOParams,
    ),
    "ael": Entry(
        "AEL",
        "Hu et al.",
        2021,
        "a mean teacher that shows, pastes and weighs what the student knows least",
        AEL,
        AELParams,
        {"tau": 0.7, "teaching": {"ema": 0.99}},
    ),
    "dual-teacher": Entry(
        "Dual Teacher",
        "Na et al.",
        2023,
        "two short-lived teachers in turn, one with CutMix, one with ClassMix",
        lambda kit, params: DualTeacher(kit.pair(), params, kit.seed),
        DualTeacherParams,
        {"teaching": {"ema": 0.99}},
    ),
    "ctfs": Entry(
        "CTFS",
        "Guo et al.",
        2026,
        "a general and a sonar teacher in turn; pixels weigh by how steady both are",
        CTFS,
        CTFSParams,
        {"tau": 0.0},
    ),
    "noise-consistency": Entry(
        "Noise-robust consistency",
        "Zhang et al.",
        2025,
        "the teacher votes over denoised views; disagreement weighs less",
        lambda kit, params: NoiseConsistency(kit.pair(), params),
        NoiseConsistencyParams,
    ),
    "cowmix": Entry(
        "Noise suppression with CowMix",
        "Scherer et al.",
        2022,
        "a fixed teacher, a student anew, pairs mixed by cow masks, pixels weighed by what the student believes",
        lambda kit, params: CowMix(kit, params),
        CowMixParams,
    ),
    "vc": Entry(
        "VC",
        "Chen et al.",
        2024,
        "pixels of which two opinions differ get a virtual category of their own and learn what they are not",
        VC,
        VCParams,
    ),
    "beyond-pixels": Entry(
        "Beyond Pixels",
        "Howlader et al.",
        2024,
        "UniMatch V1 with a classifier of patches that doubts some of the pseudo-labels",
        BeyondPixels,
        BeyondPixelsParams,
        {"teaching": {"normaliser": "kept"}},
    ),
    "semivl": Entry(
        "SemiVL",
        "Hoyer et al.",
        2024,
        "UniMatch with a decoder that reads words, guided by CLIP less and less",
        build_semivl,
        SemiVLParams,
        {
            "model": {"encoder": "hub:openai/clip-vit-base-patch16", "head": "vlg", "features": None},
            "optim": {"kind": "adamw", "lr": 1e-6, "head_multiplier": 1000.0, "opr_multiplier": 1000.0},
        },
    ),
}


def find_method(name: str, also: tuple[str, ...] = ()) -> Entry:
    """A method of the table, or one that another installed package offers under this name.

    `also` are names that exist too, for the error's list.
    """
    if name in METHODS:
        return METHODS[name]
    points = offered()
    if name not in points:
        raise unknown_name("method", name, [*METHODS, *also, *points])
    entry = points[name].load()
    if not isinstance(entry, Entry):
        raise UsageError(f"{points[name].value} is offered as the method {name}, but it is no ftcseg.methods.Entry.")
    return entry


def offered() -> dict[str, EntryPoint]:
    """What other installed packages offer as methods, by name; nothing of them is imported before it is asked for."""
    return {point.name: point for point in entry_points(group=GROUP)}
