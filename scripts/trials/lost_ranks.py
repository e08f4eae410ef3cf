"""Runs of two processes that lose one of them at random moments: python scripts/trials/lost_ranks.py FOLDER [KILLS].

Each time: what the command says and exits with, after how long; what is left in checkpoints/; whether any process
stays; and whether the run, resumed, ends with the bytes of the run that lost nobody. Ends with the number of failures.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from ftcseg import api

SETTINGS = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "evaluation.every=10",
    "teaching.burn_in=5",
    "save_every=4",
    "log_every=1",
    "threads=1",
    "device=cpu",
    "processes=2",
)
STEPS = 40
LIMIT = 60.0
"""Seconds within which everybody has to be gone."""
FILES = [f"checkpoints/{name}.safetensors" for name in ("last/model", "last/optim", "last/chance", "best/model")]


def command(*words: object) -> list[str]:
    """A call of ftcseg."""
    return [sys.executable, "-m", "ftcseg", "train", *map(str, words)]


def training(frames: Path, run: Path) -> list[str]:
    """The call that starts a run."""
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    return command(frames, "--method", "ftc", "--labels", 6, "--steps", STEPS, "--out", run, *options)


def children_of(process: int) -> list[int]:
    """Its processes; of a run of two without loader processes there is one."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def is_there(process: int) -> bool:
    """Whether it runs or is stopped: a zombie is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lose(frames: Path, run: Path, rank: int, number: int, at: int, pause: float) -> tuple[str, bool]:
    """Start a run, hurt one process `pause` seconds after step `at`, and see everybody out."""
    said = run.with_suffix(".txt")
    with said.open("w") as file:
        main = subprocess.Popen(training(frames, run), stdout=file, stderr=file)  # noqa: S603  our own command
        while f"step {at}/" not in said.read_text():
            time.sleep(0.02)
        (child,) = children_of(main.pid)
        time.sleep(pause)
        hurt, other = (main.pid, child) if rank == 0 else (child, main.pid)
        os.kill(hurt, number)
        began = time.monotonic()
        while time.monotonic() - began < LIMIT and (is_there(other) if rank == 0 else main.poll() is None):
            time.sleep(0.05)
            if rank == 1:
                main.poll()
        seconds = time.monotonic() - began
        if rank == 0 and number == signal.SIGSTOP:
            os.kill(main.pid, signal.SIGCONT)
        main.wait(LIMIT)
    time.sleep(1.0)
    left = [process for process in (main.pid, child) if is_there(process)]
    words = [line for line in said.read_text().splitlines() if line.startswith("ftcseg: ")]
    good = seconds < LIMIT and not left and bool(words) and "Traceback" not in said.read_text()
    good = good and (main.returncode == 5 or (rank == 0 and number == signal.SIGKILL))
    return f"exit code {main.returncode} after {seconds:.1f} s; left: {left}; «{' | '.join(words)}»", good


def main() -> int:
    """Go through all losses; the number of those that went wrong."""
    folder, kills = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    frames = folder / "frames"
    if not frames.exists():
        api.simulate(frames, 24, size=(96, 96), classes=4, workers=1)
    straight = folder / "straight"
    if not (straight / "report.html").exists():
        subprocess.run(training(frames, straight), check=True, capture_output=True)  # noqa: S603  as above
    chance, wrong = random.Random(0), 0  # noqa: S311  no secret
    losses = [(rank, signal.SIGKILL) for _ in range(kills) for rank in (1, 0)]
    losses += [(1, signal.SIGSTOP), (0, signal.SIGSTOP)]
    for turn, (rank, number) in enumerate(losses):
        run, at, pause = folder / f"run{turn}", chance.randrange(1, STEPS - 2), chance.random() * 0.5
        told, good = lose(frames, run, rank, number, at, pause)
        names = sorted(path.name for path in (run / "checkpoints").iterdir())
        done = subprocess.run(command("--resume", run), capture_output=True, text=True, check=False)  # noqa: S603
        same = done.returncode == 0 and all((run / f).read_bytes() == (straight / f).read_bytes() for f in FILES)
        wrong += not (good and same)
        print(f"rank {rank}, {signal.Signals(number).name} {pause:.2f} s after step {at}: {told}", flush=True)
        print(f"    checkpoints {names}; resumed: exit code {done.returncode}, the same bytes: {same}", flush=True)
    print(f"{len(losses)} losses, {wrong} went wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
