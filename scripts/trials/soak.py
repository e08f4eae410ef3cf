"""Train for 20,000 steps on the simulated set while somebody watches: is anything growing?

    .venv/bin/python scripts/trials/soak.py WORK                    (a new folder; about 20 to 30 minutes of one core)
    .venv/bin/python scripts/trials/soak.py WORK --steps 300        a try
    .venv/bin/python scripts/trials/soak.py WORK --look             what is known so far, while it runs or afterwards

The run is what a user would start, `ftcseg train`, with a loader process, evaluations and checkpoints. It is looked at
from outside, through /proc: memory, open files, threads and processor time of the process and its children, and the
size of the run folder. WORK/soak.jsonl has a line for every look. At the end, and with --look, WORK/soak.json holds the
summary and a thinned series, and WORK/soak.png the picture; --keep FOLDER puts both there as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from watching import folder_mb, look, slope

STEPS = 20_000
BLOCKS = 20
"""The run in this many equal pieces, each with one evaluation: what is averaged before anything is compared."""
SETTINGS = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=16",
    "data.short_side=32",
    "data.labeled_batch=2",
    "data.unlabeled_batch=2",
    "data.workers=1",
    "teaching.burn_in=0",  # pseudo-labels from the first step on, so that all steps do the same work
    "teaching.ramp=0",
    "threads=1",
)
IMAGES = 240  # as many as the demo's
EVERY = 2.0  # seconds between two looks, at least
POLL = 0.1  # seconds until a new line is noticed
POINTS = 240  # of the series that is kept
ALLOWED = {"memory_mb": 8.0, "files": 1.0, "threads": 1.0, "cpu_ms": 0.03}
"""Growth over the whole run that still counts as none. Processor time: as a share; a core's speed depends on its
neighbours by more than that."""


def main() -> None:
    """Run, or summarise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--look", action="store_true", help="only summarise what is there")
    parser.add_argument("--keep", type=Path, help="where soak.json and soak.png are copied to")
    asked = parser.parse_args()
    if not asked.look:
        soak(asked.work, asked.steps)
    summary = summarise(asked.work)
    (asked.work / "soak.json").write_text(json.dumps(summary, separators=(",", ":")), encoding="utf-8")
    draw(summary, asked.work / "soak.png")
    print(told(summary))
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
        for name in ("soak.json", "soak.png"):
            shutil.copy(asked.work / name, asked.keep / name)


def command(work: Path, steps: int) -> list[str]:
    """The run, as a user would type it."""
    intervals = (f"evaluation.every={steps // BLOCKS}", f"save_every={max(1, steps // 40)}")
    settings = (*SETTINGS, *intervals, f"log_every={max(1, steps // 1000)}")
    base = [sys.executable, "-m", "ftcseg", "train", str(work / "sonar"), "--method", "ftc", "--labels", "10%"]
    more = [word for setting in settings for word in ("--set", setting)]
    return [*base, "--steps", str(steps), "--out", str(work / "run"), *more]


