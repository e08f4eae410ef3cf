"""Pascal VOC 2012, segmentation part."""

from __future__ import annotations

import re

from ftcseg.data.sets.sheet import Download, Sheet, stored_ids
from ftcseg.types import ClassInfo, ClassTable, Color

_NAMES = (
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
UNKNOWN = 255
"""Outlines and difficult objects."""


def palette_color(class_id: int) -> Color:
    """VOC's palette: every third bit of the id goes to one channel, lowest bits first into its highest places."""
    red, green, blue = (
        sum((class_id >> (3 * place + channel) & 1) << (7 - place) for place in range(3)) for channel in range(3)
    )
    return red, green, blue


SHEET = Sheet(
    name="voc",
    title="Pascal VOC 2012 segmentation",
    classes=ClassTable(
        tuple(ClassInfo(i, name, colors=(palette_color(i),), background=i == 0) for i, name in enumerate(_NAMES))
    ),
    coding=stored_ids(len(_NAMES), UNKNOWN),
    layout="voc",
    folders=("voc", "VOC", "VOC2012", "VOCdevkit/VOC2012"),
    marks=("ImageSets/Segmentation", "SegmentationClass"),
    frames=2913,
    train=1464,
    val=1449,
    parts="Its own lists ImageSets/Segmentation/train.txt and val.txt.",
    images=re.compile(r"20(07|08|09|10|11|12)_\d{6}\.jpg"),
    masks=re.compile(r"20(07|08|09|10|11|12)_\d{6}\.png"),
    source="http://host.robots.ox.ac.uk/pascal/VOC/voc2012/",
    licence="Photographs from Flickr, under Flickr's terms of use.",
    cite="Everingham et al., The Pascal Visual Object Classes (VOC) Challenge, IJCV 88(2), 2010.",
    obtain="Unpack http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar below the data folder.",
    download=Download(
        url="http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
        checksum="md5:6cd6e144f989b92b3379bac3b3de84fd",
        subfolder="VOCdevkit/VOC2012",
    ),
)
