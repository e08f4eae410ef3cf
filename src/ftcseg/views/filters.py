"""Further views of an image that some methods ask for by name (`ViewPlan.filters`).

A filter takes one image, (C, H, W) float from 0 to 1, and a generator of its own, and returns one of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from torch import Tensor

from ftcseg.views.denoise import gaussian, lee, median
from ftcseg.views.sonar import ellipses, sonar_strong, sonar_weak, speckle

Filter: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]

FILTERS: Mapping[str, Filter] = {
    "sonar-weak": sonar_weak,
    "sonar-strong": sonar_strong,
    "speckle": speckle,
    "ellipses": ellipses,
    "median": median,
    "gaussian": gaussian,
    "lee": lee,
}
