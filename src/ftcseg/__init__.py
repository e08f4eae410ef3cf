"""ftcseg: segmentation from a handful of masks and a pile of noisy frames.

    import ftcseg
    found = ftcseg.doctor("frames/")
    split = ftcseg.split("frames/", labels="2%", seed=0)

Names are imported when first used, so that `import ftcseg` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ftcseg.api import (
        Dataset,
        Split,
        build_model,
        corrupt,
        dataset_page,
        doctor,
        get,
        open_dataset,
        read_split,
        resume,
        simulate,
        split,
        train,
    )

__all__ = [
    "Dataset",
    "Split",
    "__version__",
    "build_model",
    "corrupt",
    "dataset_page",
    "doctor",
    "get",
    "open_dataset",
    "read_split",
    "resume",
    "simulate",
    "split",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("ftcseg.api"), name)
    raise AttributeError(f"module 'ftcseg' has no attribute {name!r}")
