"""The command line: what is printed, what comes back, and that a mistake costs one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import ftcseg
from ftcseg import api, cli
from ftcseg.cli import COMMANDS, app, main
from ftcseg.data.images import read_image
from ftcseg.training import Outcome
from picture_sets import images_and_masks, save


class Said(NamedTuple):
    code: object
    out: str
    err: str


class Terminal:
    """Runs commands as a shell would, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["ftcseg", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        return Said(leaving.value.code or 0, *self._capsys.readouterr())

    def refused(self, *arguments: str | Path) -> str:
        """The one sentence that a bad call ends with."""
        said = self(*arguments)
        assert said.code == 2
        assert said.out == ""
        assert said.err.startswith("ftcseg: ")
        assert said.err.count("\n") == 1
        assert "Traceback" not in said.err
        return said.err.strip()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.delenv("FTCSEG_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(monkeypatch, capsys)


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


# ---------------------------------------------------------------- doctor


def test_doctor_prints_classes_and_findings(run: Terminal, sonar12: Path) -> None:
    said = run("doctor", sonar12, "--workers", "1")
    assert said.code == 0
    for words in ("12 images (10 train, 2 test): 12 labelled, 0 unlabelled", "160x240 (12)", "background", "head"):
        assert words in said.out
    assert said.err == ""


def test_doctor_prints_json_and_nothing_else(run: Terminal, sonar12: Path) -> None:
    said = run("doctor", sonar12, "--json", "--workers", "1")
    data = json.loads(said.out)
    assert (data["images"], data["encoding"]) == (12, "grey8")
    assert said.err == ""


def test_doctor_writes_what_it_is_asked_for(run: Terminal, tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 0, 1]]})
    said = run("doctor", root, "--write", root / "dataset.yaml", "--report", tmp_path / "page.html")
    assert f"Wrote {root / 'dataset.yaml'}" in said.out
    assert (root / "dataset.yaml").read_text().startswith("# What ftcseg knows")
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