def soak(work: Path, steps: int) -> None:
    """Start the run and write down what it holds until it ends."""
    work.mkdir(parents=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FTCSEG_CACHE": str(work / "cache")}
    make = [sys.executable, "-m", "ftcseg", "simulate", str(work / "sonar"), "--images", str(IMAGES)]
    subprocess.run(make, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603
    with (work / "said.txt").open("w") as said, (work / "soak.jsonl").open("w", encoding="utf-8") as out:
        argv = command(work, steps)
        said_as = " ".join(argv[3:]).replace(str(work), "WORK")  # the record is published: no paths of a machine
        out.write(json.dumps({"steps": steps, "command": said_as}) + "\n")
        process = subprocess.Popen(argv, env=environment, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603
        watch(process, work / "run", out)
    if process.returncode:
        sys.exit(f"The run ended with code {process.returncode}; see {work / 'said.txt'}.")


def watch(process: subprocess.Popen[bytes], run: Path, out: Any) -> None:
    """One line per look, just after the run has written one of its own, so that step and time belong together."""
    metrics, seen, last = run / "metrics.jsonl", 0, 0.0
    while process.poll() is None:
        size = metrics.stat().st_size if metrics.exists() else 0
        now = time.monotonic()
        if size > seen and now - last >= EVERY:
            found = look(process.pid)
            if found is not None:
                line = {"at": round(now, 3), "step": last_step(metrics), **asdict(found), "folder_mb": folder_mb(run)}
                out.write(json.dumps(line) + "\n")
                out.flush()
            seen, last = size, now
        time.sleep(POLL)


def last_step(metrics: Path) -> int:
    """The step of the last whole line."""
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 2**16))
        lines = file.read().split(b"\n")
    return int(json.loads(lines[-2])["step"])


def summarise(work: Path) -> dict[str, Any]:
    """First tenth against last, the slope from the second block on, and a thinned series."""
    lines = [json.loads(line) for line in (work / "soak.jsonl").read_text(encoding="utf-8").splitlines()]
    head, looks = lines[0], [line for line in lines[1:] if 0 < line["step"] < lines[0]["steps"]]  # no scoring
    if len(looks) < 3:
        sys.exit("Too little was seen yet; wait a while, or take more steps.")
    series = {key: np.array([one[key] for one in looks], dtype=np.float64) for key in looks[0]}
    series["memory_mb"] = series["resident_mb"] + series["children_mb"]
    blocks = by_block(series, head["steps"], walls(work / "run" / "metrics.jsonl", head["steps"]))
    summary: dict[str, Any] = {"command": head["command"], "steps": head["steps"], "reached": int(series["step"][-1])}
    summary["hours"] = round(float(series["at"][-1] - series["at"][0]) / 3600, 3)
    summary["looks"] = len(looks)
    summary["measures"] = {key: compared(blocks["step"], blocks[key]) for key in SHOWN if key in blocks}
    summary["blocks"] = {key: [round(float(value), 3) for value in values] for key, values in blocks.items()}
    thin = np.unique(np.linspace(0, len(looks) - 1, min(POINTS, len(looks))).round().astype(int))
    kept = ("step", "resident_mb", "children_mb", "files", "threads", "folder_mb")
    summary["series"] = {key: [round(float(value), 2) for value in series[key][thin]] for key in kept}
    return summary


SHOWN = ("memory_mb", "resident_mb", "children_mb", "files", "threads", "cpu_ms", "wall_ms", "folder_mb")


def by_block(
    series: dict[str, NDArray[np.float64]], steps: int, wall: dict[int, float]
) -> dict[str, NDArray[np.float64]]:
    """The mean of every measure in each whole block of the run, and time per step over the block."""
    size = steps / BLOCKS
    number = np.minimum((series["step"] - 1) // size, BLOCKS - 1).astype(int)
    reached = int(series["step"][-1] / size + 0.05)  # the very last look is seldom at the very last step
    whole = [block for block in range(reached) if block in wall and np.any(number == block)]
    held = ("memory_mb", "resident_mb", "children_mb", "files", "threads", "folder_mb")
    found = {key: np.array([series[key][number == block].mean() for block in whole]) for key in held}
    edges = np.interp([[block * size, (block + 1) * size] for block in whole], series["step"], series["cpu_seconds"])
    first = series["step"][0]  # processor time before it was for starting up
    counted = np.array([(block + 1) * size - max(first, block * size) for block in whole])
    return {
        "step": np.array([(block + 0.5) * size for block in whole]),
        **found,
        "cpu_ms": 1000 * (edges[:, 1] - edges[:, 0]) / counted,
        "wall_ms": np.array([wall[block] for block in whole]),
    }


def walls(metrics: Path, steps: int) -> dict[int, float]:
    """Median time of a step in each block, by the run's own clock; lines that an evaluation precedes are out."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    spent: dict[int, list[float]] = {}
    for before, line in itertools.pairwise(lines):
        if before["kind"] == line["kind"] == "train":
            block = int((line["step"] - 1) // (steps / BLOCKS))
            passed = line["timing"]["seconds"] - before["timing"]["seconds"]
            spent.setdefault(block, []).append(1000 * passed / (line["step"] - before["step"]))
    return {block: float(np.median(values)) for block, values in spent.items()}


def compared(step: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, Any]:
    """The first tenth, the last, and the rise over the run; the line leaves out the first block, which warms up."""
    if len(values) < 5:
        return {"first": round(float(values[0]), 3), "last": round(float(values[-1]), 3)}
    line = slope(step[1:], values[1:])
    rise = {name: round(getattr(line, name), 3) for name in ("rise", "low", "high")}
    return {"first": round(float(values[:2].mean()), 3), "last": round(float(values[-2:].mean()), 3), **rise}


def told(summary: dict[str, Any]) -> str:
    """A table for people."""
    lines = [f"{summary['reached']} of {summary['steps']} steps, {summary['looks']} looks, {summary['hours']} h"]
    lines.append(f"{'':14}{'first tenth':>12}{'last tenth':>12}{'rise':>10}   95 % interval      verdict")
    for key, one in summary["measures"].items():
        if "rise" not in one:
            continue
        allowed = ALLOWED.get(key, 0.0) * (one["first"] if key == "cpu_ms" else 1)
        verdict = "" if key not in ALLOWED else judged(one, allowed)
        span = f"{one['low']:+.2f} .. {one['high']:+.2f}"
        lines.append(f"{key:14}{one['first']:>12.2f}{one['last']:>12.2f}{one['rise']:>+10.2f}   {span:18} {verdict}")
    return "\n".join(lines)


def judged(one: dict[str, Any], allowed: float) -> str:
    """Level only where the whole interval is: a series that is too noisy proves nothing."""
    if one["high"] <= allowed:
        return "level"
    return f"grows by more than {allowed:.2g}" if one["low"] > allowed else "too noisy to say"


def draw(summary: dict[str, Any], path: Path) -> None:
    """Memory, open files, and time per step, over the steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    series, blocks = summary["series"], summary["blocks"]
    figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    axes[0].plot(series["step"], series["resident_mb"], label="training process")
    axes[0].plot(series["step"], series["children_mb"], label="loader process")
    axes[0].set_ylabel("resident memory, MB")
    axes[1].plot(series["step"], series["files"], label="open files")
    axes[1].plot(series["step"], series["threads"], label="threads")
    axes[1].set_ylabel("count")
    axes[2].plot(blocks["step"], blocks["cpu_ms"], "o-", label="processor time, evaluations included")
    axes[2].plot(blocks["step"], blocks["wall_ms"], ".:", label="wall clock, median")
    axes[2].set_ylabel("ms a step")
    axes[2].set_xlabel("step")
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(loc="best")
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
