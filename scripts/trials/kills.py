"""SIGKILL at random moments of a run: it must go on by itself and end as if nothing had happened, bit for bit.

    nice env OMP_NUM_THREADS=1 .venv/bin/python scripts/trials/kills.py --out FOLDER --summary kills.json

A trial trains a small simulated set in a process of its own, kills the whole process group at a random moment, resumes
it with `--resume`, perhaps kills that too, and so on; at the end everything the run left is compared with a run that
nobody disturbed. Moments are aimed at a phase (loader start, a step, a checkpoint being written, an evaluation, ...) by
watching the process from outside, then drawn at random within it. Given the same folder again, it goes on behind the
trials that are there.

Importing takes longer than such a run. So only every fifth trial, and whatever is hit at its start, begins as a new
Python; the other processes are forked from this one, which has imported the program and never run it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import kornia.enhance
import kornia.filters
import lightning_fabric
import torch
import watched_run
from safetensors.torch import load_file
from watched_run import PHASES, Notes

from ftcseg import training

IMPORTED = (kornia.enhance, kornia.filters, lightning_fabric, training)
"""For those that are forked: what a run imports when it comes to it."""

HERE = Path(__file__).parent
STEPS = 24
SETTINGS = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "evaluation.every=6",
    "teaching.burn_in=6",
    "atc.tau0=0.1",  # low enough for pseudo-labels to count
    "atc.clip=null",
    "save_every=4",
    "log_every=1",
    "threads=1",
)
AIMS = {"start": 7, "loader": 7, "first step": 6, "step": 5, "checkpoint": 12, "evaluation": 7, "finish": 6}
"""How often each phase is aimed at, of 50."""
WORKERS_SECONDS = 0.03  # in which two loader workers start, where nothing is to be imported any more
MOST_ENTRIES = {"step": 8, "checkpoint": 6, "evaluation": 3, "finish": 2}
"""A phase is hit when it is entered for the 1st to this-th time; all others at the first."""
MOST_KILLS = 4
"""In one trial."""
FRESH_EVERY = 5
"""Of these trials, one has no forked processes."""
PATIENCE = 300.0
MOODS = re.compile(r"<tr><td>(folder|time|images per second, mean|memory at most, MB)</td>.*?</tr>", re.DOTALL)
"""Rows of the report that tell of the place, the time and the machine."""


@dataclass
class Kill:
    """One kill: what it was aimed at, where the process was, and what lay half-written afterwards."""

    aimed: str
    entry: int
    hit: str = ""
    step: int = 0
    leftovers: list[str] = field(default_factory=list)
    then: str = ""


@dataclass
class Trial:
    """A run, the kills it suffered, and what differs at its end from one that suffered none."""

    number: int
    workers: int
    kills: list[Kill] = field(default_factory=list)
    missed: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Forked:
    """A process that began as a copy of this one; speaks like subprocess.Popen, as far as that is needed."""

    def __init__(self, notes: Path, argv: list[str], out: Path) -> None:
        """Start a watched command line in a process group of its own."""
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 70  # what an exception leaves behind
            try:
                os.setsid()
                with out.open("wb") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                watched_run.main(notes, argv)
            except SystemExit as leaving:
                code = int(leaving.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        """Its exit code; negative where a signal ended it, None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float = 300.0) -> int:
        """Until it has ended."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < end, "it hangs"
            time.sleep(0.005)
        return code


class Bench:
    """The set, the undisturbed runs, and the folder it all happens in."""

    def __init__(self, folder: Path, method: str) -> None:
        """Make what is not there yet."""
        self.folder = folder
        self.method = method
        self.frames = folder / "sonar"
        self.usual: dict[str, float] = {}
        if not (self.frames / "dataset.yaml").exists():
            self._ftcseg("simulate", self.frames, "--images", 24, "--classes", 4)
        for workers in (0, 2):
            run = self.straight(workers)
            if not (run / "report.html").exists():
                shutil.rmtree(run, ignore_errors=True)
                process, _ = self.begin(self.command(run, workers), f"straight-{workers}", fresh=True)
                assert process.wait() == 0, self.said()
            usual = json.loads((folder / "notes" / f"straight-{workers}.json").read_text())
            self.usual = {phase: min(usual[phase], self.usual.get(phase, math.inf)) for phase in PHASES}
        self.usual["loader"] = WORKERS_SECONDS

    def straight(self, workers: int) -> Path:
        """The run that nobody disturbed; its name is that of the others."""
        return self.folder / f"straight-{workers}" / "run"

    def command(self, run: Path, workers: int) -> list[str]:
        """What starts a run."""
        told = ["train", self.frames, "--method", self.method, "--labels", 6, "--steps", STEPS, "--out", run]
        sets = [word for value in (*SETTINGS, f"data.workers={workers}") for word in ("--set", value)]
        return [*map(str, told), *sets]

    def begin(self, argv: list[str], name: str, *, fresh: bool) -> tuple[subprocess.Popen[bytes] | Forked, Notes]:
        """Start a command line in a process group of its own, watched; as a new Python where it is to be `fresh`."""
        place = self.folder / "notes" / f"{name}.bin"
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        notes = Notes(place)
        if not fresh:
            return Forked(place, argv, self.folder / "output.txt"), notes
        with (self.folder / "output.txt").open("wb") as out:
            command = [sys.executable, str(HERE / "watched_run.py"), str(place), *argv]
            process = subprocess.Popen(  # noqa: S603
                command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        return process, notes

    def said(self) -> str:
        """By the last process."""
        return (self.folder / "output.txt").read_text(errors="replace").strip()

    def _ftcseg(self, *argv: object) -> None:
        command = [sys.executable, "-m", "ftcseg", *map(str, argv)]
        subprocess.run(command, check=True)  # noqa: S603


def _is_fresh(trial: Trial) -> bool:
    return trial.number % FRESH_EVERY == 0


def run_trial(bench: Bench, number: int, seed: int, deck: Iterator[str]) -> Trial:
    """One run, killed and resumed until it may end."""
    chance = random.Random(f"{seed} {number}")  # noqa: S311
    trial = Trial(number, workers=(0, 2)[number % 2])
    run = bench.folder / f"trial-{number:03d}" / "run"
    shutil.rmtree(run.parent, ignore_errors=True)
    began = time.monotonic()
    for aim in _aims(chance, deck):
        kill = Kill(aim, chance.randint(1, MOST_ENTRIES.get(aim, 1)))
        code = _killed(bench, trial, run, kill, chance)
        if code != -signal.SIGKILL:
            trial.missed += 1
            if code:
                trial.differences.append(f"exit code {code}: {bench.said()[-400:]}")
            break
        _look_at(run, kill)
        trial.kills.append(kill)
        if not (run / "config.yaml").exists():
            trial.differences += _refused_resume(bench, run)
    if not trial.differences:
        process, _ = bench.begin(_next_command(bench, trial, run), "last", fresh=_is_fresh(trial))
        code = process.wait(PATIENCE)
        said = f"exit code {code}: {bench.said()[-400:]}"
        trial.differences += [said] if code else differences(run, bench.straight(trial.workers))
    trial.seconds = round(time.monotonic() - began, 1)
    if not trial.differences:
        shutil.rmtree(run.parent)
    return trial


def _aims(chance: random.Random, deck: Iterator[str]) -> list[str]:
    """The phases one run is hit in, those that come first in a run first."""
    drawn = list(islice(deck, chance.randint(1, MOST_KILLS)))
    order = {"start": chance.choice((0, 2)), "first step": 1, "finish": 3}
    return sorted(drawn, key=lambda aim: order.get(aim, 2))


def _deck(seed: int, done: int) -> Iterator[str]:
    """All aims, shuffled, over and over; without those that are done."""
    cards = [aim for aim, times in AIMS.items() for _ in range(times)]
    random.Random(seed).shuffle(cards)  # noqa: S311
    return islice(cycle(cards), done, None)


def _next_command(bench: Bench, trial: Trial, run: Path) -> list[str]:
    """The same command where there is no run yet; else what resumes it."""
    if (run / "config.yaml").exists():
        return ["train", "--resume", str(run)]
    return bench.command(run, trial.workers)


def _killed(bench: Bench, trial: Trial, run: Path, kill: Kill, chance: random.Random) -> int:
    """Start or go on, wait for the moment and kill the whole group; the exit code, that of the kill if it was hit."""
    phase = kill.aimed.removeprefix("first ")
    share = chance.random()
    fresh = _is_fresh(trial) or phase == "start"
    process, notes = bench.begin(_next_command(bench, trial, run), "killed", fresh=fresh)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and not (notes.phase == phase and notes.entered(phase) >= kill.entry):
        assert time.monotonic() < end, f"trial {trial.number} hangs: {bench.said()[-400:]}"
        time.sleep(0.0005)
    time.sleep(share * bench.usual[phase])
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    kill.hit = notes.phase
    return code


def _look_at(run: Path, kill: Kill) -> None:
    """What the dead process left."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines() if (run / "metrics.jsonl").exists() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith(b"}")]
    kill.step = max(steps, default=0)
    kill.leftovers = [path.relative_to(run).as_posix() for path in leftovers(run)]
    kill.then = "resumed" if (run / "config.yaml").exists() else "started again"


