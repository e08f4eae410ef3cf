from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ftcseg.errors import FetchError
from ftcseg.nets.encoders import build_encoder, dinov2, efficientnet_lite, mit, resnet
from ftcseg.nets.encoders.base import Encoder, Options, fit_input, fit_stats
from ftcseg.nets.weights import KeyMap, WeightsError, WeightsReport, find_weights, load_weights, read_state

State = dict[str, Tensor]
VIT = dinov2.Shape(dim=16, depth=2, heads=2, taps=(0, 0, 1, 1))
MIT = mit.Shape((8, 16, 40, 64), (1, 1, 1, 1))


def vit() -> dinov2.DinoV2:
    return dinov2.DinoV2(VIT, Options())


def stirred(encoder: Encoder) -> State:
    """A state in which every number is different, as after training."""
    torch.manual_seed(1)
    for tensor in encoder.state_dict().values():
        if tensor.is_floating_point():
            tensor.normal_()
    return {key: tensor.clone() for key, tensor in encoder.state_dict().items()}


def official_dinov2(state: State) -> State:
    names = {}
    for key, tensor in state.items():
        new = re.sub(r"^embed\.(cls_token|pos_embed|mask_token)$", r"\1", key)
        new = new.replace("embed.proj", "patch_embed.proj").replace("layers.", "blocks.")
        names[re.sub(r"scale([12])$", r"ls\1.gamma", new)] = tensor
    return names


def transformers_dinov2(state: State) -> State:
    names = {}
    for key, tensor in state.items():
        new = key.replace("embed.pos_embed", "embeddings.position_embeddings")
        new = new.replace("embed.proj", "embeddings.patch_embeddings.projection")
        new = re.sub(r"^embed\.(\w+)$", r"embeddings.\1", new)
        new = re.sub(r"^norm\.", "layernorm.", new).replace("layers.", "encoder.layer.")
        new = re.sub(r"scale([12])$", r"layer_scale\1.lambda1", new).replace("attn.proj", "attention.output.dense")
        if "attn.qkv" in new:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                names[new.replace("attn.qkv", f"attention.attention.{part}")] = piece.clone()
        else:
            names[new] = tensor
    return names


def official_mit(state: State) -> State:
    names = {}
    for key, tensor in state.items():
        stage = int(key.split(".")[1]) + 1
        new = re.sub(r"^stages\.\d\.embed\.", f"patch_embed{stage}.", key)
        new = re.sub(r"^stages\.\d\.blocks\.", f"block{stage}.", new)
        new = re.sub(r"^stages\.\d\.norm\.", f"norm{stage}.", new)
        names[new.replace("mlp.dwconv.", "mlp.dwconv.dwconv.")] = tensor
    return {**names, "head.weight": torch.zeros(10, 64), "head.bias": torch.zeros(10)}


def transformers_mit(state: State) -> State:
    names = {"classifier.weight": torch.zeros(10, 64), "classifier.bias": torch.zeros(10)}
    for key, tensor in state.items():
        new = re.sub(r"^stages\.(\d)\.embed\.norm\.", r"encoder.patch_embeddings.\1.layer_norm.", key)
        new = re.sub(r"^stages\.(\d)\.embed\.", r"encoder.patch_embeddings.\1.", new)
        new = re.sub(r"^stages\.(\d)\.norm\.", r"encoder.layer_norm.\1.", new)
        new = re.sub(r"^stages\.(\d)\.blocks\.", r"encoder.block.\1.", new)
        new = re.sub(r"\.norm([12])\.", r".layer_norm_\1.", new).replace("attn.norm", "attention.self.layer_norm")
        new = new.replace("attn.q.", "attention.self.query.").replace("attn.sr", "attention.self.sr")
        new = new.replace("attn.proj", "attention.output.dense").replace("mlp.dwconv.", "mlp.dwconv.dwconv.")
        new = "segformer." + re.sub(r"mlp\.fc([12])", r"mlp.dense\1", new)
        if "attn.kv" in new:
            for part, piece in zip(("key", "value"), tensor.chunk(2), strict=True):
                names[new.replace("attn.kv", f"attention.self.{part}")] = piece.clone()
        else:
            names[new] = tensor
    return names


