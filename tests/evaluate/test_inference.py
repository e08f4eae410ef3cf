from __future__ import annotations

import csv
import inspect
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import ftcseg
from films import film
from ftcseg import api, inference
from ftcseg.cli.audit import audit
from ftcseg.cli.eval import evaluate
from ftcseg.cli.predict import predict
from ftcseg.cli.report import report
from ftcseg.config.load import as_mapping
from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import open_dataset
from ftcseg.data.groups import class_groups
from ftcseg.errors import FtcsegError, LayoutError, UsageError
from ftcseg.evaluate.audit import audit as audit_images
from ftcseg.files import to_yaml
from ftcseg.inference import as_pixels, audit_run, evaluate_run, load_source, part_with_masks, same_classes
from ftcseg.methods.fixmatch import FixMatch
from ftcseg.nets.build import build_model
from ftcseg.nets.folder import ModelSpec, save_model
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.params import TeachingParams
from ftcseg.teaching.thresholds.atc import ATC, ATCParams
from ftcseg.train import checkpoint
from ftcseg.training import Outcome
from ftcseg.types import ClassTable

app = typer.Typer()
app.command("eval")(evaluate)
app.command("predict")(predict)
app.command("audit")(audit)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on two cores that others use too wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def method(classes: ClassTable, seed: int) -> FixMatch:
    """A student, a teacher that differs from it, and thresholds that differ by class."""
    torch.manual_seed(seed)
    net, _ = build_model("tiny", "fusion", len(classes), in_channels=1, head_features=8)
    atc = ATC(len(classes), ATCParams(clip=(0.1, 0.9), tau0=0.2))
    atc.accuracy.copy_(torch.linspace(0, 1, len(classes)))
    pair = Pair(net, atc, TeachingParams())
    assert isinstance(pair.teacher.net, Segmenter)
    torch.nn.init.normal_(pair.teacher.net.head.classifier.weight)
    return FixMatch(pair)


@pytest.fixture(scope="module")
def run(sonar12: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it: «best» is not «last», and the model is best's teacher."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    (folder / "checkpoints").mkdir(parents=True)
    data = open_dataset(sonar12)
    groups = class_groups(data.classes, {c.id: 100 - c.id for c in data.classes})
    classes = ClassTable(tuple(replace(c, group=groups[c.id]) for c in data.classes))
    for name, seed in (("last", 1), ("best", 2)):
        trained = method(classes, seed)
        checkpoint.write(folder / "checkpoints", name, {"model": trained.state_dict()}, {})
    net = trained.pair.teacher.net
    assert isinstance(net, Segmenter)
    spec = ModelSpec(
        encoder="tiny",
        head="fusion",
        head_features=8,
        in_channels=1,
        classes=classes,
        mean=net.encoder.mean,
        std=net.encoder.std,
        short_side=64,
    )
    save_model(folder / "model", net, spec)
    config = RunConfig(method="fixmatch", thresholds="atc", atc=ATCParams(clip=(0.1, 0.9), tau0=0.2))
    (folder / "config.yaml").write_text(to_yaml({"config": as_mapping(config), "why": {}}))
    places = {"teacher": "pair.teacher.net", "student": "pair.student"}
    parts = {"predictors": places, "labeler": "pair.teacher.net", "thresholds": "pair.thresholds"}
    (folder / "run.json").write_text(json.dumps({"dataset": str(sonar12), "root": None, "parts": parts}))
    api.split(sonar12, 8, out=folder)
    return folder


# Evaluation


def test_eval_json_has_student_and_teacher_of_both_checkpoints(run: Path, sonar12: Path) -> None:
    found = json.loads(call("eval", run, sonar12, "--json"))
    assert (found["dataset"], found["part"], found["images"]) == ("sonar12", "test", 2)
    assert set(found) >= {"miou", "groups", "classes", "pixel_accuracy", "checkpoints", "settings"}
    assert {name: list(nets) for name, nets in found["checkpoints"].items()} == {
        "last": ["teacher", "student"],
        "best": ["teacher", "student"],
    }
    best = found["checkpoints"]["best"]["teacher"]
    assert all(found[key] == best[key] for key in ("miou", "groups", "classes"))
    scores = {json.dumps(net["classes"]) for nets in found["checkpoints"].values() for net in nets.values()}
    assert len(scores) == 4  # four networks, four results
    assert set(found["classes"][0]) >= {"id", "name", "group", "iou", "precision", "recall", "f1", "pixels"}
    assert found["classes"][0]["group"] == "background"
    assert set(found["groups"]) == {"background", "head", "middle", "tail"}


def test_networks_that_are_the_same_are_asked_once(run: Path, sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = inference.evaluate

    def counted(nets: Any, *args: Any, **options: Any) -> Any:
        asked.append(len(nets))
        return real(nets, *args, **options)

    monkeypatch.setattr(inference, "evaluate", counted)
    evaluate_run(run, sonar12)
    assert asked == [4]  # not five: the model is best's teacher


def test_a_model_folder_has_no_checkpoints(run: Path, sonar12: Path) -> None:
    found = evaluate_run(run / "model", sonar12, part="train", max_images=3)
    assert (found["checkpoints"], found["part"], found["images"]) == ({}, "train", 3)
    with pytest.raises(UsageError, match="no checkpoint «last»"):
        evaluate_run(run / "model", sonar12, checkpoint="last")


def test_one_checkpoint_may_be_chosen(run: Path, sonar12: Path, tmp_path: Path) -> None:
    found = evaluate_run(run, sonar12, checkpoint="last", window=64, flips=True, scales=(0.5, 1))
    assert list(found["checkpoints"]) == ["last"]
    assert found["settings"] == {"window": 64, "flips": True, "scales": [0.5, 1], "short_side": 64}
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / "best")
    assert list(evaluate_run(copy, sonar12)["checkpoints"]) == ["last"]
    with pytest.raises(UsageError, match="no checkpoint «best»"):
        evaluate_run(copy, sonar12, checkpoint="best")


def test_a_run_is_evaluated_on_the_part_that_its_own_split_held_out(run: Path, sonar12: Path, tmp_path: Path) -> None:
    assert evaluate_run(run, sonar12)["parts_of"] == "run"
    assert evaluate_run(run / "model", sonar12)["parts_of"] == "dataset"
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "split.json").unlink()
    split = api.split(sonar12, 6, val=3, out=copy / "own")  # sonar12 itself has no validation part
    for name in ("split.json", "val.txt", "test.txt"):
        (copy / "own" / name).replace(copy / name)
    found = evaluate_run(copy, sonar12)
    assert (found["part"], found["images"], found["parts_of"]) == ("val", 3, "run")
    assert evaluate_run(copy, sonar12, part="train")["images"] == len(split.labeled) + len(split.unlabeled) == 7
    other = api.simulate(tmp_path / "sonar8", 8, seed=1, workers=1)
    assert evaluate_run(copy, other)["parts_of"] == "dataset"  # not the images of the split


