"""Whole runs: what they leave behind, and that no way of interrupting them changes it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import FILES, SMALL, STEPS, Starter, assert_same_run, lines_of, settings, steps_in, wait_for

from ftcseg import api
from ftcseg.files import read_json, read_yaml

METHODS = ("supervised", "unimatch-v2", "ftc")


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that several tests look at are made before any single test's cache is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("runs-cache")))
        yield


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 small frames of four classes, a fifth of them for test."""
    return api.simulate(tmp_path_factory.mktemp("frames") / "sonar", 24, size=(96, 96), classes=4, workers=1)


@pytest.fixture(scope="module")
def runs(frames: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of each method that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    for method in METHODS:
        found = api.train(frames, method=method, labels=6, steps=STEPS, out=folder / method, settings=SMALL)
        assert (found.finished, found.exit_code) == (True, 0)
    return {method: folder / method for method in METHODS}


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("starter"))
    yield starter
    starter.close()


def command(frames: Path, run: Path, *more: str, method: str = "ftc") -> list[object]:
    return ["train", frames, "--method", method, "--labels", 6, "--steps", STEPS, "--out", run, *settings(*more)]


# What a run leaves behind


@pytest.mark.parametrize("method", METHODS)
def test_a_run_folder_is_complete(method: str, runs: dict[str, Path]) -> None:
    run = runs[method]
    expected = FILES | ({"audit.json"} if method != "supervised" else set())
    found = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert expected <= found
    assert ("audit.json" in found) == (method != "supervised")
    assert not [name for name in found if name.endswith((".part", ".new", ".old"))]
    page = (run / "report.html").read_text()
    assert "://" not in page.replace("http://www.w3.org/", "")  # drawings name their language; nothing is fetched
    assert "sonar" in page
    note = read_json(run / "run.json")
    assert (note["status"], note["steps"], note["method"]) == ("done", STEPS, method)
    log = (run / "log.txt").read_text().splitlines()
    unlabeled = 0 if method == "supervised" else 14
    assert log[0] == f"{method}: 6 labelled, {unlabeled} unlabelled and 4 test images, 6 steps"
    assert log[-1] == "done at step 6 of 6"
    if method == "ftc":
        names = read_json(run / "model" / "config.json")["classes"]
        kept = ", ".join(rf"{name['name']} (\d+%|n/a)" for name in names)
        assert re.search(rf"step 4/6 .* teacher mIoU \d.* head .* tail .* kept \d+% \({kept}\) .* left$", log[5])


@pytest.mark.parametrize("method", METHODS)
def test_scores_show_last_and_best_of_student_and_teacher(method: str, runs: dict[str, Path]) -> None:
    scores = read_json(runs[method] / "scores.json")
    assert (scores["part"], scores["predictor"], scores["images"]) == ("test", "teacher", 4)
    assert set(scores["checkpoints"]) == {"last", "best"}
    for checkpoint in scores["checkpoints"].values():
        assert set(checkpoint) == {"teacher", "student"}
        for found in checkpoint.values():
            assert 0 <= found["miou"] <= 1
    judged = [line for line in lines_of(runs[method]) if line["kind"] == "scores"]
    assert [line["step"] for line in judged] == [3, 6]
    last = {who: found["miou"] for who, found in scores["checkpoints"]["last"].items()}
    assert last == {who: found["miou"] for who, found in judged[-1]["scores"].items()}
    best = max(line["scores"]["teacher"]["miou"] for line in judged)
    assert scores["checkpoints"]["best"]["teacher"]["miou"] == best
    assert scores["best_step"] in (3, 6)


def test_the_model_is_the_last_teacher(runs: dict[str, Path]) -> None:
    model = load_file(runs["ftc"] / "model" / "model.safetensors")
    last = load_file(runs["ftc"] / "checkpoints" / "last" / "model.safetensors")
    prefix = "pair.teacher.net."
    teacher = {name.removeprefix(prefix): value for name, value in last.items() if name.startswith(prefix)}
    assert model.keys() == teacher.keys()
    assert all(torch.equal(model[name], teacher[name]) for name in model)


def test_the_audit_looks_at_the_unlabeled_images(runs: dict[str, Path]) -> None:
    split = read_json(runs["ftc"] / "split.json")
    audit = read_json(runs["ftc"] / "audit.json")
    assert (len(split["labeled"]), len(split["unlabeled"])) == (6, 14)
    assert audit["images"] == 14
    assert len(audit["thresholds"]["tau"]) == 4


