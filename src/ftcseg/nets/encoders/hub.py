"""Any backbone that transformers knows, from the model hub or from a folder.

A backbone of stages gives its last four; one of many equal layers, such as a ViT, gives four evenly spaced ones. Only
tensors are read: models that bring their own code are refused, and so are those whose config.json names code to
compute with, which transformers would fetch and run where the package `kernels` is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ftcseg.errors import FetchError, UsageError
from ftcseg.files import inside, read_json
from ftcseg.nets.encoders.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    RGB,
    Encoder,
    Options,
    fit_input,
    fit_stats,
    park_unused,
    require_multiple,
    together,
)
from ftcseg.nets.encoders.table import ENCODERS
from ftcseg.nets.recompute import recomputing
from ftcseg.nets.weights import HUB, KeyMap, WeightsError, WeightsReport, hub_remedy, load_weights

MAPS = 4
FEW_STAGES = 5  # four stages, and perhaps a stem: more than these are the layers of a ViT
STAGED_MULTIPLE = 32
MAX_CONFIG_BYTES = 4 * 2**20
MAX_LAYERS = 512
MAX_NUMBER = 2**20
"""In a config: the widest published layers and largest vocabularies of image models stay below."""
MAX_PARAMETERS = 20 * 10**9
OWN_CODE = (None, "eager", "sdpa")
"""Ways to compute attention that are torch's or transformers' own; any other may come from elsewhere."""
HEAD_KEYS = (
    r"(^|\.)(classifier|cls_classifier|head|lm_head|pooler|decode_head|auxiliary_head|layernorm|mask_token)(\.|$)"
)
"""Keys of a published model that its backbone has no use for."""
NEW_NORM_KEYS = r"(^|\.)hidden_states_norms\."
"""Keys of a backbone that published classifiers lack; such a norm starts as the plain norm it is."""


class HubEncoder(Encoder):
    """A transformers backbone that keeps the promises of an Encoder."""

    def __init__(self, backbone: nn.Module, facts: Facts, in_channels: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.channels = facts.channels
        self.multiple = facts.multiple
        self.mean, self.std = fit_stats(facts.mean, in_channels), fit_stats(facts.std, in_channels)
        self.input_weight = f"backbone.{_input_weight(backbone, in_channels)}"
        self.unused = frozenset(f"backbone.{name}" for name in facts.unused)
        park_unused(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Four maps, as deep and as coarse as the backbone has them."""
        require_multiple(images, self.multiple)
        return list(self.backbone(images).feature_maps)

    def blocks(self) -> list[nn.Module]:
        """The backbone's layers in the order it lists them; lone norms belong to the layer before them."""
        blocks: list[nn.Module] = []
        for unit in _units(self.backbone):
            lone_norm = all(parameter.ndim <= 1 for parameter in unit.parameters())
            if lone_norm and blocks:
                blocks[-1] = together(blocks[-1], unit)
            else:
                blocks.append(unit)
        return blocks


@dataclass(frozen=True, slots=True)
class Facts:
    """What a dry run on no data tells about a backbone, and how its images are normalised."""

    channels: tuple[int, ...]
    multiple: int
    unused: tuple[str, ...]
    mean: Sequence[float]
    std: Sequence[float]


def is_foreign(name: str) -> bool:
    """Whether the name means a model of the hub or a folder, and not one of our own encoders."""
    if name in ENCODERS:  # even where the working folder holds a folder of that name
        return False
    return name.startswith(HUB) or "/" in name or "\\" in name or Path(name).is_dir()


def build(name: str, weights: str | Path | None, options: Options) -> tuple[HubEncoder, WeightsReport]:
    """A backbone with its own weights ("default"), those of a file with the same names, or random ones (None)."""
    place = place_of(name)
    with quiet():
        config = _config(name, place, options)
        kind, facts = _dry_run(name, place, config)
        if weights == "default":
            backbone, report = _pretrained(name, place, kind, config)
        else:
            backbone, report = kind(config), WeightsReport("no weights")
    encoder = HubEncoder(backbone, facts, options.in_channels)
    if weights is not None and weights != "default":
        keys = KeyMap(ignored=(HEAD_KEYS,), reshapes={encoder.input_weight.removeprefix("backbone."): fit_input})
        report = load_weights(backbone, weights, keys)
    return encoder, report


