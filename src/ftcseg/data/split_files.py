"""A split as files: lists that other tools read, and a JSON that proves what was drawn.

labeled.txt      image and mask, one pair a line
unlabeled.txt    image, one a line
val.txt test.txt image and mask
split.json       seed, options, counts per class, hashes
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ftcseg.data.doctor import Examination
from ftcseg.data.split import ClassCount, Split
from ftcseg.errors import LayoutError, UsageError
from ftcseg.files import read_json, read_text, write_json, write_text
from ftcseg.types import MaskFile

SPLIT = "split.json"
HELD = ("val", "test")
"""Parts that are never trained on."""


def write_split(folder: Path, split: Split, examination: Examination, held: Mapping[str, list[str]]) -> None:
    """Write the lists and split.json; neither another draw's nor anybody's own lists are overwritten."""
    masks = {r.image: r.mask.path for r in examination.records if isinstance(r.mask, MaskFile)}

    def pairs(images: list[str] | tuple[str, ...]) -> str:
        return "".join(f"{image} {masks[image]}\n" if image in masks else f"{image}\n" for image in images)

    lists = {"labeled.txt": pairs(split.labeled), "unlabeled.txt": "".join(f"{image}\n" for image in split.unlabeled)}
    lists |= {f"{part}.txt": pairs(images) for part, images in held.items()}
    note = folder / SPLIT
    try:
        ours = _is_ours(note, split.digest(), parts_digest(held))
        if not ours or (not note.exists() and _holds_others(folder, lists)):
            raise UsageError(f"{folder} holds another split. Choose another --out, or remove it.")
        for name, text in lists.items():
            write_text(folder / name, text)
        write_json(note, as_json(split, examination, held))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}. Choose another --out.") from error


def parts_digest(held: Mapping[str, Sequence[str]]) -> str:
    """A fingerprint of what is judged on: equal val and test lists, equal digest, on every platform."""
    text = json.dumps({part: list(held.get(part, ())) for part in HELD}, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _is_ours(note: Path, digest: str, parts: str) -> bool:
    if not note.exists():
        return True
    data = read_json(note)
    return isinstance(data, dict) and data.get("hash") == digest and data.get("parts_hash", parts) == parts


def _holds_others(folder: Path, lists: Mapping[str, str]) -> bool:
    """Whether a list of one of these names says something else; what an interrupted run left says the same."""
    return any((folder / name).exists() and read_text(folder / name) != text for name, text in lists.items())


def as_json(split: Split, examination: Examination, held: Mapping[str, list[str]]) -> dict[str, object]:
    """split.json: everything that was drawn and how."""
    names = examination.description.classes.names
    return {
        "ftcseg": 1,
        "dataset": examination.description.name,
        "hash": split.digest(),
        "parts_hash": parts_digest(held),
        "seed": split.seed,
        "options": dict(split.options),
        "images": {
            "labeled": len(split.labeled),
            "unlabeled": len(split.unlabeled),
            "left_out": len(split.left_out),
            **{part: len(images) for part, images in held.items()},
        },
        "classes": [{"id": i, "name": names[i], **asdict(count)} for i, count in sorted(split.counts.items())],
        "thin": {str(k): v for k, v in split.thin.items()},
        "labeled": list(split.labeled),
        "unlabeled": list(split.unlabeled),
        **{part: list(images) for part, images in held.items()},
        "left_out": list(split.left_out),
    }


def read_split(path: str | Path) -> tuple[Split, dict[str, list[str]]]:
    """A split written before, with the images of the other parts; its hashes are checked against its lists.

    Files of older versions say nothing about the other parts, which are then believed.
    """
    folder = Path(path)
    file = folder / SPLIT if folder.is_dir() else folder
    data = read_json(file)
    try:
        split = Split(
            labeled=tuple(map(str, data["labeled"])),
            unlabeled=tuple(map(str, data["unlabeled"])),
            seed=int(data["seed"]),
            counts={int(c["id"]): ClassCount(int(c["images"]), int(c["pixels"])) for c in data["classes"]},
            options=dict(data["options"]),
            thin={int(k): float(v) for k, v in data["thin"].items()},
            left_out=tuple(map(str, data["left_out"])),
        )
        held = {part: list(map(str, data.get(part, []))) for part in HELD}
        digest, parts = str(data["hash"]), data.get("parts_hash")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise LayoutError(f"{file} is no split ({error!r}).", remedy="Make one with «ftcseg split».") from error
    if split.digest() != digest:
        raise LayoutError(f"The lists in {file} do not match its hash.", remedy="It was edited: draw it again.")
    if parts is not None:
        _check_parts(file, held, str(parts))
    return split, held


def _check_parts(file: Path, held: Mapping[str, Sequence[str]], digest: str) -> None:
    """Refuse val and test lists other than those drawn, in split.json or in the files beside it."""
    remedy = "It was edited: draw the split again. To judge on other images, make them a part of the set."
    if parts_digest(held) != digest:
        raise LayoutError(f"The val and test lists in {file} do not match its parts_hash.", remedy=remedy)
    for part in HELD:
        beside = file.with_name(f"{part}.txt")
        if beside.is_file() and not _lists(read_text(beside), held[part]):
            raise LayoutError(f"{beside} lists other images than {file.name} beside it.", remedy=remedy)


def _lists(text: str, images: Sequence[str]) -> bool:
    """Whether the lines are these images, each alone or with its mask behind it."""
    lines = [line for line in text.split("\n") if line]  # not splitlines(): names may hold what it cuts at
    found = zip(lines, images, strict=False)
    return len(lines) == len(images) and all(f"{line} ".startswith(f"{image} ") for line, image in found)
