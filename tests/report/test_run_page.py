"""The page about runs, drawn from made-up run folders whose scores and audits come from the real counters."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from PIL import Image

from ftcseg.cli.report import report
from ftcseg.data.groups import class_groups
from ftcseg.errors import UsageError
from ftcseg.evaluate.confusion import Confusion
from ftcseg.evaluate.metrics import scores
from ftcseg.evaluate.pseudo_quality import PseudoQuality
from ftcseg.report.charts import short, thinned, ticks
from ftcseg.report.pictures import class_colors, file_url, overlay
from ftcseg.report.run_files import number, read_run, read_runs
from ftcseg.report.run_page import MAX_PICTURES, PICTURE_LIMIT, run_page
from ftcseg.report.verdict import verdict
from ftcseg.types import ClassTable

NAMES = ("background", "wall", "tire", "bottle", "chain", "propeller", "can", "hook", "drink carton", "valve")
PIXELS = (9_000_000, 610_000, 350_000, 190_000, 120_000, 84_000, 47_000, 21_000, 12_000, 5_400)
HASH = "5f1c0e7d9a3b42668c51d0aa70f3e9b14d2c86f7"
STEPS, EVERY = 4000, 250


@dataclass(frozen=True)
class Fake:
    """How good a made-up run is: the recall of head classes, and what the rarest class loses to it."""

    method: str = "ftc"
    head: float = 0.86
    drop: float = 0.5
    names: tuple[str, ...] = NAMES
    digest: str = HASH
    seed: int = 0

    @property
    def classes(self) -> ClassTable:
        return ClassTable.named(*self.names)

    @property
    def groups(self) -> dict[int, Any]:
        return class_groups(self.classes, dict(enumerate(PIXELS)))

    def recall(self, class_id: int, progress: float = 1.0) -> float:
        if class_id == 0:
            return 0.97
        rarity = class_id / (len(self.names) - 1)
        return (self.head - self.drop * rarity) * (1 - float(np.exp(-progress * (7 - 4 * rarity))))


def counts_of(fake: Fake, progress: float = 1.0) -> torch.Tensor:
    """A confusion matrix: what is missed is mostly called background, the rest the next two classes."""
    size = len(fake.names)
    matrix = torch.zeros(size, size, dtype=torch.int64)
    for c in range(size):
        hit = int(PIXELS[c] * fake.recall(c, progress))
        missed = PIXELS[c] - hit
        matrix[c, c] = hit
        matrix[c, 0] += int(missed * 0.6) * (c > 0)
        matrix[c, c % (size - 1) + 1] += int(missed * (0.02 if c == 0 else 0.25))
        matrix[c, (c + 3) % (size - 1) + 1] += int(missed * (0.01 if c == 0 else 0.15))
    return matrix


def scores_of(fake: Fake, progress: float = 1.0) -> dict[str, object]:
    confusion = Confusion(len(fake.names))
    confusion.counts = counts_of(fake, progress)
    return scores(confusion, fake.classes, fake.groups).as_json()


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_logs(folder: Path, fake: Fake) -> None:
    rng = np.random.default_rng(fake.seed)
    metrics: list[dict[str, Any]] = []
    pseudo: list[dict[str, Any]] = []
    for step in range(10, STEPS + 1, 10):
        done = step / STEPS
        losses = {"sup": 0.15 + 1.4 * np.exp(-6 * done) + 0.04 * rng.standard_normal()}
        if fake.method != "supervised":
            losses |= {"unsup": 0.09 + 0.2 * done * np.exp(-3 * done) + 0.02 * rng.standard_normal(), "ortho": 0.01}
        kept = 0.55 + 0.38 * (1 - np.exp(-4 * done)) if fake.method != "supervised" else None
        timing = {"seconds": 0.4 * step, "images_per_second": 19.4 + rng.standard_normal(), "resident_mb": 1480 + done}
        rates = {"encoder": 2e-4 * (1 - done) ** 0.9, "head": 2e-3 * (1 - done) ** 0.9}
        line = {"step": step, "kind": "train", "losses": losses, "lr": rates, "gradient_norm": 1.1, "kept": kept}
        metrics.append({**line, "skipped": 0, "timing": timing})
        if step % EVERY == 0:
            judged = {"teacher": scores_of(fake, done), "student": scores_of(fake, done * 0.9)}
            metrics.append({"step": step, "kind": "scores", "scores": judged, "timing": {"seconds": 9.1}})
        if step % 40 == 0:
            pseudo.append(pseudo_line(fake, step, done, rng))
    write_lines(folder / "metrics.jsonl", metrics)
    if fake.method != "supervised":
        write_lines(folder / "pseudo.jsonl", pseudo)


def pseudo_line(fake: Fake, step: int, done: float, rng: np.random.Generator) -> dict[str, Any]:
    known = np.array([fake.recall(c, done) for c in range(len(fake.names))])
    bias = 0.4 * np.exp(-5 * done) * rng.standard_normal(len(known))
    tau = (
        np.full(len(known), 0.95)
        if fake.method == "fixmatch"
        else np.clip(0.95 - 0.1 * (1 - known) + 0.05 * bias, 0.5, 0.98)
    )
    seen = (np.array(PIXELS[: len(known)]) / 100 * rng.uniform(0.6, 1.4, len(known))).astype(int)
    seen[-1] = 0 if step < 800 else seen[-1]  # the rarest class is not predicted at first
    share = np.clip(known * 0.9 + (0.95 - tau) * 2 + 0.03 * rng.standard_normal(len(known)), 0, 1)
    facts: dict[str, Any] = {"tau": tau.tolist(), "m_diff": (1 - known).tolist(), "m_bias": bias.tolist()}
    facts["tau_clamped"] = (tau >= 0.98).tolist()
    if fake.method == "ftc":
        facts["open_gates"] = [int(4 + 8 * done), int(2 + 11 * done)]
        facts |= {"change": [0.01 + 0.05 * done, 0.02 + 0.09 * done], "overlap": [0.4 * np.exp(-3 * done), 0.1]}
    kept = (seen * share).astype(int).tolist()
    return {"step": step, "seen": seen.tolist(), "kept": kept, "conf": (0.5 + known / 2).tolist(), "facts": facts}


def write_pictures(folder: Path, fake: Fake, count: int = 6) -> None:
    """Fans of speckle with a few objects; the prediction misses what the run's recall misses."""
    (folder / "pictures").mkdir()
    colors = class_colors([c.background for c in fake.classes])
    rows, columns = np.mgrid[0:160, 0:240]
    inside = np.hypot(rows - 175, columns - 120) < 165
    entries = []
    for i in range(count):
        rng = np.random.default_rng(100 + i)
        truth = np.zeros((160, 240), np.int16)
        frame = 40 + 30 * np.sin(columns / 40 + i) * inside
        said = truth.copy()
        for c in rng.choice(np.arange(1, len(fake.names)), 3, replace=False):
            y, x, wide = rng.integers(40, 125), rng.integers(60, 180), rng.integers(8, 20)
            blob = ((rows - y) / wide) ** 2 + ((columns - x) / (1.6 * wide)) ** 2 < 1
            frame = frame + 120 * blob
            truth[blob] = c
            if rng.uniform() < fake.recall(int(c)):
                said[np.roll(blob, 2, axis=1)] = c
        noisy = np.clip(frame * rng.gamma(4, 0.25, frame.shape) * inside, 0, 255).astype(np.uint8)
        picture: NDArray[np.uint8] = np.repeat(noisy[:, :, None], 3, axis=2)
        kept = np.where(rng.uniform(size=said.shape) < 0.7, said, -1).astype(np.int16)
        shown = {"input": picture} | {
            k: overlay(picture, m, colors, {0}) for k, m in (("truth", truth), ("prediction", said))
        }
        if fake.method != "supervised":
            shown["kept"] = overlay(picture, kept, colors, {0})
        for kind, image in shown.items():
            Image.fromarray(image).save(folder / "pictures" / f"{i}-{kind}.png")
        entries.append({"id": f"mission-4/frame_{i:05d}.png"} | {kind: f"{i}-{kind}.png" for kind in shown})
    (folder / "pictures" / "index.json").write_text(json.dumps(entries))


