"""How long runs are: steps, minutes, the paper's epochs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftcseg import api
from ftcseg.config.load import draft_for
from ftcseg.errors import UsageError
from ftcseg.studies import STUDIES, budget, estimate
from ftcseg.studies.answering import Inquiry
from ftcseg.studies.budget import Budget, largest_readable, paper_settings, paper_steps, parse_budget, settle
from ftcseg.studies.estimate import Timed
from ftcseg.studies.plan import Ask
from ftcseg.studies.sets import Place

TINY = ("model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32", "evaluation.audit=false")


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty simulated frames, 16 for training and 4 for test."""
    return api.simulate(tmp_path_factory.mktemp("set") / "frames", 20, size=(96, 64), workers=1)


def _inquiry(frames: Path, out: Path, **asked: object) -> Inquiry:
    ask = Ask(datasets=(str(frames),), labels=("50%",), settings=TINY, only=("supervised", "fixmatch"))
    return Inquiry("methods", STUDIES["methods"], replace(ask, **asked), Place(out))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("400steps", Budget("steps", 400)),
        (" 1 step ", Budget("steps", 1)),
        ("20minutes", Budget("minutes", 20)),
        ("1.5 minutes", Budget("minutes", 1.5)),
        ("20min", Budget("minutes", 20)),
        ("Paper", Budget("paper")),
    ],
)
def test_a_budget_has_three_forms(text: str, meant: Budget) -> None:
    assert parse_budget(text) == meant
    assert parse_budget(str(meant)) == meant


@pytest.mark.parametrize("text", ["", "0steps", "0minutes", "0.0minutes", "1.5steps", "20hours", "99999999steps"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="20minutes"):
        parse_budget(text)


@given(st.text(max_size=20))
def test_whatever_is_written_is_a_budget_or_an_error(text: str) -> None:
    with suppress(UsageError):
        assert parse_budget(text).kind in ("steps", "minutes", "paper")


def test_readable_numbers_have_two_digits() -> None:
    assert largest_readable(lambda steps: steps <= 437) == 430
    assert largest_readable(lambda steps: steps <= 99_999) == 99_000
    assert largest_readable(lambda steps: steps <= 7) == 7
    assert largest_readable(lambda steps: False) == 0
    assert largest_readable(lambda steps: True) == 9_900_000


def test_the_papers_epochs_in_steps() -> None:
    assert paper_steps(1464, 4) == 87_840  # FLSMD with 2 % labels: 366 steps an epoch
    assert paper_steps(1465, 4) == 240 * 367  # a batch that is not full is a step, too
    assert paper_steps(3, 4) == 240


def test_the_papers_settings_are_those_of_its_preset_on_every_machine() -> None:
    for method in ("ftc-paper", "supervised", "cps"):
        here = draft_for(method, "cpu", [*paper_settings(), "steps=7"]).build()
        assert here == draft_for(method, "gpu", ["steps=7"]).build()


def test_the_papers_budget_counts_the_unlabelled_images(frames: Path, tmp_path: Path) -> None:
    inquiry = _inquiry(frames, tmp_path, labels=("50%", "75%"))
    found = settle(Budget("paper"), inquiry)
    # 8 of 16 images are unlabelled, or 4: two batches of four an epoch, or one
    assert found.ask.steps == 480
    assert "480" in found.why
    assert "240" in found.why
    assert found.ask.settings[-len(TINY) :] == TINY  # what the user sets comes last
    assert "data.crop=[518, 518]" in found.ask.settings


def test_driving_has_other_crops_and_stays_apart(frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = api.simulate(tmp_path / "other", 20, size=(96, 64), workers=1)
    real = budget.Sets.examined

    def examined(self: budget.Sets, dataset: str, seed: int) -> object:
        found = real(self, dataset, seed)
        name = budget.ACDC if dataset == str(frames) else None
        return replace(found, description=replace(found.description, set_name=name))

    monkeypatch.setattr(budget.Sets, "examined", examined)
    found = settle(Budget("paper"), _inquiry(frames, tmp_path))
    assert found.ask.steps == 240 * 8  # one image a batch
    assert "data.crop=[798, 798]" in found.ask.settings
    with pytest.raises(UsageError, match="of its own"):
        settle(Budget("paper"), _inquiry(frames, tmp_path, datasets=(str(frames), str(other))))


# ---------------------------------------------------------------- minutes

SLOW = {"supervised": 1.0, "fixmatch": 2.0}


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps of one second for labels alone and of two for the other; everything else takes no time."""
    asked: list[str] = []

    def measure(cell: object, _found: object) -> Timed:
        name = cell.method  # type: ignore[attr-defined]
        asked.append(name)
        step = SLOW[name]
        return Timed(start=4.0, early=step, late=step, image=0.0, final=0.0, method=1, optimizer=1, model=1)

    monkeypatch.setattr(estimate, "measure", measure)
    return asked


def test_minutes_are_those_of_the_slowest_row_and_stay(
    frames: Path, tmp_path: Path, clocked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inquiry = _inquiry(frames, tmp_path)
    found = settle(Budget("minutes", 10), inquiry)
    # 600 s less 4 to start are 298 steps of two seconds, and 290 is a number to remember
    assert found.ask.steps == 290
    assert "fixmatch" in found.why
    told = list(json.loads((tmp_path / "methods" / "budget.json").read_text()).values())
    assert told == [{"budget": "10minutes", "steps": 290, "slowest": "fixmatch"}]
    assert sorted(clocked) == ["fixmatch", "supervised"]
    monkeypatch.setitem(SLOW, "fixmatch", 20.0)  # a busier machine
    (tmp_path / "estimates.json").unlink()
    again = settle(Budget("minutes", 10), replace(inquiry, ask=replace(inquiry.ask, seeds=(0, 1, 2), steps=5)))
    assert again.ask.steps == 290  # further seeds belong to the same comparison
    assert len(clocked) == 2
    assert settle(Budget("minutes", 20), inquiry).ask.steps == 59  # another budget: 1196 / 20


def test_minutes_too_few_for_a_single_step_are_told(frames: Path, tmp_path: Path, clocked: list[str]) -> None:
    with pytest.raises(UsageError, match="too few"):
        settle(Budget("minutes", 0.01), _inquiry(frames, tmp_path))
    assert not (tmp_path / "methods" / "budget.json").exists()


def test_steps_are_taken_as_they_are(frames: Path, tmp_path: Path) -> None:
    assert settle(Budget("steps", 437), _inquiry(frames, tmp_path)).ask.steps == 437
