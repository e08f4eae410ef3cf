"""Does a large set cost more per image than a small one? Doctor, split, an epoch of loading, and predict.

    .venv/bin/python scripts/trials/many_images.py WORK                          (a new folder; up to 100,000 images)
    .venv/bin/python scripts/trials/many_images.py WORK --sizes 100,1000         a try
    .venv/bin/python scripts/trials/many_images.py WORK --keep docs/results/reliability

Sets of small frames are made in WORK, each measured and deleted again. Every command runs as a process of its own and
is watched from outside. The smallest set tells what starting up costs; what the others take beyond it is divided by
their images. WORK/many-images.json has all of it, WORK/many-images.png the picture; --keep copies both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from watching import Cost, run

SIZES = (100, 1_000, 10_000, 100_000)
"""The first is the yardstick for starting up."""
HEIGHT, WIDTH = 32, 48
MASKED, JUDGED = 60, 20
"""Training and test images with masks; all the others have none."""
A_FOLDER = 1000  # images in one folder, as cameras write them
CLASSES = 3
SMALL = (
    "model.encoder=tiny",
    "model.weights=null",
    "model.features=8",
    "data.short_side=32",
    "data.labeled_batch=8",
    "data.unlabeled_batch=8",
    "evaluation.audit=false",
    "threads=1",
)
STAGES = ("doctor", "doctor again", "split", "load an epoch", "predict")


def main() -> None:
    """Measure, tell, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--keep", type=Path, help="where the results are copied to")
    parser.add_argument("--epoch", type=Path, help=argparse.SUPPRESS)  # this script, started by itself: load this split
    asked = parser.parse_args()
    if asked.epoch is not None:
        load_an_epoch(asked.work, asked.epoch)
        return
    sizes = [int(size) for size in asked.sizes.split(",")]
    asked.work.mkdir(parents=True)
    costs = {size: measured(asked.work, size) for size in sizes}
    results = summarise(costs)
    (asked.work / "many-images.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    draw(results, asked.work / "many-images.png")
    print(told(results))
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
        for name in ("many-images.json", "many-images.png"):
            shutil.copy(asked.work / name, asked.keep / name)


# ---------------------------------------------------------------- the sets


def make_set(folder: Path, images: int) -> None:
    """Frames of smooth noise with a bright or a dark disc in them; of the first, where the discs are."""
    rng = np.random.Generator(np.random.PCG64(images))
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for index in range(images):
        part, number = ("test", index) if index < JUDGED else ("train", index - JUDGED)
        name = f"{part}/{number // A_FOLDER:03d}/frame-{number:06d}.png"
        coarse = Image.fromarray(rng.integers(40, 160, (5, 7), dtype=np.uint8))
        frame = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)).astype(np.int16)
        frame += rng.integers(-20, 20, frame.shape, dtype=np.int16)
        kind = 1 + index % (CLASSES - 1)
        center, radius = rng.uniform((6, 6), (HEIGHT - 6, WIDTH - 6)), rng.uniform(4, 9)
        disc = (rows - center[0]) ** 2 + (columns - center[1]) ** 2 < radius**2
        frame[disc] += 70 if kind == 1 else -50
        _write(folder / "images" / name, frame.clip(0, 255).astype(np.uint8))
        if index < JUDGED + MASKED:
            _write(folder / "masks" / name, np.where(disc, np.uint8(kind), np.uint8(0)))


def _write(path: Path, pixels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, compress_level=1)


# ---------------------------------------------------------------- the measurements


