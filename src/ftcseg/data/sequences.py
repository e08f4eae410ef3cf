"""Frames that are neighbours: the same scene a moment later.

Two frames are neighbours when their thumbnails, less the set's mean picture, point the same way; a sequence is a chain
of neighbours. File names are believed only where consecutive numbers really look alike: many sets were shuffled before
they were numbered.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
_BLOCK = 512  # frames that are vectors at a time
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
    frames = _Frames(thumbs)
    chains = _Chains(len(names))
    seen = _join_by_sight(chains, frames)
    named = _join_by_name(chains, names, frames)
    return Sequences(tuple(names[i] for i in chains.roots().tolist()), seen, named)


def share_with_neighbour(sequences: Sequences, held_out: Sequence[bool]) -> float:
    """Share of the held-out frames whose sequence also has frames outside."""
    outside = {s for s, held in zip(sequences.of, held_out, strict=True) if not held}
    inside = [s in outside for s, held in zip(sequences.of, held_out, strict=True) if held]
    return sum(inside) / len(inside) if inside else 0.0


class _Frames:
    """Thumbnails as they are, a byte a pixel; as vectors, which take four times the room, only where asked for.

    A vector is a thumbnail less the set's mean picture, of length 1, and one more number. A frame that differs from the
    mean by less than one grey level a pixel points anywhere: such frames are all the mean picture, as a camera that
    stands still takes it, and so neighbours of each other; of no one else. The last number says so.
    """

    def __init__(self, thumbs: Sequence[bytes]) -> None:
        size = max((len(t) for t in thumbs), default=0)
        if len(thumbs) < _MIN_FRAMES:
            size = 0
        readable = np.array([len(t) == size > 0 for t in thumbs], dtype=bool)
        joined = b"".join(t if len(t) == size else bytes(size) for t in thumbs) if size else b""
        self._thumbs = np.frombuffer(joined, dtype=np.uint8).reshape(len(thumbs), size)
        self._readable = readable
        # Bytes add up exactly in 64 bits, whatever their order.
        total = np.zeros(size, dtype=np.int64)
        for rows in _blocks(len(thumbs)):
            total += self._thumbs[rows].sum(axis=0, dtype=np.int64)  # those that cannot be read are 0
        self._mean = (total / max(1, int(readable.sum()))).astype(np.float32)

    def __len__(self) -> int:
        return len(self._thumbs)

    def vectors(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, pixels + 1) of these frames; all 0 of one that could not be read."""
        readable = self._readable[rows]
        found = np.zeros((len(readable), self._thumbs.shape[1] + 1), dtype=np.float32)
        pixels = found[:, :-1]
        np.subtract(self._thumbs[rows], self._mean, out=pixels)
        norms = np.linalg.norm(pixels, axis=1)
        still = readable & (norms < pixels.shape[1] ** 0.5)
        pixels[~readable | still] = 0
        pixels /= np.maximum(norms, 1)[:, None]
        found[:, -1] = still
        return found


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _join_by_sight(chains: _Chains, frames: _Frames) -> int:
    """Join all frames that look alike; returns how many have a neighbour."""
    if len(frames) <= MAX_ALL_PAIRS:
        return _join_all_pairs(chains, frames.vectors(slice(None)))
    seen = np.zeros(len(frames), dtype=bool)
    for order in (np.arange(len(frames)), _by_direction(frames)):
        for start in range(0, len(order), WINDOW):
            near = order[start : start + 2 * WINDOW]  # each of the first WINDOW, and the WINDOW after it
            vectors = frames.vectors(near)
            alike = vectors[:WINDOW] @ vectors.T > ALIKE
            first, other = np.nonzero(alike & _after(*alike.shape))
            seen[near[first]] = seen[near[other]] = True
            for members in _pieces(first, other, len(near)):
                for i in members[1:]:
                    chains.join(int(near[members[0]]), int(near[i]))
    return int(seen.sum())


def _by_direction(frames: _Frames) -> NDArray[np.int64]:
    """The frames along one direction that has nothing to do with them: what looks alike lies near each other."""
    rng = np.random.Generator(np.random.PCG64(0))
    direction: NDArray[np.float32] | None = None
    places = []
    for rows in _blocks(len(frames)):
        vectors = frames.vectors(rows)
        if direction is None:
            direction = rng.standard_normal((vectors.shape[1],), dtype=np.float32)
        places.append(vectors @ direction)
    return np.argsort(np.concatenate(places), kind="stable")


def _after(rows: int, columns: int) -> NDArray[np.bool_]:
    """True where a column is one of the WINDOW that follow its row."""
    ahead = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    return (ahead >= 1) & (ahead <= WINDOW)


def _pieces(first: NDArray[np.int64], other: NDArray[np.int64], count: int) -> list[list[int]]:
    """What hangs together among `count` frames by these pairs: a static camera has thousands of pairs and one piece."""
    if not len(first):
        return []
    from scipy.sparse import coo_array  # slow to import, and of use to the largest sets only
    from scipy.sparse.csgraph import connected_components

    pairs = coo_array((np.ones(len(first), dtype=bool), (first, other)), shape=(count, count))
    _, piece = connected_components(pairs, directed=False)
    members: dict[int, list[int]] = defaultdict(list)
    for i in np.union1d(first, other).tolist():
        members[int(piece[i])].append(i)
    return list(members.values())


def _join_all_pairs(chains: _Chains, vectors: NDArray[np.float32]) -> int:
    seen = 0
    for rows in _blocks(len(vectors)):
        alike = vectors[rows] @ vectors.T > ALIKE
        seen += int((alike.sum(axis=1) > 1).sum())
        roots = chains.roots()
        for row in alike:
            # Frames of one chain need joining once: a static camera has millions of pairs and one chain.
            for first, other in itertools.pairwise(np.unique(roots[row]).tolist()):
                chains.join(first, other)
    return seen


def _join_by_name(chains: _Chains, names: Sequence[str], frames: _Frames) -> int:
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
        if float(np.median(_likeness(np.array(order), frames))) > ALIKE:
            joined += len(order)
            for a, b in itertools.pairwise(order):
                chains.join(a, b)
    return joined


def _likeness(order: NDArray[np.int64], frames: _Frames) -> NDArray[np.float32]:
    """Of each frame with the next one of the order."""
    found = []
    for rows in _blocks(len(order) - 1):
        vectors = frames.vectors(order[rows.start : rows.stop + 1])
        found.append(np.einsum("ij,ij->i", vectors[:-1], vectors[1:]))
    return np.concatenate(found)


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
