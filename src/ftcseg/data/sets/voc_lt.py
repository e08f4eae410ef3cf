"""VOC-LT: Pascal VOC 2012 with the paper's long tail made on purpose."""

from __future__ import annotations

from dataclasses import replace

from ftcseg.data.sets import voc
from ftcseg.data.sets.sheet import LongTail

SHEET = replace(
    voc.SHEET,
    name="voc-lt",
    title="Pascal VOC 2012 with a controlled long tail",
    frames=155 + 5507 + 1449,
    train=155 + 5507,
    parts="Drawn from VOC's training images, 155 with and 5507 without masks; validation is VOC's own. The paper does "
    "not say how it drew: here image quotas fall exponentially by class rank, twentyfold in all (reading D5).",
    long_tail=LongTail(labeled=155, unlabeled=5507, ratio=20),
    images=None,  # its files are VOC's: a folder of them is VOC until somebody says otherwise
    masks=None,
    obtain="It is drawn from VOC: " + voc.SHEET.obtain,
    defects=(
        "5662 training images are more than the 1464 VOC has masks for: they have to be drawn from the 10582 that the "
        "SBD masks (SegmentationClassAug) cover, and those masks are not in the VOC download.",
    ),
)
