"""A folder of images and a folder of masks with the same names; or images alone.

root/
  images/a.png  images/seq/b.jpg      also image, imgs, img, JPEGImages, frames, rgb; any case
  masks/a.png   masks/seq/b_mask.png  also mask, labels, annotations, gt, SegmentationClass
  images/train/ + masks/train/        a sub-folder named after a part tells the part
  train/images/ + train/masks/        and so does a folder above
  train/ + train_masks/               also train_labels, trainannot
  unlabelled/c.png                    images without masks, whatever lies beside them
  classes.txt  val.txt  val_ids.txt   optional: class names; the images of a part

An image without a mask is unlabelled. This is the last reader to try: it accepts any folder with pictures in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ftcseg.data.files_found import (
    DEPTH,
    IMAGE_SUFFIXES,
    Section,
    Tally,
    found,
    holds,
    listed_classes,
    section_records,
    sections,
    with_listed_parts,
)
from ftcseg.types import Found

LAYOUT = "images-masks"


def can_read(root: Path) -> bool:
    """Whether there are pictures at all."""
    return bool(sections(root)) or holds(root, IMAGE_SUFFIXES, DEPTH)


def records(root: Path) -> Found:
    """Every image with the mask of its name; class names and parts where text files give them."""
    tally = Tally()
    everything = [Section("", None)]
    listed = [record for section in sections(root) or everything for record in section_records(root, section, tally)]
    listed = with_listed_parts(root, listed, tally)
    classes = listed_classes(root, tally)
    return replace(found(LAYOUT, root, listed, tally), classes=classes)
