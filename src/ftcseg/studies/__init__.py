"""Studies: a frozen plan of runs, what is missing of it run, and the answer written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ftcseg.errors import unknown_name
from ftcseg.studies import (
    ablation,
    atc_components,
    audit_paper,
    class_anchored,
    cost,
    decouple,
    foreground,
    gain,
    joint,
    labels,
    main,
    methods,
    opr_components,
    opr_layers,
    prototypes,
    pseudo_labels,
    qualitative,
    sensitivity,
    severity,
    tail,
    voc_controlled,
)
from ftcseg.studies.plan import Ask, Cell, Measure
from ftcseg.studies.results import Evidence
from ftcseg.studies.tables import Answer


def no_measures(_ask: Ask) -> list[Measure]:
    """For studies that read all they need from their runs."""
    return []


def no_runs(_ask: Ask) -> list[Cell]:
    """For studies that train nothing."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question: which runs it takes, what is measured on them, and how all that is read."""

    line: str
    paper: str
    """The paper's table or figure it stands beside."""
    plan: Callable[[Ask], list[Cell]] = no_runs
    measures: Callable[[Ask], list[Measure]] = no_measures
    read: Callable[[Ask, Evidence], Answer]
    defaults: Ask
    """What is asked where the user says nothing."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The study's own choices, each with its default; `Ask.options` always has all of them."""


STUDIES: Mapping[str, Study] = {
    "methods": Study(
        line="every method on one split, beside labels alone",
        paper="main tables, one setting",
        plan=methods.plan,
        read=methods.read,
        defaults=methods.DEFAULTS,
    ),
    "main": Study(
        line="the paper's comparison over sets and label amounts, FTC-Seg tested against every row",
        paper="both main tables",
        plan=main.plan,
        read=main.read,
        defaults=main.DEFAULTS,
    ),
    "ablation": Study(
        line="EMA, OPR and ATC, on and off",
        paper="components ablation, M1 to M5",
        plan=ablation.plan,
        read=ablation.read,
        defaults=ablation.DEFAULTS,
        options=ablation.OPTIONS,
    ),
    "joint": Study(
        line="whether OPR and ATC together beat the better of the two",
        paper="joint calibration (appendix)",
        plan=joint.plan,
        read=joint.read,
        defaults=joint.DEFAULTS,
    ),
    "sensitivity": Study(
        line="how much lambda_D, lambda_B and K matter",
        paper="sensitivity figure (appendix)",
        plan=sensitivity.plan,
        read=sensitivity.read,
        defaults=sensitivity.DEFAULTS,
        options=sensitivity.OPTIONS,
    ),
    "tail": Study(
        line="the rarest classes by method",
        paper="rarest-class bars",
        plan=tail.plan,
        read=tail.read,
        defaults=tail.DEFAULTS,
    ),
    "labels": Study(
        line="how many labels the unlabelled images are worth",
        paper="beyond it",
        plan=labels.plan,
        read=labels.read,
        defaults=labels.DEFAULTS,
        options=labels.OPTIONS,
    ),
    "decouple": Study(
        line="what noise, long tail and both together cost the tail at a fixed threshold",
        paper="2x2 decoupling figure",
        plan=decouple.plan,
        measures=decouple.measures,
        read=decouple.read,
        defaults=decouple.DEFAULTS,
        options=decouple.OPTIONS,
    ),
    "severity": Study(
        line="how that interaction grows with the noise",
        paper="corruption severity (appendix)",
        plan=severity.plan,
        measures=severity.measures,
        read=severity.read,
        defaults=severity.DEFAULTS,
        options=severity.OPTIONS,
    ),
    "prototypes": Study(
        line="what each OPR prototype answers to, early, in the middle and at the end",
        paper="dominant-class table of 16 prototypes",
        plan=prototypes.plan,
        measures=prototypes.measures,
        read=prototypes.read,
        defaults=prototypes.DEFAULTS,
    ),
    "opr-components": Study(
        line="OPR without its residual, its loss or its gate",
        paper="ablation of OPR components",
        plan=opr_components.plan,
        read=opr_components.read,
        defaults=opr_components.DEFAULTS,
    ),
    "atc-components": Study(
        line="ATC's two signals, alone and together",
        paper="analysis of ATC components",
        plan=atc_components.plan,
        read=atc_components.read,
        defaults=atc_components.DEFAULTS,
    ),
    "pseudo-labels": Study(
        line="how many pseudo-labels are dropped and how many kept ones are right, by group",
        paper="pseudo-label analysis",
        plan=pseudo_labels.plan,
        read=pseudo_labels.read,
        defaults=pseudo_labels.DEFAULTS,
    ),
    "opr-layers": Study(
        line="OPR on 0 to 4 encoder stages: what it brings and what it costs",
        paper="effect of applying OPR to multiple encoder stages",
        plan=opr_layers.plan,
        measures=opr_layers.measures,
        read=opr_layers.read,
        defaults=opr_layers.DEFAULTS,
        options=opr_layers.OPTIONS,
    ),
    "class-anchored": Study(
        line="free prototypes against one for each class",
        paper="prototype formulation (appendix)",
        plan=class_anchored.plan,
        read=class_anchored.read,
        defaults=class_anchored.DEFAULTS,
    ),
    "foreground": Study(
        line="what it costs to tell OPR the wrong foreground classes",
        paper="misspecified foreground set (appendix)",
        plan=foreground.plan,
        read=foreground.read,
        defaults=foreground.DEFAULTS,
    ),
    "voc-controlled": Study(
        line="a long tail with and without noise, made on any set",
        paper="controlled evaluation on Pascal VOC (appendix)",
        plan=voc_controlled.plan,
        read=voc_controlled.read,
        defaults=voc_controlled.DEFAULTS,
        options=voc_controlled.OPTIONS,
    ),
    "gain": Study(
        line="what FTC-Seg gains under added noise and on unseen scenes",
        paper="beyond it",
        plan=gain.plan,
        read=gain.read,
        defaults=gain.DEFAULTS,
        options=gain.OPTIONS,
    ),
    "cost": Study(
        line="what a prediction costs, by method and by reading",
        paper="inference cost (appendix)",
        measures=cost.measures,
        read=cost.read,
        defaults=cost.DEFAULTS,
        options=cost.OPTIONS,
    ),
    "qualitative": Study(
        line="the same images by every method, chosen by a rule",
        paper="qualitative figures",
        plan=qualitative.plan,
        measures=qualitative.measures,
        read=qualitative.read,
        defaults=qualitative.DEFAULTS,
        options=qualitative.OPTIONS,
    ),
    "audit-paper": Study(
        line="where the paper's own numbers disagree, with the arithmetic; trains nothing",
        paper="all of it",
        measures=audit_paper.measures,
        read=audit_paper.read,
        defaults=audit_paper.DEFAULTS,
    ),
}


def find_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]
