"""Further views of an image that some methods ask for by name (`ViewPlan.filters`).

A filter takes one image, (C, H, W) float from 0 to 1, and a generator of its own, and returns one of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from torch import Tensor

Filter: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]

FILTERS: Mapping[str, Filter] = {}
