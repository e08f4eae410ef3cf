"""The page about runs, drawn from made-up run folders whose scores and audits come from the real counters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def scored(folder: Path, method: str, miou: float | None, tail: float | None = None, **more: Any) -> Path:
    """The least there can be to judge: a method, a split and the last checkpoint's scores."""
    folder.mkdir()
    judged = {"miou": miou, "groups": {"tail": tail}, "classes": []}
    (folder / "config.yaml").write_text(yaml.safe_dump({"config": {"method": method}}))
    if more.get("digest", HASH) is not None:
        (folder / "split.json").write_text(json.dumps({"hash": more.get("digest", HASH)}))
    facts = {"dataset": "flsmd", "part": more.get("part", "val"), "images": 391}
    (folder / "scores.json").write_text(json.dumps({**facts, "checkpoints": {"last": {"teacher": judged}}}))
    (folder / "run.json").write_text(json.dumps({"method": method, "status": more.get("status", "done")}))
    return folder


def said(*folders: Path) -> str:
    return verdict(read_runs(folders))


@pytest.fixture(scope="module")
def ftc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_run(tmp_path_factory.mktemp("runs") / "ftc")


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_run(tmp_path_factory.mktemp("runs") / "supervised", Fake("supervised", head=0.84, drop=0.66))


@pytest.fixture(scope="module")
def both(ftc: Path, supervised: Path) -> str:
    """The page of the two."""
    return run_page([ftc, supervised])


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_unlabelled_data_that_helped(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412, 0.25), scored(tmp_path / "b", "supervised", 0.380, 0.205)
    sentence = "Unlabelled data helped by 3.2 mIoU (+4.5 on tail classes): ftc 41.2 against 38.0 labelled only."
    assert said(*runs) == said(*reversed(runs)) == sentence


def test_unlabelled_data_that_hurt(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.361, 0.25), scored(tmp_path / "b", "supervised", 0.380, 0.205)
    sentence = "Unlabelled data hurt by 1.9 mIoU (+4.5 on tail classes): ftc 36.1 against 38.0 labelled only."
    assert said(*runs) == f"{sentence} One run each: a difference this small may be chance."


@pytest.mark.parametrize(("miou", "cautious"), [(0.3995, False), (0.3994, True), (0.3606, True), (0.36, False)])
def test_what_seeds_alone_may_do_is_called_chance(tmp_path: Path, miou: float, cautious: bool) -> None:
    runs = scored(tmp_path / "a", "ftc", miou), scored(tmp_path / "b", "supervised", 0.38)
    assert ("may be chance" in said(*runs)) == cautious  # from two points on, either way, as they are shown


def test_unlabelled_data_that_did_nothing_one_can_see(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.38004), scored(tmp_path / "b", "supervised", 0.38)
    assert said(*runs) == (
        "Unlabelled data did not help: ftc 38.0 against 38.0 labelled only. "
        "One run each: a difference this small may be chance."
    )


def test_differences_are_those_of_the_numbers_shown(tmp_path: Path) -> None:
    # 41.26 - 38.04 is 3.22, but the page shows 41.3 and 38.0.
    runs = scored(tmp_path / "a", "ftc", 0.4126), scored(tmp_path / "b", "supervised", 0.3804)
    assert said(*runs) == "Unlabelled data helped by 3.3 mIoU: ftc 41.3 against 38.0 labelled only."


@pytest.mark.parametrize(("ours", "theirs", "is_said"), [(2, 0, True), (0, 2, True), (1, 1, False), (2, None, False)])
def test_networks_that_differ_in_opr_are_told(tmp_path: Path, ours: int, theirs: int | None, is_said: bool) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412), scored(tmp_path / "b", "supervised", 0.38)
    for run, method, layers in zip(runs, ("ftc", "supervised"), (ours, theirs), strict=True):
        opr = {} if layers is None else {"opr": {"layers": layers}}  # unknown is no difference
        (run / "config.yaml").write_text(yaml.safe_dump({"config": {"method": method, **opr}}))
    helped = "Unlabelled data helped by 3.2 mIoU: ftc 41.2 against 38.0 labelled only."
    also = " The two networks also differ in OPR, so not all of it need come from the unlabelled images."
    assert said(*runs) == said(*reversed(runs)) == helped + (also if is_said else "")


def test_other_methods_stand_beside_the_first(tmp_path: Path) -> None:
    pairs = (("fixmatch", 0.37), ("ftc", 0.412), ("supervised", 0.38), ("freematch", 0.4))
    runs = [scored(tmp_path / name, name, miou) for name, miou in pairs]
    assert said(*runs).endswith("38.0 labelled only. Beside it freematch 40.0 (+2.0), fixmatch 37.0 (−1.0).")