def test_lines_tell_of_burn_in_and_pseudo_labels(runs: dict[str, Path]) -> None:
    lines = [line for line in lines_of(runs["ftc"]) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert ["unsup" in line["losses"] for line in lines] == [False, False, True, True, True, True]
    seen = [sum(line.get("seen", [])) for line in lines_of(runs["ftc"], "pseudo.jsonl")]
    assert seen[:2] == [0, 0]
    assert all(0 < count <= 2 * 32 * 32 for count in seen[2:])  # two views of 32x32, less where they are padded


def test_the_configuration_says_why(runs: dict[str, Path]) -> None:
    written = read_yaml(runs["ftc"] / "config.yaml")
    assert written["config"]["data"]["crop"] == [32, 32]
    assert written["why"]["data.crop"] == "the frame 96x96 at short side 32"
    assert written["why"]["teaching.burn_in"] == "set by the user"
    assert written["why"]["opr.layers"] == "preset ftc"


def test_a_validation_part_that_was_drawn_is_what_is_judged(frames: Path, tmp_path: Path) -> None:
    api.split(frames, 4, val=5, out=tmp_path / "split")
    found = api.train(
        frames, method="supervised", split=tmp_path / "split", steps=2, out=tmp_path / "run", settings=SMALL
    )
    scores = read_json(found.folder / "scores.json")
    assert (scores["part"], scores["images"]) == ("val", 5)


# Stopped, killed, resumed


def test_killed_at_the_worst_moments_a_run_ends_as_if_it_was_not(
    frames: Path, runs: dict[str, Path], starter: Starter, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    moments = [
        ("ftcseg.training.write_text", 1),  # everything is decided, nothing is there to resume
        ("ftcseg.train.checkpoint._write_state", 1),  # there is a run, and half of its first checkpoint
        ("ftcseg.teaching.pair.follow", 2),  # the student has moved, the teacher has not
        ("ftcseg.train.checkpoint._swap", 2),  # a checkpoint is written and not yet in its place
        ("ftcseg.train.listeners._append", 5),  # a step is taken and not yet written down
        ("ftcseg.training.evaluate", 1),  # a step is taken and not yet judged
        ("ftcseg.nets.folder.save", 1),  # trained, and half of the model's file is there
        ("ftcseg.finish._audit", 1),  # trained and scored, and no more
        ("ftcseg.training.write_run_page", 1),
    ]
    for where, nth in moments:
        argv = ["train", "--resume", run] if (run / "config.yaml").exists() else command(frames, run)
        assert starter.run(*argv, die=(where, nth)) == -signal.SIGKILL, (where, starter.said)
        if not (run / "config.yaml").exists():
            assert starter.run("train", "--resume", run) == 2
            assert "holds no run to resume" in starter.said
            assert "start it again with the command it was started with" in starter.said
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "kind": "tra')  # and the last line is torn
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert_same_run(run, runs["ftc"])
    assert read_json(run / "run.json")["status"] == "done"
    assert (run / "report.html").is_file()
    assert not [path for path in run.rglob("*") if path.suffix in (".part", ".new", ".old")]


def test_a_program_that_is_killed_from_outside_goes_on_too(
    frames: Path, runs: dict[str, Path], starter: Starter, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    argv = [sys.executable, "-m", "ftcseg", *map(str, command(frames, run, "data.workers=2"))]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(argv, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)
    wait_for(lambda: steps_in(run) >= 3 or process.poll() is not None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert "Open the report" in starter.said
    assert_same_run(run, runs["ftc"])  # which had no loader processes: two of them change no bit


def test_sigterm_to_the_whole_group_saves_and_leaves_with_143(
    frames: Path, runs: dict[str, Path], starter: Starter, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = starter.start(*command(frames, run, "data.workers=2"))
    wait_for(lambda: steps_in(run) >= 1)
    os.killpg(process, signal.SIGTERM)
    assert starter.wait() == 143, starter.said
    assert "Stopped. Continue with: ftcseg train --resume" in starter.said
    note = read_json(run / "run.json")
    assert note["status"] == "stopped"
    assert 1 <= note["steps"] < STEPS
    assert not (run / "scores.json").exists()
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert_same_run(run, runs["ftc"])


def test_a_stop_while_the_results_are_written_is_a_stop(
    frames: Path, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ftcseg.finish

    evaluate = ftcseg.finish.evaluate

    def interrupted(*args: object, **kwargs: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ftcseg.finish, "evaluate", interrupted)
    found = api.train(frames, method="ftc", labels=6, steps=STEPS, out=tmp_path / "run", settings=SMALL)
    assert (found.finished, found.exit_code) == (False, 143)
    assert read_json(found.folder / "run.json")["status"] == "stopped"
    monkeypatch.undo()
    again = api.resume(found.folder)
    assert (again.finished, again.exit_code) == (True, 0)
    assert_same_run(found.folder, runs["ftc"])


def test_resuming_a_finished_run_changes_nothing(frames: Path, starter: Starter, runs: dict[str, Path]) -> None:
    run = runs["unimatch-v2"]
    noted = {run / name for name in ("run.json", "log.txt", ".lock", "report.html")}  # they say how often and how long
    before = {path: path.read_bytes() for path in set(run.rglob("*")) - noted if path.is_file()}
    assert starter.run("train", "--resume", run) == 0, starter.said
    assert not [path for path, content in before.items() if path.read_bytes() != content]
    assert read_json(run / "run.json")["status"] == "done"


def test_a_run_moves_with_whoever_resumes_it(
    frames: Path, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(frames.parent)
    found = api.train(frames.name, method="supervised", labels=6, steps=2, out=tmp_path / "run", settings=SMALL)
    monkeypatch.chdir(tmp_path)
    assert api.resume(found.folder).finished  # the set was named relative to another folder


# Bad calls


def test_a_folder_that_holds_a_run_is_refused(frames: Path, starter: Starter, runs: dict[str, Path]) -> None:
    before = (runs["ftc"] / "metrics.jsonl").read_bytes()
    assert starter.run(*command(frames, runs["ftc"])) == 2
    assert "already holds a run. Continue it with --resume" in starter.said
    assert (runs["ftc"] / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["SET", "--method", "fct"], "There is no method called 'fct'. Did you mean ftc"),
        (["SET", "--set", "teaching.emma=1"], "There is no setting teaching.emma. Did you mean teaching.ema"),
        (["SET", "--set", "data.labeled_batch=0"], "data.labeled_batch cannot be 0"),
        (["SET", "--set", "model.encoder=tinny"], "There is no encoder called 'tinny'. Did you mean tiny?"),
        (["SET", "--set", "model.head=fushion"], "Did you mean fusion?"),
        (["SET", "--set", "data.part=val"], "no labelled image to evaluate on in the part «val»"),
        (["SET", "--labels", "many"], "many"),
        (["SET", "--labels", "2%", "--split", "x"], "give --labels or --split, not both"),
        (["SET", "--set", "device=cuda"], "There is no cuda device here"),
        (["no-such-set"], "no-such-set"),
        ([], "Give a dataset to train on, or --resume RUN"),
        (["--resume", "no-such-run"], "no-such-run holds no run to resume"),
    ],
)
def test_a_bad_call_is_one_sentence_and_leaves_nothing(
    argv: list[str], told: str, frames: Path, starter: Starter, tmp_path: Path
) -> None:
    if "device=cuda" in argv and torch.cuda.is_available():
        pytest.skip("there is one")
    words = [str(frames) if word == "SET" else word for word in argv]
    more = settings() if "SET" in argv else []
    assert starter.run("train", *more, *words, "--out", tmp_path / "run") == 2, starter.said
    assert told in starter.said
    assert "Traceback" not in starter.said
    assert starter.said.startswith("ftcseg: ")
    assert len(starter.said.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


# Two processes


def test_two_processes_learn_what_one_with_twice_the_batch_learns(frames: Path, tmp_path: Path) -> None:
    # What makes the comparison exact: statistics of a frozen encoder, no partners from the other half of the batch, no
    # padding that would weigh the halves unequally, no kernel as wide as the batch's widest, no optimiser that divides
    # by gradients near 0.
    alike = (
        *SMALL,
        "model.mode=frozen",
        "cutmix.chance=0",
        "data.scale=[1, 1]",
        "photometric.blur=0",
        "optim.kind=sgd",
        "optim.lr=0.01",
        "thresholds=atc",
        "atc.tau0=0.3",
        "atc.clip=null",
        "teaching.burn_in=1",
        "teaching.ramp=0",
        "device=cpu",
    )
    double = (*alike, "data.labeled_batch=4", "data.unlabeled_batch=4")
    alone = api.train(frames, method="fixmatch", labels=6, steps=3, out=tmp_path / "one", settings=double).folder
    two = tmp_path / "two"
    sets = [part for value in (*alike, "processes=2") for part in ("--set", value)]
    argv = ["train", str(frames), "--method", "fixmatch", "--labels", "6", "--steps", "3", "--out", str(two), *sets]
    done = subprocess.run(
        [sys.executable, "-m", "ftcseg", *argv],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Starting with 2 processes" in done.stderr
    assert done.stdout.splitlines() == [f"Run: {two}", f"Open the report: {two / 'report.html'}"]  # once, not twice
    assert done.stderr.count("fixmatch: 6 labelled, 14 unlabelled and 4 test images, 3 steps") == 1
    assert done.stderr.count("done at step 3 of 3") == 1
    assert read_json(two / "run.json")["status"] == "done"
    for ours, theirs in zip(lines_of(two), lines_of(alone), strict=True):
        assert (ours["step"], ours["kind"]) == (theirs["step"], theirs["kind"])
        if ours["kind"] == "train":
            assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-4)
            assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-3)
            assert ours["kept"] == pytest.approx(theirs["kept"], abs=1e-3)
    for ours, theirs in zip(lines_of(two, "pseudo.jsonl"), lines_of(alone, "pseudo.jsonl"), strict=True):
        for name in ("tau", "accuracy", "prior", "predicted"):
            assert ours["facts"][name] == pytest.approx(theirs["facts"][name], abs=1e-4)
        assert sum(ours.get("seen", [])) == sum(theirs.get("seen", []))  # of both processes
    weights = [load_file(run / "checkpoints/last/model.safetensors") for run in (two, alone)]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], atol=1e-4, rtol=1e-3)
    scores = [read_json(run / "scores.json")["checkpoints"]["last"]["student"]["miou"] for run in (two, alone)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
