"""What lies on the simulated sea bed: one family of plan-view shapes per object class.

A shape is a relief: a function of local coordinates (u, v), both within -1..1, that gives the height above the bed, 0
where there is no object and at most 1. Footprint, highlight and shadow all follow from this one function, so a mask
cannot disagree with its picture. Before it is turned, u points across the beams and v away from the sonar.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Field: TypeAlias = NDArray[np.float64]
Chance: TypeAlias = np.random.Generator
Relief: TypeAlias = Callable[[Field, Field], Field]
Maker: TypeAlias = Callable[[Chance, float], Relief]
"""(chance, grain) -> relief; the grain is the width of a picture pixel in local units."""

ANY_TURN = math.pi
REACH = 1.4
"""No point of a shape, turned and bent, lies farther than this many sizes from its middle along x or y."""
VISIBLE = 0.75
"""Half-width in grains that a limb keeps at least: then some pixel centre falls on it wherever it lies."""


@dataclass(frozen=True, slots=True)
class Family:
    """How the members of one class are made; lengths in dots (see simulate.py), echoes in decibels over a plain bed."""

    make: Maker
    size: tuple[float, float]
    """Half the longest side, from the smallest member to the largest."""
    tall: float
    """Height over size."""
    body_db: float
    """Echo of a surface that does not face the sonar; a negative one is darker than the bed."""
    edge_db: float
    """Echo of a slope that faces the sonar."""
    turn: float = ANY_TURN
    """Largest turn to either side, in radians."""
    is_wall: bool = False
    """Closes a far corner of the fan instead of lying on the bed."""


@dataclass(frozen=True, slots=True)
class Body:
    """One thing in one place, lengths in dots; class 0 is clutter that nobody labels."""

    class_id: int
    family: Family
    relief: Relief
    x: float
    y: float
    turn: float
    size: float
    tall: float
    bend: float
    """How far the shape is warped, in local units, so that no two are alike."""

    def height_at(self, x: Field, y: Field) -> tuple[NDArray[np.intp], Field]:
        """The (flat) places among x and y that the body covers, and its relief there."""
        dx, dy = x.ravel() - self.x, y.ravel() - self.y
        close = np.flatnonzero(np.abs(dy) < REACH * self.size)
        close = close[np.abs(dx[close]) < REACH * self.size]
        cos, sin = math.cos(self.turn) / self.size, math.sin(self.turn) / self.size
        u, v = dx[close] * cos + dy[close] * sin, dy[close] * cos - dx[close] * sin
        height = self.relief(u + self.bend * np.sin(4 * v), v + self.bend * np.sin(3 * u + 1))
        solid = height > 0
        return close[solid], height[solid]


# ── Parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _limb(half_width: float, grain: float) -> float:
    return max(half_width, VISIBLE * grain)


def _round(inside: Field) -> Field:
    """A round back over 0 < inside <= 1: from 0.3 at its rim to 1 on its spine; nothing where inside <= 0."""
    return np.where(inside > 0, 0.3 + 0.7 * np.sqrt(np.maximum(inside, 0)), 0.0)


def _dome(distance: Field, radius: float | Field) -> Field:
    return _round(1 - (distance / radius) ** 2)


def _beads(points: Field, radius: float | Field, u: Field, v: Field) -> Field:
    """Domes on (P, 2) points, of one radius or of P."""
    inside = np.zeros_like(u)
    for (at_u, at_v), r in zip(points, np.broadcast_to(radius, len(points)), strict=True):
        np.maximum(inside, 1 - ((u - at_u) ** 2 + (v - at_v) ** 2) / r**2, out=inside)
    return _round(inside)


def _circle(angle: Field) -> Field:
    """(P, 2) points of the unit circle."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _spokes(count: int) -> Field:
    return 2 * np.pi * np.arange(count) / count


# ── Families ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def wall(rng: Chance, _grain: float) -> Relief:
    """A straight band without ends: one bright ledge, fainter courses beside it, all parallel to the face."""
    depth, ledge, courses = rng.uniform(0.05, 0.10), rng.uniform(0.1, 0.7), rng.uniform(10, 22)

    def relief(u: Field, v: Field) -> Field:
        height = np.zeros_like(v)
        band = np.flatnonzero((v >= 0) & (v <= depth))
        course = v[band] / depth
        height[band] = (
            0.5 + 0.4 * np.exp(-(((course - ledge) / 0.12) ** 2)) + 0.1 * np.cos(courses * course + 2 * u[band])
        )
        return height

    return relief