def test_other_splits_are_not_compared(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412), scored(tmp_path / "b", "supervised", 0.38, digest="0badcafe99")
    sentence = (
        "These runs cannot be compared: they learned from different splits (ftc on 5f1c0e7d, supervised on 0badcafe)."
    )
    assert said(*runs) == sentence
    assert "helped" not in run_page(runs)


def test_other_images_are_not_compared(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412), scored(tmp_path / "b", "supervised", 0.38, part="test")
    assert said(*runs) == (
        "These runs cannot be compared: they were judged on different images "
        "(ftc on 391 val images of flsmd, supervised on 391 test images of flsmd)."
    )


def test_without_a_split_nobody_knows(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412, digest=None), scored(tmp_path / "b", "supervised", 0.38)
    assert said(*runs) == "Whether these runs can be compared is unknown: ftc without a split.json."


def test_without_labelled_only_there_is_nothing_to_say_about_unlabelled_data(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "fixmatch", 0.39), scored(tmp_path / "b", "ftc", 0.41, 0.2)
    assert said(*runs) == (
        "mIoU: ftc 41.0 (tail 20.0), fixmatch 39.0. None of them learned from labels only, "
        "so that what unlabelled data did cannot be said."
    )


def test_one_run_tells_its_last_and_its_best(ftc: Path) -> None:
    run = read_run(ftc)
    assert re.fullmatch(
        r"ftc reached \d\d\.\d mIoU \(head \d\d\.\d, middle \d\d\.\d, tail \d\d\.\d\) with its last checkpoint, "
        r"\d\d\.\d with its best \(step 3500, chosen by mIoU on val\)\.",
        verdict([run]),
    )


def test_a_run_without_scores_says_so(tmp_path: Path) -> None:
    run, other = scored(tmp_path / "a", "ftc", None), scored(tmp_path / "b", "supervised", None)
    assert said(run) == "ftc has no final score yet."
    write_lines(run / "metrics.jsonl", [{"step": 20, "scores": {"teacher": {"miou": 0.31}, "student": {"miou": 0.2}}}])
    assert said(run) == "ftc has no final score yet; its log has 31.0 mIoU at step 20."
    assert said(run, other) == "None of these runs has a final score yet; the log of ftc has 31.0 mIoU at step 20."


def test_a_stopped_run_is_not_final(tmp_path: Path) -> None:
    runs = scored(tmp_path / "a", "ftc", 0.412, status="stopped"), scored(tmp_path / "b", "supervised", 0.38)
    assert said(*runs).endswith("ftc is not finished (stopped), so that its numbers may still change.")


def test_runs_of_one_method_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [scored(tmp_path / name, "ftc", 0.4) for name in ("seed0", "seed1")]
    assert [run.name for run in read_runs([*runs, runs[1]])] == ["ftc (seed0)", "ftc (seed1) #2", "ftc (seed1) #3"]


def test_the_page_holds_everything_in_order(both: str) -> None:
    heads = re.findall("<h2>(.*?)</h2>", both)
    assert heads == [
        "Pictures", "IoU of each class", "Over time", "What the pseudo-labels were worth", "Prototypes (OPR)",
        "What is taken for what", "Settings", "To do it again",
    ]  # fmt: skip
    assert both.index("Unlabelled data helped by") < both.index("<h2>Pictures")
    text = Tags(both).text
    for told in (
        "Threshold of each class",
        "drink carton",
        "reading B1",
        "ftcseg train flsmd --method ftc",
        HASH,
        "2.13.0",
    ):
        assert told in text