def torchvision_resnet(state: State) -> State:
    counters = {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}
    return {**counters, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def transformers_resnet(state: State) -> State:
    names = {}
    for key, tensor in state.items():
        new = re.sub(r"^conv1\.", "resnet.embedder.embedder.convolution.", key)
        new = re.sub(r"^bn1\.", "resnet.embedder.embedder.normalization.", new)
        found = re.match(r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.([01]))\.(.*)", new)
        if found:
            stage, block, kind, number, shortcut, end = found.groups()
            part = "convolution" if kind == "conv" or shortcut == "0" else "normalization"
            place = "shortcut" if shortcut else f"layer.{int(number) - 1}"
            new = f"resnet.encoder.stages.{int(stage) - 1}.layers.{block}.{place}.{part}.{end}"
        names[new] = tensor
    return {**names, "classifier.1.weight": torch.zeros(10, 512)}


CASES: dict[str, tuple[Callable[[], Encoder], KeyMap, Callable[[State], State]]] = {
    "dinov2, its authors": (vit, dinov2.KEYS, official_dinov2),
    "dinov2, transformers": (vit, dinov2.KEYS, transformers_dinov2),
    "mit, its authors": (lambda: mit.MiT(MIT, Options()), mit.KEYS, official_mit),
    "mit, transformers": (lambda: mit.MiT(MIT, Options()), mit.KEYS, transformers_mit),
    "resnet, torchvision": (lambda: resnet.build("resnet-18", Options()), resnet.KEYS, torchvision_resnet),
    "resnet, transformers": (lambda: resnet.build("resnet-18", Options()), resnet.KEYS, transformers_resnet),
    "ours": (vit, dinov2.KEYS, dict),
}


@pytest.mark.parametrize("case", CASES)
def test_every_naming_comes_back_as_it_went_out(case: str, tmp_path: Path) -> None:
    make, keys, publish = CASES[case]
    state = stirred(make())
    save_file(publish(state), tmp_path / "model.safetensors")
    encoder = make()
    report = load_weights(encoder, tmp_path / "model.safetensors", keys)
    assert report.missing == report.reshaped == ()
    assert all(key.startswith(("head.", "classifier.", "fc.")) for key in report.unexpected)
    for key, tensor in encoder.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(tensor, state[key]), key


@pytest.mark.parametrize("wrap", [lambda s: {"model": s}, lambda s: {"epoch": 3, "state_dict": s, "optimizer": {}}])
@pytest.mark.parametrize("prefix", ["", "module.", "module.backbone.", "encoder."])
def test_wrapped_and_prefixed_checkpoints(wrap: Callable[[State], object], prefix: str, tmp_path: Path) -> None:
    state = stirred(vit())
    torch.save(wrap({f"{prefix}{key}": value for key, value in official_dinov2(state).items()}), tmp_path / "a.pth")
    encoder = vit()
    report = load_weights(encoder, tmp_path / "a.pth", dinov2.KEYS)
    assert len(report.matched) == len(state)
    assert all(torch.equal(value, state[key]) for key, value in encoder.state_dict().items())


def test_the_encoder_is_taken_out_of_a_whole_segmentation_model(tmp_path: Path) -> None:
    state = stirred(vit())
    whole = {f"backbone.{key}": value for key, value in official_dinov2(state).items()}
    torch.save({**whole, "decoder.conv.weight": torch.zeros(3)}, tmp_path / "a.pt")
    report = load_weights(vit(), tmp_path / "a.pt", dinov2.KEYS)
    assert report.unexpected == ("decoder.conv.weight",)


def test_half_precision_is_brought_back(tmp_path: Path) -> None:
    state = {key: tensor.half() for key, tensor in stirred(vit()).items()}
    save_file(state, tmp_path / "half.safetensors")
    encoder = vit()
    load_weights(encoder, tmp_path / "half.safetensors", dinov2.KEYS)
    assert encoder.norm.weight.dtype == torch.float32
    assert torch.equal(encoder.norm.weight, state["norm.weight"].float())


def test_positions_of_another_grid_are_interpolated_and_reported(tmp_path: Path) -> None:
    state = stirred(vit())
    other = {**state, "embed.pos_embed": torch.randn(1, 1 + 16 * 16, 16)}
    save_file(other, tmp_path / "grid16.safetensors")
    encoder = vit()
    report = load_weights(encoder, tmp_path / "grid16.safetensors", dinov2.KEYS)
    assert report.reshaped == ("embed.pos_embed",)
    assert torch.equal(encoder.embed.pos_embed, dinov2.grid_positions(other["embed.pos_embed"], 37, 37))
    assert str(report).endswith("1 reshaped (embed.pos_embed)")


def test_a_mask_token_may_be_missing(tmp_path: Path) -> None:
    state = stirred(vit())
    del state["embed.mask_token"]
    save_file(state, tmp_path / "m.safetensors")
    assert load_weights(vit(), tmp_path / "m.safetensors", dinov2.KEYS).missing == ("embed.mask_token",)


def without(state: State) -> State:
    return {key: value for key, value in state.items() if not key.startswith("layers.1.mlp")}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without, r"4 missing \(layers\.1\.mlp\.fc1\.weight, .*, …\)"),
        (lambda s: {**s, "register_tokens": torch.zeros(1)}, r"1 unknown \(register_tokens\)"),
        (lambda s: {**s, "norm.weight": torch.zeros(17)}, r"norm\.weight \(17,\) instead of \(16,\)"),
        (lambda s: {**s, "embed.pos_embed": torch.zeros(1, 12, 16)}, r"embed\.pos_embed \(1, 12, 16\)"),
    ],
)
def test_a_file_that_does_not_fit_stops_and_changes_nothing(
    spoil: Callable[[State], State], words: str, tmp_path: Path
) -> None:
    save_file(spoil(stirred(vit())), tmp_path / "other.safetensors")
    encoder = vit()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    with pytest.raises(WeightsError, match=words) as caught:
        load_weights(encoder, tmp_path / "other.safetensors", dinov2.KEYS)
    assert "another encoder" in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    state = stirred(vit())
    state["norm.bias"][3] = torch.nan
    save_file(state, tmp_path / "nan.safetensors")
    with pytest.raises(WeightsError, match=r"NaN or infinity in norm\.bias"):
        load_weights(vit(), tmp_path / "nan.safetensors", dinov2.KEYS)