def tire(rng: Chance, _grain: float) -> Relief:
    """A bowl with a steep tread around it."""
    hub, shoulder = rng.uniform(0.3, 0.5), rng.uniform(0.78, 0.88)

    def relief(u: Field, v: Field) -> Field:
        distance = np.hypot(u, v)
        bowl = hub + (1 - hub) * (distance / shoulder) ** 3
        tread = 1 - 0.75 * (distance - shoulder) / (1 - shoulder)
        return np.where(distance < 1, np.minimum(bowl, tread), 0.0)

    return relief


def bottle(rng: Chance, grain: float) -> Relief:
    """A lying body with shoulders and a neck."""
    width, shoulder = rng.uniform(0.22, 0.32), rng.uniform(0.3, 0.55)

    def relief(u: Field, v: Field) -> Field:
        narrowing = np.clip((u - shoulder) / 0.2, 0, 1)
        half = np.maximum(width * (1 - 0.6 * narrowing), _limb(0, grain))
        return np.where(np.abs(u) < 1, _dome(v, half), 0.0)

    return relief


def chain(rng: Chance, grain: float) -> Relief:
    """Links along a wandering line."""
    links = int(rng.integers(16, 28))
    heading = rng.uniform(-0.5, 0.5) + np.cumsum(rng.normal(0, 0.32, links))
    path = np.cumsum(_circle(heading), axis=0) + rng.normal(0, 0.22, (links, 2))
    path -= (path.max(axis=0) + path.min(axis=0)) / 2
    path *= 0.88 / np.hypot(*path.T).max()
    touching = 0.6 * np.hypot(*np.diff(path, axis=0).T).mean()
    radius = _limb(max(touching, rng.uniform(0.09, 0.13)), grain) * rng.uniform(0.7, 1.2, links)
    return lambda u, v: _beads(path, radius, u, v)


def can(rng: Chance, _grain: float) -> Relief:
    """A short cylinder with two rims and a seam."""
    aspect, seam = rng.uniform(0.5, 0.68), rng.uniform(-0.3, 0.3)

    def relief(u: Field, v: Field) -> Field:
        along = v / aspect
        raised = (np.abs(u) > 0.75) | (np.abs(along - seam) < 0.15)
        return np.where((np.abs(u) < 0.9) & (np.abs(along) < 1), 0.6 + 0.25 * raised - 0.2 * along**2, 0.0)

    return relief


def hook(rng: Chance, grain: float) -> Relief:
    """A shank that ends in an open bend."""
    bend, opening, thick = rng.uniform(0.38, 0.48), rng.uniform(3.6, 4.4), rng.uniform(0.11, 0.15)
    shank = np.stack([np.zeros(14), np.linspace(1.2, 0, 14)], axis=1)
    arc = bend * (_circle(np.linspace(0, opening, 18)) * -1 + np.array([1, 0]))
    line = np.concatenate([shank, arc]) - np.array([0.3, 0.35])
    return lambda u, v: _beads(line, _limb(thick, grain), u, v)


def propeller(rng: Chance, grain: float) -> Relief:
    """Three to five round blades with raised rims around a high hub."""
    blades = int(rng.integers(3, 6))
    radius = 0.55 - 0.045 * blades  # so that neighbours nearly touch
    middles = _circle(_spokes(blades)) * (1 - radius)

    def relief(u: Field, v: Field) -> Field:
        blade, arm = _beads(middles, radius, u, v), _beads(middles / 2, _limb(0.16, grain), u, v)
        shell = np.where(blade > 0, 0.25 + 0.35 * (1 - blade) ** 2, 0.3 * (arm > 0))
        return np.maximum(shell, _dome(np.hypot(u, v), 0.24))

    return relief


