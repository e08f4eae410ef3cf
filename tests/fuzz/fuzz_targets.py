"""Every reader as a function of a file's bytes, for `test_reader_fuzz.py` and `scripts/trials/fuzz.py`.

A target makes a folder with the writers of the package and names the files in it that a stranger may have written.
Whatever takes the place of one of them, `feed` reads it as a user's command would: it gives back, or it raises an
FtcsegError. Anything else is a fault.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import io
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from PIL import Image

from ftcseg import api, inference, training
from ftcseg.data import describe, masks, scan, video
from ftcseg.data.images import read_header, read_image
from ftcseg.data.index import READERS, open_source
from ftcseg.data.scan import examine
from ftcseg.data.shapes import encode_box_runs, encode_compressed, encode_runs
from ftcseg.data.split_files import read_split
from ftcseg.data.writing import encode_image, write_image, write_labels
from ftcseg.errors import DataError, FtcsegError
from ftcseg.evaluate.files import _Journal
from ftcseg.evaluate.per_image import PerImage, read_counts, write_counts
from ftcseg.export.sheet import SHEET, Sheet, read_sheet
from ftcseg.files import cache_folder, to_yaml, write_json, write_text
from ftcseg.nets.build import build_model
from ftcseg.nets.folder import ModelSpec, load_model, save_model
from ftcseg.nets.opr import OPRParams
from ftcseg.nets.segmenter import Segmenter
from ftcseg.parallel import available_cores
from ftcseg.report.run_files import read_run
from ftcseg.studies import budget, estimate
from ftcseg.studies.estimate import Timed
from ftcseg.studies.plan import Cell
from ftcseg.studies.running import PlannedRun
from ftcseg.types import ClassTable, Found, MaskCoding, MaskFile, Record

HEIGHT, WIDTH = 12, 16
MOST_PIXELS = 2**22
"""The largest picture that is decoded here; a user may allow more, and then pays for it."""
CLASSES = ClassTable.named("background", "rope", "can")


@dataclass(frozen=True)
class Target:
    """How to make the files of a reader, and how to have one of them read."""

    make: Callable[[Path], Iterable[str]]
    """Writes a whole set below a folder; gives back the files that are mutated, relative to it."""
    feed: Callable[[Path, str], None]
    """Reads everything of it, of pictures the named one."""
    writes: bool = False
    """Whether reading also changes what is there, as going on with a run does."""


def judge(target: Target, root: Path, name: str) -> str:
    """What reading came to: "read", or the kind of FtcsegError. Every other exception is a fault and goes through."""
    forget()
    try:
        target.feed(root, name)
    except FtcsegError as error:
        str(error).encode()  # half a character in a message would end the command that prints it
        return type(error).__name__
    return "read"


def forget() -> None:
    """Empty what the readers remember by time and size: here a file changes more often than the clock ticks."""
    for remembers in _REMEMBER:
        remembers.cache_clear()


_REMEMBER = [
    value
    for name, module in sorted(sys.modules.items())
    if name.startswith("ftcseg.data.formats.")
    for value in vars(module).values()
    if hasattr(value, "cache_clear")
]


# ---------------------------------------------------------------- sets


def _pixels(channels: int = 1, dtype: type = np.uint8) -> Any:
    rng = np.random.default_rng(channels)
    return (rng.random((HEIGHT, WIDTH, channels)) * 200).astype(dtype)


def _labels() -> Any:
    labels = np.zeros((HEIGHT, WIDTH), np.int16)
    labels[2:6, 3:9], labels[7:11, 1:5] = 1, 2
    return labels


def _images(root: Path, *names: str) -> None:
    for name in names:
        write_image(root / name, _pixels())


def _read_set(root: Path, layout: str | None = None) -> None:
    """The records of a set and the labels of each, as training reads them; findings can be printed and written."""
    found = open_source(root).found if layout is None else READERS[layout].records(root)
    _check_findings(found)
    for record in found.records:
        if record.mask is not None:
            try:
                _check_labels(root, record, found)
            except DataError as error:
                str(error).encode()


def _check_findings(found: Found) -> None:
    for finding in found.findings:
        json.dumps(asdict(finding), ensure_ascii=False).encode()
    for record in found.records:
        scan._key(record).encode()
    if found.classes is not None:
        "\n".join(found.classes.names).encode()


def _check_labels(root: Path, record: Record, found: Found) -> None:
    coding = found.coding or MaskCoding("ids", {0: 0, 1: 1, 2: 2}, ignore=frozenset({255}))
    header = read_header(root / record.image)
    assert record.mask is not None
    labels = masks.read_labels(root, record.mask, header, coding, max_pixels=MOST_PIXELS)
    ids = {*coding.values.values(), *coding.colors.values(), -1}
    assert labels.dtype == np.int16, labels.dtype
    assert labels.shape == (HEIGHT, WIDTH), labels.shape
    assert set(np.unique(labels).tolist()) <= ids


def _set_of(layout: str | None) -> Callable[[Path, str], None]:
    return lambda root, _name: _read_set(root, layout)


def _coco(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png")
    region = _labels() > 0
    outline = [3, 2, 9, 2, 9, 6, 3, 6.5]
    objects: list[dict[str, Any]] = [
        {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [outline], "bbox": [3, 2, 6, 4], "area": 24},
        {"id": 2, "image_id": 1, "category_id": 7, "segmentation": [], "bbox": [0, 0, 2.5, 2], "iscrowd": 0},
        {"id": 3, "image_id": 2, "category_id": 7, "segmentation": {"size": [HEIGHT, WIDTH], "counts": "?"}},
        {"id": 4, "image_id": 2, "category_id": 1, "segmentation": {"size": [HEIGHT, WIDTH], "counts": "?"}},
    ]
    objects[2]["segmentation"]["counts"] = encode_compressed(region)
    objects[3]["segmentation"]["counts"] = encode_runs(region)
    data = {
        "images": [
            {"id": i, "file_name": f"{n}.png", "height": HEIGHT, "width": WIDTH} for i, n in ((1, "a"), (2, "b"))
        ],
        "annotations": objects,
        "categories": [{"id": 1, "name": "rope", "supercategory": "things"}, {"id": 7, "name": "can"}],
    }
    write_json(root / "annotations" / "instances_train.json", data)
    return ["annotations/instances_train.json"]


def _labelme(root: Path) -> list[str]:
    _images(root, "a.png", "b.png")
    buffer = io.BytesIO()
    Image.fromarray(np.ones((3, 4), bool)).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    shapes = [
        {"label": "rope", "shape_type": "polygon", "points": [[3, 2], [9, 2], [9.5, 6], [3, 6]]},
        {"label": "can", "shape_type": "rectangle", "points": [[1, 7], [5, 11]]},
        {"label": "can", "shape_type": "circle", "points": [[10, 8], [12, 8]]},
        {"label": "rope", "shape_type": "mask", "points": [[1, 1], [4, 3]], "mask": picture},
        {"label": "__ignore__", "shape_type": "line", "points": [[1, 1], [4, 3]]},
    ]
    about = {"version": "5.4.1", "flags": {}, "imagePath": "a.png", "imageHeight": HEIGHT, "imageWidth": WIDTH}
    write_json(root / "a.json", {**about, "shapes": shapes})
    write_json(root / "b.json", {**about, "imagePath": "b.png", "shapes": []})
    write_text(root / "classes.txt", "rope\ncan\n")
    write_text(root / "val.txt", "b\n")
    return ["a.json", "classes.txt", "val.txt"]


def _label_studio(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png", "images/c.png")
    size = {"original_height": HEIGHT, "original_width": WIDTH, "image_rotation": 0}
    results = [
        {**size, "value": {"points": [[10, 10], [50, 10], [50, 60]], "polygonlabels": ["rope"]}},
        {**size, "value": {"x": 5, "y": 5, "width": 20, "height": 30, "rotation": 15, "rectanglelabels": ["can"]}},
        {**size, "value": {"x": 50, "y": 50, "radiusX": 20, "radiusY": 10, "rotation": 0, "ellipselabels": ["can"]}},
        {**size, "value": {"format": "rle", "rle": _brush(), "brushlabels": ["rope"]}},
        {**size, "value": {"x": 1, "y": 1, "width": 0.5, "keypointlabels": ["tip"]}},
    ]
    tasks: list[Any] = [
        {"id": 1, "data": {"image": "/data/upload/1/0a1b2c3d-a.png"}, "annotations": [{"result": results}]},
        {"id": 2, "data": {"image": "http://host/b.png?d=images/b.png"}, "annotations": [{"result": []}]},
        {"id": 3, "data": {"image": "c.png"}, "annotations": [{"was_cancelled": True, "result": []}]},
    ]
    write_json(root / "export.json", tasks)
    return ["export.json"]


def _brush() -> list[int]:
    """A stroke over the first half of the picture: two runs of equal values, as `decode_brush` says."""
    count = HEIGHT * WIDTH * 4
    bits = f"{count:032b}{7:05b}" + f"{15:04b}" * 4
    for value in (255, 0):
        bits += f"100{count // 2 - 1:016b}{value:08b}"
    bits += "0" * (-len(bits) % 8)
    return [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]


def _cvat(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png")
    runs = ", ".join(map(str, encode_box_runs(_labels()[2:8, 3:9] > 0)))
    text = f"""<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><job><labels><label><name>rope</name></label><label><name>can</name></label></labels></job></meta>
  <image id="0" name="a.png" subset="train" width="{WIDTH}" height="{HEIGHT}">
    <polygon label="rope" source="manual" occluded="0" points="3.0,2.0;9.0,2.0;9.0,6.5;3.0,6.0" z_order="1"></polygon>
    <box label="can" xtl="1.0" ytl="7.0" xbr="5.0" ybr="11.0" rotation="12.5" z_order="0"></box>
    <ellipse label="can" cx="10" cy="8" rx="3" ry="2" z_order="0"></ellipse>
    <mask label="rope" rle="{runs}" left="3" top="2" width="6" height="6" z_order="2"></mask>
    <points label="can" points="3,2"></points>
  </image>
  <image id="1" name="b.png" width="{WIDTH}" height="{HEIGHT}"></image>