def test_doctor_is_strict_when_told(run: Terminal, tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": [[0, 0, 1]]})
    assert run("doctor", root, "--strict").code == 0
    (root / "masks/a.png").write_bytes(b"")
    assert run("doctor", root).code == 0
    assert run("doctor", root, "--strict").code == 1


def test_no_masks_at_all_are_a_finding_and_no_crash(run: Terminal, tmp_path: Path) -> None:
    root = images_and_masks(tmp_path, {"a": None})
    said = run("doctor", root)
    assert said.code == 0
    assert "no-masks" in said.out
    assert "has a usable mask" in run.refused("split", root, "--labels", "1", "--out", tmp_path / "out")


def test_names_are_printed_as_they_are(run: Terminal, tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "[bold]set", {"a": [[0, 0, 1]]})
    (root / "dataset.yaml").write_text('ftcseg: 1\nclasses: {0: sea, 1: "[red]rope[/nothing]"}')
    said = run("doctor", root)
    assert "[red]rope[/nothing]" in said.out
    assert "[bold]set" in said.out


# ---------------------------------------------------------------- split, corrupt, simulate, datasets


def test_split_prints_the_counts_and_the_hash(
    run: Terminal, sonar12: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("split", sonar12, "--labels", "50%", "--seed", "3")
    assert "5 labelled, 5 unlabelled" in said.out
    split, _ = api.read_split(tmp_path / "splits" / "sonar12-50pct-seed3")
    assert f"hash {split.digest()[:16]}  seed 3" in said.out
    data = json.loads(run("split", sonar12, "--labels", "50%", "--seed", "3", "--json").out)
    assert data["hash"] == split.digest()
    assert data["images"]["labeled"] == 5


def test_a_split_is_called_after_the_folder(run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = images_and_masks(tmp_path / "harbour", {"a": [[0, 0, 1]], "b": [[0, 0, 1]]})
    api.doctor(root, write=root / "dataset.yaml")
    monkeypatch.chdir(root)
    for dataset in (".", "dataset.yaml", str(root), str(root / "dataset.yaml")):
        run("split", dataset, "--labels", "1")
    assert [p.name for p in (root / "splits").iterdir()] == ["harbour-1-seed0"]


def test_simulate_and_corrupt_say_where(run: Terminal, tmp_path: Path) -> None:
    said = run("simulate", tmp_path / "set", "--images", "2", "--workers", "1")
    assert said.out == f"Wrote 2 frames to {tmp_path / 'set'}\n"
    (tmp_path / "set/images/train/sonar-000001.png").write_bytes(b"")
    said = run("corrupt", tmp_path / "set", tmp_path / "out", "--kind", "fog", "--severity", "1", "--workers", "1")
    assert said.out == f"Wrote {tmp_path / 'out'}; 1 unreadable images were left out\n"
    assert said.err == "left out: sonar-000001.png is empty (0 bytes).\n"


def test_datasets_are_listed(run: Terminal, tmp_path: Path) -> None:
    assert "flsmd" in run("datasets").out
    save(tmp_path / "flsmd/Images/marine-debris-aris3k-1.png", [[0]])
    rows = {row["name"]: row for row in json.loads(run("datasets", "--json", "--root", tmp_path).out)}
    assert rows["flsmd"]["found"] == str(tmp_path / "flsmd")
    assert (rows["flsmd"]["frames"], rows["flsmd"]["train"], rows["flsmd"]["val"]) == (1868, 1494, 374)
    assert rows["voc"]["found"] is None


def test_methods_are_listed_and_one_tells_its_settings(run: Terminal) -> None:
    listed = run("methods").out
    assert re.search(r"^cps +Chen et al\. +2021 +two networks, each learning", listed, re.MULTILINE)
    rows = {row["name"]: row for row in json.loads(run("methods", "--json").out)}
    assert rows["ftc-paper"]["line"] == "ftc with the paper's equations to the letter"
    told = run("methods", "fixmatch").out
    assert told.startswith("FixMatch (Sohn et al. 2020): one strong view")
    assert re.search(r"^ema_teacher +true +Whether an EMA teacher labels", told, re.MULTILINE)
    assert "tau=0.0, teaching.ema=0.99" in run("methods", "mean-teacher").out
    assert "It has no settings of its own." in run("methods", "supervised").out
    one = json.loads(run("methods", "ftc-paper", "--json").out)
    assert one["preset"]["opr.layers"] == 2
    assert [setting["name"] for setting in one["settings"]] == ["strong_views", "comp_drop", "paste"]
    assert all(setting["meaning"] for setting in one["settings"])
    assert "Did you mean cps" in run.refused("methods", "cpss")


def test_the_version_is_told(run: Terminal) -> None:
    assert run("--version").out == f"ftcseg {ftcseg.__version__}\n"


# ---------------------------------------------------------------- bad calls


def test_bad_calls_cost_one_sentence(run: Terminal, sonar12: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").touch()
    out = tmp_path / "out"
    for arguments, said in (
        (("split", sonar12, "--labels", "0%", "--out", out), "--labels 0% is no image at all"),
        (("split", sonar12, "--labels", "300", "--out", out), "the training part has 10 with masks"),
        (("split", sonar12, "--labels", "1", "--out", out), "too few to show every class"),
        (("split", sonar12, "--labels", "abc", "--out", out), "'abc' is no amount"),
        (("split", sonar12, "--labels", "5", "--seed", "-1", "--out", out), "out of range"),
        (("split", sonar12, "--labels", "5", "--balanced", "--level", "pixle", "--out", out), "pixel"),
        (("doctor", "flsdm"), "There is no set or folder called 'flsdm'. Did you mean flsmd"),
        (("doctor", "flsmd"), "FTCSEG_DATA"),
        (("doctor", "flsmd", "--root", tmp_path), "is not in"),
        (("doctor", tmp_path / "empty"), "is empty"),
        (("doctor", tmp_path / "none" / "here"), "There is no file or folder"),
        (("doctor", tmp_path / "file.txt"), "is not something a set can be read from"),
        (("doctor", sonar12, "--max-pixels", "0"), "lets no image through"),
        (("doctor", sonar12, "--write", tmp_path / "file.txt" / "dataset.yaml"), "file.txt"),
        (("doctor", sonar12, "--report", tmp_path / "empty"), "directory"),
        (("corrupt", sonar12, out, "--kind", "spekle"), "Did you mean speckle"),
        (("corrupt", sonar12, out, "--severity", "9"), "no severity 9"),
        (("corrupt", sonar12, sonar12 / "out"), "overlaps"),
        (("simulate", out, "--classes", "1"), "number of classes"),
        (("simulate", out, "--images", "0"), "Ask for at least 1"),
        (("simulate", sonar12, "--seed", "9"), "made with other settings"),
        (("simulate", tmp_path / "file.txt"), "exists and is not empty"),
        (("datasets", "get", "nowhere"), "There is no set called 'nowhere'"),
        (("datasets", "get", "flsmd"), "Say where sets are kept"),
    ):
        assert said in run.refused(*arguments), arguments
    assert not out.exists()


def test_a_folder_that_may_not_be_read_costs_one_sentence(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert f"{tmp_path} may not be read" in run.refused("doctor", tmp_path)


def test_a_folder_above_that_may_not_be_entered_costs_one_sentence(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", denied)
    assert "Permission denied" in run.refused("doctor", tmp_path / "frames")


def test_a_full_disk_costs_one_sentence(run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "frame.png")

    monkeypatch.setattr(api, "write_image", full)
    assert "No space left on device" in run.refused("simulate", tmp_path / "set", "--images", "1")


def test_a_misspelt_option_is_told_with_the_right_one(run: Terminal, sonar12: Path) -> None:
    said = run("split", sonar12, "--lables", "5")
    assert said.code == 2
    assert "--labels" in said.err
    assert "Traceback" not in said.err


def test_ctrl_c_ends_with_a_sentence_and_130(run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "simulate", interrupted)
    said = run("simulate", tmp_path / "set")
    assert said.code == cli.INTERRUPTED == 130
    assert "the same command goes on from there" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome(Path("runs/a b"), False, 130), "Stopped. Continue with: ftcseg train --resume 'runs/a b'\n"),
        (Outcome(Path("runs/a"), False, 143), "Stopped. Continue with: ftcseg train --resume runs/a\n"),
        (Outcome(Path("/runs/a"), True, 0), "Run: /runs/a\nOpen the report: /runs/a/report.html\n"),
        (Outcome(Path("/runs/a"), True, 0, is_first=False), ""),
        (Outcome(Path("/runs/a"), False, 130, is_first=False), ""),
    ],
)
def test_the_first_process_of_a_run_has_the_last_word(
    run: Terminal, outcome: Outcome, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "train", lambda *_, **__: outcome)
    said = run("train", "frames")
    assert (said.code, said.out, said.err) == (outcome.exit_code, told, "")


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("command", [*COMMANDS, "bench", "datasets"])
def test_every_command_teaches_itself(command: str) -> None:
    for flag in ("--help", "-h"):
        result = CliRunner().invoke(app, [command, flag])
        assert result.exit_code == 0
        assert "Usage" in result.output


def test_help_names_every_command() -> None:
    for arguments in ([], ["--help"]):
        output = CliRunner().invoke(app, arguments).output
        assert all(f" {command} " in output for command in [*COMMANDS, "bench", "datasets"])


# ---------------------------------------------------------------- a light start


HEAVY = ("numpy", "scipy", "PIL", "rich", "typer", "yaml", "torch", "tifffile", "imagecodecs", "pydantic", "matplotlib")


def test_importing_the_package_imports_nothing_else() -> None:
    code = f"import sys, ftcseg; print([m for m in {HEAVY} if m in sys.modules])"
    assert python("-c", code).stdout == "[]\n"


def test_help_needs_neither_arrays_nor_networks() -> None:
    heavy = tuple(
        name for name in HEAVY if name not in ("rich", "typer", "pydantic")
    )  # typer imports it if it is there
    code = (
        "import sys; sys.argv = ['ftcseg', 'doctor', '--help']; from ftcseg.cli import main\n"
        f"try: main()\nexcept SystemExit: print('HEAVY', [m for m in {heavy} if m in sys.modules])"
    )
    assert "HEAVY []" in python("-c", code).stdout


def test_public_names_are_sorted_complete_and_there() -> None:
    assert ftcseg.__all__ == sorted(ftcseg.__all__)
    above = {"bench_compare", "bench_infer", "bench_scaling", "bench_step", "study"}
    assert {*ftcseg.__all__} - {"__version__", *above} == {*api.__all__}
    assert api.__all__ == sorted(api.__all__)
    for name in ftcseg.__all__:
        assert getattr(ftcseg, name) is not None
    reference = (Path(__file__).parents[1] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert [name for name in ftcseg.__all__ if name[0] != "_" and f"`ftcseg.{name}" not in reference] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ftcseg.nothing


def test_functions_are_not_hidden_by_folders_of_their_names() -> None:
    code = "import ftcseg.report.page, ftcseg; from ftcseg.evaluate import confusion; import ftcseg.evaluate.metrics\n"
    code += "import ftcseg.train.events; print(confusion.__name__)\n"
    code += "print({f.__module__ for f in (ftcseg.train, ftcseg.evaluate, ftcseg.report)})"
    assert python("-c", code).stdout == "ftcseg.evaluate.confusion\n{'ftcseg.api'}\n"


# ---------------------------------------------------------------- as a program


def test_the_module_is_the_program(tmp_path: Path) -> None:
    told = python("-m", "ftcseg", "doctor", tmp_path / "none" / "x")
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.startswith("ftcseg: There is no file or folder")
    assert told.stderr.count("\n") == 1
    assert python("-m", "ftcseg", "--version").stdout == f"ftcseg {ftcseg.__version__}\n"


@pytest.mark.skipif(os.name == "nt", reason="signals go to groups only elsewhere")
def test_a_real_ctrl_c_leaves_a_set_that_can_be_completed(tmp_path: Path) -> None:
    out = tmp_path / "set"
    command = [sys.executable, "-m", "ftcseg", "simulate", str(out), "--images", "4000", "--workers", "2"]
    # Tests that a shell runs in the background ignore Ctrl-C, and what they start would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        signal.signal(signal.SIGINT, before)
        deadline = time.monotonic() + 60
        while not list(out.glob("masks/*/*.png")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "Interrupted; what was finished is kept, the same command goes on from there."
    masks = {p.relative_to(out / "masks") for p in out.glob("masks/*/*.png")}
    assert masks
    assert masks <= {p.relative_to(out / "images") for p in out.glob("images/*/*.png")}
    for path in out.rglob("[!.]*.png"):
        assert read_image(path).shape == (240, 160, 1)  # whole, or not there


@pytest.mark.skipif(os.name == "nt", reason="pipes close differently there")
def test_a_closed_pipe_is_no_crash() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ftcseg", "datasets", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
