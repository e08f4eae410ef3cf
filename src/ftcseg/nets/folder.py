"""A model as a folder: `config.json` says what it is, `model.safetensors` holds its weights.

A folder from a stranger is read as what it is, numbers and names: nothing in it is unpickled or imported, and nothing
is fetched unless asked for with `hub=True`. The config is read with bounds on every size and refuses what it does not
know; the weights must fit to the last tensor.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ftcseg.errors import DataError, FtcsegError, UsageError
from ftcseg.files import atomic, read_json, write_json
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders.base import Encoder, StrideIn
from ftcseg.nets.encoders.build import build_encoder
from ftcseg.nets.encoders.resnet import Bottleneck, ResNet
from ftcseg.nets.encoders.table import ENCODERS
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import GROUPS, ClassInfo, ClassTable, Group

VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

MAX_CONFIG_BYTES = 4 * 2**20
MAX_HEADER_BYTES = 16 * 2**20
"""A header line takes about a hundred bytes; no network of ours has a hundred thousand tensors."""
MAX_CLASSES = 4096
MAX_CHANNELS = 64
MAX_FEATURES = 1024  # the widest published head has 256
MAX_SIDE = 16_384
MAX_MULTIPLE = 256
MAX_NAME = 200
MAX_OPR = 4096  # prototypes per stage
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_WHOLE = {torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL", torch.uint8: "U8"}
_SHOWN = 3


class ModelError(DataError):
    """A model folder cannot be used."""

    kind = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Everything but the weights: how the network is built and how images are handed to it.

    Images become numbers from 0 to 1 by `geometry.WHITE`, are brought to `short_side`, normalised by `mean` and `std`,
    and resized to the nearest `multiple`.
    """

    encoder: str
    head: str
    classes: ClassTable
    mean: tuple[float, ...]
    std: tuple[float, ...]
    head_features: int | None = None
    in_channels: int = 3
    opr: Mapping[str, Any] | None = None
    """The fields of OPRParams; None is a network without OPR."""
    short_side: int | None = None
    """Images are brought to this shorter side before the network; None keeps their size."""
    multiple: int = 1
    resnet_stride: StrideIn | None = None
    """Where a ResNet's bottlenecks step if not in their 3x3 convolution; no tensor tells, so `save_model` notes it."""
    version: int = VERSION

    @property
    def groups(self) -> dict[int, Group]:
        """Class id -> group, for the classes that have one."""
        return {c.id: c.group or "background" for c in self.classes if c.group or c.background}

    def opr_params(self) -> OPRParams | None:
        """The reading of OPR; a key or value that is none of its own is a ModelError."""
        return None if self.opr is None else _opr_params(self.opr)

    def as_json(self) -> dict[str, object]:
        """Plain values, as `from_json` reads them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("version", "classes", "opr")}
        opr = None if self.opr is None else {k: list(v) if isinstance(v, tuple) else v for k, v in self.opr.items()}
        classes = [{"name": c.name, "background": c.background, "group": c.group} for c in self.classes]
        lists = {name: list(plain[name]) for name in ("mean", "std")}
        return {"ftcseg": self.version, **plain, **lists, "opr": opr, "classes": classes}

    @classmethod
    def from_json(cls, data: object) -> ModelSpec:
        """The spec of parsed JSON; anything unknown, missing or out of bounds is a ModelError that names it."""
        known = ("ftcseg", *(f.name for f in fields(cls) if f.name != "version"))
        values = _Values(data, known, "the config")
        if values.get("ftcseg") != VERSION:
            raise ModelError(
                f"The model is of format {values.get('ftcseg')!r:.40}; this version reads {VERSION}.",
                remedy="Export it again with a matching version of ftcseg.",
            )
        channels = values.whole("in_channels", 1, MAX_CHANNELS)
        std = values.numbers("std", channels)
        if min(std) <= 0:
            raise ModelError("«std» of the config must be above 0.")
        opr, stride = values.get("opr"), values.get("resnet_stride")
        if stride is not None and stride not in get_args(StrideIn):
            raise ModelError(f"«resnet_stride» of the config must be null or one of {list(get_args(StrideIn))}.")
        spec = cls(
            encoder=values.text("encoder"),
            head=values.text("head"),
            classes=_classes(values.get("classes")),
            mean=values.numbers("mean", channels),
            std=std,
            head_features=values.whole_or_none("head_features", 1, MAX_FEATURES),
            in_channels=channels,
            opr=None if opr is None else {k: tuple(v) if isinstance(v, list) else v for k, v in _mapping(opr).items()},
            short_side=values.whole_or_none("short_side", 1, MAX_SIDE),
            multiple=values.whole("multiple", 1, MAX_MULTIPLE),
            resnet_stride=stride,
        )
        spec.opr_params()
        return spec


def save_model(folder: str | Path, net: Segmenter, spec: ModelSpec) -> None:
    """Write the folder. At no moment does it hold the weights of one model and the config of another."""
    if net.num_classes != len(spec.classes):
        raise UsageError(f"The network has {net.num_classes} classes, its description {len(spec.classes)}.")
    spec = replace(spec, resnet_stride=_stride_of(net.encoder))
    config, weights = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    if config.is_file() and read_json(config, MAX_CONFIG_BYTES) != spec.as_json():
        config.unlink()  # the old weights go next; without a config nobody takes the folder for a model
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    with atomic(weights) as file:
        # One remark only: safetensors writes several in any order, and the bytes should be the same again.
        file.write(save(state, {"format": "pt"}))
    write_json(config, spec.as_json())


def load_model(folder: str | Path, *, hub: bool = False) -> tuple[Segmenter, ModelSpec]:
    """The network of a folder, in evaluation mode on the CPU, and its spec. `hub` as in `build_net`."""
    spec = read_spec(folder)
    net = build_net(spec, hub=hub)
    fill(net, Path(folder) / WEIGHTS)
    return net.eval(), spec


def read_spec(folder: str | Path) -> ModelSpec:
    """The spec of a model folder."""
    config = Path(folder) / CONFIG
    if not config.is_file():
        raise ModelError(f"{folder} is no model: it holds no {CONFIG}.", remedy="Give a model folder, or a run.")
    try:
        return ModelSpec.from_json(read_json(config, MAX_CONFIG_BYTES))
    except ModelError as error:
        raise ModelError(f"{config}: {error.what}", remedy=error.remedy) from error


def build_net(spec: ModelSpec, *, hub: bool = False) -> Segmenter:
    """The network of a spec, with random weights. Torch's global generator is left as it was.

    `hub` allows encoders that are not ours, whose architecture is read from the model hub or from another folder.
    """
    if spec.encoder not in ENCODERS and not hub:
        raise ModelError(
            f"The model's encoder is {spec.encoder!r}, which is none of ours and would be looked up elsewhere.",
            remedy="Where you trust the model, say so: --hub on the command line, hub=True in Python.",
        )
    with torch.random.fork_rng(devices=[]):
        net, _ = build_model(
            spec.encoder,
            spec.head,
            len(spec.classes),
            opr=spec.opr_params(),
            weights=None,
            in_channels=spec.in_channels,
            head_features=spec.head_features,
        )
        net.encoder = _restrided(net.encoder, spec)
    if net.encoder.multiple != spec.multiple:
        raise ModelError(
            f"The config says that sides are multiples of {spec.multiple}; {spec.encoder} wants {net.encoder.multiple}."
        )
    return net


def _stride_of(encoder: nn.Module) -> StrideIn | None:
    """«1x1» of a ResNet whose bottlenecks step there; None of everything else."""
    blocks = [block for block in encoder.modules() if isinstance(block, Bottleneck)]
    return "1x1" if any(block.conv1.stride != (1, 1) for block in blocks) else None


def _restrided(encoder: Encoder, spec: ModelSpec) -> Encoder:
    """The encoder itself, or the same ResNet with its strides elsewhere."""
    if spec.resnet_stride in (None, "3x3") or not isinstance(encoder, ResNet):
        return encoder
    steps = any(conv.stride != (1, 1) for conv in encoder.layer4.modules() if isinstance(conv, nn.Conv2d))
    other, _ = build_encoder(
        spec.encoder,
        in_channels=spec.in_channels,
        weights=None,
        dilate_last=not steps,
        resnet_stride=spec.resnet_stride,
    )
    return other


def fill(module: nn.Module, path: Path, prefix: str = "") -> None:
    """Load the tensors of a .safetensors file whose names begin with `prefix`; they must fit to the last one."""
    wanted = module.state_dict()
    with opened(path) as file:
        there = {key.removeprefix(prefix) for key in file.keys() if key.startswith(prefix)}  # noqa: SIM118 - no dict
        problems = _problems(wanted, there, {key: file.get_slice(prefix + key) for key in wanted.keys() & there})
        if problems:
            raise ModelError(
                f"{path} does not fit its config: {'; '.join(problems)}.",
                remedy="Are the two files of the same model? Copy the whole folder again.",
            )
        state = {key: file.get_tensor(prefix + key) for key in wanted}
    bad = [key for key, tensor in state.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if bad:
        raise ModelError(f"{path} holds NaN or infinity in {_some(bad)}.", remedy="Use another checkpoint.")
    module.load_state_dict(state)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A .safetensors file, its header's size judged before it is read; whatever else it may be is a ModelError."""
    try:
        size = path.stat().st_size
        with path.open("rb") as raw:
            header = int.from_bytes(raw.read(8), "little")
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", remedy="Is the folder whole?") from error
    if not 2 <= header <= min(MAX_HEADER_BYTES, size - 8):
        raise ModelError(
            f"{path} is no safetensors file, or is damaged; nothing of it was loaded.",
            remedy="Copy or export it again.",
        )
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged ({error}).", remedy="Copy or export it again.") from error


