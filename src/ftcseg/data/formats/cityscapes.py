"""Cityscapes, and ACDC's street scenes, which are named in the same manner.

root/leftImg8bit/train/aachen/A_leftImg8bit.png   parts train, train_extra, val, test
     gtFine/train/aachen/A_gtFine_labelIds.png    or A_gtFine_labelTrainIds.png
root/rgb_anon/fog/train/GOPR0475/B_rgb_anon.png   ACDC: weather first, then the part
     gt/fog/train/GOPR0475/B_gt_labelTrainIds.png

The masks of the test part are placeholders and are not read. ACDC's *_ref folders hold the same places in fair weather,
without masks of their own; they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ftcseg.data.files_found import PART_NAMES, Tally, found, walk
from ftcseg.data.sets.cityscapes import DRIVING_CLASSES, LABEL_IDS, TRAIN_IDS
from ftcseg.types import Finding, Found, MaskFile, Part, Record


@dataclass(frozen=True, slots=True)
class _Release:
    """How a public release names its folders and files."""

    layout: str
    images: str
    image_ending: str
    masks: str
    mask_ending: str
    part_at: int
    """Which folder below `images` tells the part."""


RELEASES = (
    _Release("cityscapes", "leftImg8bit", "_leftImg8bit.png", "gtFine", "_gtFine", part_at=0),
    _Release("acdc", "rgb_anon", "_rgb_anon.png", "gt", "_gt", part_at=1),
)
CODINGS = {"_labelTrainIds.png": TRAIN_IDS, "_labelIds.png": LABEL_IDS}
"""By the end of a mask's name. The first is preferred where an image has both."""
PARTS_HERE = {**PART_NAMES, "train_extra": "train"}


def can_read(root: Path) -> bool:
    """Whether the images lie in a folder that only these releases have."""
    return any((root / release.images).is_dir() for release in RELEASES)


def records(root: Path) -> Found:
    """Every image of the four parts, with the spelling of masks that covers most of them."""
    release = next((r for r in RELEASES if (root / r.images).is_dir()), RELEASES[0])
    tally = Tally()
    masks = set(walk(root, release.masks, {".png"}, tally)) if (root / release.masks).is_dir() else set()
    ending = max(CODINGS, key=lambda end: sum(mask.endswith(release.mask_ending + end) for mask in masks))
    listed = []
    for image in walk(root, release.images, {".png"}, tally):
        part = _part(image, release, tally)
        if part is None:
            continue
        name = image.removeprefix(release.images).removesuffix(release.image_ending)
        mask = f"{release.masks}{name}{release.mask_ending}{ending}"
        if part == "test" and mask in masks:
            detail = "The masks of the test part are placeholders in the public release; they are not read."
            tally.add(Finding("dummy-masks", mask, detail, "Nothing to do.", severity="note"))
        labelled = mask in masks and part != "test"
        listed.append(Record(image, MaskFile(mask) if labelled else None, part))
    result = found(release.layout, root, listed, tally)
    return replace(result, classes=DRIVING_CLASSES, coding=CODINGS[ending])


def _part(image: str, release: _Release, tally: Tally) -> Part | None:
    """The part of an image, None where it is to be left out."""
    folders = image.split("/")[1:-1]
    folder = folders[release.part_at] if len(folders) > release.part_at else ""
    if folder.endswith("_ref"):
        detail = "Fair-weather reference images have no masks of their own; they are left out."
        tally.add(Finding("reference-images", image, detail, "Nothing to do.", severity="note"))
        return None
    if folder in PARTS_HERE and image.endswith(release.image_ending):
        return PARTS_HERE[folder]
    detail = f"It lies in no folder named after a part, or its name does not end in {release.image_ending!r}."
    tally.add(Finding("unknown-name", image, detail, "Name it as the release does; until then it is left out."))
    return None