def recompute_layers(encoder: HubEncoder, name: str) -> None:
    """As `recompute_blocks`, by the backbone's own means: its layers hand each other more than one tensor."""
    backbone: Any = encoder.backbone
    try:
        backbone.gradient_checkpointing_enable(recomputing(backbone))
    except ValueError as error:  # transformers' way to say that a model was not made for it
        raise UsageError(f"{name} cannot trade time for memory: leave checkpointing out.") from error


def place_of(name: str) -> str:
    """What transformers is to open: a folder that exists, or a name on the hub."""
    if name.startswith(HUB):
        return name.removeprefix(HUB)
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{name} is not a folder with a transformers model: there is no {folder / 'config.json'}. "
            f"For a model of the hub, write «{HUB}owner/name»."
        )
    return str(folder)


def read_config(name: str, place: str) -> Any:
    """The model's configuration as it was published."""
    local = not name.startswith(HUB)
    if local:
        read_json(Path(place) / "config.json", MAX_CONFIG_BYTES)  # size and depth
    try:
        told, _ = library().PretrainedConfig.get_config_dict(place, local_files_only=local)
        _refuse_own_code(name, told)
        return library().AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=local)
    except UsageError:
        raise
    except ValueError as error:  # an unknown kind of model, or one that brings its own code
        raise UsageError(f"{name} cannot be used: {error}") from error
    except Exception as error:  # the client lets errors of its transport and of the system through
        if name.startswith(HUB):
            raise FetchError(hub_remedy(place)) from error
        raise UsageError(f"{name} cannot be read as a transformers model: {error}") from error


def _refuse_own_code(name: str, told: Any) -> None:
    """UsageError where a config names code to compute with, or is larger than any model."""
    waiting: list[tuple[str, Any]] = [("", told)]
    while waiting:
        key, value = waiting.pop()
        if "implementation" in key and not isinstance(value, dict) and value not in OWN_CODE:
            raise UsageError(
                f"{name} asks to be computed by {str(value)[:60]!r} («{key}» in its config.json), which may be code of "
                "a stranger's. Take that line out, or choose another model."
            )
        most = MAX_LAYERS if key.endswith(("layers", "depth", "depths")) else MAX_NUMBER
        if isinstance(value, int) and value > most:
            raise UsageError(f"{name} is larger than any model: «{key[:60]}» in its config.json is above {most:,}.")
        if isinstance(value, dict):
            # The tables of names and whatever else is keyed by numbers keep the name of their table.
            waiting += [(f"{key} {inner}" if "implementation" in key else str(inner), v) for inner, v in value.items()]
        elif isinstance(value, list):
            if len(value) > MAX_LAYERS and key.endswith(("depths", "layers")):
                raise UsageError(f"{name} is larger than any model: «{key[:60]}» has {len(value):,} entries.")
            waiting += [(key, v) for v in value]


def _config(name: str, place: str, options: Options) -> Any:
    """The model's configuration, set to give four maps."""
    config = read_config(name, place)
    stages = len(getattr(config, "stage_names", None) or ())
    if stages < MAPS:
        raise UsageError(f"{name} is a {config.model_type}, which cannot give {MAPS} maps. Choose another backbone.")
    if stages <= FEW_STAGES:
        config.out_indices = list(range(stages - MAPS, stages))
    else:
        config.out_indices = [round((stages - 1) * index / MAPS) for index in range(1, MAPS + 1)]
    if options.drop_path and not hasattr(config, "drop_path_rate"):
        raise UsageError(f"{name} has no drop_path; leave it out.")
    if options.drop_path:
        config.drop_path_rate = options.drop_path
    config.num_channels = options.in_channels
    return config


def _dry_run(name: str, place: str, config: Any) -> tuple[Any, Facts]:
    """The class of the backbone and its facts, found on the meta device: no memory, no arithmetic."""
    staged = len(config.stage_names) <= FEW_STAGES
    multiple = STAGED_MULTIPLE if staged else int(config.patch_size)
    try:
        with torch.device("meta"):
            backbone = library().AutoBackbone.from_config(config)
            maps = backbone(torch.empty(1, config.num_channels, 2 * multiple, 3 * multiple)).feature_maps
            names, parameters = zip(*backbone.named_parameters(), strict=True)
            if sum(parameter.numel() for parameter in parameters) > MAX_PARAMETERS:
                raise ValueError(f"more than {MAX_PARAMETERS:,} parameters")
            grads: tuple[Tensor | None, ...] = torch.autograd.grad(
                sum(m.sum() for m in maps), parameters, allow_unused=True
            )
    except Exception as error:  # whatever a stranger's model raises means the same to us
        raise UsageError(
            f"{name} cannot be an encoder for images of any size ({type(error).__name__}: {error})."
        ) from error
    unused = tuple(key for key, grad in zip(names, grads, strict=True) if grad is None)
    mean, std = stats_of(place)
    return type(backbone), Facts(tuple(m.shape[1] for m in maps), multiple, unused, mean, std)