def has_part(path: Path, prefix: str) -> bool:
    """Whether a .safetensors file holds tensors whose names begin so."""
    with opened(path) as file:
        return any(key.startswith(prefix) for key in file.keys())  # noqa: SIM118 - no dict


def fingerprint(net: nn.Module) -> str:
    """A hash of all weights: equal for two networks that answer alike."""
    digest = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _problems(wanted: Mapping[str, Tensor], there: set[str], slices: Mapping[str, Any]) -> list[str]:
    missing, unknown = sorted(wanted.keys() - there), sorted(there - wanted.keys())
    shapes = [
        f"{key} {tuple(slices[key].get_shape())} instead of {tuple(wanted[key].shape)}"
        for key in sorted(slices)
        if tuple(slices[key].get_shape()) != tuple(wanted[key].shape)
    ]
    kinds = [
        f"{key} as {slices[key].get_dtype()}" for key in sorted(slices) if not _same_kind(slices[key], wanted[key])
    ]
    lists = {"missing": missing, "unknown": unknown, "of another shape": shapes, "of another type": kinds}
    return [f"{len(keys)} tensors are {what} ({_some(keys)})" for what, keys in lists.items() if keys]


def _same_kind(found: Any, wanted: Tensor) -> bool:
    """Floats of any width may stand for each other, as half precision keeps files small; nothing else may."""
    name = found.get_dtype()
    return name in _FLOATS if wanted.is_floating_point() else name == _WHOLE.get(wanted.dtype)


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (", …" if len(keys) > _SHOWN else "")


