"""SUIM: underwater photographs with eight classes, spelt in impure colours."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ftcseg.data.sets.sheet import Sheet
from ftcseg.types import ClassInfo, ClassTable, Color, MaskCoding, Part

_NAMES = (
    "waterbody",
    "human-divers",
    "aquatic-plants",
    "wrecks",
    "robots",
    "reefs-invertebrates",
    "fish-vertebrates",
    "sea-floor-rocks",
)


def corner(class_id: int) -> Color:
    """The colour of a class: its id in binary, red the highest bit, each bit 0 or 255."""
    red, green, blue = (255 * (class_id >> bit & 1) for bit in (2, 1, 0))
    return red, green, blue


def part_of(image: str) -> Part:
    """Test for what lies in a folder TEST or test, training for the rest."""
    folders = PurePosixPath(image).parts[:-1]
    return "test" if any(folder.lower() == "test" for folder in folders) else "train"


SHEET = Sheet(
    name="suim",
    title="SUIM: underwater photographs",
    classes=ClassTable(
        tuple(ClassInfo(i, name, colors=(corner(i),), background=i == 0) for i, name in enumerate(_NAMES))
    ),
    coding=MaskCoding("bits", colors={corner(i): i for i in range(len(_NAMES))}),
    layout="images-masks",
    folders=("suim", "SUIM"),
    marks=("train_val/images", "TEST/images", "test/images"),
    frames=1635,
    train=1525,
    val=0,
    test=110,
    parts="Officially train_val (1525) and TEST (110). The paper validates on 306 of the 1525, trains on the other "
    "1219 and leaves TEST alone; those 306 names are not given out, so a validation part has to be drawn.",
    part_of=part_of,
    images=re.compile(r"[dfnw]_[lr]_\d+_\.jpg"),
    masks=re.compile(r"[dfnw]_[lr]_\d+_\.bmp"),
    source="https://irvlab.cs.umn.edu/resources/suim-dataset",
    licence="No licence is known: for research, and not to be passed on.",
    cite="Islam et al., Semantic Segmentation of Underwater Imagery: Dataset and Benchmark, IROS 2020.",
    obtain="Download it from https://irvlab.cs.umn.edu/resources/suim-dataset and put train_val and TEST into a folder "
    "suim below the data folder.",
    defects=(
        "Mask colours are impure: each channel counts as on from 128.",
        "37 masks of train_val are not of their image's size; for six of them it is known which rows belong to it.",
        "Beside the colour masks lie folders of one on/off mask per class (FV, HD, RI, RO, WR), which repeat them.",
    ),
    mask_rows={
        "f_r_1070_": 27,
        "f_r_1302_": 27,
        "f_r_401_": 27,
        "w_r_1_": 27,
        "f_r_1866_": 0,
        "f_r_829_": 0,
    },
)
