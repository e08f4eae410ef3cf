"""Draw docs/images/frames.png: six simulated frames above, the same with their masks below.

    .venv/bin/python scripts/readme_picture.py

The same version of ftcseg draws the same picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from ftcseg.data.simulate import SimParams, class_table, classes_in, simulate_frame
from ftcseg.files import atomic
from ftcseg.report.pictures import class_colors, overlay, visible

OUT = Path(__file__).parents[1] / "docs" / "images" / "frames.png"
COLUMNS = 6
SIZE = (128, 192)  # of one frame on the page
GAP = 4
SHADES = 192  # colours of the picture: speckle compresses badly, so the palette is kept small
PARAMS = SimParams()


def telling_frames(count: int) -> list[int]:
    """Training frames that show two classes or more, one for each rarest class as long as there are some."""
    chosen: dict[int, int] = {}
    for index in range(400):
        classes = classes_in(index, PARAMS)
        if len(classes) >= 2:
            chosen.setdefault(max(classes), index)
    return sorted(chosen.values())[:count]


def main() -> None:
    """Write the picture, or to the path given."""
    table = class_table(PARAMS)
    colors = class_colors([c.background for c in table])
    hide = {c.id for c in table if c.background}
    width, height = SIZE
    sheet = Image.new("RGB", (COLUMNS * (width + GAP) - GAP, 2 * (height + GAP) - GAP))
    for column, index in enumerate(telling_frames(COLUMNS)):
        image, labels = simulate_frame(0, index, PARAMS)
        frame = visible(image[:, :, None])
        masked = overlay(frame, labels.astype(np.int16), colors, hide)
        for row, picture in enumerate((frame, masked)):
            small = Image.fromarray(picture).resize(SIZE, Image.Resampling.BOX)
            sheet.paste(small, (column * (width + GAP), row * (height + GAP)))
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    with atomic(out) as file:
        sheet.quantize(SHADES, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)


if __name__ == "__main__":
    main()
