"""Lists of labelled and unlabelled images, as UniMatch and its kin use them.

root/
  labeled.txt        `images/a.png masks/a.png` a line; also labelled.txt
  unlabeled.txt      `images/b.png` a line, a mask after it is not read; also unlabelled.txt
  val.txt  test.txt  optional, written like labeled.txt
  splits/            or all of them here; paths are relative to the root all the same

Paths may contain spaces where the files that exist leave only one reading of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from ftcseg.data.files_found import (
    Listed,
    Tally,
    found,
    listed_classes,
    tell_missing,
    tell_oracle,
    text_file,
    text_lines,
)
from ftcseg.types import Finding, Found, MaskFile, Part, Record

LAYOUT = "lists"
FOLDERS = ("", "splits/")
MOST_GAPS = 64  # a line with more spaces than this is no pair of paths


@dataclass(frozen=True, slots=True)
class _Kind:
    names: tuple[str, ...]
    part: Part
    labelled: bool = True


# Held-out parts come first: an image in two lists stays held out.
KINDS = (
    _Kind(("test.txt",), "test"),
    _Kind(("val.txt",), "val"),
    _Kind(("labeled.txt", "labelled.txt"), "train"),
    _Kind(("unlabeled.txt", "unlabelled.txt"), "train", labelled=False),
)


def can_read(root: Path) -> bool:
    """Whether there is a list of labelled or of unlabelled images."""
    return any(_source(root, kind) for kind in KINDS if kind.part == "train")


def records(root: Path) -> Found:
    """The images of all lists, each once."""
    tally, listed = Tally(), Listed(root)
    result: dict[str, Record] = {}
    for kind in KINDS:
        source = _source(root, kind)
        for number, line in text_lines(root, source) if source is not None else ():
            record = _record(line, kind, listed, tally)
            if record is None:
                _tell_unread(root, line, str(source), number, listed, tally)
            elif result.setdefault(record.image, record) is not record:
                detail = f"Line {number} of {source} lists it again; it is used as {result[record.image].part} only."
                tally.add(Finding("part-overlap", record.image, detail, "List each image once."))
    classes = listed_classes(root, tally)
    return replace(found(LAYOUT, root, list(result.values()), tally), classes=classes)


def _source(root: Path, kind: _Kind) -> str | None:
    return text_file(root, [folder + name for folder in FOLDERS for name in kind.names])


def _record(line: str, kind: _Kind, listed: Listed, tally: Tally) -> Record | None:
    """What a line says, None where it can be read in no way or in several."""
    image = listed.find_safe(line)
    if image is not None:
        if kind.labelled:
            remedy = "Write the mask after it, or move the line to the unlabelled list."
            tally.add(Finding("labelled-without-mask", image, "A labelled list names no mask for it.", remedy))
        return Record(image, None, kind.part)
    readings = _readings(line, listed)
    if kind.labelled:
        masked = [(image, mask) for image, rest in readings if (mask := listed.find_safe(rest)) is not None]
        return Record(masked[0][0], MaskFile(masked[0][1]), kind.part) if len(masked) == 1 else None
    if len(readings) != 1:
        return None
    tell_oracle(readings[0][1], tally)
    return Record(readings[0][0], None, kind.part)


def _readings(line: str, listed: Listed) -> list[tuple[str, str]]:
    """(image, what follows it) for each gap before which an image that exists is named."""
    gaps = list(islice(re.finditer(r"\s+", line), MOST_GAPS + 1))
    if len(gaps) > MOST_GAPS:
        return []
    heads = [(listed.find_safe(line[: gap.start()]), line[gap.end() :]) for gap in gaps]
    return [(image, rest) for image, rest in heads if image is not None]


def _tell_unread(root: Path, line: str, source: str, number: int, listed: Listed, tally: Tally) -> None:
    readings = _readings(line, listed)
    if len(readings) > 1:
        detail = f"Line {number}, {line[:200]!r}, can be read in {len(readings)} ways; it is left out."
        tally.add(Finding("ambiguous", source, detail, "Rename files so that no name has a space."), source)
    elif readings:
        tell_missing(root, readings[0][1], source, f"Line {number}", tally)
    else:
        tell_missing(root, line, source, f"Line {number}", tally)
