"""Chance is handed in: one generator per (seed, epoch, index), nothing global.

A sample's randomness depends on what it is, not on which worker draws it or what was drawn before; so the number of
loader workers and a restart in the middle of an epoch change nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np


def random_for(seed: int, *where: int | str) -> np.random.Generator:
    """A generator that belongs to this place alone: `random_for(seed, epoch, index)` or `random_for(seed, "a.png")`."""
    words = [int.from_bytes(hashlib.sha256(_bytes(str(w))).digest()[:4], "little") for w in where]
    return np.random.Generator(np.random.PCG64([seed & 0xFFFF_FFFF, *words]))


def shuffled(names: list[str], seed: int, salt: str = "") -> list[str]:
    """The names in an order that depends only on the seed and the names: the same on every platform and version."""
    return sorted(names, key=lambda name: hashlib.sha256(_bytes(f"{seed}\0{salt}\0{name}")).digest())


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # file names that are no UTF-8 are names all the same


def seed_for(seed: int, *where: int | str) -> int:
    """A whole number that belongs to this place alone, for generators that want one."""
    return int(random_for(seed, *where).integers(0, 2**62))
