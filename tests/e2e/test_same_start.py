"""A run that takes another one's burn-in ends as if it had trained it itself (scripts/same_start.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from small_runs import SMALL, assert_same_run

from ftcseg import api
from ftcseg.train.events import Event, Saved

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from same_start import lay

BURN_IN, STEPS = 4, 6
TOLD = (*SMALL, f"teaching.burn_in={BURN_IN}")
WITHOUT_OPR = ("opr.layers=0",)


class Asked(Exception):
    """Somebody pulled the plug."""


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("frames") / "sonar", 24, size=(96, 96), classes=4, workers=1)


def train(frames: Path, out: Path, method: str, more: Sequence[str] = (), cut: int | None = None) -> Path:
    """A run; with `cut`, one that died right after its checkpoint of that step."""

    def plug(event: Event) -> None:
        if isinstance(event, Saved) and event.clock.step == cut:
            raise Asked

    try:
        api.train(frames, method=method, labels=6, steps=STEPS, out=out, settings=(*TOLD, *more), listeners=[plug])
    except Asked:
        assert cut is not None
    return out


@pytest.mark.parametrize(
    ("donor", "method", "more"),
    [
        ("ftc", "fixmatch", ()),
        ("unimatch-v2", "ftc", WITHOUT_OPR),
        ("ftc", "unimatch-v2", ("tau=0.5",)),
    ],
    ids=str,
)
def test_a_burn_in_is_the_same_whoever_trained_it(
    frames: Path, tmp_path: Path, donor: str, method: str, more: tuple[str, ...]
) -> None:
    given = train(frames, tmp_path / "donor", donor, WITHOUT_OPR if donor == "ftc" else (), cut=BURN_IN)
    begun = train(frames, tmp_path / "begun", method, more, cut=2)
    assert lay(given, begun) == BURN_IN
    assert api.resume(begun).finished
    assert_same_run(begun, train(frames, tmp_path / "straight", method, more))


def test_opr_goes_on_as_the_donor_had_it(frames: Path, tmp_path: Path) -> None:
    given = train(frames, tmp_path / "donor", "ftc", ("thresholds=fixed",), cut=BURN_IN)
    begun = train(frames, tmp_path / "begun", "ftc", cut=2)
    lay(given, begun)
    assert api.resume(begun).finished
    assert_same_run(begun, train(frames, tmp_path / "straight", "ftc"))


def test_a_run_that_went_another_way_is_refused(frames: Path, tmp_path: Path) -> None:
    given = train(frames, tmp_path / "donor", "unimatch-v2", cut=BURN_IN)
    faster = train(frames, tmp_path / "faster", "fixmatch", ("optim.lr=1e-2",), cut=2)
    with pytest.raises(SystemExit, match="does not go the same way"):
        lay(given, faster)
    with_opr = train(frames, tmp_path / "opr", "ftc", cut=2)
    with pytest.raises(SystemExit, match="does not go the same way"):
        lay(given, with_opr)


def test_labels_alone_are_no_start(frames: Path, tmp_path: Path) -> None:
    """Their teacher is the student's mean from the first step on; in a burn-in it is the student."""
    given = train(frames, tmp_path / "donor", "supervised", ("teaching.burn_in=0",), cut=BURN_IN)
    begun = train(frames, tmp_path / "begun", "fixmatch", cut=2)
    with pytest.raises(SystemExit, match=f"stands at step {BURN_IN}, and the burn-in of .* ends at 0"):
        lay(given, begun)


def test_what_lies_beyond_a_burn_in_is_no_start(frames: Path, tmp_path: Path) -> None:
    given = train(frames, tmp_path / "donor", "unimatch-v2")
    begun = train(frames, tmp_path / "begun", "fixmatch", cut=2)
    with pytest.raises(SystemExit, match=f"stands at step {STEPS}, and the burn-in of .* ends at {BURN_IN}"):
        lay(given, begun)
