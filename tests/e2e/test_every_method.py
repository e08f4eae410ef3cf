"""A short run of every method of the table: it ends, its files agree, it predicts, and it can be killed and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from small_runs import SMALL, lines_of

from ftcseg import api
from ftcseg.files import read_json
from ftcseg.inference import audit_run, evaluate_run
from ftcseg.methods import METHODS
from ftcseg.train.optim import Optim
from ftcseg.types import Clock

pytestmark = pytest.mark.usefixtures("plain_convolutions")

STEPS = 5
RULES = {"cps": "flexmatch", "fixmatch": "freematch", "unimatch-v1": "atc"}
"""So that each rule has been through a checkpoint and an audit."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("methods-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("every") / "sonar", 15, size=(96, 96), classes=4, workers=1)


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


def train(frames: Path, method: str, out: Path) -> Path:
    rule = [f"thresholds={RULES[method]}"] if method in RULES else []
    told = [*SMALL, "model.head=fusion", "evaluation.every=0", "opr.layers=1", *rule]
    return api.train(frames, method=method, labels=4, steps=STEPS, out=out, settings=told).folder


@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_and_its_files_agree(
    method: str, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(frames, method, tmp_path / "run")
    assert read_json(run / "run.json")["status"] == "done"
    trained = [line for line in lines_of(run) if line["kind"] == "train"]
    assert [line["step"] for line in trained] == list(range(1, STEPS + 1))
    assert (run / "report.html").is_file()
    scores = read_json(run / "scores.json")
    again = evaluate_run(run, frames, checkpoint="last")
    first = scores["predictor"]
    assert list(scores["checkpoints"]["last"]) == list(again["checkpoints"]["last"])
    assert again["miou"] == pytest.approx(scores["checkpoints"]["last"][first]["miou"])
    for who, found in again["checkpoints"]["last"].items():
        assert found["miou"] == pytest.approx(scores["checkpoints"]["last"][who]["miou"]), who
    assert (run / "audit.json").is_file() == (method != "supervised")
    if method != "supervised":
        audit, later = read_json(run / "audit.json"), audit_run(run)
        assert later["thresholds"] == audit["thresholds"]
        assert later["by_truth"] == audit["by_truth"]
    assert_predicts(run, frames, tmp_path / "masks")
    assert_goes_on_where_it_was_killed(run, frames, method, tmp_path / "killed", monkeypatch)


def assert_predicts(run: Path, frames: Path, out: Path) -> None:
    image = min((frames / "images").rglob("*.png"))
    assert api.predict(run, image, out, what=["masks"], workers=1).made == 1
    (mask,) = out.rglob("*.png")
    labels = np.asarray(Image.open(mask))
    assert labels.shape == (96, 96)
    assert labels.max() < 4


def assert_goes_on_where_it_was_killed(
    straight: Path, frames: Path, method: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its fourth step: gradients are there, rules have taken note, nothing has moved; saved after two."""
    update, taken = Optim.step, []

    def die_in_the_fourth(optim: Optim, clock: Clock) -> None:
        taken.append(clock.step)
        if len(taken) == 4:
            raise Killed
        update(optim, clock)

    monkeypatch.setattr(Optim, "step", die_in_the_fourth)
    with pytest.raises(Killed):
        train(frames, method, run)
    monkeypatch.setattr("ftcseg.training.finish", lambda *_, **__: False)  # what scores and audits say is known already
    api.resume(run)
    assert len(taken) == 4 + 3  # the third step is taken again
    for name in ("model", "optim", "chance"):
        file = Path("checkpoints") / "last" / f"{name}.safetensors"
        assert (run / file).read_bytes() == (straight / file).read_bytes(), name


def test_without_opr_and_atc_ftc_is_unimatch_v2(frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/results/flsmd.md says of M2: whatever else differs between the two presets would show here."""
    monkeypatch.setattr("ftcseg.training.finish", lambda *_, **__: False)
    weights = []
    for method, parts in (
        ("unimatch-v2", []),
        ("ftc", ["opr.layers=0", "thresholds=fixed"]),
        ("ftc", ["opr.layers=0"]),
    ):
        told = [*SMALL, "model.head=fusion", "evaluation.every=0", "tau=0.3", "atc.clip=null", *parts]
        out = tmp_path / str(len(weights))
        run = api.train(frames, method=method, labels=4, steps=STEPS, out=out, settings=told).folder
        weights.append(load_file(run / "checkpoints" / "last" / "model.safetensors"))
    published, without_both, with_atc = ({n: t for n, t in w.items() if "thresholds" not in n} for w in weights)
    assert published.keys() == without_both.keys()
    assert all(torch.equal(published[name], without_both[name]) for name in published)
    assert not all(torch.equal(published[name], with_atc[name]) for name in published)


def test_the_labels_are_doubted_by_how_few_of_them_show_a_class(frames: Path, tmp_path: Path) -> None:
    told = [*SMALL, "model.head=fusion", "evaluation.every=0", "atc.bias_margin=1"]
    run = api.train(frames, method="ftc", labels=4, steps=STEPS, out=tmp_path / "run", settings=told).folder
    shown = [row["images"] for row in read_json(run / "split.json")["classes"]]
    doubt = load_file(run / "checkpoints" / "last" / "model.safetensors")["pair.thresholds.doubt"]
    assert doubt.tolist() == pytest.approx([1 / max(1, images) ** 0.5 for images in shown])
    assert len(set(shown)) > 1
    # The rule that an audit rebuilds has the run's doubts, not those it would start with.
    assert audit_run(run)["thresholds"] == read_json(run / "audit.json")["thresholds"]
