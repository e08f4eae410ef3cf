"""preprocess.json: what lies beside an exported model, for people, for other programs and for `ftcseg predict`.

Its `steps` say in words what its numbers say: how a picture becomes the graph's input, and its output class ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ftcseg.files import read_json
from ftcseg.nets.folder import MAX_CONFIG_BYTES, MAX_SIDE, ModelError, ModelSpec

Format: TypeAlias = Literal["onnx", "openvino"]
FORMATS: tuple[Format, ...] = get_args(Format)
SHEET = "preprocess.json"
FILES = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}
"""What each format consists of, the file that is opened first."""
VERSION = 1
INPUT, OUTPUT = "image", "logits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a graph wants and what it is made from."""

    format: Format
    spec: ModelSpec
    size: tuple[int, int] | None
    """(H, W) it is made for; None is any, from `least` on."""
    least: int
    batch: int | None
    """Images at once; None is any number."""
    int8: bool = False
    opset: int = 0

    def facts(self) -> ModelSpec:
        """How images are handed to the graph, which normalises them itself."""
        channels = self.spec.in_channels
        return replace(self.spec, mean=(0.0,) * channels, std=(1.0,) * channels)

    def as_json(self, checks: object) -> dict[str, object]:
        """Plain values, as `read_sheet` reads them; `checks` is what was measured before it was handed out."""
        spec = self.spec
        height, width = self.size or (None, None)
        return {
            "ftcseg_export": VERSION,
            "format": self.format,
            "file": FILES[self.format][0],
            "int8": self.int8,
            "opset": self.opset,
            "input": {
                "name": INPUT,
                "type": "float32",
                "layout": "NCHW",
                "range": [0, 1],
                "batch": self.batch,
                "channels": spec.in_channels,
                "height": height,
                "width": width,
                "short_side": spec.short_side,
                "multiple": spec.multiple,
                "least": self.least,
            },
            "output": {"name": OUTPUT, "type": "float32", "layout": "NCHW", "channels": len(spec.classes)},
            "steps": _steps(self),
            "classes": [{"id": c.id, "name": c.name, "background": c.background} for c in spec.classes],
            "model": spec.as_json(),
            "checks": checks,
        }


def read_sheet(folder: Path) -> Sheet:
    """The sheet of an exported model, with bounds on every number; what is wrong with it is a ModelError."""
    path = folder / SHEET
    data = read_json(path, MAX_CONFIG_BYTES)
    if not isinstance(data, dict) or data.get("ftcseg_export") != VERSION or data.get("format") not in FORMATS:
        raise ModelError(
            f"{path} is no sheet of format {VERSION} for {' or '.join(FORMATS)}.",
            remedy="Export the model again with this version of ftcseg.",
        )
    wanted = data.get("input")
    wanted = wanted if isinstance(wanted, dict) else {}
    sides = [_whole(path, wanted, key, MAX_SIDE, optional=True) for key in ("height", "width")]
    least = _whole(path, wanted, "least", MAX_SIDE)
    assert least is not None
    try:
        spec = ModelSpec.from_json(data.get("model"))
    except ModelError as error:
        raise ModelError(f"{path}, «model»: {error.what}", remedy=error.remedy) from error
    return Sheet(
        format=data["format"],
        spec=spec,
        size=None if sides[0] is None or sides[1] is None else (sides[0], sides[1]),
        least=least,
        batch=_whole(path, wanted, "batch", MAX_SIDE, optional=True),
        int8=data.get("int8") is True,
    )


def _whole(path: Path, values: dict[str, Any], key: str, most: int, *, optional: bool = False) -> int | None:
    value = values.get(key)
    if value is None and optional:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise ModelError(f"{path}: «{key}» of the input must be a whole number from 1 to {most}.")
    return value


def _steps(sheet: Sheet) -> list[str]:
    spec = sheet.spec
    channels = "one grey channel" if spec.in_channels == 1 else f"{spec.in_channels} channels"
    resized = (
        "Keep the image's own size."
        if spec.short_side is None
        else f"Resize with Pillow's bilinear filter so that the shorter side is {spec.short_side} and the other one "
        "keeps the proportion, rounded."
    )
    fitted = (
        []
        if spec.multiple == 1
        else [
            f"Resize bilinearly with aligned corners so that each side is the nearest multiple of {spec.multiple}, "
            "halves upwards."
        ]
    )
    only = [] if sheet.size is None else [f"The result must be {sheet.size[0]}×{sheet.size[1]} (height × width)."]
    return [
        f"Take {channels}; a grey picture is repeated, transparency is left out.",
        resized,
        "Divide by what is white: 255 for 8 bits, 65535 for 16 bits, 1 for floats. Do not normalise: the graph does.",
        *fitted,
        *only,
        f"Run it as «{INPUT}», float32 of (images, channels, height, width).",
        f"«{OUTPUT}» are scores at the input's size. Resize them bilinearly with aligned corners to the picture's own "
        "size; the class of a pixel is the largest, its probability the softmax over the classes.",
    ]
