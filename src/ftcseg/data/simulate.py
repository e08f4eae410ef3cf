"""A simulated forward-looking-sonar set: fan-shaped frames with speckle, shadows and exact masks, made from a seed.

A frame grows in the sonar's own coordinates, range by beam, and only the finished echo is scan-converted to the fan;
arcs, beam-width smear and the coarser azimuth of far ranges come from that last step by themselves. Strengths are in
decibels, lengths in dots: one dot is one pixel of the 320 × 480 frames of the Forward-Looking Sonar Marine Debris set,
to which every range of chance here was fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ftcseg.data.sonar_shapes import CLUTTER, FAMILIES, Body, Family, Field
from ftcseg.errors import UsageError
from ftcseg.rng import random_for
from ftcseg.types import ClassTable, Part

Bytes: TypeAlias = NDArray[np.uint8]
Chance: TypeAlias = np.random.Generator

TEST_EVERY = 5
PROMISED_TRAIN = (0, 1, 2, 3, 5, 6, 7, 8, 10, 11)
"""The training frames among the first twelve; every class is sure to have one of them."""
PROMISED_WITHIN = 60
"""Frames within which every class is sure to have a test frame."""
MOST_OBJECTS = 3
MEAN_CLASSES = 1.35
"""Object classes in an average frame, where TOP_SHARE allows it; the rest is room for empty frames."""
TOP_SHARE = 0.55
"""The largest share of the frames that one class may appear in; the real set's wall has 0.49."""

REAL_HEIGHT, REAL_WIDTH = 480, 320
TOP_MARGIN = 26.0
"""Dots of black above the far arc."""
BEAMS = 192
"""Cells across the fan; about one pixel each at the default size, so that speckle is as fine as in the real frames."""

GREY_PER_DB = 5.8
"""Slope of the display: logarithmic, since the real speckle has the same spread in grey at every brightness."""
GREY_AT_ZERO_DB = 66.0
USUAL_GREY = 73.0
"""Where the automatic gain would like the mean of a frame; it goes half the way."""
SPECKLE_CLEAN, SPECKLE_RISE = 0.4, 1.7
"""Weibull exponent of the speckle at noise 0, and what noise 1 adds; at noise 0.5 contrast matches the real frames."""


@dataclass(frozen=True, slots=True)
class SimParams:
    """What the simulated set is like; a frame is a function of these, a seed and its index, of nothing else."""

    classes: int = 8
    """Classes including background."""
    noise: float = 0.5
    """From 0, nearly clean, to 1, hard to see; the real frames are near 0.5."""
    imbalance: float = 20.0
    """How many times as many frames show the most frequent object class as show the rarest."""
    height: int = 240
    width: int = 160

    def __post_init__(self) -> None:
        _require("number of classes", self.classes, 2, len(FAMILIES) + 1)
        _require("noise", self.noise, 0, 1)
        _require("imbalance", self.imbalance, 1, 1000)
        _require("height", self.height, 96, 2048)
        _require("width", self.width, 64, 2048)