def _pretrained(name: str, place: str, kind: Any, config: Any) -> tuple[Any, WeightsReport]:
    """The backbone with its published weights, spread over other channels than RGB if asked to."""
    in_channels = config.num_channels
    config.num_channels = RGB
    if not name.startswith(HUB):
        _require_own_shards(Path(place))
    try:
        backbone, info = kind.from_pretrained(
            place,
            config=config,
            output_loading_info=True,
            weights_only=True,
            dtype=torch.float32,
            local_files_only=not name.startswith(HUB),
        )
    except Exception as error:
        if name.startswith(HUB):
            raise FetchError(hub_remedy(place)) from error
        raise WeightsError(f"The weights in {name} cannot be read: {error}", remedy="Download them again.") from error
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    lost = [key for key in missing if not re.search(NEW_NORM_KEYS, key)]
    unknown = [key for key in unexpected if not re.search(HEAD_KEYS, key)]
    if lost or unknown:
        raise WeightsError(
            f"The weights of {name} do not fit its own configuration: {len(lost)} missing {lost[:3]}, "
            f"{len(unknown)} unknown {unknown[:3]}.",
            remedy="Is the folder complete? Download it again, or start without weights.",
        )
    matched = tuple(key for key in backbone.state_dict() if key not in missing)
    reshaped: tuple[str, ...] = ()
    if in_channels != RGB:
        key = _input_weight(backbone, RGB)
        state = backbone.state_dict()
        config.num_channels = in_channels
        backbone = kind(config)
        fitted = fit_input(state[key], backbone.get_parameter(key).shape)
        backbone.load_state_dict({**state, key: fitted})
        reshaped = (key,)
    return backbone, WeightsReport(name, matched, tuple(missing), tuple(unexpected), reshaped)


def _require_own_shards(folder: Path) -> None:
    """Weights in several files are listed by name; a list may not lead out of its folder."""
    for file in sorted(folder.glob("*.index.json")):
        told = read_json(file)
        shards = told.get("weight_map") if isinstance(told, dict) else None
        if not isinstance(shards, dict):
            raise WeightsError(f"{file} is no list of weights.", remedy="Download the folder again.")
        for shard in set(map(str, shards.values())):
            inside(folder, shard)


def stats_of(place: str) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and std as the model's own preprocessing has them, or ImageNet's."""
    base = import_module("transformers.image_processing_base")
    try:
        found, _ = base.ImageProcessingMixin.get_image_processor_dict(place)
    except OSError:  # many models come without
        found = {}
    except Exception as error:  # but a guess in place of what is there would change every result
        raise FetchError(f"The preprocessor_config.json of {place} cannot be read: {error}") from error
    return found.get("image_mean") or IMAGENET_MEAN, found.get("image_std") or IMAGENET_STD


def _input_weight(backbone: nn.Module, in_channels: int) -> str:
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == in_channels:
            return f"{name}.weight"
    raise UsageError(f"{type(backbone).__name__} does not begin with a convolution over {in_channels} channels.")


def _units(module: nn.Module) -> list[nn.Module]:
    """The parts of a model that are repeated, and what lies between them."""
    repeats = any(isinstance(part, nn.ModuleList) for part in module.modules())
    own = next(module.parameters(recurse=False), None)
    if repeats and own is None:
        return [unit for child in module.children() for unit in _units(child)]
    return [module] if next(module.parameters(), None) is not None else []


@contextmanager
def quiet() -> Iterator[None]:
    """Transformers without its progress bars and tables: what they say is in our report."""
    logging = library().logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def library() -> Any:
    """Transformers itself."""
    # A file without safetensors would be sent to the hub's converter, and every download be counted there.
    for switch in ("DISABLE_SAFETENSORS_CONVERSION", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(switch, "1")
    try:
        return import_module("transformers")  # lazy: it takes seconds
    except ImportError as error:
        raise UsageError("Backbones of the hub need transformers: run «pip install transformers».") from error
