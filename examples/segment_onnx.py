"""A mask from an exported model, without torch and without ftcseg: python segment_onnx.py FOLDER IMAGE MASK.png."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image


def resize(maps, height, width):  # bilinear, corners aligned: (C, h, w) -> (C, height, width)
    for axis, count in ((1, height), (2, width)):
        at = np.linspace(0, maps.shape[axis] - 1, count, dtype=np.float32)
        low = at.astype(int)
        share = (at - low).reshape((-1, 1) if axis == 1 else -1)
        high = np.minimum(low + 1, maps.shape[axis] - 1)
        maps = maps.take(low, axis) * (1 - share) + maps.take(high, axis) * share
    return maps


folder, image, mask = map(Path, sys.argv[1:])
wants = json.loads((folder / "preprocess.json").read_text(encoding="utf-8"))["input"]
picture = Image.open(image).convert("L" if wants["channels"] == 1 else "RGB")
scale = wants["short_side"] / min(picture.size) if wants["short_side"] else 1
small = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.BILINEAR)
pixels = np.atleast_3d(np.asarray(small, np.float32)).transpose(2, 0, 1) / 255
fit = [max(1, int(side / wants["multiple"] + 0.5)) * wants["multiple"] for side in pixels.shape[1:]]
session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
logits = session.run(None, {"image": resize(pixels, *fit).astype(np.float32)[None]})[0][0]
Image.fromarray(resize(logits, picture.height, picture.width).argmax(0).astype(np.uint8)).save(mask)