def test_the_page_is_alone_in_the_world(both: str) -> None:
    assert "http" not in both.replace("http-equiv", "")
    tags = Tags(both).found
    assert not {"script", "link", "iframe", "object", "form", "a"} & {tag for tag, _ in tags}
    assert all((a["src"] or "").startswith("data:image/") for tag, a in tags if tag == "img")
    (policy,) = [a["content"] or "" for _, a in tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not [tag for tag, a in tags if "style" in a]  # it would not be followed


def test_every_chart_is_well_formed_and_speaks(both: str) -> None:
    from xml.etree import ElementTree

    drawn = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", both)]
    charts = [svg for svg in drawn if "chart" in svg.attrib["class"]]
    assert len(charts) >= 4 + 2 + 2 * len(NAMES)  # bars per group, mIoU and tail, two panels a class
    assert all(svg.attrib["aria-label"] and svg.attrib["viewBox"] for svg in charts)


def test_what_comes_from_data_stays_text(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
    run = fake_run(tmp_path / "a&b <i>", Fake(names=(*NAMES[:5], evil, *NAMES[6:])))
    for name in ("run.json", "scores.json", "split.json", "pictures/index.json"):
        facts = json.loads((run / name).read_text())
        target = facts if isinstance(facts, dict) else facts[0]
        target |= dict.fromkeys(
            ("title", "dataset", "chosen_by", "machine", "hash", "id", "part", "status", "command"), evil
        )
        (run / name).write_text(json.dumps(facts))
    (run / "config.yaml").write_text(yaml.safe_dump({"config": {evil: evil}, "why": {evil: evil}}))
    for line_file in ("metrics.jsonl", "pseudo.jsonl"):
        with (run / line_file).open("a") as file:
            file.write(
                json.dumps({"step": 9999, "losses": {evil: 1.0}, "lr": {evil: 1.0}, "facts": {"tau": [evil]}}) + "\n"
            )
    page = run_page([run, run])
    tags = Tags(page).found
    assert "<script" not in page
    assert evil in Tags(page).text
    assert all((a["src"] or "").startswith("data:") for tag, a in tags if tag == "img")
    assert not [a for _, attributes in tags for a in attributes if a.startswith("on")]


def test_nothing_known_is_written_as_not_available(tmp_path: Path) -> None:
    run = fake_run(tmp_path / "holes", pictures=False)
    results = json.loads((run / "scores.json").read_text())
    last = results["checkpoints"]["last"]["teacher"]
    last["classes"][3]["iou"], last["classes"][4]["iou"], last["groups"]["tail"] = None, float("nan"), float("inf")
    results["confusion"][2] = [0] * len(NAMES)
    (run / "scores.json").write_text(json.dumps(results))
    page = run_page([run])
    assert page.count('<td class="zero">n/a</td>') == len(NAMES)  # a class without pixels is mixed up with nothing
    assert page.count(">n/a</text>") == 2  # bars
    assert not re.search(r"\b(nan|inf|None)\b", Tags(page).text)
    score = read_run(run).last
    assert score is not None
    assert (score.ious[3], score.ious[4], score.groups["tail"]) == (None, None, None)


def test_what_is_not_a_number_is_none() -> None:
    assert [number(v) for v in (1, 2.5, "3", None, True, float("nan"), float("inf"), 10**400)] == [1, 2.5, *[None] * 6]


@pytest.mark.parametrize("kept", ["config.yaml", "scores.json"])
def test_almost_everything_may_be_missing(tmp_path: Path, ftc: Path, kept: str) -> None:
    (tmp_path / kept).write_text((ftc / kept).read_text())
    text = Tags(run_page([tmp_path])).text
    assert text.count("it would show") == 7  # eight files, one of them there
    assert "No audit.json: it would show what the pseudo-labels were worth; «ftcseg audit RUN» writes it." in text


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"checkpoints": [1], "classes": 3, "confusion": {"a": 1}}', "7"]
)
@pytest.mark.parametrize("name", ["scores.json", "audit.json", "run.json", "split.json", "pictures/index.json"])
def test_a_broken_file_breaks_no_page(tmp_path: Path, name: str, text: str) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    (run / "pictures").mkdir()
    (run / name).write_text(text)
    assert "</html>" in run_page([run])


def test_labels_only_miss_no_pseudo_labels(supervised: Path) -> None:
    assert read_run(supervised).problems == ()


def test_steps_are_sorted_and_the_last_word_counts(tmp_path: Path) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    lines = [
        {"step": 30, "lr": 3},
        {"step": 10, "lr": 1},
        {"step": 20, "lr": 9},
        {"step": 20, "lr": 2},
        {"step": 20, "scores": {}},
    ]
    write_lines(run / "metrics.jsonl", lines)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "lr"')  # the power failed here
    read = read_run(run)
    assert [(e["step"], e["lr"]) for e in read.log if "lr" in e] == [(10, 1), (20, 2), (30, 3)]
    assert "metrics.jsonl: 1 of its lines could not be read and are left out." in read.problems


def test_skipped_steps_are_told(tmp_path: Path) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    write_lines(run / "metrics.jsonl", [{"step": s, "kind": "skipped", "what": "loss"} for s in (4, 5)])
    assert "2 steps were skipped because something in them was not finite." in read_run(run).problems


def test_a_folder_that_is_no_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^\S+ is no run: it holds neither config\.yaml nor scores\.json\."):
        run_page([tmp_path])
    with pytest.raises(UsageError, match="at least one run"):
        run_page([])
    with pytest.raises(UsageError, match="at most 8 runs"):
        run_page([tmp_path] * 9)


