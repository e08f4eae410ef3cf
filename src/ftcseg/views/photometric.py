"""What makes a view strong: brightness, contrast, colour and blur, drawn per image, applied to the batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as the usual grey of an RGB picture


@dataclass(frozen=True, slots=True)
class PhotometricParams:
    """Strong augmentation (UniMatch V2)."""

    jitter: float = 0.8
    """Chance that an image is jittered at all."""
    brightness: float = 0.5
    contrast: float = 0.5
    saturation: float = 0.5
    hue: float = 0.25
    grey: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    """Of the Gaussian blur in pixels."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was drawn for one image; 1 and 0 leave it as it is."""

    brightness: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0
    hue: float = 0.0
    sigma: float = 0.0


def draw_look(params: PhotometricParams, rng: np.random.Generator) -> Look:
    """One image's jitter and blur. Always the same number of draws, so that one chance never shifts another."""
    draws = rng.random(8)

    def around(spread: float, draw: float) -> float:
        return float(1 - spread + 2 * spread * draw)

    jittered = draws[0] < params.jitter
    low, high = params.sigma
    return Look(
        around(params.brightness, draws[1]) if jittered else 1.0,
        around(params.contrast, draws[2]) if jittered else 1.0,
        0.0 if draws[5] < params.grey else (around(params.saturation, draws[3]) if jittered else 1.0),
        float(params.hue * (2 * draws[4] - 1)) if jittered else 0.0,
        float(low + (high - low) * draws[7]) if draws[6] < params.blur else 0.0,
    )


def apply_looks(images: Tensor, looks: list[Look]) -> Tensor:
    """(B, C, H, W) images in [0, 1] with each its own look. Colour is only touched where there are three channels."""

    def column(name: str) -> Tensor:
        return images.new_tensor([getattr(look, name) for look in looks]).view(-1, 1, 1, 1)

    out = (images * column("brightness")).clamp_(0, 1)
    mean = _grey(out).mean(dim=(1, 2, 3), keepdim=True)
    out = torch.lerp(mean.expand_as(out), out, column("contrast")).clamp_(0, 1)
    if images.shape[1] == 3:
        out = torch.lerp(_grey(out).expand_as(out), out, column("saturation")).clamp_(0, 1)
        out = _turn_hue(out, looks)
    return _blur(out, looks)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    return (images * images.new_tensor(LUMA).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _turn_hue(images: Tensor, looks: list[Look]) -> Tensor:
    """The images themselves, turned where they stand."""
    chosen = [i for i, look in enumerate(looks) if look.hue != 0 and look.saturation != 0]
    if not chosen:
        return images
    from kornia.enhance import adjust_hue

    radians = images.new_tensor([2 * np.pi * looks[i].hue for i in chosen])
    return images.index_copy_(0, torch.tensor(chosen), adjust_hue(images[chosen], radians).clamp_(0, 1))


def _blur(images: Tensor, looks: list[Look]) -> Tensor:
    """The images themselves, blurred where they stand."""
    chosen = [i for i, look in enumerate(looks) if look.sigma > 0]
    if not chosen:
        return images
    from kornia.filters import gaussian_blur2d

    sigma = images.new_tensor([looks[i].sigma for i in chosen])
    side = 2 * int(np.ceil(3 * float(sigma.max()))) + 1  # three sigmas hold the whole bell
    limit = 2 * (min(images.shape[2:]) - 1) + 1  # reflection cannot reach further than the picture
    blurred = gaussian_blur2d(images[chosen], min(side, limit), sigma[:, None].repeat(1, 2))
    return images.index_copy_(0, torch.tensor(chosen), blurred)