def _require(what: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:  # a NaN lies nowhere
        raise UsageError(f"The simulated set's {what} must lie between {low} and {high}, not at {value}.")


def class_table(params: SimParams) -> ClassTable:
    """The classes of the set: background, then the objects from the most frequent to the rarest."""
    return ClassTable.named("background", *list(FAMILIES)[: params.classes - 1])


def simulate_frame(seed: int, index: int, params: SimParams) -> tuple[Bytes, Bytes]:
    """Frame `index` of the set: an (H, W) picture and its (H, W) mask of class ids, the same on every call."""
    rng = random_for(seed, "simulate", index)
    lens = LENSES[int(rng.random() > FIRST_LENS_SHARE)]
    fan = fan_of(lens, params.height, params.width)
    bodies = _bodies(classes_in(index, params), fan, rng)
    echo = _echo(bodies, params.noise, fan, rng)
    grey = GREY_AT_ZERO_DB + GREY_PER_DB * 10 * np.log10(echo * _speckle(params.noise, fan, rng))
    grey += (USUAL_GREY - grey.mean()) / 2
    return _scan_convert(np.clip(grey, 0, 255), fan), _mask(bodies, fan)


# ── The schedule: which frame shows what ─────────────────────────────────────────────────────────────────────────────


def part_of(index: int) -> Part:
    """Every fifth frame is for testing, the others for training."""
    return "test" if index % TEST_EVERY == TEST_EVERY - 1 else "train"


def share_of(class_id: int, params: SimParams) -> float:
    """The share of frames that show this class: an exponential law from the first object class to the last."""
    steps = max(params.classes - 2, 1)
    weights: list[float] = [params.imbalance ** (-step / steps) for step in range(params.classes - 1)]
    top = min(TOP_SHARE, MEAN_CLASSES / sum(weights))
    return round(top * weights[class_id - 1], 9)  # rounded, so that no machine's last bit moves a frame


def classes_in(index: int, params: SimParams) -> tuple[int, ...]:
    """The object classes that frame `index` shows: at most three, and if more are due, the promised and rare ones."""
    due = [class_id for class_id in range(1, params.classes) if _is_due(class_id, index, params)]
    due.sort(key=lambda class_id: (index not in _promised(class_id, params), -class_id))
    return tuple(sorted(due[:MOST_OBJECTS]))


def _promised(class_id: int, params: SimParams) -> tuple[int, int]:
    """The early training frame and the early test frame that show this class whatever its share."""
    train = PROMISED_TRAIN[3 * (class_id - 1) % len(PROMISED_TRAIN)]
    test = PROMISED_WITHIN - 1 - TEST_EVERY * (params.classes - 1 - class_id)
    return train, test


def _is_due(class_id: int, index: int, params: SimParams) -> bool:
    """Frames are dealt in runs of 1 / share; each run shows the class once, in a promised frame if it holds one."""
    promised = _promised(class_id, params)
    if index in promised:
        return True
    share = share_of(class_id, params)
    turn = math.floor(index * share)
    run = range(math.ceil(turn / share), math.ceil((turn + 1) / share))
    if index not in run or any(frame in run for frame in promised):
        return False
    # Chance by class and run alone: all seeds show the same classes in the same frames, each drawn anew.
    return index == run[int(random_for(class_id, "schedule", turn).integers(len(run)))]


# ── The fan: where the sonar looks ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Lens:
    """The part of the plane that the sonar shows: ranges in dots from its apex, half the opening in radians."""

    near: float
    far: float
    half_angle: float
    glow_db: tuple[float, float]
    """How bright the bed is right before the lens."""
    glow_reach: tuple[float, float]
    """The share of the range over which that dies away."""

    @property
    def length(self) -> float:
        """Dots from the near end to the far one."""
        return self.far - self.near


LENSES = (
    Lens(135.0, 573.0, 0.266, glow_db=(0, 9), glow_reach=(0.04, 0.14)),
    Lens(287.0, 717.0, 0.213, glow_db=(6, 12), glow_reach=(0.12, 0.40)),
)
"""The two settings of the real recordings, fitted to the edges of their fans."""
FIRST_LENS_SHARE = 0.61


@dataclass(frozen=True, slots=True, eq=False)
class Fan:
    """One lens on one picture size. The plane's x runs to the right and y away from the sonar, from the apex."""

    lens: Lens
    pixel: float  # dots per picture pixel
    depth: Field  # (R, 1) from 0 at the near end to 1 at the far end
    beams: Field  # (1, B) from -1 at the left side to 1 at the right
    cell_x: Field  # (R, B)
    cell_y: Field  # (R, B)
    pixel_x: Field  # (H, W)
    pixel_y: Field  # (H, W)
    inside: NDArray[np.bool_]  # (H, W)
    corners: NDArray[np.intp]  # (4, P) the flat cells around each of the P pixels inside
    weights: Field  # (4, P) of these cells; they fade out at the rim, where the fan covers a part of the pixel

    @property
    def ranges(self) -> Field:
        """(R, 1) dots from the apex."""
        return self.lens.near + self.lens.length * self.depth


@lru_cache(maxsize=16)
def fan_of(lens: Lens, height: int, width: int) -> Fan:
    """The maps between cells and pixels, computed once per lens and size."""
    pixel = max(REAL_HEIGHT / height, REAL_WIDTH / width)
    depth = np.linspace(0, 1, max(32, round(lens.length / pixel)))[:, None]
    beams = np.linspace(-1, 1, BEAMS)[None, :]
    cell_range, cell_angle = lens.near + lens.length * depth, beams * lens.half_angle
    row, column = np.mgrid[:height, :width] + 0.5
    pixel_x = (column - width / 2) * pixel
    pixel_y = lens.far + TOP_MARGIN - REAL_HEIGHT / 2 - (row - height / 2) * pixel
    distance, angle = np.hypot(pixel_x, pixel_y), np.arctan2(pixel_x, pixel_y)
    to_sides = (lens.half_angle - np.abs(angle)) * distance
    rim = np.minimum(np.minimum(distance - lens.near, lens.far - distance), to_sides)
    inside = rim > 0
    corners, weights = _bilinear(
        (distance[inside] - lens.near) / lens.length * (len(depth) - 1),
        (angle[inside] / lens.half_angle + 1) / 2 * (BEAMS - 1),
        len(depth),
    )
    return Fan(
        lens=lens,
        pixel=pixel,
        depth=depth,
        beams=beams,
        cell_x=cell_range * np.sin(cell_angle),
        cell_y=cell_range * np.cos(cell_angle),
        pixel_x=pixel_x,
        pixel_y=pixel_y,
        inside=inside,
        corners=corners,
        weights=weights * np.clip(rim[inside] / pixel + 0.5, 0, 1),
    )


def _bilinear(row: Field, column: Field, rows: int) -> tuple[NDArray[np.intp], Field]:
    """The four flat cells around each point, and their weights."""
    top, left = np.minimum(row.astype(np.intp), rows - 2), np.minimum(column.astype(np.intp), BEAMS - 2)
    down, right = row - top, column - left
    first = top * BEAMS + left
    corners = np.stack([first, first + 1, first + BEAMS, first + BEAMS + 1])
    return corners, np.stack([(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right])


def _scan_convert(cells: Field, fan: Fan) -> Bytes:
    """Range by beam becomes the fan on the screen."""
    picture = np.zeros(fan.inside.shape, np.uint8)
    picture[fan.inside] = np.rint((cells.ravel()[fan.corners] * fan.weights).sum(axis=0))
    return picture


# ── The scene: what lies where ───────────────────────────────────────────────────────────────────────────────────────


def _bodies(class_ids: tuple[int, ...], fan: Fan, rng: Chance) -> list[Body]:
    """The scheduled objects, now and then two of a kind, then clutter; large ones first, so that none is buried."""
    families = [CLUTTER, *FAMILIES.values()]
    wanted = sorted(class_ids, key=lambda class_id: -families[class_id].size[1])
    if rng.random() < 0.15 and len(wanted) < MOST_OBJECTS:
        wanted += [class_id for class_id in wanted[-1:] if not families[class_id].is_wall]
    wanted += [0] * int(rng.integers(0, 4))
    bodies: list[Body] = []
    for class_id in wanted:
        bodies.append(_place(class_id, families[class_id], bodies, fan, rng))
    return bodies


def _place(class_id: int, family: Family, others: list[Body], fan: Fan, rng: Chance) -> Body:
    """A new member of the family: a wall across a far corner, anything else where it has the most room."""
    size, turn = rng.uniform(*family.size), rng.uniform(-family.turn, family.turn)
    if family.is_wall:
        x, y = _wall_foot(turn, fan.lens, rng)
    else:
        x, y = max((_spot(size, fan.lens, rng) for _ in range(8)), key=lambda spot: _room(spot, size, others))
    return Body(
        class_id,
        family,
        relief=family.make(rng, fan.pixel / size),
        x=x,
        y=y,
        turn=turn,
        size=size,
        tall=size * family.tall * rng.uniform(0.8, 1.6),
        bend=0.0 if family.is_wall else rng.uniform(-0.09, 0.09),
    )


def _spot(size: float, lens: Lens, rng: Chance) -> tuple[float, float]:
    """A place that keeps at least about half of a body of this size inside the fan."""
    distance = rng.uniform(lens.near + 0.12 * lens.length, lens.far - 60 - size)
    widest = max(lens.half_angle - 0.6 * size / distance, 0.0)
    angle = rng.uniform(-widest, widest)
    return distance * math.sin(angle), distance * math.cos(angle)


def _room(spot: tuple[float, float], size: float, others: list[Body]) -> float:
    """Free dots around a place; along the beam they count half, for there one body would lie in another's shadow."""
    x, y = spot
    gaps = (math.hypot(x - o.x, (y - o.y) / 2) - size - o.size for o in others if not o.family.is_wall)
    return min(gaps, default=0.0)


def _wall_foot(turn: float, lens: Lens, rng: Chance) -> tuple[float, float]:
    """A point on a wall's face, a few dots before the corner of the fan that the turned wall cuts off."""
    corner, before = -math.copysign(lens.half_angle, turn), rng.uniform(15, 60)
    x = lens.far * math.sin(corner) + before * math.sin(turn)
    y = lens.far * math.cos(corner) - before * math.cos(turn)
    return x, y


def _mask(bodies: list[Body], fan: Fan) -> Bytes:
    """The footprints of the labelled bodies, later ones over earlier ones, clipped to the fan."""
    mask = np.zeros(fan.inside.shape, np.uint8)
    for body in bodies:
        if body.class_id:
            covered, _ = body.height_at(fan.pixel_x, fan.pixel_y)
            mask.flat[covered] = body.class_id
    return mask * fan.inside


# ── The echo: how the scene sounds. All results are (R, B) powers unless they say otherwise ──────────────────────────


def _echo(bodies: list[Body], noise: float, fan: Fan, rng: Chance) -> Field:
    """Everything the sonar hears before speckle; noise makes objects fainter and fills their shadows."""
    altitude, hiss_db = rng.uniform(110, 220), rng.uniform(-4.5, -0.5)
    height, skin = _surfaces(bodies, 1.3 - 0.6 * noise, fan, rng)
    shadow_fill = 0.03 + 0.3 * noise**2  # echoes that reach a shadow by other ways
    lit = shadow_fill + (1 - shadow_fill) * _lit(height, altitude, fan)
    heard = lit * np.where(height > 0, skin, _bed(fan, rng)) + _ghosts(fan, rng)
    beam_wide = _smooth(_smooth(heard, axis=1), axis=1)
    return beam_wide + _bloom(heard) + _power(hiss_db)


def _surfaces(bodies: list[Body], punch: float, fan: Fan, rng: Chance) -> tuple[Field, Field]:
    """Height in dots, and the power of all bodies as if nothing were in shadow."""
    height, skin, face = np.zeros((3, *fan.cell_x.shape))
    for body in bodies:
        covered, relief = body.height_at(fan.cell_x, fan.cell_y)
        height.flat[covered] = np.maximum(height.flat[covered], relief * body.tall)
        skin.flat[covered] = _power(punch * body.family.body_db + 10 * (relief - 1))
        face.flat[covered] = _power(punch * body.family.edge_db)
    rise = np.diff(height, axis=0, prepend=height[:1]) * (len(fan.depth) / fan.lens.length)
    facing = np.clip(rise, 0, 1.5) ** 2
    glints = _power(3 * _chance_field(150, 96, fan, rng) - 1.5)
    return height, (skin + face * facing) * glints


def _lit(height: Field, altitude: float, fan: Fan) -> Field:
    """1 where the sonar sees the surface, 0 where something nearer on the same beam hides it."""
    dip = (altitude - height) / fan.ranges  # tangent of the angle below the horizon; on a bare bed it only falls
    seen = dip <= np.minimum.accumulate(dip, axis=0) * (1 + 1e-9)
    return _smooth(seen.astype(np.float64), axis=1)


def _bed(fan: Fan, rng: Chance) -> Field:
    """The bed: a glow that dies away from the lens, a bright band where the beam meets the ground, and texture."""
    glow_db, glow_reach = rng.uniform(*fan.lens.glow_db), rng.uniform(*fan.lens.glow_reach)
    plain_db = rng.uniform(-12, 5)
    bed = _power(glow_db - 4.34 * fan.depth / glow_reach) + _power(plain_db - 11 * fan.depth)
    if rng.random() < 0.88:
        bed = bed + _ground_band(fan, rng)
    texture = 1.2 * _chance_field(7, 5, fan, rng)  # broad patches, then gravel, then ripples
    texture += 1.0 * _chance_field(30, 18, fan, rng) + 1.2 * _chance_field(90, 24, fan, rng)
    if rng.random() < 0.5:
        texture += _scratches(fan, rng)
    if rng.random() < 0.4:
        texture -= _far_shade(fan, rng)
    return bed * _power(texture)


def _ground_band(fan: Fan, rng: Chance) -> Field:
    """A sudden rise along a slightly slanted bow, then a slow fall."""
    start, slant, bow = rng.uniform(0.05, 0.7), rng.uniform(-0.05, 0.05), rng.uniform(0, 0.04)
    edge, reach, peak_db = rng.uniform(0.006, 0.04), rng.uniform(0.05, 0.16), rng.uniform(9, 22)
    past = fan.depth - start - slant * fan.beams - bow * fan.beams**2
    rise = 1 / (1 + np.exp(-np.clip(past / edge, -30, 30)))
    return rise * _power(peak_db - 4.34 * np.maximum(past, 0) / reach + 2 * _chance_field(2, 4, fan, rng))


def _scratches(fan: Fan, rng: Chance) -> Field:
    """Decibels of the thin bright lines on a tank's floor: the zero lines of a smooth field, here and there."""
    strength_db = rng.uniform(3, 8)
    lines = np.exp(-((_chance_field(26, 12, fan, rng) / 0.1) ** 2))
    return strength_db * lines * np.clip(_chance_field(8, 6, fan, rng), 0, 1)


def _far_shade(fan: Fan, rng: Chance) -> Field:
    """Decibels that the far end of a few beams lacks, behind something above the picture."""
    middle, half_width = rng.uniform(-0.8, 0.8), rng.uniform(0.08, 0.3)
    start, loss_db = rng.uniform(0.4, 0.8), rng.uniform(2, 6)
    behind = np.clip((fan.depth - start) * 20, 0, 1)
    return np.where(np.abs(fan.beams - middle) < half_width, loss_db * behind, 0.0)


def _ghosts(fan: Fan, rng: Chance) -> Field:
    """What is not there: multi-path streaks, arcs of cross-talk, a rope in the water, the lens's own echo."""
    ghosts = np.zeros(fan.cell_x.shape)
    for _ in range(int(rng.integers(0, 5))):
        _add_streaks(ghosts, fan, rng)
    for _ in range(int(rng.integers(0, 3))):
        ghosts += _arc(fan, rng)
    if rng.random() < 0.35:
        ghosts += _rope(fan, rng)
    if rng.random() < 0.35:
        ghosts += _lens_echo(fan, rng)
    return ghosts * _power(3 * _chance_field(80, 60, fan, rng))


def _add_streaks(ghosts: Field, fan: Fan, rng: Chance) -> None:
    """Add a stack of short streaks across the beams, one nearer than the other."""
    at, middle = rng.uniform(0.3, 1.0), rng.uniform(-1, 1)
    for _ in range(int(rng.integers(1, 6))):
        shift, tilt = rng.normal(0, 0.05), rng.normal(0, 0.015)
        thick, wide, loud_db = rng.uniform(0.0015, 0.005), rng.uniform(0.04, 0.14), rng.uniform(8, 26)
        band = slice(*np.searchsorted(fan.depth[:, 0], [at - 0.06, at + 0.06]))
        across = fan.beams - middle - shift
        along = fan.depth[band] - at - tilt * across
        ghosts[band] += _power(loud_db) * np.exp(-((across / wide) ** 2) - (along / thick) ** 2)
        at -= rng.uniform(0.008, 0.03)


def _arc(fan: Fan, rng: Chance) -> Field:
    """Cross-talk: one loud echo heard faintly on all beams."""
    at, loud_db = rng.uniform(0, 1), rng.uniform(0, 9)
    along = fan.depth + 0.03 * fan.beams**2 - at
    return _power(loud_db) * np.clip(_chance_field(2, 16, fan, rng), 0, 2) * np.exp(-((along / 0.0035) ** 2))


def _rope(fan: Fan, rng: Chance) -> Field:
    """A line that holds something: a dotted streak along one beam to the far end."""
    start, middle, loud_db = rng.uniform(0.3, 0.7), rng.uniform(-0.6, 0.6), rng.uniform(3, 10)
    dots = 0.2 + np.clip(_chance_field(60, 2, fan, rng)[:, :1], 0, None) ** 2
    across = fan.beams - middle - 0.03 * (fan.depth - start)
    return _power(loud_db) * dots * np.exp(-((across / 0.018) ** 2)) * (fan.depth > start)


def _lens_echo(fan: Fan, rng: Chance) -> Field:
    """The surface right above the lens: a bright bow cut by comb teeth, and a glare that splits in two below it."""
    middle, at, curve = rng.uniform(-0.6, 0.6), rng.uniform(0.03, 0.18), rng.uniform(0.02, 0.08)
    split, reach, loud_db = rng.uniform(1, 3), rng.uniform(0.4, 0.9), rng.uniform(8, 17)
    teeth = np.where(np.arange(BEAMS) % int(rng.integers(8, 14)) == 0, 0.1, 1.0)
    across = fan.beams - middle
    above = fan.depth - at - curve * across**2
    bow = np.exp(-((above / 0.008) ** 2)) + 0.25 * np.exp(-np.abs(above) / 0.035)
    glare = np.exp(-(((np.abs(across) + split * above) / 0.07) ** 2)) * (above < 0)
    return _power(loud_db) * teeth * (np.exp(-((across / reach) ** 2)) * bow + 0.3 * glare)


def _bloom(echo: Field) -> Field:
    """Side lobes and ringing: a twenty-fifth of every echo, spread over its neighbourhood."""
    rows, beams = np.arange(0, len(echo), 4), np.arange(0, BEAMS, 4)
    coarse = np.add.reduceat(np.add.reduceat(echo, rows, axis=0), beams, axis=1) / 16
    return _stretch(_stretch(coarse, len(echo)).T, BEAMS).T / 25


def _speckle(noise: float, fan: Fan, rng: Chance) -> Field:
    """A Weibull factor of mean 1; close to the lens, where beams overlap, its grains run into arcs."""
    exponent = SPECKLE_CLEAN + SPECKLE_RISE * noise
    grains = _smooth(rng.standard_exponential((len(fan.depth), BEAMS)) ** exponent, axis=1)
    arcs = _stretch(rng.standard_exponential((BEAMS // 8, len(fan.depth))) ** (1.4 * exponent), BEAMS).T
    arcs *= math.gamma(1 + exponent) / math.gamma(1 + 1.4 * exponent)
    share = 0.65 * np.exp(-4 * fan.depth)
    return 0.2 + 0.8 / math.gamma(1 + exponent) * ((1 - share) * grains + share * arcs)


def _power(db: Field | float) -> Field:
    """Decibels as a factor."""
    return np.exp(np.multiply(db, math.log(10) / 10, dtype=np.float64))


def _chance_field(along: int, across: int, fan: Fan, rng: Chance) -> Field:
    """(R, B) smooth chance of about unit spread, with so many knots along the range and across the beams."""
    knots = 1.4 * rng.standard_normal((across, along))
    return _stretch(_stretch(knots, BEAMS).T, len(fan.depth))


def _stretch(knots: Field, length: int) -> Field:
    """A few rows drawn out smoothly to `length` rows; plain sums, since matrix products differ between machines."""
    before, step = _stops(len(knots), length)
    return knots[before] * (1 - step) + knots[before + 1] * step


@lru_cache(maxsize=64)
def _stops(knots: int, length: int) -> tuple[NDArray[np.intp], Field]:
    """For each of `length` places: the knot before it, and how far on it is to the next one, eased."""
    at = np.linspace(0, knots - 1, length)
    before = np.minimum(at.astype(np.intp), knots - 2)
    step = at - before
    return before, (step * step * (3 - 2 * step))[:, None]


def _smooth(cells: Field, axis: int) -> Field:
    """A quarter, a half and a quarter of three neighbours."""
    last = cells.shape[axis] - 1
    before, after = np.maximum(np.arange(-1, last), 0), np.minimum(np.arange(1, last + 2), last)
    smoothed: Field = cells / 2 + (cells.take(before, axis) + cells.take(after, axis)) / 4
    return smoothed