def measured(work: Path, size: int) -> dict[str, Cost]:
    """Every stage on a set of this size, which is gone afterwards."""
    frames, out, place = work / f"frames-{size}", work / f"masks-{size}", work / f"split-{size}"
    print(f"{size} images: making them", file=sys.stderr, flush=True)
    make_set(frames, size)
    ftcseg = [sys.executable, "-m", "ftcseg"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FTCSEG_CACHE": str(work / "cache")}
    model = work / "model"
    if not model.exists():
        settings = [word for setting in SMALL for word in ("--set", setting)]
        train = ["train", str(frames), "--labels", "20", "--steps", "2", "--out", str(model), *settings]
        _must(run([*ftcseg, *train], work / "train.txt", environment), work / "train.txt")
    commands = {
        "doctor": [*ftcseg, "doctor", str(frames)],
        "doctor again": [*ftcseg, "doctor", str(frames)],
        "split": [*ftcseg, "split", str(frames), "--labels", "40", "--out", str(place)],
        "load an epoch": [sys.executable, __file__, str(frames), "--epoch", str(place)],
        "predict": [*ftcseg, "predict", str(model), str(frames / "images"), "--out", str(out), "--what", "masks"],
    }
    costs = {}
    for stage, argv in commands.items():
        print(f"{size} images: {stage}", file=sys.stderr, flush=True)
        said = work / f"{size}-{stage.replace(' ', '-')}.txt"
        costs[stage] = _must(run(argv, said, environment), said)
    shutil.rmtree(frames)
    shutil.rmtree(out)
    return costs


def _must(cost: Cost, said: Path) -> Cost:
    if cost.code:
        sys.exit(f"A command ended with code {cost.code}; see {said}.")
    return cost


def load_an_epoch(frames: Path, split: Path) -> None:
    """Every batch of one pass over the unlabelled images, made as training makes them."""
    from ftcseg.config.build import view_params
    from ftcseg.config.load import draft_for
    from ftcseg.config.resolve import resolve
    from ftcseg.data.doctor import examine_set
    from ftcseg.data.split_files import read_split
    from ftcseg.training import facts_for, prepare
    from ftcseg.views.loader import BatchMaker, Stream

    examination, parts = examine_set(frames), read_split(split)
    draft = draft_for("ftc", "cpu", [*SMALL, f"data.split={split}"])
    ready = prepare(resolve(draft, facts_for(examination, parts)), examination, parts)
    data, config = ready.data, ready.config
    views = view_params(config, ready.network.spec)
    maker = BatchMaker(data.labeled, data.unlabeled, ready.method.views, views, config.seed)
    for _, batch in zip(range(maker.epoch_steps), Stream(maker)(0), strict=False):
        assert batch.unlabeled is not None
    print(f"{maker.epoch_steps} batches")


# ---------------------------------------------------------------- the results


def summarise(costs: Mapping[int, Mapping[str, Cost]]) -> dict[str, Any]:
    """What each stage took, whole and per image beyond the smallest set."""
    sizes = sorted(costs)
    rows = [
        {"images": size, "stage": stage, **_rounded(asdict(costs[size][stage])), **_each(costs, size, stage)}
        for stage in STAGES
        for size in sizes
    ]
    return {"frame": [WIDTH, HEIGHT], "masked": MASKED + JUDGED, "rows": rows}


def _each(costs: Mapping[int, Mapping[str, Cost]], size: int, stage: str) -> dict[str, float]:
    base = min(costs)
    if size == base:
        return {}
    ours, theirs, more = costs[size][stage], costs[base][stage], size - base
    return {
        "ms_each": round(1000 * (ours.seconds - theirs.seconds) / more, 3),
        "cpu_ms_each": round(1000 * (ours.cpu_seconds - theirs.cpu_seconds) / more, 3),
        "bytes_each": round((ours.peak_mb - theirs.peak_mb) * 2**20 / more),
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: round(value, 2) for key, value in values.items() if key != "code"}


def told(results: Mapping[str, Any]) -> str:
    """A table in Markdown."""
    lines = [
        "| stage | images | wall, s | processor, s | processor ms an image | peak memory, MB | bytes an image |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results["rows"]:
        each = f"{row['cpu_ms_each']:.2f}" if "cpu_ms_each" in row else "–"
        held = f"{row['bytes_each']:,}" if "bytes_each" in row else "–"
        lines.append(
            f"| {row['stage']} | {row['images']:,} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {each} "
            f"| {row['peak_mb']:.0f} | {held} |"
        )
    return "\n".join(lines)


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Processor time per image, and peak memory, over the number of images."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for stage in STAGES:
        rows = [row for row in results["rows"] if row["stage"] == stage]
        time.plot(*_points(rows, "cpu_ms_each"), "o-", label=stage)
        memory.plot(*_points(rows, "peak_mb"), "o-", label=stage)
    time.set_ylabel("processor time an image, ms")
    memory.set_ylabel("peak memory of a process, MB")
    for axis in (time, memory):
        axis.set_xscale("log")
        axis.set_xlabel("images")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    memory.legend(loc="upper left")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _points(rows: Iterable[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    known = [row for row in rows if key in row]
    return [row["images"] for row in known], [row[key] for row in known]


if __name__ == "__main__":
    main()
