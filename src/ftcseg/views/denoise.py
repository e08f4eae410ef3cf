"""Three ways to calm a noisy picture. None of them moves an edge far, and each is wrong about something else.

Each takes one image, (C, H, W) float from 0 to 1, and returns one of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

MEDIAN_SIDE = 3
GAUSSIAN_SIGMA = 1.0
LEE_SIDE = 5


def median(image: Tensor, _rng: np.random.Generator | None = None) -> Tensor:
    """The middle value of each 3x3 neighbourhood: single odd pixels vanish, edges stay, thin lines suffer."""

    def calmed(plane: Tensor) -> Tensor:
        found = ndimage.median_filter(plane.cpu().numpy(), MEDIAN_SIDE, mode="nearest")
        return torch.from_numpy(found).to(plane)

    return _by_plane(calmed, image)


def gaussian(image: Tensor, _rng: np.random.Generator | None = None) -> Tensor:
    """A bell of one pixel: all noise gets weaker, and so do edges."""

    def calmed(plane: Tensor) -> Tensor:
        found = ndimage.gaussian_filter(plane.cpu().numpy(), GAUSSIAN_SIGMA, mode="nearest")
        return torch.from_numpy(found).to(plane)

    return _by_plane(calmed, image)


def lee(image: Tensor, _rng: np.random.Generator | None = None, *, noise: float | None = None) -> Tensor:
    """Lee's filter for noise that multiplies (Lee 1980): the local mean where nothing but noise varies, else the pixel.

    With m and v the mean and variance of a 5x5 neighbourhood, x becomes m + k (x - m), k = 1 - noise / (v / m^2), at
    least 0. `noise` is the square of the speckle's standard deviation; without it, the middle one of all v / m^2 is
    taken for noise alone, for most of a picture is no edge.
    """

    def calmed(plane: Tensor) -> Tensor:
        mean = _local_mean(plane)
        variance = (_local_mean(plane.square()) - mean.square()).clamp(min=0)
        relative = variance / mean.square().clamp(min=torch.finfo(plane.dtype).tiny)
        level = _middle(relative[mean > 0]) if noise is None else relative.new_tensor(noise)
        share = torch.where(relative > level, 1 - level / relative, 0.0)
        return mean + share * (plane - mean)

    return _by_plane(calmed, image)


def _local_mean(plane: Tensor) -> Tensor:
    reach = LEE_SIDE // 2
    padded = F.pad(plane[None, None], (reach,) * 4, mode="replicate")
    return F.avg_pool2d(padded, LEE_SIDE, stride=1)[0, 0]


def _middle(values: Tensor) -> Tensor:
    return values.median() if values.numel() else values.new_zeros(())


def _by_plane(calmed: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    """Every channel on its own; grey that was repeated is calmed once."""
    if bool((image == image[:1]).all()):
        return calmed(image[0]).expand_as(image).clone()
    return torch.stack([calmed(plane) for plane in image])
