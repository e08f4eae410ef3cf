"""Every study runs from its plan to its page, on runs of a few tiny steps that the studies share.

One test and not one for each study: the runs of one are half of the next one's, and processes share no folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_sets import shrink

from ftcseg import api
from ftcseg.files import read_json
from ftcseg.nets.build import build_model
from ftcseg.studies import STUDIES, audit_paper
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.plan import Ask
from ftcseg.studies.running import Ended, Work, one_by_one, planned, run_study
from ftcseg.studies.sets import Place

FRAMES = 20
SENTENCES = 3
TINY = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "evaluation.every=0",
    "evaluation.audit_images=8",
    "tau=0.05",  # nobody is sure of anything after two steps, and pseudo-labels of which none is kept say little
    "atc.tau0=0.05",
    "atc.clip=[0.01, 0.98]",
    "save_every=0",
    "threads=1",
)
FEW_METHODS = ("supervised", "unimatch-v2", "ftc")
"""tests/e2e/test_every_method.py trains them all."""
SMALLER: Mapping[str, Mapping[str, Any]] = {
    "methods": {"only": FEW_METHODS},
    "main": {"only": FEW_METHODS},
    "tail": {"only": FEW_METHODS},
    "labels": {"labels": ("25%", "50%"), "options": {"points": "50%"}, "only": FEW_METHODS},
    "sensitivity": {"options": {"lambda_d": "0", "lambda_b": "0", "K": "4"}},
    "severity": {"options": {"kinds": "speckle"}},
    "opr-layers": {"options": {"encoder": "tiny", "size": "64", "classes": "3", "images": "2", "repeats": "2"}},
    "cost": {"options": {"encoder": "tiny", "size": "64", "classes": "3", "repeats": "2"}},
}
"""What is asked of a study instead of its own defaults, lest the test take minutes."""


def _ask(name: str) -> Ask:
    told = dict(SMALLER.get(name, {}))
    options = {**STUDIES[name].options, **told.pop("options", {})}
    usual = replace(STUDIES[name].defaults, labels=("50%",), seeds=(0,), steps=2, settings=TINY, options=options)
    return replace(usual, **told)


def _problems(inquiry: Inquiry) -> list[str]:
    """What is wrong with a finished study."""
    plan = planned(inquiry)
    page = (inquiry.folder / "table.md").read_text(encoding="utf-8")
    told = read_json(inquiry.folder / "study.json")
    found = [line for line in page.splitlines() if "Failed" in line]
    if plan.missing:
        found.append(f"{plan.missing} runs are missing")
    found += [f"{one.measure.name} was not measured" for one in plan.measures if not one.done]
    if len(told["results"]) != len(plan.runs):
        found.append(f"{len(told['results'])} results of {len(plan.runs)} runs")
    if not 1 <= len(told["finding"]) <= SENTENCES or not any(any(map(str.isdigit, s)) for s in told["finding"]):
        found.append(f"a finding without numbers, or too long: {told['finding']}")
    if "|" not in page:
        found.append("no table")
    return found


def _all_at_once(work: Work) -> Iterator[Ended]:
    """Every run, and then the news: an answer after each of them would be drawn again each time."""
    yield from list(one_by_one(work))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets, in which every class is in a few frames: there is a tail to look at."""
    monkeypatch.setattr(api, "simulate", partial(api.simulate, classes=4, imbalance=1.0))
    shrink(monkeypatch, FRAMES)
    # The paper's own network is counted in test_audit_paper.py.
    monkeypatch.setattr(audit_paper, "build_model", lambda *_names, **more: build_model("tiny", "fusion", 3, **more))


@pytest.mark.usefixtures("_small", "plain_convolutions")
def test_every_study_runs_to_its_end(tmp_path: Path) -> None:
    problems = {}
    for name, study in STUDIES.items():
        inquiry = Inquiry(name, study, _ask(name), Place(tmp_path))
        run_study(inquiry, runner=_all_at_once)
        if found := _problems(inquiry):
            problems[name] = found
    assert not problems