def settings_of(fake: Fake) -> dict[str, Any]:
    config = {
        "method": fake.method,
        "encoder": "efficientnet-lite0",
        "data": {"dataset": "flsmd", "labels": "2%", "short_side": 160, "batch": [4, 4]},
        "optim": {"lr": 0.002, "weight_decay": 0.01, "steps": STEPS},
        "teaching": {"ema": 0.996, "burn_in": 200},
        "thresholds": {"rule": "atc" if fake.method == "ftc" else "fixed", "tau0": 0.95},
        "seed": fake.seed,
    }
    why = {
        "encoder": "No GPU was found: the preset for two cores.",
        "teaching.ema": "0.999 of the paper, scaled to 4,000 steps.",
        "thresholds.tau0": "The paper names it in one appendix caption only (reading B1).",
    }
    return {"config": config, "why": why}


def fake_run(folder: Path, fake: Fake = Fake(), *, pictures: bool = True) -> Path:  # noqa: B008 - frozen
    """A whole run folder."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings_of(fake), sort_keys=False))
    classes = [{"id": i, "name": n, "images": 30 - 2 * i, "pixels": PIXELS[i] // 50} for i, n in enumerate(fake.names)]
    images = {"labeled": 30, "unlabeled": 1447, "left_out": 0, "val": 391}
    split = {"dataset": "flsmd", "hash": fake.digest, "seed": 0, "images": images, "classes": classes}
    (folder / "split.json").write_text(json.dumps(split))
    both = {"teacher": scores_of(fake), "student": scores_of(fake, 0.8)}
    results = {
        "dataset": "flsmd", "part": "val", "images": 391, "best_step": 3500, "chosen_by": "mIoU on val",
        "checkpoints": {"last": both, "best": {"teacher": scores_of(fake, 1.2), "student": scores_of(fake, 0.9)}},
        "confusion": counts_of(fake).tolist(), "classes": list(fake.names),
        "groups": [fake.groups[i] for i in range(len(fake.names))],
    }  # fmt: skip
    (folder / "scores.json").write_text(json.dumps(results))
    about = {
        "method": fake.method, "title": fake.method, "seconds": 1712.4, "steps": STEPS, "version": "0.1.0",
        "torch": "2.13.0", "machine": "2 cores, Linux, no GPU", "status": "done",
        "command": ["ftcseg", "train", "flsmd", "--method", fake.method, "--labels", "2%", "--seed", str(fake.seed)],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about))
    write_logs(folder, fake)
    if fake.method != "supervised":
        quality = PseudoQuality(len(fake.names))
        everything = counts_of(fake)
        quality.counts = torch.stack([everything, (everything * (0.4 + 0.5 * torch.eye(len(everything)))).long()])
        (folder / "audit.json").write_text(json.dumps(quality.as_json(fake.classes, fake.groups)))
    if pictures:
        write_pictures(folder, fake)
    return folder
