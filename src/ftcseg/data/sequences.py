"""Frames that are neighbours: the same scene a moment later.

Two frames are neighbours when their thumbnails, less the set's mean picture, point the same way; a sequence is a chain
of neighbours. File names are believed only where consecutive numbers really look alike: many sets were shuffled before
they were numbered.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.93
"""Cosine above which two frames are neighbours. On FLSMD random pairs reach it in under 1 % of cases, and 98 % of the
validation frames have such a partner in the training part."""
MAX_ALL_PAIRS = 20_000
"""Up to this many frames every pair is compared; beyond it, each frame with the WINDOW next ones in two orders."""
WINDOW = 64
_BLOCK = 2048
_MIN_RUN = 3  # two frames in a row are a coincidence
_MIN_FRAMES = 8  # the mean picture of fewer frames says nothing


@dataclass(frozen=True, slots=True)
class Sequences:
    """`of[i]` is the sequence of frame i, called by the name of its first frame."""

    of: tuple[str, ...]
    neighbours: int
    """Frames that have at least one neighbour by sight."""
    named: int
    """Frames that were also joined by their numbered names."""

    @property
    def count(self) -> int:
        """How many sequences of two or more frames there are."""
        return sum(size > 1 for size in Counter(self.of).values())


def find_sequences(names: Sequence[str], thumbs: Sequence[bytes]) -> Sequences:
    """Group frames into sequences; `thumbs` are equal-sized grey thumbnails, empty where a frame could not be read."""
    vectors = _centred(thumbs)
    chains = _Chains(len(names))
    seen = _join_by_sight(chains, vectors)
    named = _join_by_name(chains, names, vectors)
    return Sequences(tuple(names[i] for i in chains.roots().tolist()), seen, named)


def share_with_neighbour(sequences: Sequences, held_out: Sequence[bool]) -> float:
    """Share of the held-out frames whose sequence also has frames outside."""
    outside = {s for s, held in zip(sequences.of, held_out, strict=True) if not held}
    inside = [s in outside for s, held in zip(sequences.of, held_out, strict=True) if held]
    return sum(inside) / len(inside) if inside else 0.0


def _centred(thumbs: Sequence[bytes]) -> NDArray[np.float32]:
    size = max((len(t) for t in thumbs), default=0)
    if len(thumbs) < _MIN_FRAMES or size == 0:
        return np.zeros((len(thumbs), 1), dtype=np.float32)
    readable = np.array([len(t) == size for t in thumbs])
    stack = np.frombuffer(b"".join(t if len(t) == size else bytes(size) for t in thumbs), dtype=np.uint8)
    vectors = stack.reshape(len(thumbs), size).astype(np.float32)
    vectors -= vectors[readable].mean(axis=0)
    norms = np.linalg.norm(vectors, axis=1)
    # A frame that differs from the mean by less than one grey level a pixel points anywhere: such frames are all the
    # mean picture, as a camera that stands still takes it, and so neighbours of each other; of no one else.
    still = readable & (norms < size**0.5)
    vectors[~readable | still] = 0
    vectors /= np.maximum(norms, 1)[:, None]
    return np.concatenate([vectors, still[:, None].astype(np.float32)], axis=1)


def _join_by_sight(chains: _Chains, vectors: NDArray[np.float32]) -> int:
    """Join all frames that look alike; returns how many have a neighbour."""
    if len(vectors) <= MAX_ALL_PAIRS:
        return _join_all_pairs(chains, vectors)
    direction = np.random.Generator(np.random.PCG64(0)).standard_normal((vectors.shape[1],), dtype=np.float32)
    orders = (np.arange(len(vectors)), np.argsort(vectors @ direction, kind="stable"))
    seen: set[int] = set()
    for order, step in itertools.product(orders, range(1, WINDOW + 1)):
        a, b = order[:-step], order[step:]
        alike = np.einsum("ij,ij->i", vectors[a], vectors[b]) > ALIKE
        for i, j in zip(a[alike].tolist(), b[alike].tolist(), strict=True):
            chains.join(i, j)
            seen |= {i, j}
    return len(seen)


def _join_all_pairs(chains: _Chains, vectors: NDArray[np.float32]) -> int:
    seen = 0
    for start in range(0, len(vectors), _BLOCK):
        alike = vectors[start : start + _BLOCK] @ vectors.T > ALIKE
        seen += int((alike.sum(axis=1) > 1).sum())
        roots = chains.roots()
        for row in alike:
            # Frames of one chain need joining once: a static camera has millions of pairs and one chain.
            for first, other in itertools.pairwise(np.unique(roots[row]).tolist()):
                chains.join(first, other)
    return seen


def _join_by_name(chains: _Chains, names: Sequence[str], vectors: NDArray[np.float32]) -> int:
    """Join a numbered run of frames where its neighbours by number mostly look alike; returns how many frames."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, name in enumerate(names):
        path = PurePosixPath(name)
        match = re.search(r"^(.*?)(\d{1,18})\D*$", path.stem)
        if match:
            runs[f"{path.parent}/{match.group(1)}"].append((int(match.group(2)), i))
    joined = 0
    for run in runs.values():
        order = [i for _, i in sorted(run)]
        if len(order) < _MIN_RUN:
            continue
        alike = np.einsum("ij,ij->i", vectors[order[:-1]], vectors[order[1:]])
        if float(np.median(alike)) > ALIKE:
            joined += len(order)
            for a, b in itertools.pairwise(order):
                chains.join(a, b)
    return joined


class _Chains:
    """Disjoint sets of frames; the root of each is its first frame."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        self._parent[max(a, b)] = min(a, b)

    def roots(self) -> NDArray[np.int64]:
        return np.array([self._root(i) for i in range(len(self._parent))], dtype=np.int64)
