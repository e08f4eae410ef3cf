"""A checkpoint is a folder that is whole or not there.

    last/model.safetensors    the method's parameters and buffers
    last/optim.safetensors    the optimiser's memory
    last/chance.safetensors   the states of the global generators
    last/state.json           everything that is a plain number, the checksums of the others, and its own

A new one is written beside the old (`last.new`), flushed, read back and compared; then the old steps aside
(`last.old`), the new takes its name, and the old goes. A crash between any two of these leaves one whole checkpoint to
read. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ftcseg.errors import FtcsegError, NotWritten
from ftcseg.files import MAX_TEXT_BYTES, parse_json, room_at

STATE_FILE = "state.json"
FORMAT = 1
_LIBRARY_MISSES = "(os error 2)"  # how safetensors says that a file or folder is not there


class CheckpointError(FtcsegError):
    """A checkpoint cannot be written or read; says which file and what to do."""

    exit_code = 4


class CheckpointNotWritten(CheckpointError, NotWritten):
    """There was no room for a checkpoint, or no folder; the previous one is whole."""


class RunGone(CheckpointError):
    """The run folder was deleted, moved or given to another run under a run's feet."""

    def __init__(self, run: Path) -> None:
        super().__init__(
            f"The run folder {run} was deleted, moved or replaced while the run was going on. Nothing more was "
            f"written there. Put it back and continue with --resume, or start the run again in another folder."
        )


class _Damaged(Exception):
    """This folder is no whole checkpoint, because of this."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint on disk, its checksums verified."""

    path: Path
    state: Mapping[str, Any]

    @contextmanager
    def tensors(self, part: str) -> Iterator[Mapping[str, Tensor]]:
        """The tensors of one file, each read when asked for, so that no second copy of the model is ever in memory."""
        with _open(_tensor_file(self.path, part)) as file:
            yield _Lazy(file)


