from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from small_exports import TABLE, names_in, net_of, noise, normalised, spec_of
from torch import nn
from typer.testing import CliRunner

from ftcseg import api, inference
from ftcseg.cli import app
from ftcseg.cli.export import parse_size
from ftcseg.data.writing import write_image, write_labels
from ftcseg.errors import UsageError
from ftcseg.export import make
from ftcseg.export.graphs import ExportError, to_onnx
from ftcseg.export.make import Choices, export
from ftcseg.export.runtime import RuntimeNet, load_export, opened_onnx
from ftcseg.export.sheet import Sheet
from ftcseg.files import write_json
from ftcseg.nets.folder import ModelError, save_model
from ftcseg.nets.segmenter import Segmenter
from tiny_clip import save_clip

EXAMPLE = Path(__file__).parents[2] / "examples" / "segment_onnx.py"
SHAPES = ((60, 80), (60, 80), (75, 60), (61, 90))  # three sizes, two of them odd
SIDE = 48
INT8 = onnx.TensorProto.INT8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on two cores that others use too wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def net() -> Segmenter:
    return net_of("tiny-fusion")


@pytest.fixture(scope="module")
def place(net: Segmenter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/, a model folder; frames/images, for it; frames/masks, what it says itself, so that its mIoU is 1."""
    folder = tmp_path_factory.mktemp("exports")
    save_model(folder / "model", net, spec_of(net, short_side=SIDE))
    for number, shape in enumerate(SHAPES):
        pixels = (noise(net, (1, *shape), seed=number, grain=0.2)[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
        write_image(folder / "frames" / "images" / "test" / f"{number}.png", pixels)
        said = inference.load(folder / "model").predict(pixels).labels
        assert len(np.unique(said)) == len(TABLE)  # masks of one class would agree with anything
        write_labels(folder / "frames" / "masks" / "test" / f"{number}.png", said)
    return folder


@pytest.fixture(scope="module")
def dynamic(place: Path) -> Path:
    """An ONNX model for any size."""
    return api.export(place / "model", place / "onnx", dynamic=True).exported.folder


def masks_of(source: Path, place: Path, out: Path) -> list[bytes]:
    done = api.predict(source, place / "frames" / "images", out, what=["masks"], batch=2)
    assert (done.made, done.problems) == (len(SHAPES), ())
    return [path.read_bytes() for path in sorted((out / "masks").rglob("*.png"))]


def test_it_is_compared_at_other_numbers_and_sizes_before_it_is_there(dynamic: Path) -> None:
    sheet = json.loads((dynamic / "preprocess.json").read_text())
    assert names_in(dynamic) == ["model.onnx", "preprocess.json"]
    assert [check["shape"] for check in sheet["checks"]] == [[3, 3, 97, 161], [1, 3, 150, 100]]  # traced: 2, 130, 190
    assert all(0 < check["max_difference"] < 1e-4 and check["agreement"] > 0.999 for check in sheet["checks"])
    assert [c["name"] for c in sheet["classes"]] == [c.name for c in TABLE]
    assert (sheet["input"]["short_side"], sheet["input"]["multiple"], sheet["input"]["batch"]) == (SIDE, 1, None)


def test_a_graph_has_the_same_bytes_again_and_tells_nothing_of_the_machine(net: Segmenter) -> None:
    graph, again = (to_onnx(net, spec_of(net), (SIDE, SIDE))[0] for _ in range(2))
    assert graph == again
    assert b".py" not in graph  # the exporter notes the line of code behind every node
    assert sys.prefix.encode() not in graph


def test_predict_takes_a_model_and_its_export_alike(dynamic: Path, place: Path, tmp_path: Path) -> None:
    assert masks_of(dynamic, place, tmp_path / "a") == masks_of(place / "model", place, tmp_path / "b")
    again = api.predict(dynamic, place / "frames" / "images", tmp_path / "a", what=["masks"], batch=2)
    assert (again.made, again.there) == (0, len(SHAPES))
    with pytest.raises(UsageError, match="other settings"):  # a folder that another model began is not gone on with
        api.predict(dynamic, place / "frames" / "images", tmp_path / "b", what=["masks"], batch=2)


def test_eval_takes_an_export(dynamic: Path, place: Path) -> None:
    found = api.evaluate(dynamic, place / "frames", part="test")
    assert found["miou"] == pytest.approx(1.0, abs=1e-3)
    assert len([c for c in found["classes"] if c["pixels"]]) == len(TABLE)


def test_the_example_without_us_says_the_same(dynamic: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('the example must do without')\n")
    (tmp_path / "ftcseg.py").write_text("raise ImportError('the example must do without')\n")
    masks_of(dynamic, place, tmp_path / "ours")
    for number in (1, 3):
        image, mask = place / "frames" / "images" / "test" / f"{number}.png", tmp_path / f"{number}.png"
        command = [sys.executable, str(EXAMPLE), str(dynamic), str(image), str(mask)]
        subprocess.run(command, check=True, env={"PYTHONPATH": str(tmp_path), "PATH": ""}, timeout=120)
        ours = np.asarray(Image.open(tmp_path / "ours" / "masks" / "test" / f"{number}.png"))
        theirs = np.asarray(Image.open(mask))
        assert theirs.shape == ours.shape
        assert (theirs == ours).mean() > 0.999
        assert len(np.unique(theirs)) > 1


def test_int8_is_smaller_and_says_what_it_costs(
    dynamic: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "to_onnx", lambda *_: ((dynamic / "model.onnx").read_bytes(), None))  # not written twice
    command = ["export", str(place / "model"), "--int8", "--dynamic", "--images", str(place / "frames" / "images")]
    command += ["--dataset", str(place / "frames"), "--part", "test", "--out", str(tmp_path / "int8")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("noise, before int8: 4 images of 150×100, 97×161; largest difference")
    assert lines[1].startswith("images: 4 images of")
    assert lines[2].startswith("mIoU 100.00 -> ")
    assert lines[3].startswith(f"Wrote {tmp_path / 'int8'}")
    assert 0 < float(lines[2].split("(")[1].split()[0]) < 20  # rounding is never free
    graph = onnx.load(tmp_path / "int8" / "model.onnx").graph
    weights = {tensor.name for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
    exact = [node.input[1] for node in products if node.input[1] in weights]  # the others come through DequantizeLinear
    assert len(exact) == -(-len(products) // 6)
    assert all(name.startswith("encoder.") for name in exact)  # the first ones
    rounded = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.data_type == INT8]
    assert max(abs(int(values.min())) for values in rounded if values.size > 1) <= 64  # seven bits: no sum overflows
    assert max(int(values.max()) for values in rounded if values.size > 1) in (63, 64)
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") > 10
    assert (tmp_path / "int8" / "model.onnx").stat().st_size < (dynamic / "model.onnx").stat().st_size


def test_openvino_for_one_size(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is an extra")
    done = api.export(place / "model", tmp_path / "ov", format="openvino", size=(48, 64)).exported
    assert names_in(tmp_path / "ov") == ["model.bin", "model.xml", "preprocess.json"]
    assert [check.what for check in done.checks] == ["noise", "noise, openvino"]
    assert all(check.max_difference < 1e-4 for check in done.checks)
    first = place / "frames" / "images" / "test" / "0.png"  # 60 x 80 becomes 48 x 64
    ours, theirs = (inference.load(folder).predict(first).labels for folder in (place / "model", tmp_path / "ov"))
    assert (ours == theirs).mean() > 0.999
    with pytest.raises(UsageError, match=r"48×64 .* alone; .* at 60×48\. Export it with --dynamic"):
        inference.load(tmp_path / "ov").predict(place / "frames" / "images" / "test" / "2.png")


@pytest.mark.parametrize("kind", ["efficientnet-fusion", "resnet-deeplab", "mit-mlp"])
def test_every_family_for_one_size(kind: str, tmp_path: Path) -> None:
    net = net_of(kind)
    done = export(net, spec_of(net), tmp_path / "out", Choices(size=(45, 70)))
    assert done.sheet.size == (45, 70)
    assert [check.shape for check in done.checks] == [(3, 3, 45, 70)]


def test_clip_and_its_words_for_one_size(tmp_path: Path) -> None:
    net = net_of("", save_clip(tmp_path / "clip"))
    done = export(net, spec_of(net), tmp_path / "out", Choices(size=(30, 50)))
    assert done.sheet.size == (32, 48)  # the nearest multiples of its patches


def test_dinov2_for_any_size(tmp_path: Path) -> None:
    net = net_of("dinov2-dpt")
    spec = spec_of(net, "dinov2-small", "dpt")
    export(net, spec, tmp_path / "out", Choices(dynamic=True))
    written = load_export(tmp_path / "out")
    for shape in ((1, 42, 42), (2, 42, 70), (1, 518, 518)):  # the least one, and the grid its positions were made for
        images = noise(net, shape)
        with torch.no_grad():
            truth = net(normalised(images, spec))
        assert (written(images) - truth).abs().max() < 1e-4
    with pytest.raises(UsageError, match="sides of 42 or more"):
        written(noise(net, (1, 28, 42)))


def test_folded_opr_leaves_no_gate_in_the_graph(dynamic: Path) -> None:
    names = [tensor.name for tensor in onnx.load(dynamic / "model.onnx").graph.initializer]
    assert [name for name in names if name.startswith("opr.")] != []
    assert not [name for name in names if "probe" in name or "prototypes" in name or "foreground" in name]


# ---------------------------------------------------------------- what goes wrong leaves nothing behind


def test_a_graph_that_answers_otherwise_is_not_handed_out(
    net: Segmenter, dynamic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, graph = spec_of(net), (dynamic / "model.onnx").read_bytes()
    other = net_of("tiny-fusion")
    nn.init.constant_(other.head.classifier.weight, 0.1)
    monkeypatch.setattr(make, "to_onnx", lambda *_: (graph, None))
    export(net, spec, tmp_path / "right", Choices(dynamic=True))
    with pytest.raises(ExportError, match="does not answer as the network does"):
        export(other, spec, tmp_path / "wrong", Choices(dynamic=True))
    assert names_in(tmp_path) == ["right"]
    (tmp_path / "right" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match=r"model\.onnx cannot be opened"):
        load_export(tmp_path / "right")


def test_int8_that_loses_its_classes_is_not_handed_out(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamic: Path
) -> None:
    monkeypatch.setattr(make, "to_onnx", lambda *_: ((dynamic / "model.onnx").read_bytes(), None))
    monkeypatch.setattr(make, "LEAST_INT8_AGREEMENT", 1.01)
    with pytest.raises(ExportError, match=r"In int8 only .* Nothing was written"):
        api.export(
            place / "model", tmp_path / "int8", int8=True, dynamic=True, images=place / "frames" / "images" / "test"
        )
    assert names_in(tmp_path) == []


def test_calls_that_cannot_be_meant(place: Path, dynamic: Path, tmp_path: Path) -> None:
    model = place / "model"
    with pytest.raises(UsageError, match="exists and is not empty"):
        api.export(model, dynamic)
    with pytest.raises(UsageError, match="give a folder of them with --images"):
        api.export(model, tmp_path / "new", int8=True)
    with pytest.raises(UsageError, match="--dynamic or --size, not both"):
        api.export(model, tmp_path / "new", dynamic=True, size=(32, 32))
    with pytest.raises(UsageError, match="no format called 'onx'"):
        api.export(model, tmp_path / "new", format="onx")
    with pytest.raises(UsageError, match="is an exported model already"):
        api.export(dynamic, tmp_path / "new")
    inputs = make._inputs([place / "frames" / "images" / "test" / "0.png"], _fixed(place), lambda *_: None)
    with pytest.raises(UsageError, match=r"0\.png would be asked about at 48×64, the model is made for 32×32"):
        next(inputs)
    assert names_in(tmp_path) == []


def _fixed(place: Path) -> Sheet:
    spec = inference.load_source(place / "model").spec
    return Sheet(format="onnx", spec=spec, size=(32, 32), least=32, batch=1)


def test_a_model_without_a_size_asks_for_one(net: Segmenter, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give --size HEIGHTxWIDTH, --images, or --dynamic"):
        export(net, spec_of(net), tmp_path / "out", Choices())


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"pip install 'ftcseg\[onnx\]'"):
        opened_onnx(b"")


@pytest.mark.parametrize("text", ["322", "322x", "ax3", "1x2x3", "-3x4"])
def test_a_size_is_two_numbers(text: str) -> None:
    assert parse_size("322x476") == (322, 476)
    with pytest.raises(UsageError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(
    "change",
    [{"format": "pickle"}, {"ftcseg_export": 2}, {"input": {"least": 0}}, {"input": 3}, {"model": {}}],
    ids=str,
)
def test_a_strangers_sheet_is_read_with_bounds(dynamic: Path, tmp_path: Path, change: dict[str, object]) -> None:
    sheet = json.loads((dynamic / "preprocess.json").read_text())
    write_json(tmp_path / "preprocess.json", {**sheet, **change})
    with pytest.raises(ModelError):
        load_export(tmp_path)
    write_json(tmp_path / "preprocess.json", sheet)
    with pytest.raises(ModelError, match=r"holds no model\.onnx"):
        load_export(tmp_path)


def test_a_graph_of_one_image_is_asked_image_by_image() -> None:
    asked: list[tuple[int, ...]] = []
    net = net_of("tiny-fusion")
    sheet = Sheet(format="onnx", spec=spec_of(net), size=None, least=32, batch=1)

    def run(images: np.ndarray) -> np.ndarray:
        asked.append(images.shape)
        return images[:, :1] * 2

    images = noise(net, (3, 32, 40))
    assert torch.equal(RuntimeNet(run, sheet, b"x")(images), images[:, :1] * 2)
    assert asked == [(1, 3, 32, 40)] * 3