class Payload:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.path, "w"))


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(
    write: Callable[[object, Path], None], tmp_path: Path
) -> None:
    write({"model": {"weight": torch.zeros(1)}, "extra": Payload(tmp_path / "owned")}, tmp_path / "evil.pth")
    with pytest.raises(WeightsError, match=r"stranger's code"):
        read_state(tmp_path / "evil.pth")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04" + bytes(50)])
def test_a_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        read_state(tmp_path / name)


def test_a_table_that_contains_itself_ends(tmp_path: Path) -> None:
    endless: dict[str, object] = {}
    endless["model"] = endless
    torch.save(endless, tmp_path / "loop.pth")
    with pytest.raises(WeightsError, match="no named tensors"):
        read_state(tmp_path / "loop.pth")


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"")
    with pytest.raises(WeightsError, match="no kind of weights file"):
        read_state(tmp_path / "a.h5")


def test_a_folder_is_searched_for_its_file(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds none of model\.safetensors"):
        find_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    assert find_weights(str(tmp_path)) == tmp_path / "pytorch_model.bin"
    (tmp_path / "model.safetensors").touch()
    assert find_weights(tmp_path) == tmp_path / "model.safetensors"


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no weights file .*gone\.pth"):
        build_encoder("resnet-18", weights=tmp_path / "gone.pth")


def test_a_packaged_file_must_match_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = tmp_path / "some_weights" / "models"
    models.mkdir(parents=True)
    (tmp_path / "some_weights" / "__init__.py").write_text("raise RuntimeError('imported')")
    (models / "net-00000000.pth").write_bytes(b"damaged on its way")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WeightsError, match="checksum 00000000"):
        find_weights("pip:some_weights")


def test_without_the_hub_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FetchError, match=r"https://huggingface\.co/facebook/dinov2-small.*pass its path"):
        find_weights("hub:facebook/dinov2-small")


def test_reports_fit_on_one_line() -> None:
    full = WeightsReport("a.pth", ("x", "y"), ("m",), ("fc.bias", "fc.weight"), ())
    assert str(full) == "a.pth: 2 tensors loaded, 2 left out (fc.bias, fc.weight), 1 not in it (m)"
    assert str(WeightsReport("no weights")) == "no weights: nothing loaded, the encoder starts from random weights"


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_other_channels_answer_a_repeated_picture_as_rgb_does(channels: int) -> None:
    weight, picture = torch.randn(4, 3, 7, 7), torch.randn(1, 1, 16, 16)
    fitted = fit_input(weight, torch.Size((4, channels, 7, 7)))
    assert fitted is not None
    rgb = torch.nn.functional.conv2d(picture.repeat(1, 3, 1, 1), weight)
    own = torch.nn.functional.conv2d(picture.repeat(1, channels, 1, 1), fitted)
    torch.testing.assert_close(own, rgb, rtol=1e-4, atol=1e-4)
    assert fit_input(weight, torch.Size((5, channels, 7, 7))) is None


def test_mean_and_std_are_averaged_for_other_channels() -> None:
    assert fit_stats((0.1, 0.2, 0.6), 1) == pytest.approx((0.3,))
    assert fit_stats((0.1, 0.2, 0.6), 2) == pytest.approx((0.3, 0.3))
    assert fit_stats((0.1, 0.2, 0.6), 3) == (0.1, 0.2, 0.6)


def test_weights_for_five_channels_load_into_five_as_they_are(tmp_path: Path) -> None:
    state = stirred(efficientnet_lite.build("efficientnet-lite0", Options(in_channels=5)))
    save_file(state, tmp_path / "five.safetensors")
    encoder, report = build_encoder("efficientnet-lite0", weights=tmp_path / "five.safetensors", in_channels=5)
    assert report.reshaped == ()
    assert torch.equal(encoder.get_parameter("stem.conv.weight"), state["stem.conv.weight"])
