"""Runs in an environment without any extra: imports every module, asks for what needs an extra, trains and predicts.

Its only argument is a folder to work in; what it saw is printed as JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from importlib.util import find_spec
from pathlib import Path

import ftcseg

EXTRAS = ("av", "mlflow", "onnx", "onnxruntime", "onnxscript", "openvino", "ray", "tensorboard", "wandb", "pytest")
TINY = ["model.encoder=tiny", "model.weights=null", "model.features=8", "data.short_side=32", "threads=1"]


def main(folder: Path) -> None:
    light = "torch" not in sys.modules
    modules = [module.name for module in pkgutil.walk_packages(ftcseg.__path__, "ftcseg.")]
    for name in modules:
        importlib.import_module(name)
    frames = ftcseg.simulate(folder / "frames", 10, size=(96, 96), workers=1)
    run = ftcseg.train(frames, method="supervised", labels=4, steps=1, out=folder / "run", settings=TINY).folder
    made = ftcseg.predict(run, min(frames.rglob("*.png")), folder / "masks", what=["masks"], workers=1).made
    seen = {
        "home": ftcseg.__file__,
        "light": light,
        "modules": modules,
        "there": [name for name in EXTRAS if find_spec(name)],
        "made": made,
        "said": said(run, folder),
    }
    print(json.dumps(seen))


def said(run: Path, folder: Path) -> dict[str, str]:
    """What a user is told who asks for what needs an extra."""
    from ftcseg.errors import UsageError
    from ftcseg.studies.on_ray import Cluster, on_ray
    from ftcseg.train.trackers import TRACKERS

    film = folder / "film.mp4"
    film.write_bytes(b"not looked at")
    asked = {
        "onnx": lambda: ftcseg.export(run, folder / "onnx"),
        "openvino": lambda: ftcseg.export(run, folder / "openvino", format="openvino"),
        "ray": lambda: on_ray(Cluster()),
        "video": lambda: ftcseg.predict(run, film, folder / "film", what=["masks"]),
        **{name: lambda make=make: make(run) for name, make in TRACKERS.items()},
    }
    found = {}
    for name, ask in asked.items():
        try:
            ask()
        except UsageError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
