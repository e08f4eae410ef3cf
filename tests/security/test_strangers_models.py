"""Known ways to make a model file run code, each as a real file: the code stays dead and the file is named."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as to_safetensors
from small_models import tiny_model
from torch import nn

from ftcseg.data.masks import read_stored
from ftcseg.errors import FtcsegError
from ftcseg.files import read_yaml
from ftcseg.inference import load_source
from ftcseg.nets.folder import load_model, save_model
from ftcseg.nets.weights import find_weights, read_state
from ftcseg.train import checkpoint


class Runs:
    """A pickle of it calls a function when it is loaded."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


PAYLOADS: dict[str, Callable[[Path], Any]] = {
    "os.system": lambda canary: Runs(os.system, f"touch {canary}"),
    "subprocess": lambda canary: Runs(subprocess.call, ["touch", str(canary)]),
    "eval": lambda canary: Runs(eval, f"open({str(canary)!r}, 'w')"),
    "exec": lambda canary: Runs(exec, f"open({str(canary)!r}, 'w')"),
    "open": lambda canary: Runs(open, str(canary), "w"),
    "getattr": lambda canary: Runs(getattr, Runs(__import__, "os"), f"mkdir {canary}"),
    "import": lambda canary: Runs(__import__, f"canary_{canary.name}"),
    "numpy": lambda canary: np.array([Runs(os.system, f"touch {canary}")], dtype=object),
    "a pickle in a pickle": lambda canary: Runs(pickle.loads, pickle.dumps(Runs(os.system, f"touch {canary}"))),
    "module": lambda canary: nn.Sequential(_Marked(str(canary))),
    "inside a state": lambda canary: {"a": torch.zeros(2), "b": Runs(os.system, f"touch {canary}")},
}


class _Marked(nn.Module):
    """A whole module, as torch.save writes one: its class would be imported."""

    def __init__(self, canary: str) -> None:
        super().__init__()
        self.canary = canary

    def __setstate__(self, state: dict[str, Any]) -> None:
        Path(state["canary"]).touch()


