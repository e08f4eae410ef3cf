"""docs/how-to/add-a-method.md, followed to the letter: a package of one's own, found by its entry point, trained."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ftcseg
from ftcseg import api
from ftcseg.cli import main
from ftcseg.errors import UsageError
from ftcseg.files import read_json, read_yaml
from ftcseg.methods import METHODS, find_method

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-method.md"
SMALL = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "teaching.burn_in=1",
    "teaching.ramp=0",
    "evaluation.every=4",
    "log_every=1",
    "threads=1",
)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package as pip would leave it: the file, and the metadata that names its entry point."""
    site = tmp_path / "site"
    step, entry, _ = blocks("python")
    (name,) = re.findall(r"^`(my_methods/\w+\.py)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    (site / name).parent.mkdir(parents=True)
    (site / name).parent.joinpath("__init__.py").touch()
    (site / name).write_text(step + "\n\n" + entry, encoding="utf-8")
    (project,) = (tomllib.loads(text)["project"] for text in blocks("toml"))
    info = site / f"my_methods-{project['version']}.dist-info"
    info.mkdir()
    told = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(told, encoding="utf-8")
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    yield site
    for module in [name for name in sys.modules if name.split(".")[0] == "my_methods"]:
        del sys.modules[module]


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    return api.simulate(tmp_path / "sonar", 15, size=(96, 96), classes=4, workers=1)


def test_the_method_of_the_page_is_found_trained_resumed_and_audited(
    installed: Path, frames: Path, tmp_path: Path
) -> None:
    (asked,) = re.findall(r"--method (sure-weight) --set (params\.\w+=\S+)", "".join(blocks("sh")))
    method, own = asked
    assert method not in METHODS
    run = ftcseg.train(
        frames, method=method, labels=4, steps=4, out=tmp_path / "run", settings=[*SMALL, own, "tau=0.3"]
    )
    assert run.finished
    config = read_yaml(run.folder / "config.yaml")
    assert config["config"]["params"] == {"power": 2.0}
    assert config["why"]["params.power"] == "set by the user"
    note = read_json(run.folder / "run.json")
    assert (note["method"], note["status"]) == (method, "done")
    assert note["parts"]["labeler"] == "pair.teacher.net"
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert ["unsup" in line["losses"] for line in lines if line["kind"] == "train"] == [False, True, True, True]
    assert read_json(run.folder / "audit.json")["images"] == 8
    assert (run.folder / "model" / "model.safetensors").is_file()
    assert ftcseg.resume(run.folder).finished


def test_its_preset_counts_and_its_settings_are_listed(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = find_method("sure-weight")
    assert (entry.title, entry.preset) == ("Sure Weight", {"tau": 0.8})
    monkeypatch.setenv("COLUMNS", "200")
    for command, told in (
        (["methods", "sure-weight"], ("tau=0.8", "power", "1.0", "Weight is confidence to this power; 0 is FixMatch.")),
        (["methods"], ("sure-weight", "of the package my_methods")),
    ):
        monkeypatch.setattr(sys, "argv", ["ftcseg", *command])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr().out
        assert all(text in said for text in told), said


def test_what_is_offered_must_be_an_entry(installed: Path) -> None:
    file = installed / "my_methods-0.1.dist-info" / "entry_points.txt"
    file.write_text("[ftcseg.methods]\nbroken = my_methods.sure_weight:SureWeight\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"is no ftcseg\.methods\.Entry"):
        find_method("broken")


def test_a_name_that_nobody_offers_lists_those_that_are_near(installed: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean sure-weight"):
        find_method("sure-wait")
