"""ACDC: street scenes in fog, night, rain and snow. Not the cardiac set of the same name."""

from __future__ import annotations

import re

from ftcseg.data.sets.cityscapes import DRIVING_CLASSES, LABEL_IDS, TRAIN_IDS
from ftcseg.data.sets.sheet import Sheet

SHEET = Sheet(
    name="acdc-driving",
    title="ACDC: street scenes in fog, night, rain and snow",
    classes=DRIVING_CLASSES,
    coding=TRAIN_IDS,
    other_codings=(("_labelIds.png", LABEL_IDS),),
    layout="acdc",
    folders=("acdc-driving", "acdc_driving", "ACDC", "acdc"),
    marks=("rgb_anon",),  # the cardiac ACDC has no such folder
    frames=4006,
    train=1600,
    val=406,
    test=2000,
    parts="Its own folders rgb_anon/{fog,night,rain,snow}/{train,val,test}; the *_ref folders, taken in normal "
    "conditions and without masks of their own, are left out.",
    images=re.compile(r"\w+_frame_\d{6}_rgb_anon\.png"),
    masks=re.compile(r"\w+_frame_\d{6}_gt_(labelIds|labelTrainIds)\.png"),
    source="https://acdc.vision.ee.ethz.ch",
    licence="Its own licence, for non-commercial use; registration needed.",
    cite="Sakaridis et al., ACDC: The Adverse Conditions Dataset with Correspondences for Semantic Driving Scene "
    "Understanding, ICCV 2021.",
    obtain="Register at https://acdc.vision.ee.ethz.ch, download the anonymised RGB images and the ground truth and "
    "unpack both into a folder acdc-driving below the data folder.",
    defects=(
        "The masks of the test part are withheld.",
        "The normal-condition reference images are only roughly of the same place and share no masks (reading D4).",
    ),
)
