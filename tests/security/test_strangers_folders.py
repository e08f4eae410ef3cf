"""Folders made for other programs: transformers models, ONNX and OpenVINO graphs. None fetches, runs or leads out."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ftcseg.errors import FtcsegError
from ftcseg.export.runtime import opened_onnx, opened_openvino
from ftcseg.nets.encoders.build import build_encoder

onnx = pytest.importorskip("onnx")

VIT = {
    "model_type": "dinov2",
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "mlp_ratio": 2,
}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def _folder(tmp_path: Path, canary: Path, changes: dict[str, Any]) -> Path:
    """A transformers model with a program beside it that would leave the canary."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(VIT | changes))
    code = f"open({str(canary)!r}, 'w')\nfrom transformers import Dinov2Config as Conf, Dinov2Backbone as Model\n"
    for name in ("evil.py", "modeling.py", "__init__.py"):
        (folder / name).write_text(code)
    return folder


MAP = {"AutoConfig": "evil.Conf", "AutoModel": "evil.Model", "AutoBackbone": "evil.Model"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "evil", "auto_map": MAP}, "cannot be used"),
        ({"model_type": "evil", "auto_map": MAP, "trust_remote_code": True}, "cannot be used"),
        ({"model_type": "evil", "auto_map": {"AutoConfig": "someone/else--evil.Conf"}}, "cannot be used"),
        ({"model_type": "evil"}, "cannot be used"),
        ({"attn_implementation": "someone/kernel"}, "asks to be computed by 'someone/kernel'"),
        ({"_attn_implementation": "flash_attention_2"}, "asks to be computed by 'flash_attention_2'"),
        ({"attn_implementation": {"": "someone/kernel"}}, "asks to be computed by 'someone/kernel'"),
        ({"vision_config": {"attn_implementation": "a/b:c"}}, "asks to be computed by 'a/b:c'"),
        ({"_experts_implementation": "a/b"}, "asks to be computed by 'a/b'"),
        ({"hidden_size": 10**7}, "larger than any model"),
        ({"num_hidden_layers": 10**6}, "larger than any model"),
        ({"hidden_size": 2**20, "num_attention_heads": 1}, "more than 20,000,000,000 parameters"),
        ({"dtype": "__import__('os').system"}, "cannot be read as a transformers model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_transformers_folder_that_names_code_or_is_vast_is_refused(
    changes: dict[str, Any], why: str, tmp_path: Path, canary: Path
) -> None:
    folder = _folder(tmp_path, canary, changes)
    with pytest.raises(FtcsegError) as caught:
        build_encoder(str(folder), weights=None)
    assert str(folder) in str(caught.value)
    assert why in str(caught.value)
    assert not canary.exists()


def test_code_beside_a_model_we_know_is_not_looked_at(tmp_path: Path, canary: Path) -> None:
    changes = {"auto_map": MAP, "architectures": ["os.system", "evil.Model"], "_name_or_path": "someone/evil"}
    encoder, _ = build_encoder(str(_folder(tmp_path, canary, changes)), weights=None)
    assert type(encoder.backbone).__module__.startswith("transformers.models.dinov2.")  # type: ignore[union-attr]
    assert not canary.exists()


class _Runs:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


def test_pickled_weights_of_a_transformers_folder_are_not_run(tmp_path: Path, canary: Path) -> None:
    folder = _folder(tmp_path, canary, {})
    for content in (pickle.dumps(_Runs(canary)), None):
        file = folder / "pytorch_model.bin"
        torch.save({"a": _Runs(canary)}, file) if content is None else file.write_bytes(content)
        with pytest.raises(FtcsegError, match=r"model"):
            build_encoder(str(folder))
    assert not canary.exists()


def test_weights_in_several_files_stay_in_their_folder(tmp_path: Path, canary: Path) -> None:
    folder = _folder(tmp_path, canary, {})
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FtcsegError, match=r"'\.\./other\.safetensors' climbs out"):
        build_encoder(str(folder))


# ---------------------------------------------------------------- graphs


def _graph(location: str | None = None, domain: str = "", *, nested: bool = False) -> bytes:
    helper, proto = onnx.helper, onnx.TensorProto
    weights = helper.make_tensor("w", proto.FLOAT, [4], [0.0, 1.0, 2.0, 3.0])
    if location is not None:
        weights = proto(name="w", data_type=proto.FLOAT, dims=[4], data_location=proto.EXTERNAL)
        for key, value in {"location": location, "offset": "0", "length": "16"}.items():
            weights.external_data.add(key=key, value=value)
    nodes = [helper.make_node("Add", ["image", "w"], ["logits"], domain=domain)]
    starts = [weights]
    if nested:  # inside an attribute of a node
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
        starts = []
    places = [helper.make_tensor_value_info(name, proto.FLOAT, [4]) for name in ("image", "logits")]
    graph = helper.make_graph(nodes, "g", places[:1], places[1:], starts)
    versions = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=versions)
    model.ir_version = 9
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "model.bin", "", "a\0b"])
def test_a_graph_takes_no_numbers_from_other_files(location: str, nested: bool, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    path = tmp_path / "sub/model.onnx"
    path.parent.mkdir()
    path.write_bytes(_graph(location, nested=nested))
    (path.parent / "model.bin").write_bytes(bytes(16))
    with pytest.raises(FtcsegError, match=r"model\.onnx takes numbers from another file"):
        opened_onnx(path)


def test_a_graph_brings_no_operators_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_graph(domain="evil.ops"))
    with pytest.raises(FtcsegError, match=r"model\.onnx wants an operator of 'evil\.ops'"):
        opened_onnx(path)


@pytest.mark.parametrize("content", [b"", b"no graph", pickle.dumps({"a": 1}), b"ORTM" + bytes(64), b"\xff" * 100])
def test_what_is_no_graph_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(FtcsegError, match=r"model\.onnx cannot be opened"):
        opened_onnx(path)


def test_a_whole_graph_is_opened(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "model.onnx"
    path.write_bytes(_graph())
    assert opened_onnx(path)(np.ones(4, np.float32)).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<?xml version='1.0'?><!DOCTYPE net SYSTEM 'file:///etc/passwd'><net/>", "no plain XML"),
        (b"<!DOCTYPE net [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><net>&b;</net>", "no plain XML"),
        (b"<html/>", "begins with «html»"),
        (b"", "no plain XML"),
        (_graph("../secret.bin"), "no plain XML"),  # OpenVINO would tell it from its bytes and read it as ONNX
        (b"<net><layers>", "no plain XML"),
    ],
)
def test_an_openvino_model_is_plain_xml(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_bytes(content)
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(FtcsegError, match=rf"model\.xml.*{why}"):
        opened_openvino(path)
