"""FLSMD: marine debris in a water tank, seen by a forward-looking sonar (ARIS Explorer 3000)."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import PurePosixPath

from ftcseg.data.sets.sheet import Download, Sheet, stored_ids
from ftcseg.types import ClassTable, Part

VAL_FRAMES = frozenset(int(n) for n in (files(__package__) / "flsmd_val.txt").read_text("ascii").split())
"""The N of every validation frame marine-debris-aris3k-N.png."""

_NAME = re.compile(r"marine-debris-aris3k-(\d{1,6})\.png")


def part_of(image: str) -> Part:
    """Validation for the 374 listed frames, training for the rest."""
    name = _NAME.fullmatch(PurePosixPath(image).name)
    return "val" if name and int(name[1]) in VAL_FRAMES else "train"


SHEET = Sheet(
    name="flsmd",
    title="FLSMD: marine debris in forward-looking sonar, water tank",
    classes=ClassTable.named(
        "background",
        "bottle",
        "can",
        "chain",
        "drink-carton",
        "hook",
        "propeller",
        "shampoo-bottle",
        "standing-bottle",
        "tire",
        "valve",
        "wall",
    ),
    coding=stored_ids(12),
    layout="images-masks",
    folders=(
        "flsmd",
        "FLSMD",
        "watertank-segmentation",
        "marine-debris-fls-datasets/md_fls_dataset/data/watertank-segmentation",
        "marine-debris-fls-datasets-master/md_fls_dataset/data/watertank-segmentation",
    ),
    marks=("Images",),
    frames=1868,
    train=1494,
    val=374,
    parts="The list of 374 validation frames that the paper uses comes with ftcseg; the other 1494 train.",
    part_of=part_of,
    images=_NAME,
    masks=_NAME,
    source="https://github.com/mvaldenegro/marine-debris-fls-datasets",
    licence="No licence is published with it: for research, and not to be passed on.",
    cite="Singh and Valdenegro-Toro, The marine debris dataset for forward-looking sonar semantic segmentation, "
    "ICCV Workshops 2021.",
    obtain="Clone https://github.com/mvaldenegro/marine-debris-fls-datasets below the data folder; the set is its "
    "folder md_fls_dataset/data/watertank-segmentation.",
    download=Download(
        url="https://github.com/mvaldenegro/marine-debris-fls-datasets/archive/refs/heads/master.zip",
        subfolder="marine-debris-fls-datasets-master/md_fls_dataset/data/watertank-segmentation",
        tree="d40c42deb24d0ff95473a098c95b9980d9e1d1d36b1e5f4ed82acec1d89df48e",
        tree_of=("Images", "Masks"),
    ),
    defects=(
        "Near-duplicates: at 40x60 pixels each of the 374 validation frames correlates above 0.95 with some training "
        "frame, 364 of them above 0.98, so validation flatters; numbers do not follow the recordings.",
        "standing-bottle is in 65 frames only (52 for training, 13 for validation).",
    ),
)