def _refused_resume(bench: Bench, run: Path) -> list[str]:
    """Where there is no run yet, --resume must say so and what to do."""
    run.mkdir(parents=True, exist_ok=True)
    process, _ = bench.begin(["train", "--resume", str(run)], "refused", fresh=False)
    code = process.wait(PATIENCE)
    if code == 2 and "holds no run to resume" in bench.said() and "start it again" in bench.said():
        return []
    return [f"--resume of no run: exit code {code}: {bench.said()[-400:]}"]


def leftovers(run: Path) -> list[Path]:
    """What is neither there nor gone."""
    return sorted(path for path in run.rglob("*") if path.suffix in (".part", ".new", ".old"))


def differences(ours: Path, theirs: Path) -> list[str]:
    """What two runs differ in, apart from how long they took and when that was."""
    found = [f"left over: {path.relative_to(ours)}" for path in leftovers(ours)]
    names = [{path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()} for run in (ours, theirs)]
    found += [f"only in one: {name}" for name in sorted(names[0] ^ names[1])]
    for name in sorted(names[0] & names[1] - {".lock", "log.txt"}):
        if _content(ours / name) != _content(theirs / name):
            found.append(f"different: {name}")
    return found


def _content(path: Path) -> object:
    """What a file says, without the time it was written or took."""
    if path.name == "model.safetensors" and path.parent.name == "model":  # remarks at its head come in any order
        return {name: (value.shape, value.dtype, _bytes(value)) for name, value in load_file(path).items()}
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.name == "run.json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "seconds"}
    if path.name == "report.html":
        return MOODS.sub("", path.read_text())
    return path.read_bytes()