def test_pictures_are_few_and_small(tmp_path: Path, ftc: Path) -> None:
    loud = fake_run(tmp_path / "loud", pictures=False)
    (loud / "pictures").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(loud / "pictures" / "n.png")
    entries = [
        {"id": str(i), "input": "n.png", "truth": "n.png", "prediction": "n.png", "kept": "n.png"} for i in range(9)
    ]
    (loud / "pictures" / "index.json").write_text(json.dumps(entries))
    sources = [a["src"] or "" for tag, a in Tags(run_page([loud, ftc])).found if tag == "img"]
    assert 0 < len(sources) <= MAX_PICTURES
    assert max(map(len, sources)) <= PICTURE_LIMIT
    assert len(file_url(loud / "pictures" / "n.png", 320, 2000)) <= 2000


def test_a_picture_from_elsewhere_is_not_shown(tmp_path: Path) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    (run / "pictures").mkdir()
    (run / "pictures" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    entry = {"id": "a", "input": "../../secret.png", "truth": "torn.png", "prediction": "missing.png", "kept": 3}
    (run / "pictures" / "index.json").write_text(json.dumps([entry]))
    page = run_page([run])
    assert "<img" not in page
    assert (page.count(">unreadable<"), page.count(">no picture<")) == (3, 1)


def test_axes_have_round_numbers_around_the_data() -> None:
    assert ticks(0, 4000, 5) == [0, 1000, 2000, 3000, 4000]
    assert ticks(0.12, 0.41, 4) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert ticks(3, 3, 3) == pytest.approx([2.6, 2.8, 3.0, 3.2, 3.4])  # a flat line gets some room
    # Round numbers stay exact however small they are,
    assert ticks(0, 4e-13, 4) == [0, 1e-13, 2e-13, 3e-13, 4e-13]
    assert ticks(0, 5e-320, 5)[-1] > ticks(0, 5e-320, 5)[0]
    # and a line that is flat but for rounding gets the room of a flat one: a tenth of 1 on either side.
    assert ticks(1, 1 + 4e-16, 2) == ticks(1, 1, 2) == [0.9, 1.0, 1.1]
    assert [short(n) for n in (0, 500, 1500, 20_000, 1_200_000)] == ["0", "500", "1.5k", "20k", "1.2M"]


@pytest.mark.parametrize(
    "losses",
    [(1e-13, 3e-14), (2e-13, 2e-13), (1e-40, 0.0), (5e-324, 0.0), (0.0, 0.0), (1.0, 1 + 2e-16), (-1e-14, 1e-14)],
)
def test_losses_of_almost_nothing_are_drawn(tmp_path: Path, losses: tuple[float, float]) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    write_lines(run / "metrics.jsonl", [{"step": i, "losses": {"ortho": loss}} for i, loss in enumerate(losses)])
    page = run_page([run])
    assert "loss: ortho" in page
    assert "nan" not in re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)
    scale = ticks(min(losses), max(losses), 3)
    assert scale[0] <= min(losses) <= max(losses) <= scale[-1]
    assert sorted(set(scale)) == scale


def test_many_points_become_means_of_neighbours() -> None:
    points = [(0, 1.0), (1, 3.0), (2, None), (3, 5.0), (4, None), (5, None)]
    assert thinned(points, 3) == [(0.5, 2.0), (2.5, 5.0), (4.5, None)]
    assert thinned(points, 6) == points


def test_the_command_writes_the_page_into_the_first_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    report([run])
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == f"Wrote {run / 'report.html'}\n"
    report([run], out=tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").is_file()
    with pytest.raises(UsageError, match=r"does not end in \.html"):
        report([run], out=run / "scores.json")


def test_reading_results_needs_no_torch() -> None:
    check = "import sys, ftcseg.report.run_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_without_a_command_the_page_makes_one_of_what_the_user_set(tmp_path: Path) -> None:
    run = scored(tmp_path / "run", "ftc", 0.4)
    config = {"method": "ftc", "seed": 3, "data": {"labels": "2%", "crop": [240, 160]}}
    why = {"seed": "set by the user", "data.crop": "set by the user", "data.labels": "preset cpu"}
    (run / "config.yaml").write_text(yaml.safe_dump({"config": config, "why": why}, sort_keys=False))
    assert "ftcseg train flsmd --method ftc --set seed=3 --set 'data.crop=[240, 160]'" in Tags(run_page([run])).text


def test_groups_may_come_from_the_model(tmp_path: Path, ftc: Path) -> None:
    results = json.loads((ftc / "scores.json").read_text())
    told = results.pop("groups")
    (tmp_path / "scores.json").write_text(json.dumps(results))
    assert read_run(tmp_path).groups == [None] * len(NAMES)
    (tmp_path / "model").mkdir()
    classes = [{"name": name, "group": group} for name, group in zip(NAMES, told, strict=True)]
    (tmp_path / "model" / "config.json").write_text(json.dumps({"classes": classes}))
    assert read_run(tmp_path).groups == told