def valve(rng: Chance, grain: float) -> Relief:
    """A hub with four or five thin arms, a knob on each."""
    arms = int(rng.integers(4, 6))
    knobs = _circle(_spokes(arms) + rng.uniform(-0.2, 0.2, arms)) * rng.uniform(0.7, 0.9, (arms, 1))
    limbs = np.concatenate([knobs * step for step in np.linspace(0.15, 1, 12)])

    def relief(u: Field, v: Field) -> Field:
        arm = 0.6 * _beads(limbs, _limb(0.06, grain), u, v)
        knob = 0.8 * _beads(knobs, _limb(0.1, grain), u, v)
        return np.maximum(np.maximum(arm, knob), _dome(np.hypot(u, v), 0.26))

    return relief


def carton(rng: Chance, _grain: float) -> Relief:
    """A box with a gable: two sloping sides and a ridge."""
    aspect, ridge = rng.uniform(0.52, 0.66), rng.uniform(-0.25, 0.25)

    def relief(u: Field, v: Field) -> Field:
        return np.where((np.abs(u) < 0.85) & (np.abs(v) < aspect), 1 - 0.5 * np.abs(u - ridge), 0.0)

    return relief


def rack(rng: Chance, grain: float) -> Relief:
    """A low plate with a few bars of unequal length across it."""
    aspect, bars, half_width = rng.uniform(0.55, 0.75), int(rng.integers(3, 5)), _limb(0.06, grain)
    lengths, pitch = rng.uniform(0.5, 0.95, bars), 2 * aspect / bars

    def relief(u: Field, v: Field) -> Field:
        place = np.clip((v + aspect) / pitch, 0, bars - 1e-9)
        length = lengths[place.astype(np.intp)]
        raised = (np.abs(place % 1 - 0.5) * pitch < half_width) & (np.abs(u) < length)
        return np.where((np.abs(u) < 0.95) & (np.abs(v) < aspect), np.where(raised, 0.9, 0.15), 0.0)

    return relief


def standing_bottle(rng: Chance, grain: float) -> Relief:
    """An upright body as the sonar draws it, laid out along the beam: a bright foot, then a long dark spindle."""
    width, taper = rng.uniform(0.17, 0.24), rng.uniform(0.3, 0.6)

    def relief(u: Field, v: Field) -> Field:
        spindle = width * (1 - taper * np.clip(v, 0, 1) ** 2) * np.sqrt(np.maximum(1 - v**6, 0))
        foot = np.clip(-6 * (v + 0.72), 0, 1)
        return np.where((np.abs(u) < np.maximum(spindle, _limb(0, grain))) & (np.abs(v) < 1), 0.3 + 0.7 * foot, 0.0)

    return relief


def lump(rng: Chance, grain: float) -> Relief:
    """A stone or a scrap."""
    middles = rng.uniform(-0.6, 0.6, (int(rng.integers(2, 6)), 2))
    radius = _limb(0.4, grain) * rng.uniform(0.5, 1.0, len(middles))
    return lambda u, v: _beads(middles, radius, u, v)


FAMILIES: dict[str, Family] = {  # in the order of class ids from 1: the most frequent first
    "wall": Family(wall, size=(330, 330), tall=0.003, body_db=24, edge_db=26, turn=0.9, is_wall=True),
    "tire": Family(tire, size=(23, 33), tall=0.55, body_db=2, edge_db=23),
    "bottle": Family(bottle, size=(22, 32), tall=0.35, body_db=9, edge_db=27),
    "chain": Family(chain, size=(46, 80), tall=0.1, body_db=18, edge_db=27),
    "can": Family(can, size=(12, 18), tall=0.9, body_db=11, edge_db=27, turn=0.5),
    "hook": Family(hook, size=(20, 30), tall=0.35, body_db=14, edge_db=25),
    "propeller": Family(propeller, size=(24, 34), tall=0.4, body_db=9, edge_db=24),
    "valve": Family(valve, size=(18, 26), tall=0.3, body_db=19, edge_db=28),
    "carton": Family(carton, size=(13, 19), tall=0.7, body_db=16, edge_db=26),
    "rack": Family(rack, size=(26, 40), tall=0.2, body_db=6, edge_db=20, turn=0.6),
    "standing-bottle": Family(standing_bottle, size=(26, 40), tall=0.3, body_db=-6, edge_db=23, turn=0.25),
}
CLUTTER = Family(lump, size=(5, 18), tall=0.15, body_db=12, edge_db=19)