def test_a_damaged_checkpoint_is_not_evaluated(run: Path, sonar12: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    weights = copy / "checkpoints" / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(FtcsegError, match="best cannot be used"):
        evaluate_run(copy, sonar12)


def test_the_table_and_the_csv_name_every_class(run: Path, sonar12: Path, tmp_path: Path) -> None:
    shown = call("eval", run, sonar12, "--csv", tmp_path / "scores.csv", "--boundary")
    names = open_dataset(sonar12).classes.names
    missing = [word for word in (*names, "mIoU", "ECE", "head", "last", "student", "IoU %") if word not in shown]
    assert not missing
    assert max(len(line) for line in shown.splitlines() if not line.startswith("Wrote ")) <= 80
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert len(rows) == 5 * len(names)
    assert {(row["checkpoint"], row["net"]) for row in rows} == {
        ("model", "model"),
        *((c, n) for c in ("last", "best") for n in ("student", "teacher")),
    }
    assert any(row["boundary_f1"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "val"], "The val part of sonar12 has no masks to compare with. Parts with masks: train, test."),
        (["--part", "vall"], "no part called 'vall'"),
        (["--checkpoint", "lats"], "no checkpoint called 'lats'"),
        (["--scales", "1;2"], "no scales"),
        (["--device", "gpu"], "no device called 'gpu'"),
        (["--window", "0"], "too small"),
    ],
)
def test_options_that_mean_nothing_are_one_sentence(
    run: Path, sonar12: Path, arguments: Sequence[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        call("eval", run, sonar12, *arguments)


def test_other_classes_cannot_be_compared() -> None:
    ours = ClassTable.named("background", "bottle", "can")
    same_classes(ours, ClassTable.named("Background", "bottle ", "CAN"))
    with pytest.raises(UsageError, match="3 classes, the set has 2"):
        same_classes(ours, ClassTable.named("background", "bottle"))
    with pytest.raises(UsageError, match="Class 1 is 'bottle' to the model and 'can' to the set"):
        same_classes(ours, ClassTable.named("background", "can", "bottle"))


def test_val_is_preferred_to_test(sonar12: Path) -> None:
    data = open_dataset(sonar12)
    assert part_with_masks(data, None) == "test"
    moved = [replace(r, part="val") if r.part == "test" else r for r in data.records]
    assert part_with_masks(replace(data, records=[*data.records, *moved]), None) == "val"


def test_what_is_neither_run_nor_model_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        load_source(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="neither a run nor a model"):
        load_source(tmp_path)
    shutil.copy(run / "config.yaml", tmp_path)
    with pytest.raises(UsageError, match="no model yet"):
        load_source(tmp_path)


# Prediction


def test_predict_writes_what_eval_would_have_seen(run: Path, sonar12: Path, tmp_path: Path) -> None:
    said = call("predict", run, sonar12 / "images" / "test", "--out", tmp_path / "out", "--what", "masks,overlays")
    assert "2 images predicted" in said
    names = sorted(p.stem for p in (sonar12 / "images" / "test").iterdir())
    assert sorted(p.stem for p in (tmp_path / "out" / "masks").iterdir()) == names
    for path in (sonar12 / "images" / "test").iterdir():
        with Image.open(path) as image, Image.open(tmp_path / "out" / "masks" / path.name) as mask:
            assert image.size == mask.size
    again = call("predict", run / "model", sonar12 / "images" / "test", "--out", tmp_path / "out")
    assert "2 images predicted" in again  # colours and confidences were missing
    assert "2 were there already" in call(
        "predict", run / "model", sonar12 / "images" / "test", "--out", tmp_path / "out"
    )


def test_predict_takes_several_files(run: Path, sonar12: Path, tmp_path: Path) -> None:
    files = sorted((sonar12 / "images" / "train").iterdir())[:2]
    call("predict", run, *files, "--out", tmp_path / "out", "--what", "masks")
    assert len(list((tmp_path / "out" / "masks").iterdir())) == 2


def test_predict_takes_the_frames_of_a_video(run: Path, tmp_path: Path) -> None:
    rows = np.arange(48, dtype=np.uint8)[:, None] * np.ones(64, np.uint8)
    dive = film(tmp_path / "dive.mp4", [rows + 10 * i for i in range(12)], "mpeg4", "yuv420p")
    out = tmp_path / "out"
    assert "12 images predicted" in call("predict", run, dive, "--out", out, "--what", "masks")
    masks = sorted((out / "masks").iterdir())
    assert [mask.name for mask in masks] == [f"dive-{i:06d}.png" for i in range(12)]
    for mask in masks:
        with Image.open(mask) as image:
            assert image.size == (64, 48)
    before = {mask: mask.stat().st_mtime_ns for mask in masks}
    again = call("predict", run, dive, "--out", out, "--what", "masks")
    assert "0 images predicted, 12 were there already" in again
    assert {mask: mask.stat().st_mtime_ns for mask in (out / "masks").iterdir()} == before
    call("predict", run, dive, "--out", tmp_path / "fifth", "--what", "masks", "--every", 5)
    fifth = sorted((tmp_path / "fifth" / "masks").iterdir())
    assert [mask.name for mask in fifth] == ["dive-000000.png", "dive-000005.png", "dive-000010.png"]
    assert [mask.read_bytes() for mask in fifth] == [masks[i].read_bytes() for i in (0, 5, 10)]


# The same in Python


def test_a_loaded_model_says_what_predict_writes(run: Path, sonar12: Path, tmp_path: Path) -> None:
    path = sorted((sonar12 / "images" / "test").iterdir())[0]
    done = ftcseg.predict(Outcome(run, True, 0), path, tmp_path / "out", what=["masks"], flips=True)
    assert (done.made, done.there, done.problems) == (1, 0, ())
    model = ftcseg.load(Outcome(run, True, 0), flips=True)  # a run stands for its folder
    assert model.classes.names == open_dataset(sonar12).classes.names
    said = model.predict(path)
    assert (said.labels.shape, said.labels.dtype) == ((240, 160), np.int16)
    assert (said.conf.shape, said.conf.dtype) == ((240, 160), np.float32)
    with Image.open(tmp_path / "out" / "masks" / path.name) as mask:
        assert (np.asarray(mask) == said.labels).all()


def test_a_model_reads_paths_and_arrays_alike(run: Path, sonar12: Path) -> None:
    path = sorted((sonar12 / "images" / "test").iterdir())[0]
    model = ftcseg.load(run / "model")
    said = model.predict(str(path))
    with Image.open(path) as image:
        grey = np.asarray(image)
    deep = grey.astype(np.uint16) * np.uint16(257)
    for array in (grey, grey[:, :, None], np.stack([grey] * 3, 2), deep, grey / 255, (grey / 255).astype(np.float32)):
        other = model.predict(array)
        assert (other.labels == said.labels).mean() > 0.999
        np.testing.assert_allclose(other.conf, said.conf, atol=0.01)


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((2, 3, 4, 5), np.uint8), "(2, 3, 4, 5)"),
        (np.zeros((0, 3), np.uint8), "(0, 3)"),
        (np.zeros((4, 4), np.int64), "int64"),
        (np.zeros((4, 4), bool), "bool"),
    ],
)
def test_an_array_that_is_no_image_is_refused(array: Any, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        as_pixels(array)


def test_python_gives_what_the_commands_print(run: Path, sonar12: Path, tmp_path: Path) -> None:
    outcome = Outcome(run, True, 0)
    found = ftcseg.evaluate(outcome, sonar12, part="train", checkpoint="last", max_images=2)
    said = call("eval", run, sonar12, "--part", "train", "--checkpoint", "last", "--max-images", 2, "--json")
    assert json.loads(json.dumps(found)) == json.loads(said)
    found = ftcseg.audit(outcome, max_images=1)
    assert json.loads(json.dumps(found)) == json.loads(call("audit", run, "--max-images", 1, "--json"))
    for runs in (outcome, [str(run), outcome]):
        page = ftcseg.report(runs, out=tmp_path / "page.html")
        assert page == tmp_path / "page.html"
        assert page.read_text().startswith("<!doctype html>")


def test_options_are_called_alike_in_python_and_on_the_command_line() -> None:
    printing = {"csv_file", "as_json", "by", "open_browser"}  # what becomes of the result
    for function, command in (
        (api.evaluate, evaluate),
        (api.predict, predict),
        (api.audit, audit),
        (api.report, report),
    ):
        ours, theirs = (inspect.signature(f).parameters for f in (function, command))
        assert set(ours) - {"progress"} == set(theirs) - printing
        same = [name for name in ours if name in theirs and name not in ("scales", "what")]  # texts over there
        defaults = [(theirs[n].default, ours[n].default) for n in same]
        assert [pair for pair in defaults if pair[0] != pair[1]] == []


# Audit


def test_audit_json_counts_the_unlabelled_images_of_the_split(run: Path, sonar12: Path) -> None:
    found = json.loads(call("audit", run, "--json"))
    assert (found["images"], found["checkpoint"], found["dataset"]) == (2, "last", "sonar12")
    assert {"by_truth", "by_prediction", "kept_iou", "kept_miou", "raw_miou"} <= set(found)
    micro = found["by_truth"]["micro"]["global"]
    assert micro["correct_kept"] == pytest.approx((micro["accuracy"] or 0) * (1 - micro["filtered"]))
    counted = sum(row["counts"]["pixels"] for row in found["by_truth"]["classes"])
    assert counted == 2 * 160 * 240
    # tau = 0.2 - 0.1 (1 - A) with A from 0 to 1, P_u = P_l
    assert found["thresholds"]["tau"] == pytest.approx(torch.linspace(0.1, 0.2, 8).tolist(), abs=1e-5)
    data, model = open_dataset(sonar12), load_source(run)
    pair = method(model.spec.classes, seed=1).pair
    images = data.only(list(api.read_split(run)[0].unlabeled))
    expected = {
        name: audit_images(net, pair.thresholds, images, model.spec, model.spec.groups)
        for name, net in (("teacher", pair.teacher.net), ("student", pair.student))
    }
    assert found["by_truth"] == json.loads(json.dumps(expected["teacher"]))["by_truth"]
    assert expected["teacher"] != expected["student"]
    assert found != json.loads(call("audit", run, "--json", "--checkpoint", "best"))


def test_audit_table(run: Path) -> None:
    shown = call("audit", run, "--by", "prediction")
    words = ("correctly", "filtered", "micro", "macro", "global", "mIoU of pseudo-labels")
    assert not [word for word in words if word not in shown]


def test_audit_of_a_model_or_without_a_set_is_one_sentence(run: Path, sonar12: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the whole run"):
        audit_run(run / "model")
    with pytest.raises(UsageError, match="no checkpoint called"):
        audit_run(run, checkpoint="lats")
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "run.json").unlink()
    with pytest.raises(UsageError, match="--dataset"):
        audit_run(copy)
    (copy / "config.yaml").write_text("method: fixmatch\n")
    with pytest.raises(LayoutError, match="«config»"):
        audit_run(copy, dataset=sonar12)
