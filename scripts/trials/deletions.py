"""Runs whose folder is deleted at random moments: python scripts/trials/deletions.py [COUNT] [SEED].

Each time the command has to end with exit code 4 and the reason, and nothing may be made again where the folder was.
Needs the tests' small runs, so that a hundred of them take two minutes. Ends with the number of failures.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "e2e"))

from small_runs import Starter, settings, steps_in, wait_for

from ftcseg import api

GONE = 4


def delete_one(starter: Starter, frames: Path, run: Path, moment: random.Random) -> bool:
    """Start a run, delete its folder after one to five steps and a while; whether it ended as it should."""
    options = settings("evaluation.every=0")
    starter.start("train", frames, "--labels", 6, "--steps", 3000, "--out", run, *options)
    steps = moment.randint(1, 5)
    wait_for(lambda: steps_in(run) >= steps)
    time.sleep(moment.random() / 10)
    while run.exists():  # what was being written when the last one came by
        shutil.rmtree(run, ignore_errors=True)
    code = starter.wait()
    left = sorted(str(path.relative_to(run)) for path in run.rglob("*")) if run.exists() else None
    well = code == GONE and "was deleted, moved or replaced" in starter.said and left is None
    if not well:
        print(f"{run.name}: exit code {code}, left in the folder: {left}\n{starter.said[-2000:]}")
    return well


def main(count: int = 100, seed: int = 0) -> int:
    """The number of runs that ended otherwise."""
    moment, failures = random.Random(seed), 0  # noqa: S311  nothing secret
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frames = api.simulate(folder / "sonar", 24, size=(96, 96), classes=4, workers=1)
        starter = Starter(folder)
        for number in range(count):
            failures += not delete_one(starter, frames, folder / f"run-{number}", moment)
        starter.close()
    print(f"{count} deletions, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
