"""Encoders whose kernels torch writes first: the same answers, a few percent sooner, after minutes of compiling.

Only the encoder is compiled: its inputs keep their shapes through a run, and it is most of the work. On two CPU cores
it has not paid (docs/results/speed.md); whether it does elsewhere, `ftcseg bench step --try compile` tells.
"""

from __future__ import annotations

import os
import shutil

from torch import nn

from ftcseg.errors import UsageError
from ftcseg.files import cache_folder
from ftcseg.nets.segmenter import Segmenter

_COMPILERS = ("c++", "g++", "clang++", "cl")


def compile_encoders(method: nn.Module, backend: str = "inductor") -> int:
    """Compile the encoder of every network in it, in place, at its next call; how many there are.

    Names of parameters stay as they are, so checkpoints fit with and without. Compiled kernels are kept in ftcseg's
    cache folder, not in a shared temporary one.
    """
    wanted = os.environ.get("CXX")
    if backend == "inductor" and not any(map(shutil.which, [wanted] if wanted else _COMPILERS)):
        raise UsageError("model.compile needs a C++ compiler, and none was found (CXX, c++, g++). Leave it out.")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "kernels"))
    nets = [module for module in method.modules() if isinstance(module, Segmenter)]
    for net in nets:
        net.encoder.compile(backend=backend)
    return len(nets)
