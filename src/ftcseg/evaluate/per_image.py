"""What each image holds of every class: enough for the IoU of any selection of images, and small enough to keep.

A run keeps it as `counts.safetensors`: one array per checkpoint (last, best), and in the file's metadata the images in
the same order with the sequence each belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ftcseg.errors import LayoutError
from ftcseg.files import atomic, parse_json

COUNTS = "counts.safetensors"
HIT, SAID, TRUE = range(3)
"""Places in the last dimension: pixels that are of a class and called so, that are called so, that are of it."""
_ABOUT = "about"  # one key only: safetensors writes several in any order, and the bytes should be the same again
_AGAIN = "Delete it and scores.json, then «ftcseg train --resume RUN» writes both again."


@dataclass(frozen=True, slots=True, eq=False)
class PerImage:
    """Pixels of every class in every image that was judged, in the order of the set."""

    counts: NDArray[np.int64]  # (images, classes, 3): HIT, SAID, TRUE
    names: tuple[str, ...]
    sequences: tuple[str, ...] = ()
    """The sequence of each image; empty where nobody looked for sequences."""

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The sequence of each image, or None where every image is on its own as far as anybody knows."""
        return self.sequences if len(set(self.sequences)) < len(self.sequences) else None


def sequences_of(names: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The sequence of each image by its name; one that nobody knows of is a sequence of its own.

    The NUL keeps such an image apart from a sequence that is called the same.
    """
    return tuple(known.get(name) or f"\0{name}" for name in names)


def known_sequences(path: Path) -> dict[str, str]:
    """The sequence of every image that a run was judged on; nothing where it kept no counts."""
    if not path.is_file():
        return {}
    kept = read_counts(path)
    return dict(zip(kept.names, kept.sequences, strict=True)) if kept.sequences else {}


def write_counts(path: Path, checkpoints: Mapping[str, PerImage]) -> None:
    """Keep the counts of one or more checkpoints, all over the same images."""
    first = next(iter(checkpoints.values()))
    assert all((one.names, one.sequences) == (first.names, first.sequences) for one in checkpoints.values())
    about = {"images": first.names, "sequences": first.sequences, "columns": ("hit", "predicted", "true")}
    arrays = {name: np.ascontiguousarray(one.counts) for name, one in checkpoints.items()}
    with atomic(path) as file:
        file.write(save(arrays, {_ABOUT: json.dumps(about)}))


def read_counts(path: Path, checkpoint: str = "last") -> PerImage:
    """The counts of one checkpoint; a file that holds none of them, or not whole, is a LayoutError."""
    try:
        with safe_open(path, "np") as file:
            about = parse_json((file.metadata() or {}).get(_ABOUT, "null"))
            if checkpoint not in file.keys():  # noqa: SIM118  it is no mapping
                raise LayoutError(f"{path} holds no counts of the checkpoint «{checkpoint}».", remedy=_AGAIN)
            counts = file.get_tensor(checkpoint)
    except (SafetensorError, OSError, ValueError) as error:
        raise LayoutError(f"{path} cannot be read ({error}).", remedy=_AGAIN) from error
    names, sequences = _strings(about, "images"), _strings(about, "sequences")
    fits = counts.ndim == 3 and counts.dtype == np.int64 and counts.shape[2] == 3 and len(counts) == len(names)
    if not fits or len(sequences) not in (0, len(names)):
        raise LayoutError(f"{path}: its counts and its list of images do not fit each other.", remedy=_AGAIN)
    return PerImage(counts, names, sequences)


def _strings(about: Any, key: str) -> tuple[str, ...]:
    values = about.get(key) if isinstance(about, dict) else None
    return tuple(map(str, values)) if isinstance(values, list) else ()