class _Lazy(Mapping[str, Tensor]):
    def __init__(self, file: Any) -> None:
        self._file = file
        self._names = set(file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


def write(folder: Path, name: str, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Put a checkpoint in the place of the one called `name`; on any error that one stays.

    The folder must be there: one that vanished is not made again in silence.
    """
    new = folder / f"{name}.new"
    try:
        settle(folder, name)
        new.mkdir()
        files = {part: _write_tensors(_tensor_file(new, part), tensors) for part, tensors in parts.items()}
        _write_state(new / STATE_FILE, {**state, "format": FORMAT, "sha256": files})
        _flush(new)
        _read_state(new)
        _swap(folder, name)
    except (OSError, SafetensorError, _Damaged) as error:
        shutil.rmtree(new, ignore_errors=True)
        raise _cannot_write(folder, name, error) from error
    return folder / name


def read(folder: Path, name: str) -> Checkpoint:
    """The checkpoint called `name`, or the one a crash left in its place; CheckpointError where none is whole."""
    reasons = []
    for path in (folder / name, folder / f"{name}.new", folder / f"{name}.old"):
        try:
            return Checkpoint(path, _verify(path))
        except FileNotFoundError:
            continue
        except (_Damaged, OSError) as error:
            reasons.append(f"{path.name}: {error}")
    why = "; ".join(reasons) or "it does not exist"
    raise CheckpointError(f"The checkpoint {folder / name} cannot be used ({why}).")


def exists(folder: Path, name: str) -> bool:
    """Whether there is anything under this name, whole or not."""
    return any((folder / f"{name}{end}").exists() for end in ("", ".new", ".old"))


def settle(folder: Path, name: str) -> None:
    """Finish or undo what a crash left half way, so that only `name` remains: the first whole one of the three."""
    now, *leftovers = places = (folder / name, folder / f"{name}.new", folder / f"{name}.old")
    if not any(path.exists() for path in leftovers):
        return
    whole = next((path for path in places if _is_whole(path)), now)
    if whole != now:
        _remove(now)
        _rename(whole, now)
    for path in leftovers:
        _remove(path)


def settle_all(folder: Path) -> None:
    """Settle every checkpoint of a folder, so that what a killed process left is neither damage nor in the way."""
    found = folder.iterdir() if folder.is_dir() else ()
    for name in sorted({path.stem for path in found if path.suffix in (".new", ".old")}):
        try:
            settle(folder, name)
        except OSError as error:
            raise _cannot_write(folder, name, error) from error


def copy(folder: Path, source: str, name: str) -> None:
    """Put a copy of a whole checkpoint in the place of the one called `name`."""
    new = folder / f"{name}.new"
    try:
        settle(folder, name)
        shutil.copytree(folder / source, new)
        for path in (*new.iterdir(), new):
            _flush(path)
        _verify(new)
        _swap(folder, name)
    except (OSError, _Damaged) as error:
        shutil.rmtree(new, ignore_errors=True)
        raise _cannot_write(folder, name, error) from error


def remove(folder: Path, name: str) -> None:
    """Take a checkpoint away, whole or not."""
    try:
        for end in ("", ".new", ".old"):
            _remove(folder / f"{name}{end}")
    except OSError as error:
        raise _cannot_write(folder, name, error) from error


def _swap(folder: Path, name: str) -> None:
    now, new, old = folder / name, folder / f"{name}.new", folder / f"{name}.old"
    if now.exists():
        _rename(now, old)
    _rename(new, now)
    _flush(folder)
    _remove(old)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write, flush, read back and compare; return the file's checksum."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path)
    path.chmod(path.parent.stat().st_mode & 0o666)  # the library keeps its files to their owner; a run is to be shared
    _flush(path)
    with _open(path) as file:
        for name, tensor in plain.items():
            if not torch.equal(_bits(file.get_tensor(name)), _bits(tensor.cpu())):
                raise _Damaged(f"{path.name} does not hold what was written to it ({name})")
    return _sha256(path)


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump({**state, "seal": _seal(state)}, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())


def _verify(path: Path) -> dict[str, Any]:
    """The state of a whole checkpoint; FileNotFoundError where there is no folder, _Damaged where it is not whole."""
    if not path.is_dir():
        raise FileNotFoundError(path)
    state = _read_state(path)
    if state.get("format") != FORMAT:
        raise _Damaged(f"its format is {state.get('format')!r:.40}, and this version of ftcseg reads {FORMAT}")
    sums = state.get("sha256")
    if not isinstance(sums, dict) or not all(part.isidentifier() for part in sums):  # names of files, and no paths
        raise _Damaged(f"{STATE_FILE} names files that belong to no checkpoint")
    for part, expected in sums.items():
        file = _tensor_file(path, part)
        if not file.is_file() or _sha256(file) != expected:
            raise _Damaged(f"{file.name} does not match its checksum")
    return state


def _read_state(path: Path) -> dict[str, Any]:
    file = path / STATE_FILE
    try:
        if file.stat().st_size > MAX_TEXT_BYTES:
            raise _Damaged(f"{STATE_FILE} is too large to be one")
        state: dict[str, Any] = parse_json(file.read_text(encoding="utf-8"))
        seal = state.pop("seal")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Damaged(f"{STATE_FILE} is missing or damaged") from error
    if seal != _seal(state):
        raise _Damaged(f"{STATE_FILE} does not match its checksum")
    return state


def _is_whole(path: Path) -> bool:
    try:
        _verify(path)
    except (OSError, _Damaged):
        return False
    return True


def _cannot_write(folder: Path, name: str, error: Exception) -> CheckpointError:
    missing = any(isinstance(one, FileNotFoundError) for one in (error, error.__cause__))
    if missing or _LIBRARY_MISSES in str(error) or not folder.is_dir():  # what was just made is gone: somebody deletes
        return RunGone(folder.parent)
    kept = "The previous one is untouched." if exists(folder, name) else "There is none before it."
    return CheckpointNotWritten(
        f"The checkpoint {folder / name} could not be written: {error}. {kept} Check that the folder may be "
        f"written and that its disk and quota have room ({room_at(folder / name)}), then resume the run."
    )


def _tensor_file(path: Path, part: str) -> Path:
    return path / f"{part}.safetensors"


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except RuntimeError as error:  # the library opens it twice, and torch says in its own way that it is gone by then
        raise (OSError if path.exists() else FileNotFoundError)(str(error)) from error


def _bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    _flush(target.parent)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _flush(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