</annotations>
"""
    write_text(root / "annotations.xml", text)
    return ["annotations.xml"]


def _manifest(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png", "images/c.png")
    write_labels(root / "masks/a.png", _labels())
    for class_id in (1, 2):
        write_labels(root / f"masks/{class_id}/c.png", (_labels() == class_id).astype(np.int16))
    entries: list[dict[str, Any]] = [
        {"image": "images/a.png", "mask": "masks/a.png", "part": "train"},
        {"image": "images/b.png"},
        {"image": "images/c.png", "masks": {"1": "masks/1/c.png", "2": "masks/2/c.png"}, "part": "val"},
    ]
    write_text(root / "manifest.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
    write_json(root / "list.json", {"records": entries})
    write_text(root / "list.yaml", to_yaml({"records": entries}))
    return ["manifest.jsonl", "list.json", "list.yaml"]


def _feed_manifest(root: Path, name: str) -> None:
    found = open_source(root / name).found if name != "manifest.jsonl" else READERS["manifest"].records(root)
    _check_findings(found)
    for record in found.records:
        if record.mask is not None:
            try:
                _check_labels(root, record, found)
            except DataError as error:
                str(error).encode()


def _voc(root: Path) -> list[str]:
    _images(root, "JPEGImages/a.png", "JPEGImages/b.png")
    colors = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)[_labels()]
    write_image(root / "SegmentationClass/a.png", colors)
    write_text(
        root / "labelmap.txt", "# label:color_rgb:parts:actions\nbackground:0,0,0::\nrope:128,0,0::\ncan:0,128,0::\n"
    )
    write_text(root / "ImageSets/Segmentation/train.txt", "a\n")
    write_text(root / "ImageSets/Segmentation/val.txt", "b\n")
    return ["labelmap.txt", "ImageSets/Segmentation/train.txt", "SegmentationClass/a.png"]


def _lists(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b b.png", "images/c.png")
    write_labels(root / "masks/a.png", _labels())
    write_text(root / "labeled.txt", "images/a.png masks/a.png\n")
    write_text(root / "unlabeled.txt", "images/b b.png\n")
    write_text(root / "splits/val.txt", "images/c.png masks/a.png\n")
    write_text(root / "classes.txt", "0 background\n1 rope\n2: can\n")
    return ["labeled.txt", "unlabeled.txt", "splits/val.txt", "classes.txt"]


def _colors(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png")
    write_image(root / "masks/a.png", np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0]], np.uint8)[_labels()])
    write_text(root / "class_dict.csv", "name,r,g,b\nbackground,0,0,0\nrope,255,0,0\ncan,0,255,0\n")
    write_text(root / "test.txt", "b\n")
    return ["class_dict.csv", "masks/a.png", "test.txt"]


def _roboflow(root: Path) -> list[str]:
    _images(root, "train/a.png", "train/b.png")
    write_labels(root / "train/a_mask.png", _labels())
    write_text(root / "train/_classes.csv", "Pixel Value, Class\n0, background\n1, rope\n2, can\n")
    return ["train/_classes.csv", "train/a_mask.png"]


def _nnunet(root: Path) -> list[str]:
    _images(root, "imagesTr/a_0000.png", "imagesTr/b_0000.png")
    write_labels(root / "labelsTr/a.png", _labels())
    labels = {"background": 0, "rope": 1, "can": 2, "ignore": 3}
    write_json(root / "dataset.json", {"labels": labels, "file_ending": ".png", "channel_names": {"0": "sonar"}})
    return ["dataset.json", "labelsTr/a.png"]


def _ultralytics(root: Path) -> list[str]:
    _images(root, "images/train/a.png", "images/val/b.png", "images/train/c.png")
    write_labels(root / "masks/train/a.png", _labels())
    write_text(root / "labels/train/a.txt", "1 0.1 0.1 0.5 0.1 0.5 0.6\n0 0 0 1 0 1 1 0 1\n")
    write_text(root / "labels/val/b.txt", "")
    write_text(root / "train.txt", "./images/train/a.png\nimages/train/c.png\n")
    spec = {"path": ".", "train": ["images/train", "train.txt"], "val": "images/val", "names": {0: "rope", 1: "can"}}
    write_text(root / "data.yaml", to_yaml({**spec, "masks_dir": None}))
    return ["data.yaml", "labels/train/a.txt", "train.txt"]


def _class_folders(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png")
    for class_id, name in ((1, "rope"), (2, "can")):
        write_labels(root / f"masks/{name}/a.png", (_labels() == class_id).astype(np.int16))
    write_text(root / "classes.txt", "background\nrope\ncan\n")
    return ["classes.txt", "masks/rope/a.png"]


def _cityscapes(root: Path) -> list[str]:
    _images(root, "leftImg8bit/train/aachen/A_leftImg8bit.png", "leftImg8bit/val/ulm/B_leftImg8bit.png")
    write_labels(root / "gtFine/train/aachen/A_gtFine_labelIds.png", _labels())
    return ["gtFine/train/aachen/A_gtFine_labelIds.png"]


def _described(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.png")
    write_labels(root / "masks/a.png", _labels())
    write_text(root / "val.txt", "images/b.png\n")
    coding = MaskCoding("ids", {0: 0, 1: 1, 2: 2}, ignore=frozenset({255}))
    known = describe.Description("harbour", root, "images-masks", CLASSES, coding, parts={"val": "val.txt"})
    describe.save(known, root / "dataset.yaml")
    return ["dataset.yaml", "val.txt", "masks/a.png"]


def _doctored(root: Path) -> list[str]:
    _images(root, "images/a.png", "images/b.tif", "images/c.jpg")
    for name in ("a", "b", "c"):
        write_labels(root / f"masks/{name}.png", _labels())
    return ["images/a.png", "images/b.tif", "masks/a.png", "masks/b.png"]


def _feed_doctor(root: Path, _name: str) -> None:
    found = api.doctor(root, workers=1)
    json.dumps([asdict(finding) for finding in found.findings], ensure_ascii=False).encode()


# ---------------------------------------------------------------- pictures


def _mask_files(root: Path) -> list[str]:
    """A mask in every encoding there is."""
    write_image(root / "image.png", _pixels())
    labels = _labels().astype(np.uint8)
    palette = Image.fromarray(labels, "P")
    palette.putpalette(bytes(range(256)) * 3)
    colors = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0]], np.uint8)[labels]
    plain: dict[str, tuple[Any, dict[str, Any]]] = {
        "grey.png": (Image.fromarray(labels), {}),
        "palette.png": (palette, {}),
        "palette2.png": (palette, {"bits": 2}),
        "palette4.png": (palette, {"bits": 4}),
        "one.png": (Image.fromarray(labels > 0), {}),
        "deep.png": (Image.fromarray(labels.astype(np.uint16)), {}),
        "rgb.png": (Image.fromarray(colors), {}),
        "rgba.png": (Image.fromarray(colors).convert("RGBA"), {}),
        "la.png": (Image.fromarray(labels).convert("LA"), {}),
        "grey.bmp": (Image.fromarray(labels), {}),
        "palette.gif": (palette, {}),
        "rgb.webp": (Image.fromarray(colors), {"lossless": True}),
        "grey.jpg": (Image.fromarray(labels * 100), {}),
    }
    for name, (image, options) in plain.items():
        image.save(root / name, **options)
    (root / "deep3.png").write_bytes(encode_image(".png", colors.astype(np.uint16)))
    tifffile.imwrite(root / "grey.tif", labels)
    tifffile.imwrite(root / "zlib.tif", labels, compression="zlib", tile=(16, 16))
    tifffile.imwrite(root / "one.tif", labels > 0)
    tifffile.imwrite(root / "float.tif", labels.astype(np.float32))
    tifffile.imwrite(root / "big.tif", labels.astype(np.int32), bigtiff=True, byteorder=">")
    tifffile.imwrite(root / "palette.tif", labels, photometric="palette", colormap=np.zeros((3, 256), np.uint16))
    np.save(root / "ids.npy", labels)
    np.save(root / "wide.npy", labels.astype(np.int64))
    np.save(root / "float.npy", np.asfortranarray(labels.astype(np.float64)))
    np.savez(root / "ids.npz", labels)
    np.savez_compressed(root / "packed.npz", labels)
    return sorted(path.name for path in root.iterdir() if path.name != "image.png")


def _feed_mask(root: Path, name: str) -> None:
    coding = MaskCoding("ids", {0: 0, 1: 1, 2: 2}, ignore=frozenset({255}))
    colors = MaskCoding("colors", colors={(0, 0, 0): 0, (255, 0, 0): 1, (0, 255, 0): 2}, tolerance=3)
    record = Record("image.png", MaskFile(name))
    facts = examine(root, record, MOST_PIXELS)
    json.dumps(asdict(replace(facts.image, thumb=b""))["problem"], ensure_ascii=False).encode()
    errors: list[FtcsegError] = []
    for known in (coding, replace(colors, fit="resize"), replace(colors, kind="bits")):
        try:
            _check_labels(root, record, Found("images-masks", [record], coding=known))
        except FtcsegError as error:
            errors.append(error)
    if len(errors) == 3:
        raise errors[0]


def _image_files(root: Path) -> list[str]:
    for channels, name in ((1, "grey.png"), (3, "rgb.png"), (4, "rgba.png"), (3, "rgb.jpg"), (1, "grey.jpg")):
        write_image(root / name, _pixels(channels))
    for name in ("turned.jpg", "turned.png", "turned.webp", "turned.tif"):
        write_image(root / name, _pixels(3), orientation=6)
    for channels, dtype, name in (
        (1, np.uint16, "deep.png"),
        (3, np.uint16, "deep3.png"),
        (1, np.float32, "float.tif"),
        (6, np.uint8, "six.tif"),
        (1, np.uint16, "deep.tif"),
        (3, np.uint8, "rgb.bmp"),
    ):
        write_image(root / name, _pixels(channels, dtype))
    tifffile.imwrite(root / "jpeg.tif", _pixels(3), compression="jpeg", photometric="rgb")
    tifffile.imwrite(root / "lzw.tif", _pixels()[:, :, 0], compression="lzw", predictor=True)
    tifffile.imwrite(root / "pages.tif", np.stack([_pixels()[:, :, 0]] * 3), photometric="minisblack")
    frames = [Image.fromarray(_pixels(3) + np.uint8(i)) for i in range(3)]
    for name in ("moving.gif", "moving.webp", "moving.png"):
        frames[0].save(root / name, save_all=True, append_images=frames[1:])
    frames[0].save(root / "still.avif")
    frames[0].convert("CMYK").save(root / "cmyk.jpg")
    frames[0].convert("P").save(root / "palette.png", transparency=3)
    return sorted(path.name for path in root.iterdir())


def _feed_image(root: Path, name: str) -> None:
    errors = []
    for read in (read_header, read_image, _all_frames):
        try:
            read(root / name, MOST_PIXELS)
        except FtcsegError as error:
            str(error).encode()
            errors.append(error)
    if errors:
        raise errors[0]


def _all_frames(path: Path, max_pixels: int) -> None:
    length = video.length(path, max_pixels)
    assert length is None or length >= 0
    for number, pixels in video.frames(path, lambda number: number < 8, max_pixels=max_pixels):
        assert pixels is None or (pixels.ndim == 3 and pixels.size)
        if number >= 64:
            break


def _films(root: Path) -> list[str]:
    import av

    for name, codec in (("film.mp4", "mpeg4"), ("film.avi", "mjpeg"), ("film.mkv", "ffv1")):
        with av.open(str(root / name), "w") as film:
            stream: Any = film.add_stream(codec, rate=5)
            stream.width, stream.height = 32, 24
            stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
            for i in range(3):
                frame = av.VideoFrame.from_ndarray(np.full((24, 32, 3), 40 * i, np.uint8), format="rgb24")
                film.mux(stream.encode(frame))
            film.mux(stream.encode(None))
    return ["film.mp4", "film.avi", "film.mkv"]


def _feed_film(root: Path, name: str) -> None:
    _all_frames(root / name, MOST_PIXELS)


# ---------------------------------------------------------------- models, runs and what they remember


def _spec() -> ModelSpec:
    opr = asdict(OPRParams(layers=1, count=4))
    return ModelSpec(
        encoder="tiny",
        head="fusion",
        classes=CLASSES,
        mean=(0.5,),
        std=(0.25,),
        head_features=8,
        in_channels=1,
        opr=opr,
        short_side=32,
        multiple=_net().encoder.multiple,
    )


def _net() -> Segmenter:
    torch.manual_seed(0)
    opr = OPRParams(layers=1, count=4)
    return build_model("tiny", "fusion", 3, opr=opr, weights=None, in_channels=1, head_features=8)[0]


def _model(root: Path) -> list[str]:
    save_model(root, _net(), _spec())
    return ["config.json", "model.safetensors"]


def _feed_model(root: Path, _name: str) -> None:
    net, _ = load_model(root)
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    del net
    gc.collect()


def _run(root: Path) -> list[str]:
    """A finished run of two steps, its set beside it."""
    data = root / "set"
    _images(data, *(f"images/{i}.png" for i in range(6)))
    for i in range(5):
        write_labels(data / f"masks/{i}.png", np.roll(_labels(), i, 1))
    write_text(data / "val.txt", "3\n4\n")
    small = ["model.encoder=tiny", "model.weights=null", "model.features=8", "steps=2", "data.short_side=32"]
    api.train(data, out=root / "run", method="ftc", labels="2", settings=[*small, "evaluation.audit=false"])
    files = ["config.yaml", "run.json", "split.json", "checkpoints/last/state.json", "checkpoints/last_good/state.json"]
    more = [
        "metrics.jsonl",
        "scores.json",
        "checkpoints/last/model.safetensors",
        "model/config.json",
        "counts.safetensors",
    ]
    return [f"run/{name}" for name in (*files, *more) if (root / "run" / name).is_file()]


def _feed_run(root: Path, name: str) -> None:
    run = root / "run"
    if name.endswith(("metrics.jsonl", "scores.json")):
        read_run(run)
        return
    errors = []
    for read in (training.resume, inference._config, lambda folder: inference.load(folder, device="cpu"), _evaluated):
        try:
            read(run)
        except FtcsegError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _evaluated(run: Path) -> None:
    inference.evaluate_run(run, run.parent / "set", device="cpu")


def _split(root: Path) -> list[str]:
    data = root / "set"
    _images(data, *(f"images/{i}.png" for i in range(6)))
    for i in range(5):
        write_labels(data / f"masks/{i}.png", _labels())
    api.split(data, labels="2", out=root / "split", val="1")
    return ["split/split.json", "split/val.txt"]


def _feed_split(root: Path, _name: str) -> None:
    split, held = read_split(root / "split")
    split.digest()
    json.dumps([list(split.labeled), held])


def _sheet(root: Path) -> list[str]:
    write_json(root / SHEET, Sheet(format="onnx", spec=_spec(), size=(32, 32), least=32, batch=None).as_json({}))
    return [SHEET]


def _feed_sheet(root: Path, _name: str) -> None:
    read_sheet(root)


def _counts(root: Path) -> list[str]:
    counts = np.arange(18, dtype=np.int64).reshape(2, 3, 3)
    write_counts(root / "counts.safetensors", {"last": PerImage(counts, ("a.png", "b.png"), ("s", "s"))})
    return ["counts.safetensors"]


def _feed_counts(root: Path, _name: str) -> None:
    read_counts(root / "counts.safetensors")


def _journal(root: Path) -> list[str]:
    with _Journal(root / "journal.jsonl") as journal:
        journal.add({"image": "a.png", "pixels": {"rope": 3}})
        journal.add({"image": "film.mp4", "frame": 0})
        journal._write({"image": "film.mp4", "frames": 3})
    return ["journal.jsonl"]


def _feed_journal(root: Path, _name: str) -> None:
    with _Journal(root / "journal.jsonl") as journal:
        assert all(isinstance(frames, int) for frames in journal.lengths.values())
        for key in list(journal._at):
            journal.line(key)


def _scanned(root: Path) -> list[str]:
    """The set, and what scanning it left behind: the database, and the facts of one row."""
    _images(root, "images/a.png")
    write_labels(root / "masks/a.png", _labels())
    facts = examine(root, _scanned_record())
    (root / "facts.txt").write_text(scan._to_json(facts))
    scan.scan(root, [_scanned_record()], workers=1)
    (root / "memory.sqlite").write_bytes(_memory_of(root).read_bytes())
    return ["facts.txt", "memory.sqlite"]


def _memory_of(root: Path) -> Path:
    return cache_folder() / f"scan-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.sqlite"


def _scanned_record() -> Record:
    return Record("images/a.png", MaskFile("masks/a.png"))


def _feed_scanned(root: Path, name: str) -> None:
    """Recall a row, or a whole database, that somebody else has written; the answer is one that scanning gives."""
    record = _scanned_record()
    place = _memory_of(root)
    if name == "memory.sqlite":
        place.write_bytes((root / name).read_bytes())
    else:
        place.unlink(missing_ok=True)
        with scan.closing(scan._Memory(root, scan.MAX_PIXELS, ())) as memory:
            text = (root / name).read_bytes().decode("utf-8", "replace")
            row = (scan._key(record), memory._stamp(record), text)
            memory.db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", row)
            memory.db.commit()
    (facts,) = scan.scan(root, [record], workers=1)
    header = facts.image.header
    assert header is None or (isinstance(header.width, int) and isinstance(header.height, int))
    assert facts.mask is not None
    assert facts.mask.values is None or all(isinstance(n, int) for n in facts.mask.values.values())
    api.doctor(root, workers=1)


def _studied(root: Path) -> list[str]:
    """What a study remembers, and the notes of one of its runs."""
    timed = Timed(start=1.0, early=0.5, late=0.75, image=0.1, final=0.2, method=5, optimizer=9, model=3)
    write_json(root / "estimates.json", {"a1": asdict(timed)})
    write_json(root / "budget.json", {"a1": {"budget": "5 minutes", "steps": 200, "slowest": "ftc"}})
    machine = f"{available_cores()} cores, {platform.machine()}, "
    write_json(root / "runs/one/run.json", {"status": "done", "machine": machine, "steps": 2, "seconds": 3.5})
    write_json(root / "runs/one/scores.json", {"images": 2})
    write_text(root / "runs/one/config.yaml", to_yaml({"config": {"steps": 2, "data": {"flip": 0.5}}}))
    write_json(root / "runs/one/checkpoints/last/state.json", {"clock": {"step": 2}})
    files = ("run.json", "scores.json", "config.yaml", "checkpoints/last/state.json")
    return ["estimates.json", "budget.json", *(f"runs/one/{name}" for name in files)]


def _feed_studied(root: Path, _name: str) -> None:
    cell = Cell(row="a", method="ftc", dataset="x", labels="2%", seed=0, steps=10, settings=())
    for timed in estimate._remembered(root / "estimates.json").values():
        assert sum(asdict(timed).values()) >= 0
    for line in budget._noted(root / "budget.json").values():
        assert line["steps"] + 1
    for run in estimate._finished(root / "runs"):
        assert run.seconds / run.steps < math.inf
    one = PlannedRun(cell, "a1", root / "runs/one")
    assert one.done in (True, False)
    assert isinstance(one.step, int)


TARGETS: dict[str, Target] = {
    "mask": Target(_mask_files, _feed_mask),
    "coco": Target(_coco, _set_of("coco")),
    "labelme": Target(_labelme, _set_of("labelme")),
    "cvat-xml": Target(_cvat, _set_of("cvat-xml")),
    "manifest": Target(_manifest, _feed_manifest),
    "model": Target(_model, _feed_model),
    "image": Target(_image_files, _feed_image),
    "film": Target(_films, _feed_film),
    "label-studio": Target(_label_studio, _set_of("label-studio")),
    "voc": Target(_voc, _set_of("voc")),
    "lists": Target(_lists, _set_of("lists")),
    "camvid": Target(_colors, _set_of("camvid")),
    "roboflow": Target(_roboflow, _set_of("roboflow")),
    "nnunet": Target(_nnunet, _set_of("nnunet")),
    "ultralytics": Target(_ultralytics, _set_of(None)),
    "class-folders": Target(_class_folders, _set_of(None)),
    "cityscapes": Target(_cityscapes, _set_of(None)),
    "described": Target(_described, _set_of(None)),
    "doctor": Target(_doctored, _feed_doctor),
    "split": Target(_split, _feed_split),
    "run": Target(_run, _feed_run, writes=True),
    "sheet": Target(_sheet, _feed_sheet),
    "counts": Target(_counts, _feed_counts),
    "journal": Target(_journal, _feed_journal),
    "study": Target(_studied, _feed_studied),
    "scan-cache": Target(_scanned, _feed_scanned),
}
NAMED = ("mask", "coco", "labelme", "cvat-xml", "voc", "manifest", "model")
"""Those that a stranger's file reaches first, and that are tried longest."""