class _Values:
    """A mapping of parsed JSON with exactly the known keys, read value by value."""

    def __init__(self, data: object, known: tuple[str, ...], where: str) -> None:
        self.data, self.where = _mapping(data), where
        for what, keys in (("unknown", self.data.keys() - set(known)), ("missing", set(known) - self.data.keys())):
            if keys:
                raise ModelError(
                    f"«{min(keys)[:MAX_NAME]}» is {what} in {where}.", remedy="Was it written by another version?"
                )

    def get(self, key: str) -> Any:
        return self.data[key]

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
            raise ModelError(f"«{key}» of {self.where} must be a name of at most {MAX_NAME} characters.")
        return value

    def whole(self, key: str, low: int, high: int) -> int:
        value = self.get(key)
        if type(value) is not int or not low <= value <= high:
            raise ModelError(f"«{key}» of {self.where} must be a whole number from {low} to {high}.")
        return value

    def whole_or_none(self, key: str, low: int, high: int) -> int | None:
        return None if self.get(key) is None else self.whole(key, low, high)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        value = self.get(key)
        if not isinstance(value, list) or len(value) != count or not all(map(_is_number, value)):
            raise ModelError(f"«{key}» of {self.where} must be {count} numbers, one a channel.")
        return tuple(float(v) for v in value)


def _mapping(data: object) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ModelError("The config must be a mapping of names to values.")
    return data


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(cast("float", value)) <= 1e6 and math.isfinite(cast("float", value))


def _classes(data: object) -> ClassTable:
    if not isinstance(data, list) or not 2 <= len(data) <= MAX_CLASSES:
        raise ModelError(f"«classes» of the config must be a list of 2 to {MAX_CLASSES}.")
    return ClassTable(tuple(_class(i, entry) for i, entry in enumerate(data)))


def _class(class_id: int, entry: object) -> ClassInfo:
    values = _Values(entry, ("name", "background", "group"), f"class {class_id}")
    background, group = values.get("background"), values.get("group")
    if not isinstance(background, bool) or not (group is None or group in GROUPS):
        raise ModelError(f"Class {class_id} needs «background» true or false, and «group» null or of {list(GROUPS)}.")
    return ClassInfo(class_id, values.text("name"), background=background, group=group)


def _opr_params(data: Mapping[str, Any]) -> OPRParams:
    plain = OPRParams()
    for key, value in data.items():
        if not hasattr(plain, key) or key not in {f.name for f in fields(plain)}:
            raise ModelError(f"«{key[:MAX_NAME]}» is unknown in opr.", remedy="Was it written by another version?")
        if not _fits(value, getattr(plain, key)):
            raise ModelError(f"«{key}» of opr cannot be {str(value)[:40]!r}.")
    try:
        return OPRParams(**data)
    except FtcsegError as error:
        raise ModelError(f"«opr»: {error}") from error


def _fits(value: object, default: object) -> bool:
    """Whether a value is of the kind of a field's default; None stands for a list of class ids."""
    if default is None:
        ids = value if isinstance(value, tuple) else ()
        return value is None or (0 < len(ids) <= MAX_CLASSES and all(type(i) is int and i >= 0 for i in ids))
    if isinstance(default, bool | str):
        return type(value) is type(default)
    if isinstance(default, int):
        return type(value) is int and 0 <= value <= MAX_OPR
    return _is_number(value)
