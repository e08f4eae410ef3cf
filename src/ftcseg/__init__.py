"""ftcseg: segmentation from a handful of masks and a pile of noisy frames.

    import ftcseg
    found = ftcseg.doctor("frames/")
    split = ftcseg.split("frames/", labels="2%", seed=0)

Names are imported when first used, so that `import ftcseg` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ftcseg.api import (
        Dataset,
        Split,
        audit,
        build_model,
        corrupt,
        dataset_page,
        doctor,
        evaluate,
        export,
        get,
        load,
        open_dataset,
        predict,
        read_split,
        report,
        resume,
        simulate,
        split,
        train,
    )
    from ftcseg.bench.compare import bench_compare
    from ftcseg.bench.infer import bench_infer
    from ftcseg.bench.scaling import bench_scaling
    from ftcseg.bench.step import bench_step
    from ftcseg.studies.asking import study

__all__ = [
    "Dataset",
    "Split",
    "__version__",
    "audit",
    "bench_compare",
    "bench_infer",
    "bench_scaling",
    "bench_step",
    "build_model",
    "corrupt",
    "dataset_page",
    "doctor",
    "evaluate",
    "export",
    "get",
    "load",
    "open_dataset",
    "predict",
    "read_split",
    "report",
    "resume",
    "simulate",
    "split",
    "study",
    "train",
]

_HOMES = {
    "bench_compare": "ftcseg.bench.compare",
    "bench_infer": "ftcseg.bench.infer",
    "bench_scaling": "ftcseg.bench.scaling",
    "bench_step": "ftcseg.bench.step",
    "study": "ftcseg.studies.asking",
}
"""Where those are that stand above the api; all others are in ftcseg.api."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "ftcseg.api")), name)
    raise AttributeError(f"module 'ftcseg' has no attribute {name!r}")


class _Package(ModuleType):
    """This package: `ftcseg.train`, `evaluate`, `export` and `report` are functions; folders are called so, too."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a folder would put it here under its name; `from ftcseg.report import ...` finds it without that.
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
