"""What sonar does to a picture: grain, fading, ripples, shadows and things in the way (CTFS).

Each takes one image, (C, H, W) float from 0 to 1, and a generator, and returns one of the same kind; nothing moves a
pixel. The sonar is taken to sit under the middle of the last row, as in forward-looking frames. All channels see the
same, for a sonar knows no colour. Chances and strengths that are not in the fact sheet are ours, and say so.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WEAK_GRAIN = 0.08
"""Standard deviation of the speckle that multiplies a weak view."""
WEAK_GRAIN_CHANCE = 0.7
WEAK_FADE = 0.75
"""What is left of the farthest row."""
WEAK_FADE_CHANCE = 0.5

STRONG_GRAIN = (0.12, 0.15)
RIPPLE_CHANCE = 0.5
SHADOW_CHANCE = 0.3
ELLIPSES_CHANCE = 0.6
STRONG_FADE = (0.3, 0.6)
STRONG_FADE_CHANCE = 0.4

RELIABILITY_GRAIN = 0.05
"""Speckle of the view by which a teacher's steadiness is measured."""

RIPPLE_DEPTH = (0.05, 0.15)  # ours: share of the brightness by which rings differ
RIPPLE_RINGS = (4.0, 12.0)  # ours: from the sonar to the height of the picture
SHADOWS = 2  # ours: at most
SHADOW_HALF_WIDTH = (0.03, 0.12)  # ours: radians
SHADOW_LEFT = (0.0, 0.3)  # ours: what is left of the light in a shadow
ELLIPSES = 3  # ours: at most
ELLIPSE_RADIUS = (0.03, 0.1)  # ours: half an axis, as a share of the picture's side


def sonar_weak(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Little grain and a mild fading, each by chance."""
    if rng.random() < WEAK_GRAIN_CHANCE:
        image = grain(image, rng, WEAK_GRAIN)
    return fade(image, WEAK_FADE) if rng.random() < WEAK_FADE_CHANCE else image


def sonar_strong(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Coarse grain, and by chance ripples, shadows, things in the way and a heavy fading."""
    image = grain(image, rng, rng.uniform(*STRONG_GRAIN))
    if rng.random() < RIPPLE_CHANCE:
        image = ripple(image, rng)
    if rng.random() < SHADOW_CHANCE:
        image = shadow(image, rng)
    if rng.random() < ELLIPSES_CHANCE:
        image = ellipses(image, rng)
    return fade(image, rng.uniform(*STRONG_FADE)) if rng.random() < STRONG_FADE_CHANCE else image


def speckle(image: Tensor, rng: np.random.Generator) -> Tensor:
    """The grain by which a teacher's steadiness is measured."""
    return grain(image, rng, RELIABILITY_GRAIN)


def grain(image: Tensor, rng: np.random.Generator, std: float) -> Tensor:
    """Every pixel times its own draw from a Gamma distribution of mean 1 and this standard deviation."""
    noise = rng.gamma(1 / std**2, std**2, image.shape[-2:])
    return (image * torch.from_numpy(noise).to(image)).clamp(0, 1)


def fade(image: Tensor, left: float) -> Tensor:
    """Row by row darker with the distance, from all of the light in the last row to `left` of it in the first."""
    gain = torch.linspace(left, 1.0, image.shape[-2]).to(image)
    return image * gain[:, None]


def ripple(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Brighter and darker rings around the sonar."""
    distance, _ = _polar(image)
    wave = torch.sin(2 * np.pi * (rng.uniform(*RIPPLE_RINGS) * distance + rng.random()))
    return (image * (1 + rng.uniform(*RIPPLE_DEPTH) * wave)).clamp(0, 1)


def shadow(image: Tensor, rng: np.random.Generator) -> Tensor:
    """One or more sectors that are dark from some place on, as behind something that swallows the sound."""
    distance, angle = _polar(image)
    for _ in range(rng.integers(1, SHADOWS + 1)):
        row, column = (int(rng.integers(side)) for side in image.shape[-2:])
        beside = (angle - angle[row, column]).abs() < rng.uniform(*SHADOW_HALF_WIDTH)
        behind = distance > distance[row, column]
        image = torch.where(beside & behind, image * rng.uniform(*SHADOW_LEFT), image)
    return image


def ellipses(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Black ellipses anywhere, of any turn."""
    height, width = image.shape[-2:]
    y = torch.arange(height, dtype=image.dtype, device=image.device)[:, None]
    x = torch.arange(width, dtype=image.dtype, device=image.device)[None, :]
    for _ in range(rng.integers(1, ELLIPSES + 1)):
        down, right = y - rng.uniform(0, height), x - rng.uniform(0, width)
        turn = rng.uniform(0, np.pi)
        cos, sin = float(np.cos(turn)), float(np.sin(turn))
        along, across = rng.uniform(*ELLIPSE_RADIUS) * width, rng.uniform(*ELLIPSE_RADIUS) * height
        inside = ((cos * right + sin * down) / along) ** 2 + ((cos * down - sin * right) / across) ** 2 < 1
        image = image.masked_fill(inside, 0.0)
    return image


def _polar(image: Tensor) -> tuple[Tensor, Tensor]:
    """Distance from the sonar in heights of the picture and angle in radians, each (H, W)."""
    height, width = image.shape[-2:]
    away = (height - torch.arange(height, dtype=image.dtype, device=image.device)[:, None]) / height
    aside = (torch.arange(width, dtype=image.dtype, device=image.device)[None, :] + 0.5 - width / 2) / height
    return torch.hypot(away, aside), torch.atan2(aside, away)