def _timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "timing"}


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def summary(bench: Bench, trials: list[Trial], seed: int) -> dict[str, Any]:
    """What is worth keeping of it all."""
    kills = [kill for trial in trials for kill in trial.kills]
    phases = {}
    for phase in PHASES:
        hits = [kill for kill in kills if kill.hit == phase]
        phases[phase] = {
            "kills": len(hits),
            "aimed_here": sum(kill.aimed.removeprefix("first ") == phase for kill in hits),
            "with_half_written_files": sum(bool(kill.leftovers) for kill in hits),
            "before_there_was_a_run": sum(kill.then == "started again" for kill in hits),
        }
    return {
        "method": bench.method,
        "seed": seed,
        "steps": STEPS,
        "kills": len(kills),
        "runs": len(trials),
        "runs_with_2_workers": sum(trial.workers == 2 for trial in trials),
        "kills_per_run": dict(sorted(Counter(str(len(trial.kills)) for trial in trials).items())),
        "in_the_first_step": sum(kill.hit == "step" and kill.step == 0 for kill in kills),
        "moments_missed": sum(trial.missed for trial in trials),
        "runs_that_ended_bit_identical": sum(not trial.differences for trial in trials),
        "failures": {f"trial {trial.number}": trial.differences for trial in trials if trial.differences},
        "phases": phases,
        "half_written": dict(Counter(_kind(name) for kill in kills for name in kill.leftovers)),
    }


def _kind(leftover: str) -> str:
    return f"checkpoint{Path(leftover).suffix}" if leftover.startswith("checkpoints/") else "file.part"


def table(told: dict[str, Any]) -> str:
    """The summary for people."""
    head = "| the process was in | kills | of these aimed | half-written files were left | no run yet, started again |"
    rows = [head, "|---|---:|---:|---:|---:|"]
    for phase, row in told["phases"].items():
        rows.append(f"| {phase} | {' | '.join(str(value) for value in row.values())} |")
    rows.append(
        f"\n{told['kills']} kills in {told['runs']} runs; {told['runs_that_ended_bit_identical']} of the runs ended "
        f"bit-identical to the run never killed."
    )
    return "\n".join(rows)


def main() -> int:
    """Run trials until there were enough kills; 1 where any run came out different."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where the runs and a JSON per trial go")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="ftc")
    parser.add_argument("--summary", type=Path, help="also write the summary there")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "FTCSEG_CACHE": str(chosen.out.resolve() / "cache")}
    bench = Bench(chosen.out.resolve(), chosen.method)
    trials: list[Trial] = []
    while sum(len(trial.kills) for trial in trials) < chosen.kills:
        kept = chosen.out / f"trial-{len(trials):03d}.json"
        if kept.exists():
            told = json.loads(kept.read_text())
            trials.append(Trial(**{**told, "kills": [Kill(**kill) for kill in told["kills"]]}))
            continue
        deck = _deck(chosen.seed, sum(len(trial.kills) + trial.missed for trial in trials))
        trial = run_trial(bench, len(trials), chosen.seed, deck)
        kept.write_text(json.dumps(asdict(trial), indent=1))
        trials.append(trial)
        hits = ", ".join(f"{kill.hit} at step {kill.step}" for kill in trial.kills)
        print(f"{trial.number}: {hits}: {'; '.join(trial.differences) or 'same'} ({trial.seconds} s)", flush=True)
    told = summary(bench, trials, chosen.seed)
    text = json.dumps(told, indent=1) + "\n"
    for path in (chosen.out / "summary.json", *([chosen.summary] if chosen.summary else [])):
        path.write_text(text)
    print(f"\n{table(told)}")
    return int(bool(told["failures"]))


if __name__ == "__main__":
    sys.exit(main())
