"""Cityscapes: street scenes, and the nineteen classes that other driving sets share with it."""

from __future__ import annotations

import re

from ftcseg.data.sets.sheet import Sheet, stored_ids
from ftcseg.types import ClassInfo, ClassTable, Color, MaskCoding

_CLASSES: tuple[tuple[str, int, Color], ...] = (  # name, id in *_labelIds.png, palette colour
    ("road", 7, (128, 64, 128)),
    ("sidewalk", 8, (244, 35, 232)),
    ("building", 11, (70, 70, 70)),
    ("wall", 12, (102, 102, 156)),
    ("fence", 13, (190, 153, 153)),
    ("pole", 17, (153, 153, 153)),
    ("traffic-light", 19, (250, 170, 30)),
    ("traffic-sign", 20, (220, 220, 0)),
    ("vegetation", 21, (107, 142, 35)),
    ("terrain", 22, (152, 251, 152)),
    ("sky", 23, (70, 130, 180)),
    ("person", 24, (220, 20, 60)),
    ("rider", 25, (255, 0, 0)),
    ("car", 26, (0, 0, 142)),
    ("truck", 27, (0, 0, 70)),
    ("bus", 28, (0, 60, 100)),
    ("train", 31, (0, 80, 100)),
    ("motorcycle", 32, (0, 0, 230)),
    ("bicycle", 33, (119, 11, 32)),
)
UNKNOWN = 255

DRIVING_CLASSES = ClassTable(tuple(ClassInfo(i, name, colors=(color,)) for i, (name, _, color) in enumerate(_CLASSES)))
"""By training id. There is no background: every class is foreground (reading A10)."""

TRAIN_IDS = stored_ids(len(_CLASSES), UNKNOWN)
"""Masks named *_labelTrainIds.png."""

_BY_LABEL_ID = {label_id: i for i, (_, label_id, _) in enumerate(_CLASSES)}
LABEL_IDS = MaskCoding(
    "ids",
    values=_BY_LABEL_ID,
    ignore=frozenset({*range(34), UNKNOWN} - _BY_LABEL_ID.keys()),  # void and rare labels, not evaluated
)
"""Masks named *_labelIds.png, where ids run from 0 to 33."""

SHEET = Sheet(
    name="cityscapes",
    title="Cityscapes: street scenes, fine masks",
    classes=DRIVING_CLASSES,
    coding=LABEL_IDS,  # what the official download holds; the training ids are made by its scripts
    other_codings=(("_labelTrainIds.png", TRAIN_IDS),),
    layout="cityscapes",
    folders=("cityscapes", "Cityscapes"),
    marks=("leftImg8bit",),
    frames=5000,
    train=2975,
    val=500,
    test=1525,
    parts="Its own folders leftImg8bit/{train,val,test}.",
    images=re.compile(r"[a-z-]+_\d{6}_\d{6}_leftImg8bit\.png"),
    masks=re.compile(r"[a-z-]+_\d{6}_\d{6}_gtFine_(labelIds|labelTrainIds)\.png"),
    source="https://www.cityscapes-dataset.com",
    licence="Its own licence, for non-commercial use; registration needed.",
    cite="Cordts et al., The Cityscapes Dataset for Semantic Urban Scene Understanding, CVPR 2016.",
    obtain="Register at https://www.cityscapes-dataset.com, download leftImg8bit_trainvaltest.zip and "
    "gtFine_trainvaltest.zip and unpack both into a folder cityscapes below the data folder.",
    defects=("The masks of the test part are withheld; those in the archive are placeholders.",),
)