def _legacy_tar(value: Any) -> bytes:
    """As torch wrote until 0.1.10: a tar of pickles."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as pack:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            content = pickle.dumps(value)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _torch_file(value: Any, *, new: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=new)
    return buffer.getvalue()


WRAPPINGS: dict[str, Callable[[Any], bytes]] = {
    "plain pickle": pickle.dumps,
    "old protocol": lambda value: pickle.dumps(value, protocol=0),
    "torch zip": lambda value: _torch_file(value, new=True),
    "torch before 1.6": lambda value: _torch_file(value, new=False),
    "torch tar": _legacy_tar,
}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_weights_file_runs_code_whatever_it_is_called(
    payload: str, wrapping: str, tmp_path: Path, canary: Path
) -> None:
    content = WRAPPINGS[wrapping](PAYLOADS[payload](canary))
    for name in ("a.pt", "a.bin", "a.safetensors"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FtcsegError, match=name.replace(".", r"\.")):
            read_state(tmp_path / name)
    assert not canary.exists()


def test_the_payloads_are_live(canary: Path) -> None:
    pickle.loads(pickle.dumps(PAYLOADS["os.system"](canary)))
    assert canary.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_program_is_no_weights_file(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    torch.jit.trace(Net(), torch.zeros(1)).save(tmp_path / "a.pt")
    with pytest.raises(FtcsegError, match=r"a\.pt"):
        read_state(tmp_path / "a.pt")


def test_a_pickle_beside_good_weights_is_not_looked_at(tmp_path: Path, canary: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(to_safetensors({"a": torch.ones(2)}))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(PAYLOADS["os.system"](canary)))
    assert read_state(find_weights(tmp_path))["a"].tolist() == [1.0, 1.0]
    assert not canary.exists()


@pytest.mark.parametrize(
    "value",
    [
        lambda: torch.zeros(1).expand(10**6, 10**6),
        lambda: torch.empty(10**6, 10**6, device="meta"),
        lambda: torch.sparse_coo_tensor(
            torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (10**6, 10**6), check_invariants=True
        ),
    ],
    ids=["seen again and again", "without numbers", "sparse"],
)
def test_a_tensor_that_claims_more_than_its_file_holds_is_refused(value: Callable[[], Any], tmp_path: Path) -> None:
    torch.save({"fine": torch.zeros(2), "vast": value()}, tmp_path / "a.pt")
    with pytest.raises(FtcsegError, match=r"a\.pt holds tensors whose numbers are not all in it \(vast\)"):
        read_state(tmp_path / "a.pt")


def test_a_compressed_torch_file_is_refused_before_it_grows(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(10**6)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    assert (tmp_path / "b.pt").stat().st_size < 10**5 < (tmp_path / "a.pt").stat().st_size
    with pytest.raises(FtcsegError, match=r"b\.pt is compressed"):
        read_state(tmp_path / "b.pt")


@pytest.mark.parametrize("name", ["canary_package.sub", ".x", "a..b", "", "a/b"])
def test_a_name_of_weights_imports_nothing(name: str, tmp_path: Path, canary: Path, monkeypatch: Any) -> None:
    (tmp_path / "canary_package").mkdir()
    (tmp_path / "canary_package/__init__.py").write_text(f"open({str(canary)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    for asked in (name, "canary_package"):
        with pytest.raises(FtcsegError, match="package"):
            find_weights(f"pip:{asked}")
    assert not canary.exists()
    assert "canary_package" not in sys.modules


# ---------------------------------------------------------------- model folders


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net, spec = tiny_model()
    save_model(tmp_path / "model", net, spec)
    return tmp_path / "model"


def _safetensors(header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


_F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        _safetensors(b"{}", length=2**60),
        _safetensors({"a": _F32, "b": _F32}, bytes(8)),
        _safetensors({"a": {**_F32, "shape": [10**9, 10**9]}}, bytes(8)),
        _safetensors({"a": {**_F32, "shape": [2**62, 4]}}, bytes(8)),
        _safetensors({"a": {**_F32, "data_offsets": [0, 10**12]}}, bytes(8)),
        _safetensors({"a": {**_F32, "data_offsets": [8, 0]}}, bytes(8)),
        _safetensors({"a": {**_F32, "dtype": "PICKLE"}}, bytes(8)),
        _safetensors({"a": {**_F32, "dtype": "I64"}}, bytes(8)),
        _safetensors({"a": _F32}, bytes(64)),
        _safetensors(b"[" * 100_000),
        _safetensors({"__metadata__": {"a": {"b": "c"}}}),
    ],
    ids=[
        *("vast header", "overlap", "vast shape", "shape beyond numbers", "offsets beyond", "offsets backwards"),
        *("unknown type", "type of another size", "bytes left over", "deep header", "metadata of tables"),
    ],
)
def test_a_header_that_lies_is_refused(content: bytes, model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(FtcsegError, match=r"model\.safetensors"):
        load_model(model)
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(FtcsegError, match=r"w\.safetensors"):
        read_state(tmp_path / "w.safetensors")


def test_numbers_that_are_none_are_refused(model: Path) -> None:
    net, spec = tiny_model()
    nn.init.constant_(next(net.parameters()), float("nan"))
    save_model(model, net, spec)
    with pytest.raises(FtcsegError, match=r"model\.safetensors holds NaN"):
        load_model(model)


@pytest.mark.parametrize(
    "extra",
    [
        {"auto_map": {"AutoModel": "evil.Model"}},
        {"trust_remote_code": True},
        {"architectures": ["os.system"]},
        {"_target_": "os.system"},
    ],
)
def test_a_config_that_names_code_is_refused(extra: dict[str, Any], model: Path, canary: Path) -> None:
    (model / "evil.py").write_text(f"open({str(canary)!r}, 'w')")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | extra))
    with pytest.raises(FtcsegError, match=rf"config\.json: «{next(iter(extra))}» is unknown"):
        load_model(model)
    assert not canary.exists()


def test_a_single_file_is_no_model_to_predict_with(tmp_path: Path, canary: Path) -> None:
    (tmp_path / "best.pt").write_bytes(WRAPPINGS["torch zip"](PAYLOADS["os.system"](canary)))
    with pytest.raises(FtcsegError, match=r"best\.pt"):
        load_source(tmp_path / "best.pt")
    assert not canary.exists()


# ---------------------------------------------------------------- runs


def _checkpoint(folder: Path, **changes: Any) -> None:
    state = {"format": 1, "step": 3, "sha256": {}} | changes
    (folder / "last").mkdir(parents=True)
    (folder / "last/state.json").write_text(json.dumps({**state, "seal": checkpoint._seal(state)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": {"../../secret": "0"}},
        {"sha256": {"/etc/secret": "0"}},
        {"sha256": {"a/b": "0"}},
        {"sha256": {"model\0": "0"}},
        {"sha256": ["model"]},
        {"format": None},
        {"format": {"a": 1}},
    ],
)
def test_a_checkpoint_names_its_own_files_alone(changes: dict[str, Any], tmp_path: Path) -> None:
    _checkpoint(tmp_path, **changes)
    with pytest.raises(FtcsegError, match="last cannot be used"):
        checkpoint.read(tmp_path, "last")


def test_a_checkpoint_whose_tensors_are_a_pickle_is_not_run(tmp_path: Path, canary: Path) -> None:
    content = pickle.dumps(PAYLOADS["os.system"](canary))
    _checkpoint(tmp_path, sha256={"model": sha256(content).hexdigest()})
    (tmp_path / "last/model.safetensors").write_bytes(content)
    net, _ = tiny_model()
    from ftcseg.nets.folder import fill

    found = checkpoint.read(tmp_path, "last")
    with pytest.raises(FtcsegError, match=r"model\.safetensors"):
        fill(net, found.path / "model.safetensors")
    assert not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "config: !!python/object/apply:os.system ['touch {canary}']",
        "config: !!python/object/new:subprocess.Popen [['touch', '{canary}']]",
        "config: !!python/name:os.system",
        "config: !!python/module:evil",
        "config: !evil {{a: 1}}",
    ],
)
def test_settings_build_no_objects(text: str, tmp_path: Path, canary: Path) -> None:
    (tmp_path / "config.yaml").write_text(text.format(canary=canary))
    with pytest.raises(FtcsegError, match=r"config\.yaml"):
        read_yaml(tmp_path / "config.yaml")
    assert not canary.exists()


# ---------------------------------------------------------------- arrays


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1, 1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 10**9)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
        "{'descr': __import__('os').system('touch CANARY'), 'fortran_order': False, 'shape': (1, 1)}",
        "(" * 5000 + ")" * 5000,
        "[" * 30000,
        "-" * 9000 + "1",
    ],
    ids=["objects", "hidden objects", "a sum", "vast", "negative", "a call", "deep", "open", "signs"],
)
def test_an_array_file_is_numbers_or_nothing(header: str, tmp_path: Path, canary: Path) -> None:
    data = pickle.dumps(PAYLOADS["os.system"](canary))
    (tmp_path / "m.npy").write_bytes(_npy(header.replace("CANARY", str(canary)), data))
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as pack:
        pack.write(tmp_path / "m.npy", "m.npy")
    (tmp_path / "p.npy").write_bytes(data)
    for name in ("m.npy", "m.npz", "p.npy"):
        with pytest.raises(FtcsegError, match=name.replace(".", r"\.")):
            read_stored(tmp_path / name)
    assert not canary.exists()
