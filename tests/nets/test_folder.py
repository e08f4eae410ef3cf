from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ftcseg.errors import FtcsegError, UsageError
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders import resnet
from ftcseg.nets.encoders.build import build_encoder
from ftcseg.nets.folder import (
    CONFIG,
    WEIGHTS,
    ModelError,
    ModelSpec,
    build_net,
    fill,
    fingerprint,
    load_model,
    save_model,
)
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import ClassInfo, ClassTable

CLASSES = ClassTable(
    (
        ClassInfo(0, "background", background=True, group="background"),
        ClassInfo(1, "bottle", group="head"),
        ClassInfo(2, "Kanister", group="tail"),
    )
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on two cores that others use too wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(opr: OPRParams | None = None, **changes: Any) -> tuple[Segmenter, ModelSpec]:
    torch.manual_seed(0)
    net, _ = build_model("tiny", "fusion", 3, opr=opr, in_channels=1, head_features=8)
    spec = ModelSpec(
        encoder="tiny",
        head="fusion",
        head_features=8,
        in_channels=1,
        classes=CLASSES,
        mean=net.encoder.mean,
        std=net.encoder.std,
        opr=None if opr is None else asdict(opr),
        short_side=32,
        multiple=net.encoder.multiple,
    )
    return net, replace(spec, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", *tiny())
    return tmp_path / "model"


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


# There and back


@pytest.mark.parametrize(
    "opr", [None, OPRParams(layers=1, count=4, foreground=(1, 2)), OPRParams(layers=0, gate_head="head_wide")]
)
def test_a_model_answers_as_before_it_was_saved(tmp_path: Path, opr: OPRParams | None) -> None:
    net, spec = tiny(opr)
    images = torch.randn(2, 1, 32, 48)
    net(images)  # moves the batch statistics, which are saved too
    save_model(tmp_path, net, spec)
    loaded, read = load_model(tmp_path)
    assert read == spec
    assert not loaded.training
    assert torch.equal(loaded(images), net.eval()(images))
    assert fingerprint(loaded) == fingerprint(net)


def test_groups_of_the_class_table_come_back(folder: Path) -> None:
    _, spec = load_model(folder)
    assert spec.groups == {0: "background", 1: "head", 2: "tail"}
    assert spec.classes == CLASSES


def test_channels_last_weights_are_saved(tmp_path: Path) -> None:
    net, spec = tiny()
    save_model(tmp_path, net.to(memory_format=torch.channels_last), spec)
    assert fingerprint(load_model(tmp_path)[0]) == fingerprint(net)


def test_half_precision_weights_are_read_in_full(folder: Path) -> None:
    state = load_file(folder / WEIGHTS)
    save_file({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, folder / WEIGHTS)
    net, _ = load_model(folder)
    assert {p.dtype for p in net.parameters()} == {torch.float32}


def test_loading_leaves_the_global_generator_alone(folder: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_model(folder)
    assert torch.equal(torch.rand(3), expected)


def test_strides_of_a_resnet_survive_though_no_tensor_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(resnet.SHAPES, "resnet-50", ((1, 2, 1, 2), resnet.Bottleneck))  # a quick one
    net, _ = build_model("resnet-50", "deeplab", 3, head_features=8)  # deeplab: the last stage is dilated
    net.encoder, _ = build_encoder("resnet-50", weights=None, dilate_last=True, resnet_stride="1x1")
    spec = ModelSpec(
        encoder="resnet-50", head="deeplab", head_features=8, classes=CLASSES, mean=(0.5,) * 3, std=(0.2,) * 3
    )
    save_model(tmp_path, net, spec)
    loaded, read = load_model(tmp_path)
    assert read.resnet_stride == "1x1"
    steps = [(m.stride, m.dilation, m.padding) for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    again = [(m.stride, m.dilation, m.padding) for m in loaded.modules() if isinstance(m, torch.nn.Conv2d)]
    assert again == steps


def test_a_folder_is_never_weights_of_one_model_and_config_of_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    net, spec = tiny()
    monkeypatch.setattr("ftcseg.nets.folder.save", killed)
    with pytest.raises(KeyboardInterrupt):
        save_model(folder, net, spec)  # the same spec: the old model stays
    assert load_model(folder)[1] == spec
    with pytest.raises(KeyboardInterrupt):
        save_model(folder, net, replace(spec, short_side=64))
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(folder)
    assert [p.name for p in folder.iterdir()] == [WEIGHTS]


def test_a_network_of_other_classes_is_not_saved(tmp_path: Path) -> None:
    net, spec = tiny()
    with pytest.raises(UsageError, match="3 classes, its description 2"):
        save_model(tmp_path, net, replace(spec, classes=ClassTable.named("a", "b")))


def test_part_of_a_checkpoint_fills_a_network(tmp_path: Path) -> None:
    net, spec = tiny()
    state = {f"pair.student.{k}": v for k, v in net.state_dict().items()}
    save_file({**state, "pair.thresholds.level": torch.ones(3)}, tmp_path / "all.safetensors")
    other = build_net(spec)
    fill(other, tmp_path / "all.safetensors", "pair.student.")
    assert fingerprint(other) == fingerprint(net)
    with pytest.raises(ModelError, match="are missing"):
        fill(other, tmp_path / "all.safetensors", "pair.teacher.net.")


# A stranger's folder


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


def test_a_pickle_named_like_weights_is_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / WEIGHTS).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(ModelError, match="no safetensors file"):
        load_model(folder)
    torch.save({"bomb": Bomb(tmp_path / "ran")}, folder / WEIGHTS)
    with pytest.raises(ModelError, match="no safetensors file"):
        load_model(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("length", [0, 1, 2**40, 2**63, 10**6])
def test_a_header_of_another_size_than_the_file_is_refused(folder: Path, length: int) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", length) + b"{}" + b" " * 100)
    with pytest.raises(ModelError):
        load_model(folder)


def test_a_huge_header_is_not_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 17 * 2**20
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", size) + b" " * size)
    monkeypatch.setattr("ftcseg.nets.folder.safe_open", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(ModelError, match="no safetensors file"):
        load_model(folder)


def test_nonsense_in_the_header_is_refused(folder: Path) -> None:
    for text in (b"[]", b'{"a": 1}', b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}', b"\xff\xfe"):
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text)
        with pytest.raises(ModelError):
            load_model(folder)


def test_a_truncated_file_is_refused(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="damaged"):
        load_model(folder)


def test_weights_must_fit_to_the_last_tensor(folder: Path) -> None:
    state = load_file(folder / WEIGHTS)
    name = "head.classifier.weight"
    cases = {
        "1 tensors are missing": {k: v for k, v in state.items() if k != name},
        "1 tensors are unknown": {**state, "extra": torch.ones(1)},
        "of another shape": {**state, name: state[name][:2].clone()},
        "of another type": {**state, name: state[name].long()},
        "NaN": {**state, name: torch.full_like(state[name], torch.nan)},
    }
    for message, tensors in cases.items():
        save_file(tensors, folder / WEIGHTS)
        with pytest.raises(ModelError, match=message):
            load_model(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"surprise": 1},
        {"ftcseg": 2},
        {"in_channels": 10**9},
        {"in_channels": True},
        {"head_features": 10**6},
        {"head_features": 0},
        {"multiple": 7},  # not what the encoder wants
        {"short_side": -1},
        {"short_side": 2.5},
        {"mean": [0.1, 0.2]},
        {"mean": ["x"]},
        {"std": [0.0]},
        {"std": [1e308 * 10]},
        {"classes": []},
        {"classes": [{"name": "a", "background": False, "group": None}] * 5000},
        {"classes": [{"name": "a", "background": False, "group": "tial"}] * 3},
        {"classes": [{"name": "a", "background": False, "group": None, "run": "rm"}] * 3},
        {"classes": [{"name": "a" * 500, "background": False, "group": None}] * 3},
        {"encoder": "tinny"},
        {"encoder": None},
        {"head": "../dpt"},
        {"resnet_stride": "5x5"},
        {"opr": []},
        {"opr": {"layers": 1, "surprise": 1}},
        {"opr": {"layers": 1, "count": 10**9}},
        {"opr": {"layers": 9}},
        {"opr": {"layers": 1, "gate": "open"}},
        {"opr": {"layers": 1, "residual": "yes"}},
        {"opr": {"layers": 1, "foreground": [99]}},
        {"opr": {"layers": 1, "foreground": [[1]]}},
        {"opr": {"layers": 1, "temperature": None}},
        {"opr": {"__post_init__": 1}},
    ],
    ids=lambda changes: json.dumps(changes)[:50],
)
def test_a_config_with_anything_unknown_or_out_of_bounds_is_refused(folder: Path, changes: dict[str, object]) -> None:
    edit(folder, **changes)
    with pytest.raises(FtcsegError):
        load_model(folder)


def test_a_missing_key_is_named(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    del config["mean"]
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ModelError, match="«mean» is missing"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"ftcseg": NaN}'])
def test_a_config_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / CONFIG).write_text(text)
    with pytest.raises(FtcsegError):
        load_model(folder)


@pytest.mark.parametrize("encoder", ["hub:someone/something", "someone/something", "/etc", "..", "."])
def test_a_strangers_encoder_is_not_looked_up(folder: Path, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftcseg.nets.encoders.hub.build", lambda *_: pytest.fail("it was looked up"))
    edit(folder, encoder=encoder)
    with pytest.raises(ModelError, match="none of ours"):
        load_model(folder)
